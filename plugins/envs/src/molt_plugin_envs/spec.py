"""Specs and options of the environments. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

from typing import Final, Literal

from molt_core.api.columns import ANSWER, PROMPT
from molt_core.api.facts import DATA_ROWS, TASK_SOURCE, Facts
from molt_core.api.options import option, options
from molt_core.api.spec import EnvironmentSpec
from molt_plugin_envs.reward_option import absolute, known_reward, reward_file_is_sound

SYSTEM_HELP: Final = "system message; empty: none, and chat templates may then insert their own"


@options
class ArithmeticOptions:
    digits: int = option(1, help="most digits of a number", ge=1, le=9)
    operations: tuple[Literal["+", "-", "*"], ...] = option(("+",), help="operations to ask for")
    # without one, the template of SmolLM2 inserts a long message, which triples the prompt
    system: str = option("Calculate.", help=SYSTEM_HELP)

    def __attrs_post_init__(self) -> None:
        if not self.operations or len(set(self.operations)) != len(self.operations):
            raise ValueError("operations must be different ones, and at least one")


@options
class VerifyOptions:
    reward: str = option(
        "number",
        help="how replies are graded: exact, number (the last one counts), or FILE.py:FUNCTION",
        convert=absolute,
        check=known_reward,
    )
    system: str = option("", help=f"{SYSTEM_HELP}; rows that bring a system message keep it")


ARITHMETIC: Final = EnvironmentSpec(
    name="arithmetic",
    summary="sums of random numbers; makes its own tasks, held-out ones for evaluation",
    api=1,
    factory="molt_plugin_envs.arithmetic:Arithmetic",
    options=ArithmeticOptions,
    makes_tasks=True,
    facts=lambda _options: Facts(provides={TASK_SOURCE}),
)

VERIFY: Final = EnvironmentSpec(
    name="verify",
    summary="questions of --data with known answers; graded exactly, by number, or by your own function",
    api=1,
    factory="molt_plugin_envs.verify:Verify",
    options=VerifyOptions,
    columns=(PROMPT, ANSWER),
    facts=lambda _options: Facts(needs={DATA_ROWS}),
    rules=(reward_file_is_sound,),
)
