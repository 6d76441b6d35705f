"""Mean |log-prob of trainer - log-prob of engine| on freshly sampled tokens, before and after weight updates.

Runs the main job for three steps at each dtype and temperature; step 1 is before any update,
steps 2 and 3 are after one and two. The number is the run's own metric `mismatch/abs_diff`.

    .venv/bin/python bench/bench_agreement.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from molt_core.report.json_lines import read_json_lines

MOLT = str(Path(sys.executable).parent / "molt")
ROOT = Path(__file__).resolve().parent.parent
BOUNDS = {"float32": 1e-4, "bfloat16": 5e-2}
TEMPERATURES = (0.7, 1.0)
NUM_STEPS = 3


def differences(dtype: str, temperature: float, folder: Path) -> list[float]:
    name = f"{dtype}-{temperature}"
    flags = {
        "--dtype": dtype, "--temperature": temperature, "--steps": NUM_STEPS, "--eval-prompts": 0,
        "--output-dir": folder, "--run-name": name,
    }  # fmt: skip
    words = [str(word) for pair in flags.items() for word in pair]
    subprocess.run(
        [MOLT, "run", "examples/quickstart.toml", *words], check=True, capture_output=True, cwd=ROOT
    )
    return [record["mismatch/abs_diff"] for record in read_json_lines(folder / name / "metrics.jsonl")]


def main() -> int:
    kept = True
    print(f"{'dtype':<10}{'T':>4}   step 1 (no update)  step 2    step 3      bound")
    with tempfile.TemporaryDirectory() as folder:
        for dtype, bound in BOUNDS.items():
            for temperature in TEMPERATURES:
                found = differences(dtype, temperature, Path(folder))
                ok = max(found) < bound
                kept &= ok
                cells = "  ".join(f"{value:.1e}" for value in found)
                print(f"{dtype:<10}{temperature:>4}   {cells}      {bound:.0e}   {'ok' if ok else 'MISSED'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
