"""Specs of plugins that are not installed, for tests of configuration and plan. They have no factories."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from molt_core.api.facts import LOCAL_PROCESS, MIXED_VERSIONS, SAMPLED_LOGPROBS, Facts
from molt_core.api.findings import error
from molt_core.api.options import option, options
from molt_core.api.spec import (
    AgentSpec,
    EngineSpec,
    EnvironmentSpec,
    EstimatorSpec,
    ExecutorSpec,
    GatewaySpec,
    HookSpec,
    LossSpec,
    ModelSpec,
    Spec,
    TrainerSpec,
)
from molt_core.plugins.scan import Candidate, Scan

NOWHERE = "molt_stand_ins:nothing"


@options
class Whiten:
    whiten: bool = option(True, help="whiten advantages")


@options
class Grpo:
    kl_coef: float = option(0.0, help="weight of the KL penalty", ge=0)
    clip: float | None = option(5.0, help="clip of advantages", gt=0)


@options
class Vllm:
    args: tuple[str, ...] = option((), help="extra arguments")
    mode: Literal["fast", "exact"] = option("exact", help="how")


@options
class Embedded:
    attention: str = option(help="implementation")


@options
class Sized:
    layers: int = option(2, help="depth", ge=1)


@options
class Board:
    every: int = option(1, help="write every N steps", ge=1)
    folder: Path = option(Path("board"), help="where")


@options
class Http:
    port: int = option(0, help="where to listen", ge=0)


def logprobs(_options: Any) -> Facts:
    return Facts(provides={SAMPLED_LOGPROBS})


def no_logprobs(_options: Any) -> Facts:
    return Facts(provides={LOCAL_PROCESS})


def one_version(_options: Any) -> Facts:
    return Facts(needs={SAMPLED_LOGPROBS}, refuses={MIXED_VERSIONS}, owns={"optimizer-state"})


def broken_facts(_options: Any) -> Facts:
    raise RuntimeError("no idea")


def coins_a_word(_options: Any) -> Facts:
    return Facts(provides={"x-acme/fine", "grouped-sample"}, owns={"optimizer-state"})


def no_lucky_numbers(view: Any) -> Any:
    if view.run.steps == 13:
        yield error("X101", "13 steps", view.source("steps"))


def raises(_view: Any) -> Any:
    raise KeyError("gone")


def spec(kind: type[Any], name: str, **more: Any) -> Any:
    return kind(name=name, summary=f"stand-in {name}", api=1, factory=NOWHERE, **more)


REINFORCE = spec(EstimatorSpec, "reinforce++", options=Whiten)
GRPO = spec(EstimatorSpec, "grpo", options=Grpo, needs_groups=True)
RANK = spec(EstimatorSpec, "rank", rules=(no_lucky_numbers,))
RULELESS = spec(EstimatorSpec, "ruleless", rules=(raises,), facts=broken_facts)
COINER = spec(EstimatorSpec, "coiner", facts=coins_a_word)
PPO = spec(LossSpec, "ppo")
ARITHMETIC = spec(EnvironmentSpec, "arithmetic", makes_tasks=True)
VERIFY = spec(EnvironmentSpec, "verify", columns=(("prompt", "messages"), ("answer", "label")))
VLLM = spec(EngineSpec, "vllm", options=Vllm, facts=logprobs)
TRANSFORMERS = spec(EngineSpec, "transformers", options=Embedded, facts=no_logprobs)
FSDP = spec(TrainerSpec, "fsdp", facts=one_version)
WALKER = spec(AgentSpec, "walker")
JUDGE = spec(AgentSpec, "judge", grades=True)
HTTP = spec(GatewaySpec, "http", options=Http)
LOCAL = spec(ExecutorSpec, "local")
RAY = spec(ExecutorSpec, "ray")
TINY = spec(ModelSpec, "tiny", max_length=1024)
SMOLLM2 = spec(ModelSpec, "smollm2-135m-instruct", max_length=8192, requires=("no-such-distribution",))
BIG = spec(ModelSpec, "big", max_length=64, options=Sized)
TENSORBOARD = spec(HookSpec, "tensorboard", options=Board)

_OWNERS = {
    "reinforce++": "molt-plugin-estimators", "grpo": "molt-plugin-estimators", "ppo": "molt-plugin-losses",
    "arithmetic": "molt-plugin-envs", "verify": "molt-plugin-envs", "vllm": "molt-plugin-vllm",
    "transformers": "molt-plugin-transformers", "fsdp": "molt-plugin-fsdp", "local": "molt-core",
    "ray": "molt-core", "tiny": "molt-plugin-models", "smollm2-135m-instruct": "molt-plugin-models",
    "tensorboard": "molt-plugin-tracking", "http": "molt-plugin-gateway",
}  # fmt: skip

SCAN = Scan(
    tuple(
        sorted(
            [
                Candidate(
                    found.slot, found.name, _OWNERS.get(found.name, "acme-rl"), "0.1.0", f"{__name__}:{name}"
                )
                for name, found in list(globals().items())
                if isinstance(found, Spec)
            ]
            + [Candidate("estimators", "wreck", "wreck-rl", "0.4", "no_such_module:WRECK")]
        )
    )
)
