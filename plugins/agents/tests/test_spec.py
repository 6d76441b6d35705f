"""What is wrong with a command is found before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from molt_plugin_agents.recipe import Recipe
from molt_plugin_agents.spec import COMMAND, CommandOptions, command_of, deadline_s

from molt_core.api.findings import Finding
from molt_core.api.plan_view import ChosenPart, ModelFacts, PlanView
from molt_core.api.run_options import RunOptions
from molt_core.plugins.factory import import_object


def findings(run: RunOptions | None = None, **options: Any) -> list[Finding]:
    part = ChosenPart(spec=COMMAND, options=CommandOptions(**options), dist="molt-plugin-agents", version="0")
    model = ModelFacts(source="folder", max_length=8192)
    view = PlanView(run=run or RunOptions(model="m"), parts={"agents": (part,)}, model=model)
    return [finding for rule in COMMAND.rules for finding in rule(view)]


def test_a_command_that_is_installed_has_no_findings() -> None:
    assert findings(argv=("sh", "-c", "true")) == []
    assert findings(argv=(f"{sys.executable} -c pass",)) == []
    assert findings(argv=("{python}", "x.py")) == [], "known only where it runs"


@pytest.mark.parametrize(
    ("options", "words", "fix"),
    [
        ({}, "there is no command to run", "--agent.argv"),
        ({"argv": ("sh -c 'x",)}, "there is no command to run: No closing quotation", "--agent.argv"),
        ({"argv": ("no-such-tool",)}, "'no-such-tool' is not installed here", "whole path"),
        (
            {"argv": ("./tool.sh",)},
            "'./tool.sh' would be looked for in the rollout's own folder",
            "{cwd}/./tool.sh",
        ),
        ({"argv": ("sh",), "env": ("PATH=/no/such",)}, "'sh' is not installed", ""),
        ({"argv": ("sh",), "workspace": "/no/such"}, "there is no folder '/no/such'", ""),
    ],
)
def test_what_can_not_start_is_found_before_launch(options: dict[str, Any], words: str, fix: str) -> None:
    (finding,) = findings(**options)
    assert (finding.level, finding.code) == ("error", "AGENTS1")
    assert words in finding.message
    assert fix in finding.fix


def test_a_missing_harness_is_found_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/no/such")
    finding = next(one for one in findings(recipe="codex") if one.code == "AGENTS1")
    assert finding.fix == "npm install -g @openai/codex"


@pytest.mark.parametrize("options", [{"timeout_s": 550.0}, {"grace_s": 600.0}])
def test_a_command_that_outlasts_its_rollout_is_found(options: dict[str, Any]) -> None:
    (finding,) = findings(argv=("sh",), **options)
    assert finding.code == "AGENTS2"


def test_a_harness_whose_own_prompt_fills_the_context_is_worth_a_word() -> None:
    warned = [one for one in findings(recipe="claude-code", argv=("sh",)) if one.code == "AGENTS3"]
    assert [one.level for one in warned] == ["warning"]
    run = RunOptions(model="m", max_length=32768)
    assert "--max-length 32768" in warned[0].fix
    assert findings(run, recipe="claude-code", argv=("sh",)) == [], "the way out is one"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"recipe": "codx"}, "must be one of claude-code, codex"), ({"env": ("A B=1",)}, "'A B=1' is neither")],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CommandOptions(**options)


def test_the_folder_of_the_command_line_is_remembered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    made = CommandOptions(argv=("{python}", "{cwd}/a.py"), env=("A={cwd}",), workspace="{cwd}/w")
    monkeypatch.chdir("/")
    assert CommandOptions(argv=made.argv, env=made.env, workspace=made.workspace) == made
    assert (made.argv[1], made.env, made.workspace) == (
        f"{tmp_path}/a.py",
        (f"A={tmp_path}",),
        f"{tmp_path}/w",
    )


def test_the_deadline_leaves_time_to_end_and_to_grade() -> None:
    assert deadline_s(CommandOptions(grace_s=10), 600) == 530
    assert deadline_s(CommandOptions(timeout_s=30), 600) == 30


def test_own_words_win_over_the_recipes_and_one_text_is_split() -> None:
    recipe = Recipe(argv=["tool", "{prompt}"])
    assert command_of(CommandOptions(), recipe) == ("tool", "{prompt}")
    assert command_of(CommandOptions(argv=("mine 'a b' {prompt}",)), recipe) == ("mine", "a b", "{prompt}")


def test_the_factory_makes_an_agent_and_the_spec_is_light() -> None:
    assert import_object(COMMAND.factory)(CommandOptions()).run
    assert not COMMAND.grades
    program = "import sys, molt_plugin_agents.spec; print('asyncio' in sys.modules, 'numpy' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert told.stdout.split() == ["False", "False"]
