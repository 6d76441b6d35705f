"""`make install`: a virtual environment in .venv with the locked CPU stack and this workspace.

In: requirements/cpu.lock and requirements/workspace.txt. Out: .venv, and a stamp in it named after
everything that the install depends on; with that stamp there, a call returns at once. Only the
standard library is used, because nothing is installed yet. Nothing outside .venv is changed, apart
from pip's own download cache.

torch goes first: by default pip takes the CUDA build of several gigabytes. The lock names the CPU
build by its local version, which no other build satisfies. It is looked for where pip is
configured to look, then on the PyTorch project's own index.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = VENV / "install.log"
LOCK = ROOT / "requirements" / "cpu.lock"
WORKSPACE = ROOT / "requirements" / "workspace.txt"
PIP = (str(PYTHON), "-m", "pip", "install", "-qq", "--no-deps", "--no-input", "--log", str(LOG))
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def main() -> None:
    stamp = VENV / f".installed-{fingerprint()}"
    if stamp.exists():
        return
    print(f"Installing into {VENV.name}/ with Python {sys.version.split()[0]} (4 GB of disk, some minutes)")
    if shutil.which("nvidia-smi"):
        print(
            "  An NVIDIA GPU was found. This is the CPU stack; how to install the other: requirements/gpu.txt"
        )
    began = time.monotonic()
    if not (VENV / "bin" / "pip").exists():
        make_venv()
    locked = lines(LOCK)
    torch = next(line for line in locked if line.startswith("torch=="))
    step(torch.replace("==", " "), [torch], ["--index-url", PYTORCH_CPU_INDEX, torch])
    step(f"{len(locked) - 1} packages of {LOCK.relative_to(ROOT)}", ["-r", str(LOCK)])
    step("Molt and its plugins", ["--no-build-isolation", "-r", str(WORKSPACE)])
    for old in VENV.glob(".installed-*"):
        old.unlink()
    stamp.touch()
    print(f"Installed in {time.monotonic() - began:.0f} s.")


def fingerprint() -> str:
    """Changes with the Python version and with any file that decides what is installed."""
    projects = [line.removeprefix("-e ") for line in lines(WORKSPACE)]
    inputs = [Path(__file__), LOCK, WORKSPACE, *(ROOT / project / "pyproject.toml" for project in projects)]
    content = hashlib.sha256(sys.version.encode())
    for path in inputs:
        content.update(path.read_bytes())
    return content.hexdigest()[:16]


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def make_venv() -> None:
    try:
        venv.create(VENV, with_pip=True)
    except subprocess.CalledProcessError:
        shutil.rmtree(VENV)
        sys.exit(
            f"make install: {sys.executable} can't make a virtual environment, because its module ensurepip is "
            "missing. Install it (Debian and Ubuntu: the package python3-venv) and run make again."
        )


def step(title: str, *attempts: list[str]) -> None:
    """Run `pip install` with each list of arguments until one works, or end with what pip said last."""
    print(f"  {title} ...", end="", flush=True)
    began = time.monotonic()
    problems = []
    for arguments in attempts:
        command = [*PIP, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            print(f" {time.monotonic() - began:.0f} s", flush=True)
            return
        problems.append(done.stderr.strip() or done.stdout.strip())
    print(" failed")
    problems.append(
        f"make install: pip could not install {title}. The lock is for Linux on x86_64. Details: {LOG}"
    )
    sys.exit("\n\n".join(problems))


if __name__ == "__main__":
    main()
