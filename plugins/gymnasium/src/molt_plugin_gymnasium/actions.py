"""Which action a reply means. Pure, apart from asking the space whether it holds a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gymnasium import spaces


class NoText(ValueError):
    """The space is not one for text; says why."""


def words_of(space: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Words for the actions of a discrete space, none for a space of text.

    Raises:
        NoText: the space is of another kind, or the words are not as many as the actions or not distinct.
    """
    if isinstance(space, spaces.Text):
        if names:
            raise NoText("it takes any text as an action, so --env.actions means nothing")
        return ()
    if not isinstance(space, spaces.Discrete):
        raise NoText(f"its actions are {space}, wanted Text or Discrete")
    words = tuple(names) or tuple(str(int(space.start) + number) for number in range(int(space.n)))
    if len(words) != space.n or len({word.lower() for word in words}) != len(words):
        raise NoText(
            f"it has {space.n} actions, and --env.actions names {', '.join(words)}: wanted a word for each"
        )
    return words


def action_of(space: Any, words: Sequence[str], text: str) -> Any:
    """The action that a reply names last; None where it names none.

    A text space gets the reply without the white space around it, if that is in the space.
    """
    if not words:
        stripped = text.strip()
        return stripped if space.contains(stripped) else None
    # longest first, so that `up left` is not taken for `up`
    choices = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    found = re.findall(rf"(?<!\w)(?:{choices})(?!\w)", text, re.IGNORECASE)
    if not found:
        return None
    number = [word.lower() for word in words].index(found[-1].lower())
    return int(space.start) + number
