"""The plugin of docs/plugins.md, typed as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_package_of_the_tutorial_installs_and_is_chosen_by_name(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "plugins.md").read_text()
    project, package = tmp_path / "project", tmp_path / "project" / "src" / "molt_plugin_acme"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for block in re.findall(r"```(?:toml|python)\n# (\S+)\n(.*?)```", text, re.DOTALL):
        name, content = block
        (project if name == "pyproject.toml" else package).joinpath(name).write_text(content)
    site = tmp_path / "site"
    flags = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *flags, "--target", str(site), str(project)], check=True
    )

    def run(*words: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(site)}
        return subprocess.run(
            words, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    molt = str(Path(sys.executable).with_name("molt"))
    choice = ("--estimator", "acme-median", "--estimator.scale", "0.5")
    assert "reward minus the median of its prompt" in run(molt, "plugins", "info", "acme-median")
    assert "acme-median" in run(molt, "check", "examples/tiny.toml", *choice)
    compute = (
        "import numpy as np; from molt_core.api.estimator import RewardBatch; "
        "from molt_plugin_acme.median import Median; from molt_plugin_acme.spec import MedianOptions; "
        "rewards, groups = np.array([1., 2., 4., 5.]), np.array([0, 0, 0, 1]); "
        "batch = RewardBatch(rewards=rewards, groups=groups, num_tokens=np.ones(4, int)); "
        "print(Median(MedianOptions(scale=0.5)).advantages(batch).tolist())"
    )
    assert run(sys.executable, "-c", compute).strip() == "[-0.5, 0.0, 1.0, 0.0]"
