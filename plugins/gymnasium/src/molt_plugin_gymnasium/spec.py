"""Spec and options of the environment `gymnasium`. Does not import gymnasium."""

from __future__ import annotations

from typing import Final

from molt_core.api.facts import DATA_ROWS, TASK_SOURCE, Facts
from molt_core.api.options import json_object, option, options
from molt_core.api.spec import EnvironmentSpec


@options
class GymnasiumOptions:
    id: str = option(
        help="environment, e.g. FrozenLake-v1; MODULE:ID imports the module that registers it first"
    )
    kwargs: str = option(
        "{}",
        help='arguments of gymnasium.make as a JSON object, e.g. {"is_slippery": false}',
        check=json_object,
    )
    actions: tuple[str, ...] = option(
        (), help="words for the actions of a discrete space, in order; default: their numbers"
    )
    instructions: str = option(
        "", help="system message; default: what the environment is called, and which actions there are"
    )
    max_turns: int = option(
        50, help="most replies of the policy; an environment's own limit may be lower", ge=1
    )
    invalid_reward: float = option(0.0, help="reward of a reply without an action; it takes no step")


GYMNASIUM: Final = EnvironmentSpec(
    name="gymnasium",
    summary="a Gymnasium environment by id, over several turns, where it shows text and takes text or words",
    api=1,
    factory="molt_plugin_gymnasium.environment:GymnasiumText",
    options=GymnasiumOptions,
    makes_tasks=True,
    multi_turn=True,
    facts=lambda _options: Facts(provides={TASK_SOURCE}, refuses={DATA_ROWS}),
)
