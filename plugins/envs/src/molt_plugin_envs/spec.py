"""Specs and options of the environments. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

from typing import Final, Literal

from molt_core.api.columns import ANSWER, PROMPT
from molt_core.api.facts import DATA_ROWS, TASK_SOURCE, Facts
from molt_core.api.options import option, options
from molt_core.api.spec import EnvironmentSpec
from molt_plugin_envs.python_option import python_is_confined
from molt_plugin_envs.reward_option import RewardOptions, reward_files_are_sound

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
class VerifyOptions(RewardOptions):
    system: str = option("", help=f"{SYSTEM_HELP}; rows that bring a system message keep it")


@options
class PythonToolOptions(RewardOptions):
    max_turns: int = option(4, help="most replies of the policy; a call in the last one is not run", ge=1)
    system: str = option(
        "Solve the problem. You may run Python with the tool. Put the final answer in \\boxed{}.",
        help=f"{SYSTEM_HELP}; rows that bring a system message keep it",
    )
    digits: int = option(
        3, help="digits of the numbers in the own products, for runs without --data", ge=1, le=9
    )
    timeout_s: float = option(10.0, help="seconds that one call may take", gt=0)
    cpu_s: int = option(5, help="seconds of CPU that one call may use", ge=1)
    memory_mb: int = option(512, help="MB of memory that one call may use", ge=64)
    file_mb: int = option(16, help="MB that one file may have", ge=1)
    max_output: int = option(4000, help="characters of output that the policy sees; more ends the call", ge=1)
    unconfined: bool = option(
        False,
        help="run without the confinement that only Linux offers: with network, processes and all files",
    )


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
    rules=(reward_files_are_sound,),
)

PYTHON_TOOL: Final = EnvironmentSpec(
    name="python-tool",
    summary="problems of --data, or own products, over several turns with a sandboxed Python tool",
    api=1,
    factory="molt_plugin_envs.python_tool:PythonTool",
    options=PythonToolOptions,
    makes_tasks=True,
    columns=(PROMPT, ANSWER),
    multi_turn=True,
    rules=(reward_files_are_sound, python_is_confined),
)
