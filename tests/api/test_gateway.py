from __future__ import annotations

import pytest

from molt_core.api.engine import Generation
from molt_core.api.gateway import recorded
from molt_core.experience.checks import SEGMENT_CHECKS


def reply(token_ids: list[int], version: int, *, top: bool) -> Generation:
    tops = {"top_ids": [[each, 0] for each in token_ids], "top_logprobs": [[-0.5, -1.0]] * len(token_ids)}
    return Generation(
        token_ids=token_ids, logprobs=[-0.5] * len(token_ids), versions=[version] * len(token_ids),
        finish_reason="stop", **(tops if top else {}),
    )  # fmt: skip


@pytest.mark.parametrize("top", [True, False])
def test_replies_lie_in_their_places_and_all_else_is_context(top: bool) -> None:
    segment = recorded([1, 2, 7, 8, 3, 9], [(2, reply([7, 8], 4, top=top)), (5, reply([9], 5, top=top))])
    assert segment.sampled.tolist() == [False, False, True, True, False, True]
    assert segment.versions.tolist() == [-1, -1, 4, 4, -1, 5]
    assert segment.logprobs.tolist() == [0, 0, -0.5, -0.5, 0, -0.5]
    assert (segment.top_ids is not None) == top
    if top:
        assert segment.top_ids.tolist() == [[7, 0], [8, 0], [9, 0]]
    assert all(check(segment) for check in SEGMENT_CHECKS)
