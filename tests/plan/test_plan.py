"""The frozen plan: JSON and back, digest, parts that build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from molt_core.config.parse import configure
from molt_core.errors import ConfigError
from molt_core.plan.check import examine
from molt_core.plan.plan import Plan, freeze
from molt_core.plugins.scan import Scan, scan

ARGV = ("--model", "tiny", "--env", "arithmetic", "--estimator", "grpo", "--hook", "tensorboard")


def plan(scan: Scan, *argv: str) -> Plan:
    return freeze(examine([*ARGV, *argv], scan).view)


def test_json_and_back(stand_ins: Scan) -> None:
    made = plan(stand_ins, "--engine.args", "a=1")
    again = Plan.from_json(made.to_json())
    assert again == made
    assert again.digest == made.digest
    assert again.run_options() == configure([*ARGV, "--engine.args", "a=1"], stand_ins).run


def test_digest_follows_the_content(stand_ins: Scan) -> None:
    assert plan(stand_ins).digest == plan(stand_ins).digest
    assert plan(stand_ins).digest != plan(stand_ins, "--seed", "1").digest
    assert plan(stand_ins).digest != plan(stand_ins, "--estimator.kl-coef", "1").digest


def test_a_part_knows_where_it_comes_from_and_its_typed_options(stand_ins: Scan) -> None:
    part = Plan.from_json(plan(stand_ins, "--estimator.kl-coef", "0.5").to_json()).one("estimators")
    assert (part.name, part.dist, part.version, part.api) == ("grpo", "molt-plugin-estimators", "0.1.0", 1)
    assert part.options_class == "molt_stand_ins:Grpo"
    assert part.typed_options().kl_coef == 0.5


def test_a_part_builds_what_its_factory_makes(stand_ins: Scan) -> None:
    part = evolve(
        plan(stand_ins).one("hooks"), factory="builtins:dict.fromkeys", options_class="molt_stand_ins:Board"
    )
    with pytest.raises(TypeError):
        part.build()  # an options object is not iterable, so it did arrive
    assert evolve(part, factory="builtins:isinstance").build(type(part.typed_options())) is True


def test_one_is_for_slots_that_hold_one(stand_ins: Scan) -> None:
    assert plan(stand_ins).one("models").name == "tiny"
    with pytest.raises(KeyError):
        plan(stand_ins).one("strategies")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', "null"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no plan"):
        Plan.from_json(text)


def test_another_schema_is_refused(stand_ins: Scan) -> None:
    table = json.loads(plan(stand_ins).to_json())
    with pytest.raises(ConfigError, match="schema 99"):
        Plan.from_json(json.dumps({**table, "schema": 99}))
    with pytest.raises(ConfigError, match="no plan"):
        Plan.from_json(json.dumps({**table, "surprise": 1}))


def test_packages_are_the_distributions_of_core_and_parts_and_the_users_files(tmp_path: Path) -> None:
    reward, agent = tmp_path / "reward.py", tmp_path / "agent.py"
    reward.write_text("def close(reply, answer):\n    return 1.0\n")
    agent.write_text("def solve(task, session):\n    return 1.0\n")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    flags = ["--env", "verify", "--env.reward", f"{reward}:close", "--agent", f"{agent}:solve"]
    examined = examine([*flags, "--model", "tiny", "--data", f"{tmp_path}/rows.jsonl"], scan())
    assert not examined.has_errors
    packages = freeze(examined.view).packages

    assert {str(reward), str(agent), "molt-core", "molt-plugin-envs", "molt-plugin-models"} <= set(packages)
    assert all(Path(name).is_absolute() or name.startswith("molt-") for name in packages)
    assert list(packages) == sorted(set(packages))
