"""The prompt of each request of a session, and the record of what was sampled from it.

A pure state machine: `prepare` turns a request into token ids, the engine generates, `commit`
records what it returned. Any number of requests may be between the two, and `prepare` may run in a
thread; those that fail are just never committed. Two structures share the samples. Conversations are a
trie of turn digests, in which a request finds the last of its assistant turns that was sampled here.
Tokens are a forest: a sample that extends another starts with exactly its tokens, prompt and reply.

Nothing sampled is tokenized again. A request that can't extend (another history, or a template that
now renders earlier turns differently) starts a new tree, and is never refused for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import count

import numpy as np
from attrs import frozen

from molt_core.api.engine import Generation
from molt_core.experience.segment import IntArray
from molt_plugin_gateway.capture.canonical import agrees, digest, digests, same_calls
from molt_plugin_gateway.capture.samples import Node, Prompt, Sample
from molt_plugin_gateway.chat.template import HfTemplate
from molt_plugin_gateway.exchange import BadRequest, Call, ContextOverflow, Tool, Turn

_QUESTION = Turn(role="user", content=("?",))


@frozen(kw_only=True, eq=False)
class Prepared:
    token_ids: IntArray
    """[N] int32, for the engine."""
    num_matched: int
    """How many of them an earlier sample supplied."""
    prompt_tail: str
    """The generation prompt and the forced opening, from which the reply goes on."""
    prompt: Prompt
    keys: Sequence[bytes]
    """Digests of `prompt.added`."""


class Forest:
    """The samples of one session."""

    def __init__(self, template: HfTemplate, *, max_length: int) -> None:
        self._template = template
        self._max_length = max_length
        self._numbers = count()
        self._root = Node()
        self._samples: list[Sample] = []

    @property
    def samples(self) -> Sequence[Sample]:
        return self._samples

    def prepare(self, call: Call, *, opening: str = "") -> Prepared:
        """The prompt for `call`; records nothing.

        Args:
            opening: text that the reply has to begin with; given, not sampled.

        Raises:
            ContextOverflow: the prompt leaves no room for a reply.
            BadRequest: the template refuses the conversation.
        """
        prepared_at = len(self._samples)
        keys = digests(call.turns)
        follows, num_known = self._match(call, keys)
        added = call.turns[num_known:]
        turns = (*follows.conversation(), *added) if follows else added
        text = self._template.render(turns, call.tools, generation_prompt=True)
        rest = self._continuation(follows, text, call.tools) if follows else None
        given = follows.token_ids() if follows and rest is not None else np.empty(0, np.int32)
        encode = self._template.encode
        added_ids = np.array(encode(text if rest is None else rest) + encode(opening), np.int32)
        token_ids = np.concatenate([given, added_ids])
        if len(token_ids) >= self._max_length:
            raise ContextOverflow(len(token_ids), self._max_length)
        tail = self._generation_prompt if text.endswith(self._generation_prompt) else ""
        return Prepared(
            token_ids=token_ids,
            num_matched=len(given),
            prompt_tail=tail + opening,
            prompt=Prompt(
                number=next(self._numbers),
                prepared_at=prepared_at,
                follows=follows,
                extends=rest is not None,
                added=added,
                added_ids=added_ids,
                num_tokens=len(token_ids),
                rendered_length=len(text),
                rendered_digest=_fingerprint(text),
                hints=call.hints,
                has_tools=bool(call.tools),
                json_schema=call.json_schema,
            ),
            keys=keys[num_known:],
        )

    def commit(self, prepared: Prepared, generation: Generation, reply: Turn) -> int:
        """Record a generation; returns its sample_id. Each call is one more sample, also of the same prompt."""
        follows = prepared.prompt.follows
        asked = follows.said if follows else self._root
        for key in prepared.keys:
            asked = asked.child(key)
        said = asked.child(digest(reply))
        sample = Sample(
            sample_id=len(self._samples),
            prompt=prepared.prompt,
            generation=generation,
            reply=reply,
            asked=asked,
            said=said,
        )
        self._samples.append(sample)
        asked.asked.append(sample)
        said.said.append(sample)
        if follows:
            follows.followed = True
        return sample.sample_id

    def delivered(self, sample_id: int) -> None:
        """The caller has the whole answer."""
        self._samples[sample_id].delivered = True

    def _match(self, call: Call, keys: Sequence[bytes]) -> tuple[Sample | None, int]:
        """The last sample in the history, and the number of turns up to its reply.

        Looks at the samples of this history only: where it was sampled many times with equal replies,
        those whose own history agrees in reasoning and call ids.
        """
        node = self._root
        lineage: set[int] = set()
        found: list[Sample] = []
        num_known = 0
        for number, key in enumerate(keys, start=1):
            if key not in node.below:
                break
            node = node.below[key]
            turn = call.turns[number - 1]
            fitting = [
                sample
                for sample in node.said
                if (sample.prompt.follows is None or sample.prompt.follows.sample_id in lineage)
                and agrees(turn, sample.reply)
            ]
            fitting = [sample for sample in fitting if same_calls(turn, sample.reply)] or fitting
            if fitting:
                found, num_known = fitting, number
                lineage.update(sample.sample_id for sample in fitting)
        if not found:
            return None, 0
        text, conversation = call.turns[num_known - 1].text, call.hints.conversation
        best = max(
            found,
            key=lambda sample: (
                sample.reply.text == text,
                sample.prompt.hints.conversation == conversation,
                not sample.followed,
                sample.sample_id,
            ),
        )
        return best, num_known

    def _continuation(self, sample: Sample, text: str, tools: Sequence[Tool]) -> str | None:
        """What follows the tokens of `sample` in a prompt that renders as `text`; None if it can't be extended.

        The prompt has to begin with the one of `sample`, and the reply has to stand in it as the template
        renders it alone or, without reasoning, before any other turn.
        """
        start = sample.prompt.rendered_length
        if _fingerprint(text[:start]) != sample.prompt.rendered_digest:
            return None
        reply = sample.reply
        closed = self._render_history(sample.conversation(), tools)
        if not text.startswith(closed) and not reply.reasoning:
            # templates may render the last turn differently from one in the middle
            other = self._render_history((*sample.conversation(), _QUESTION), tools)
            if other.startswith(text[:start]):
                closed = text[: start + _num_equal(text[start:], other[start:])]
        if not text.startswith(closed):
            return None
        end_text, at = max(
            ((end, closed.rfind(end, start)) for end in self._template.end_texts),
            key=lambda found: (found[1], len(found[0])),
        )
        if at < 0 or not _shows_reasoning(closed[start:at], reply):
            return None
        ended = self._template.decode(sample.generation.token_ids[-1:].tolist()) in self._template.end_texts
        return text[at + len(end_text) if ended else at :]

    def _render_history(self, turns: Sequence[Turn], tools: Sequence[Tool]) -> str:
        """Not in the text of any prompt where the template refuses to end there."""
        try:
            return self._template.render(turns, tools, generation_prompt=False)
        except BadRequest:
            return "\0"

    @cached_property
    def _generation_prompt(self) -> str:
        asked = self._render_history([_QUESTION], ())
        return self._template.render([_QUESTION], (), generation_prompt=True).removeprefix(asked)


def _fingerprint(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _num_equal(text: str, other: str) -> int:
    pairs = enumerate(zip(text, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(text), len(other)))


def _shows_reasoning(rendered: str, reply: Turn) -> bool:
    """Whether the reasoning of a reply stands before its text."""
    reasoning, text = (reply.reasoning or "").strip(), reply.text.strip()
    return reasoning in (rendered.rpartition(text)[0] if text and text in rendered else rendered)
