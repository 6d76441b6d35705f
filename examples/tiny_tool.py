"""The task of tiny_tool.toml: call an adding machine by typing digits, read its result, answer with a number.

Two turns. The model knows nothing at all, so every step towards a call and an answer pays a little:
each digit that is typed, and ending a reply by itself. A call that was cut off is no call, so
what the second turn is worth is only found out once the first one succeeds.
"""

from __future__ import annotations

from molt_core.api.environment import Message, Reply, Row, Step


def typed(reply: Reply) -> float:
    """0 to 1: half for the share of digits, half for ending the reply by itself; nothing for an empty one."""
    digits = sum(character in "0123456789" for character in reply.text)
    share = digits / max(1, len(reply.text))
    return 0.5 * share + 0.5 * (bool(reply.text) and not reply.truncated)


class AddingMachine:
    def __init__(self) -> None:
        self.called = False

    def reset(self, row: Row) -> list[Message]:
        return [{"role": "user", "content": row["prompt"]}]

    def step(self, reply: Reply) -> Step:
        reward = 0.5 * typed(reply)
        if self.called or reply.truncated:
            return Step(reward=reward, done=True, info={"called": self.called})
        self.called = True
        digits = [int(character) for character in reply.text if character in "0123456789"]
        result = f"= {sum(digits)}" if digits else "? type digits"
        return Step(reward=reward, messages=[{"role": "user", "content": result}])

    def close(self) -> None: ...
