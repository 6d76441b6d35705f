"""Registers environments of the tests: one in text, and ones that can't be played in text."""

from __future__ import annotations

import string

import gymnasium
from gymnasium import spaces


class Echo(gymnasium.Env):
    """Asks for the reverse of a word; three tries."""

    observation_space = spaces.Text(64, charset=string.printable)
    action_space = spaces.Text(8, charset=string.ascii_lowercase)

    def __init__(self, length: int = 3) -> None:
        self._length = length
        self.closed = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._word = "".join(self.np_random.choice(list("abcdef"), self._length))
        return f"Reverse {self._word}", {}

    def step(self, action):
        right = action == self._word[::-1]
        return "right" if right else "wrong", 1.0 if right else -0.25, right, False, {}

    def close(self):
        self.closed += 1


class Picture(Echo):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium has it
    observation_space = spaces.Box(0, 1, (2, 2))


class Arms(Echo):
    action_space = spaces.Box(0, 1, (2,))


gymnasium.register("molt/Echo-v0", entry_point=Echo, disable_env_checker=True)
gymnasium.register("molt/Timed-v0", entry_point=Echo, disable_env_checker=True, max_episode_steps=2)
gymnasium.register("molt/Picture-v0", entry_point=Picture, disable_env_checker=True)
gymnasium.register("molt/Arms-v0", entry_point=Arms, disable_env_checker=True)
