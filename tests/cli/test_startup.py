"""What starting the command costs: which modules it imports. Seconds are the matter of the benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "ray", "vllm", "transformers", "numpy", "pyarrow", "datasets", "tensorboard"}
PROBE = """
import json, sys
from molt_core.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as leaving:
    code = leaving.code
print("\\n" + json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def imported(*words: str) -> set[str]:
    """Top-level packages in memory after the command, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words], capture_output=True, text=True, timeout=60, check=True
    )
    code, names = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    return set(names)


@pytest.mark.parametrize("words", [["--help"], ["--version"], [], ["plugins", "--help"]])
def test_help_imports_nothing_heavy_and_no_plugin_machinery(words):
    names = imported(*words)
    assert names & HEAVY == set()
    assert "attr" not in names


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["list", "--slot", "hooks"]])
def test_plugins_list_imports_nothing_heavy_and_no_plugin(words):
    names = imported("plugins", *words)
    assert names & HEAVY == set()
    assert {name for name in names if name.startswith("molt_plugin")} == set()


def test_plugins_info_imports_the_spec_alone():
    names = imported("plugins", "info", "executors/ray")
    assert names & HEAVY == set()
