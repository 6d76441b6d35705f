"""The run folder: where a run keeps everything it writes.

    <output-dir>/<run-name>/{plan.json, config.toml, metrics.jsonl, ledger.jsonl, rollouts/, checkpoints/, latest}

`create` makes it and never touches one that exists; `open` is for going on in one. Both lock it for this
process. Checkpoints are written by `molt_core.launch`.
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path
from typing import IO

from attrs import field, frozen

from molt_core.api.findings import error
from molt_core.errors import ConfigError, PreflightError
from molt_core.report.run_lock import lock


@frozen
class RunFolder:
    path: Path
    _lock: IO[str] | None = field(default=None, eq=False, repr=False)

    @classmethod
    def open(cls, path: Path, *, locked: bool = True) -> RunFolder:
        """The folder of an earlier run; not locked, it is only to be read.

        Raises:
            ConfigError: it is none.
            PreflightError: another process works in it, or it can't be written.
        """
        folder = cls(path.absolute())
        if not (folder.plan.is_file() and folder.config.is_file()):
            what = "has no plan.json and config.toml" if path.is_dir() else "is no folder"
            message = f"{str(path)!r} is no run: it {what}"
            fix = "name the folder that `molt run` made, e.g. runs/NAME"
            raise ConfigError([error("M601", message, fix=fix)])
        return cls(folder.path, lock(folder.path)) if locked else folder

    @classmethod
    def create(cls, output_dir: Path, run_name: str) -> RunFolder:
        """Make a new, empty run folder.

        Raises:
            ConfigError: something of that name exists.
            PreflightError: the folder can't be made.
        """
        path = (output_dir / run_name).absolute()
        try:
            output_dir.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except FileExistsError as failure:
            message = f"run folder {str(path)!r} exists, and a run is never overwritten"
            raise ConfigError([error("M306", message, fix="another --run-name or --output-dir")]) from failure
        except OSError as failure:
            message = f"run folder {str(path)!r} can't be made: {failure}; give a writable --output-dir"
            raise PreflightError(message) from failure
        return cls(path, lock(path))

    def write(self, *, plan_json: str, config_toml: str) -> None:
        """Write plan and config, each whole or not at all."""
        _write(self.plan, plan_json)
        _write(self.config, config_toml)

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def episodes(self) -> Path:
        """One line for each rollout of `molt eval`."""
        return self.path / "episodes.jsonl"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def checkpoints(self) -> Path:
        """Holds `step_<N>/`, one for each checkpoint that is kept."""
        return self.path / "checkpoints"

    @property
    def latest(self) -> Path:
        """Link to the newest complete checkpoint; missing before the first."""
        return self.path / "latest"


def default_run_name(model: str, estimator: str, now: datetime | None = None) -> str:
    """`<model>-<estimator>-<time>`, as a folder name; the time is local, to the millisecond."""
    now = now or datetime.now().astimezone()
    stem = f"{Path(model).name or 'model'}-{estimator}"
    return f"{re.sub(r'[^A-Za-z0-9._+-]+', '-', stem)}-{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}"


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
