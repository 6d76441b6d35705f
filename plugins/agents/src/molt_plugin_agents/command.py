"""Agent `command`: runs a harness as a subprocess that talks to the policy by itself.

In go a task and a session; the harness gets a home and a workspace of its own, the variables and files
of its recipe, and its command with the placeholders filled in. Out comes its text and its
workspace, for the environment to grade: the command itself never says how good it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from molt_core.api.agent import AgentTask, Result, Session
from molt_plugin_agents.process import Finished, end_orphans, run_process
from molt_plugin_agents.recipe import Recipe, fill, load_recipe
from molt_plugin_agents.spec import CommandOptions, command_of, deadline_s

KEPT: Final = ("PATH", "LANG", "LC_ALL", "TZ")
"""Variables of the worker that the command sees too."""
NEVER_STARTED: Final = (126, 127)
"""Exit codes by which a shell, or what wraps the command, says that there is no such program."""
TAIL: Final = 2000
"""Characters of output in errors."""


class CommandAgent:
    def __init__(self, options: CommandOptions) -> None:
        self._options = options
        self._recipe: Recipe = load_recipe(options.recipe)
        self._folders: tuple[Path, ...] = ()

    async def run(self, task: AgentTask, session: Session) -> Result:
        """Run the command to its end or its deadline.

        Raises:
            RuntimeError: it could not be started, was killed by a signal, never asked the policy, or failed
                by `on_exit_code`.
            ValueError: a placeholder or a file of the task makes no sense.
        """
        home, workspace = (Path(tempfile.mkdtemp(prefix=f"molt-{name}-")) for name in ("home", "workspace"))
        self._folders = (home, workspace)
        values = {**{name: _text(value) for name, value in task.row.items()},
            "prompt": task.prompt, "base_url": session.base_url, "anthropic_base_url": session.anthropic_base_url,
            "api_key": session.api_key, "model": session.model, "workspace": str(workspace), "home": str(home),
            "task_id": task.task_id, "python": sys.executable
        }  # fmt: skip
        await asyncio.to_thread(end_orphans)
        await asyncio.to_thread(self._prepare, task, home, workspace, values)
        finished = await self._run(task, home, workspace, values)
        if problem := self._problem(finished, session.num_samples):
            raise RuntimeError(problem)
        return Result(
            text=await asyncio.to_thread(self._answer, finished, values),
            truncated=finished.timed_out,
            workspace=workspace,
            info={
                "command_failed": float(finished.exit_code != 0),
                "command_timed_out": float(finished.timed_out),
            },
        )

    def close(self) -> None:
        """Remove what it worked in."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _prepare(self, task: AgentTask, home: Path, workspace: Path, values: Mapping[str, str]) -> None:
        (home / "tmp").mkdir()
        if self._options.workspace:
            shutil.copytree(
                fill(self._options.workspace, values), workspace, symlinks=True, dirs_exist_ok=True
            )
        files = task.row.get("files") or {}
        if not isinstance(files, Mapping):
            raise ValueError(f"column files is of type {type(files).__name__}, wanted {{path: text}}")
        for name, content in files.items():
            if not (path := (workspace / name).resolve()).is_relative_to(workspace.resolve()):
                raise ValueError(f"column files: {name!r} lies outside the workspace")
            _write(path, content)
        for name, content in self._recipe.files.items():
            _write(Path(fill(name, values)), fill(content, values))

    async def _run(self, task: AgentTask, home: Path, workspace: Path, values: Mapping[str, str]) -> Finished:
        argv = [fill(word, values) for word in command_of(self._options, self._recipe)]
        try:
            return await run_process(
                argv,
                cwd=workspace,
                env=self._environment(home, values),
                stdin=fill(self._options.stdin, values),
                timeout_s=deadline_s(self._options, task.timeout_s),
                grace_s=self._options.grace_s,
                max_output=self._options.max_output,
            )
        except OSError as wrong:
            hint = f"; {self._recipe.install}" if isinstance(wrong, FileNotFoundError) else ""
            raise RuntimeError(f"{argv[0]!r} could not be started: {wrong.strerror}{hint}") from wrong

    def _environment(self, home: Path, values: Mapping[str, str]) -> dict[str, str]:
        env = {name: os.environ[name] for name in KEPT if name in os.environ}
        env |= {"HOME": str(home), "TMPDIR": str(home / "tmp"), "NO_COLOR": "1", "TERM": "dumb"}
        env |= {name: fill(value, values) for name, value in self._recipe.env.items()}
        for one in self._options.env:
            name, equals, value = one.partition("=")
            if not equals and name not in os.environ:
                raise RuntimeError(f"--agent.env {name}: the worker has no such variable")
            env[name] = fill(value, values) if equals else os.environ[name]
        return env

    def _problem(self, finished: Finished, num_samples: int) -> str:
        """Why the rollout failed; empty where its end is one to grade."""
        code = finished.exit_code
        if not num_samples:
            how = f"never asked the policy, and {'ran out of time' if finished.timed_out else f'ended with {code}'}"
        elif finished.timed_out or code == 0:
            return ""
        elif code < 0:
            how = f"was killed by signal {-code}"
        elif self._options.on_exit_code == "fail" or code in NEVER_STARTED:
            how = f"ended with exit code {code}"
        else:
            return ""
        streams = (("stderr", finished.stderr), ("stdout", finished.stdout))
        ends = [f"; its {name} ended: {text[-TAIL:].strip()}" for name, text in streams if text.strip()]
        return f"the command {how}{''.join(ends[:1]) or '; it printed nothing'}"

    def _answer(self, finished: Finished, values: Mapping[str, str]) -> str | None:
        answer = self._options.answer or self._recipe.answer
        if answer == "reply":
            return None
        if answer == "stdout":
            return finished.stdout.strip()
        path = Path(values["workspace"], fill(answer, values))
        # a harness that gave up wrote none: an empty answer, which is graded like any other
        return (
            path.read_text("utf-8", errors="replace")[-self._options.max_output :].strip()
            if path.is_file()
            else ""
        )


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(content), "utf-8")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
