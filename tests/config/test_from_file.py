"""Agents and environments from files, and what runs of agents need beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from molt_core.config.parse import configure, draft
from molt_core.config.tables import to_toml
from molt_core.plan.check import examine
from molt_core.plan.plan import Plan, freeze
from molt_core.plugins.scan import Scan

SOURCE = """
raise SystemExit("never run before launch")

async def solve(task, session): ...

class Solver:
    def run(self, task, session): ...

class Turns:
    def reset(self, row): ...
    def step(self, reply): ...
    def close(self): ...

class Game(Turns):
    def tasks(self, split, seed): ...

class Question:
    def prompt(self, row): ...
    def score(self, row, reply): ...

class Half:
    def step(self, reply): ...
"""


@pytest.fixture
def scan(stand_ins: Scan) -> Scan:
    Path("mine.py").write_text(SOURCE)
    Path("rows.jsonl").write_text('{"prompt": "p", "answer": "a"}\n')
    return stand_ins


def codes(scan: Scan, *argv: str) -> list[str]:
    examined = examine(["--model", "tiny", "--eval-prompts", "0", *argv], scan)
    return [finding.code for finding in examined.findings]


@pytest.mark.parametrize("name", ["solve", "Solver"])
def test_an_agent_in_a_file_needs_data_and_brings_the_gateway(scan: Scan, name: str) -> None:
    argv = ["--model", "tiny", "--data", "rows.jsonl", "--eval-prompts", "0", "--agent", f"./mine.py:{name}"]
    examined = examine(argv, scan)
    plan = Plan.from_json(freeze(examined.view).to_json())

    assert examined.findings == ()
    assert (plan.one("agents").name, plan.one("gateways").name) == (name, "http")
    assert plan.one("agents").factory == f"{Path.cwd()}/mine.py:{name}"
    assert "envs" not in plan.parts
    assert codes(scan, "--agent", f"./mine.py:{name}") == ["M501"]


def test_a_file_may_be_named_from_another_folder_and_the_saved_configuration_makes_the_run_again(
    scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["--model", "tiny", "--eval-prompts", "0", "--env", "mine.py:Game"]
    first = freeze(examine(argv, scan).view)
    Path("again.toml").write_text(to_toml(configure(argv, scan)))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = freeze(examine(["../again.toml"], scan).view)

    assert again.one("envs").factory == first.one("envs").factory == f"{tmp_path}/mine.py:Game"


@pytest.mark.parametrize(
    ("name", "multi_turn", "makes_tasks"),
    [("Turns", True, False), ("Game", True, True), ("Question", False, False)],
)
def test_the_kind_of_an_environment_is_read_from_its_methods(
    scan: Scan, name: str, multi_turn: bool, makes_tasks: bool
) -> None:
    made = configure(["--model", "tiny", "--data", "rows.jsonl", "--env", f"mine.py:{name}"], scan)
    (part,) = made.parts["envs"]

    assert (part.spec.multi_turn, part.spec.makes_tasks) == (multi_turn, makes_tasks)
    assert ("gateways" in made.parts) == multi_turn


@pytest.mark.parametrize(
    ("argv", "said", "fix"),
    [
        (("--agent", "gone.py:Solver"), "'gone.py' can't be read", "FILE.py:NAME"),
        (("--agent", "mine.py:Solve"), "'mine.py' defines no 'Solve'", "did you mean Solver?"),
        (("--agent", "mine.py"), "without what it defines", "it defines Game"),
        (("--agent", "mine.py:Question"), "no class with run(task, session)", ""),
        (("--env", "mine.py:Half"), "no class with close, reset", ""),
        (("--env", "mine.py:solve"), "no class with prompt, score", ""),
    ],
)
def test_a_file_that_does_not_fit_is_an_error_before_launch(
    scan: Scan, argv: tuple[str, ...], said: str, fix: str
) -> None:
    made = draft(["--model", "tiny", "--data", "rows.jsonl", *argv], scan)
    (finding,) = [one for one in made.findings if one.level == "error"]

    assert finding.code == "M117"
    assert said in finding.message
    assert fix in finding.fix
    assert finding.because[0].origin == argv[0]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--agent", "walker", "--data", "rows.jsonl"), ["M312"]),
        (("--agent", "walker", "--data", "rows.jsonl", "--env", "verify"), []),
        (("--agent", "walker", "--data", "arithmetic"), []),
        (("--agent", "judge", "--data", "rows.jsonl"), []),
        (("--agent", "mine.py:solve", "--data", "rows.jsonl", "--env", "mine.py:Turns"), ["M313"]),
        (("--agent", "mine.py:solve", "--env", "mine.py:Game"), ["M313"]),
        (("--env", "mine.py:Turns"), ["M501"]),
        (("--env", "mine.py:Game"), []),
        (("--data", "arithmetic", "--gateway", "http"), ["M132"]),
        (("--data", "arithmetic", "--gateway.port", "1"), ["M132"]),
        (("--data", "arithmetic", "--agent.turns", "1"), ["M132"]),
        (("--env", "mine.py:Game", "--gateway.port", "1"), []),
        (("--agent", "walkr", "--data", "rows.jsonl", "--gateway.port", "1"), ["M101"]),
        (("--env", "mine.py:Game", "--eval-every", "1", "--eval-prompts", "2"), []),
        (("--agent", "mine.py:solve", "--data", "rows.jsonl", "--eval-prompts", "2"), ["M308"]),
    ],
)
def test_combinations(scan: Scan, argv: tuple[str, ...], expected: list[str]) -> None:
    assert codes(scan, *argv) == expected
