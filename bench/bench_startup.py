"""Start-up of the commands that start nothing: median wall time of seven runs, after one to warm the caches.

.venv/bin/python bench/bench_startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

MOLT = str(Path(sys.executable).parent / "molt")
ROOT = Path(__file__).resolve().parent.parent
BOUNDS_S = {
    ("--help",): 0.25,
    ("plugins", "list"): 0.25,
    ("check", str(ROOT / "examples" / "quickstart.toml")): 0.6,
}
NUM_RUNS = 7


def seconds(words: tuple[str, ...]) -> float:
    began = time.perf_counter()
    subprocess.run([MOLT, *words], check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - began


def main() -> int:
    kept = True
    for words, bound in BOUNDS_S.items():
        seconds(words)
        median = statistics.median(seconds(words) for _ in range(NUM_RUNS))
        kept &= median <= bound
        verdict = "ok" if median <= bound else "MISSED"
        print(
            f"molt {' '.join(Path(w).name for w in words):<24} {median:6.3f} s   bound {bound:.2f} s   {verdict}"
        )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
