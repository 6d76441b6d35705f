"""The section "As a library" of docs/algorithms.md, run as it stands, with most packages of Molt out of reach."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "algorithms.md"
NOT_NEEDED = (
    "ray", "vllm", "transformers", "datasets", "cattrs", "pluggy", "packaging", "safetensors", "pyarrow", "uvicorn",
    "molt_core.launch", "molt_core.loop", "molt_core.plan", "molt_core.config", "molt_plugin_fsdp",
)  # fmt: skip
FORBID = f"""
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in {NOT_NEEDED!r}):
            raise ModuleNotFoundError(f"{{name}} is not needed", name=name)

import torch
sys.meta_path.insert(0, Forbidden())
"""


def test_the_section_runs_as_it_stands(tmp_path: Path) -> None:
    _, _, section = DOCUMENT.read_text(encoding="utf-8").partition("## As a library")
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 5
    program = tmp_path / "notebook.py"
    program.write_text(FORBID + "\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "left out:" in done.stdout
    assert "policy/loss" in done.stdout
