"""Installs the harnesses of this suite, each into an environment of its own outside the repository.

In: `pins/NAME.txt` (all packages of a pip harness, exactly) and `NPM`. Out: a folder for each under
`harnesses/` of Molt's cache folder (`MOLT_CACHE`), with a stamp named after what was asked for; one that
has it is left alone. The network is used here and nowhere else in the suite.

    .venv/bin/python tests/harnesses/install.py             all of them
    .venv/bin/python tests/harnesses/install.py smolagents  one
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from molt_core.launch.model_process import cache_root

PINS: Final = Path(__file__).with_name("pins")
NPM: Final = {
    "claude-code": "@anthropic-ai/claude-code@2.1.197",
    "codex": "@openai/codex@0.171.0",
    "opencode": "opencode-ai@1.18.33",
    "qwen-code": "@qwen-code/qwen-code@0.15.10",
}
NAMES: Final = (*sorted(path.stem for path in PINS.glob("*.txt")), *NPM)


def bin_folder(name: str) -> Path:
    """Where the programs of an installed harness are.

    Raises:
        FileNotFoundError: it is not installed as pinned; says how to.
    """
    if not _stamp(name).exists():
        raise FileNotFoundError(
            f"the harness {name} is not installed, or not as pinned: .venv/bin/python {Path(__file__).name} {name} in "
            f"{Path(__file__).parent}, or `make test-harnesses`"
        )
    return _folder(name) / ("node_modules/.bin" if name in NPM else "bin")


def install(name: str) -> None:
    """Raises CalledProcessError with what pip or npm printed."""
    folder = _folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name in NPM:
        _run("npm", "install", "--prefix", folder, "--no-fund", "--no-audit", "--loglevel=error", NPM[name])
    else:
        _run(sys.executable, "-m", "venv", "--without-pip", folder)
        pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "-qq", "--no-input")
        _run(*pip, "--no-deps", "--only-binary=:all:", "-r", PINS / f"{name}.txt")
    _stamp(name).touch()


def _folder(name: str) -> Path:
    return cache_root() / "harnesses" / name


def _stamp(name: str) -> Path:
    wanted = NPM[name] if name in NPM else (PINS / f"{name}.txt").read_text("utf-8")
    digest = hashlib.sha256(f"{sys.version}\n{wanted}".encode()).hexdigest()[:16]
    return _folder(name) / f".installed-{digest}"


def _run(*argv: str | Path) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{argv[0]} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")


def main(names: Sequence[str]) -> None:
    if unknown := sorted(set(names) - set(NAMES)):
        sys.exit(f"{', '.join(unknown)}: not known here; there are {', '.join(NAMES)}")
    for name in names or NAMES:
        if _stamp(name).exists():
            continue
        began = time.monotonic()
        print(f"  harness {name} ...", end="", flush=True)
        install(name)
        print(f" {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
