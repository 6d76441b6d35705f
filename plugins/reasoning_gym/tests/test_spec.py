"""What is known before launch, without reasoning-gym, which the plain install leaves out."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest
from molt_plugin_reasoning_gym.spec import REASONING_GYM, ReasoningGymOptions

from molt_core.plan.check import examine
from molt_core.plugins.scan import scan


def findings(*argv: str) -> list[tuple[str, str]]:
    argv = (
        "--model",
        "tiny",
        "--max-tokens",
        "8",
        "--env",
        "reasoning-gym",
        "--env.task",
        "chain_sum",
        *argv,
    )
    found = examine(argv, scan()).findings
    return [(finding.code, finding.fix) for finding in found if finding.level == "error"]


def test_a_missing_package_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version

    def without(name: str) -> str:
        if name == "reasoning-gym":
            raise metadata.PackageNotFoundError
        return version(name)

    monkeypatch.setattr(metadata, "version", without)
    assert findings() == [("RGYM1", "pip install 'reasoning-gym>=0.1.25,<0.2'")]


def test_rows_of_a_file_are_refused(tmp_path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x"}\n')
    assert "M201" in [code for code, _ in findings("--data", str(tmp_path / "rows.jsonl"))]


def test_its_configuration_is_a_json_object() -> None:
    with pytest.raises(ValueError, match="JSON object"):
        ReasoningGymOptions(task="chain_sum", config="[]")


def test_the_spec_is_light() -> None:
    code = "import sys, molt_plugin_reasoning_gym.spec; sys.exit('reasoning_gym' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert REASONING_GYM.makes_tasks
