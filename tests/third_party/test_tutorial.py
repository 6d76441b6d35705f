"""The plugins of docs/plugins.md, typed as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from molt_core.data.tasks import Task
from molt_core.experience import Rollout
from molt_core.loop.agent_rollout import run_agent
from molt_core.loop.ports import RolloutRequest
from molt_core.loop.turn_rollout import run_turns
from molt_core.plugins.factory import import_factory
from molt_core.testing import FakeEngine, FakeGateway

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


def test_agent_and_environment_of_the_tutorial_run_as_they_stand(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "plugins.md").read_text()
    for name, content in re.findall(r"```python\n# (\S+\.py) +molt run[^\n]*\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(content)
    request = RolloutRequest(
        rollout_id="0-0", group_id="0", task=Task(task_id="t", row={"prompt": "1+1?", "answer": "2", "secret": 2}),
        temperature=1.0, max_tokens=8, seed=0, timeout_s=30.0,
    )  # fmt: skip

    def part(factory: str) -> Any:
        return import_factory(f"{tmp_path}/{factory}")(None)

    async def both() -> list[Rollout]:
        talk = {"gateway": FakeGateway(), "generate": FakeEngine(lambda prompt: [*b"2", 0]).generate}
        return [
            await run_agent(
                request,
                make_agent=lambda: part("compact.py:solve"),
                environment=None,
                env_timeout_s=9,
                **talk,
            ),
            await run_turns(
                request, make_environment=lambda: part("guess.py:Guess"), env_timeout_s=9, **talk
            ),
        ]

    compact, guess = asyncio.run(both())
    assert (compact.reward, len(compact.segments)) == (1.0, 2)
    assert (guess.reward, len(guess.segments)) == (1.0, 1)
