from __future__ import annotations

import pytest

pytest.register_assert_rewrite("molt_core.testing.engine_contract")

from molt_core.testing.tiny_model import TinyModel  # noqa: E402 - after the line above, which must come first


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return TinyModel(tmp_path_factory.mktemp("tiny") / "model")
