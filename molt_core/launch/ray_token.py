"""Gives a Ray cluster that is made for one run a token of its own, so that no stranger can use it.

Ray's processes listen on all interfaces. With token authentication they refuse whoever lacks
the token. Ray reads these variables when it is imported, so they are set before that; a
program that has imported Ray itself, or set the variables, has decided already.
"""

from __future__ import annotations

import os
import secrets
import sys
from typing import Any

from molt_core.api.run_options import RunOptions
from molt_core.launch.specs import RayOptions


def ray_executor(options: RayOptions, run: RunOptions) -> Any:
    """Factory of the executor `ray`."""
    if run.ray_address is None and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    from molt_core.launch.ray_executor import RayExecutor

    return RayExecutor(options, run)
