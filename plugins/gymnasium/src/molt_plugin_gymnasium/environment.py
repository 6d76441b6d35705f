"""Environment `gymnasium`: any Gymnasium environment that shows text, one action for each reply.

In go the environment's id and a seed for each task; what the policy sees is the observation if that
is text, else what the environment draws with render mode `ansi`. Others are refused: a picture or an array
is no prompt.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any, Final

import gymnasium
from gymnasium import spaces

from molt_core.api.environment import Message, Reply, Row, Step
from molt_core.api.findings import error
from molt_core.errors import ConfigError
from molt_plugin_gymnasium.actions import NoText, action_of, words_of
from molt_plugin_gymnasium.spec import GymnasiumOptions

COLOURED: Final = re.compile(r"\x1b\[[0-9;]+m(.*?)\x1b\[0m", re.DOTALL)
CODE: Final = "GYM1"


class GymnasiumText:
    def __init__(self, options: GymnasiumOptions) -> None:
        self._options = options
        try:
            self._env = _make(options)
            self._words = words_of(self._env.action_space, options.actions)
        except NoText as problem:
            raise _wrong(options, f"can't be played in text: {problem}") from problem
        # what a stranger's package raises while it is imported or made can be anything
        except Exception as problem:
            raise _wrong(options, f"can't be made: {type(problem).__name__}: {problem}") from problem
        self._num_turns = self._num_invalid = 0

    def tasks(self, split: str, seed: int) -> Iterator[Row]:
        """`{seed}` without end; those of training are odd, those of evaluation even and always the same."""
        is_eval = split == "eval"
        draw = random.Random("eval" if is_eval else f"train/{seed}")
        while True:
            yield {"seed": 2 * draw.randrange(2**30) + (not is_eval)}

    def reset(self, row: Row) -> list[Message]:
        observation, _ = self._env.reset(seed=int(row["seed"]))
        return [{"role": "system", "content": self._instructions()}, self._message(observation)]

    def step(self, reply: Reply) -> Step:
        self._num_turns += 1
        is_last = self._num_turns >= self._options.max_turns
        action = action_of(self._env.action_space, self._words, reply.text)
        if action is None:
            self._num_invalid += 1
            message: Message = {"role": "user", "content": f"That names no action. {self._choices()}"}
            return Step(
                messages=[message], reward=self._options.invalid_reward, truncated=is_last, info=self._info()
            )
        observation, reward, terminated, truncated, _ = self._env.step(action)
        return Step(
            messages=[self._message(observation)],
            reward=float(reward),
            done=bool(terminated),
            truncated=not terminated and (bool(truncated) or is_last),
            info=self._info(),
        )

    def close(self) -> None:
        self._env.close()

    def _instructions(self) -> str:
        return self._options.instructions or f"You act in {self._options.id}. {self._choices()}"

    def _choices(self) -> str:
        return (
            f"End your reply with one of: {', '.join(self._words)}."
            if self._words
            else "Reply with an action."
        )

    def _message(self, observation: Any) -> Message:
        text = observation if isinstance(observation, str) else str(self._env.render())
        # a terminal shows by colour what is where; here brackets do
        return {"role": "user", "content": COLOURED.sub(r"[\1]", text).strip("\n")}

    def _info(self) -> dict[str, float]:
        return {"turns": float(self._num_turns), "invalid_actions": float(self._num_invalid)}


def _make(options: GymnasiumOptions) -> gymnasium.Env[Any, Any]:
    """Raises NoText where it shows neither text nor draws with characters."""
    kwargs = json.loads(options.kwargs)
    env: gymnasium.Env[Any, Any] = gymnasium.make(options.id, **kwargs)
    if isinstance(env.observation_space, spaces.Text):
        return env
    modes = env.metadata.get("render_modes", ())
    seen = env.observation_space
    env.close()
    if "ansi" not in modes:
        drawn = ", ".join(modes) or "nothing"
        raise NoText(
            f"its observations are {seen}, and it draws {drawn}: wanted Text, or the render mode ansi"
        )
    return gymnasium.make(options.id, **{**kwargs, "render_mode": "ansi"})


def _wrong(options: GymnasiumOptions, what: str) -> ConfigError:
    fix = "--env.id, --env.kwargs and --env.actions; wrappers that make text can be registered under an id of their own"
    return ConfigError([error(CODE, f"the Gymnasium environment {options.id!r} {what}", fix=fix)])
