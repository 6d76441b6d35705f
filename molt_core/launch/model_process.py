"""Makes a packaged model in a process of its own, so that the driver never imports torch.

    python -m molt_core.launch.model_process < plan.json

The plan's model is built in the user's cache if it is not there yet; the last line printed is its folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from molt_core.api.model import PackagedModel
from molt_core.errors import MoltError
from molt_core.plan.plan import Plan

QUIET = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}


def cache_root() -> Path:
    """`$MOLT_CACHE`, else `$XDG_CACHE_HOME/molt`, else `~/.cache/molt`."""
    own = os.environ.get("MOLT_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # the XDG specification says that a relative path is to be ignored
    parent = Path(shared) if os.path.isabs(shared) else Path.home() / ".cache"
    return parent / "molt"


def main() -> int:
    """Exit code 0, or that of the error, whose message goes to stderr."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        model: PackagedModel = Plan.from_json(sys.stdin.read()).one("models").build()
        folder = model.prepare(cache_root())
    except MoltError as problem:
        sys.stderr.write(f"{problem}\n")
        return problem.exit_code
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
