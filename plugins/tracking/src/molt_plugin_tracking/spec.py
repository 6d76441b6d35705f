"""Specs and options of the trackers. Imports nothing but attrs and the plugin interface."""

from __future__ import annotations

from typing import Final

from molt_core.api.options import option, options
from molt_core.api.spec import HookSpec


@options
class TensorBoardOptions:
    every: int = option(1, help="write each Nth step; evaluations are always written", ge=1)


TENSORBOARD: Final = HookSpec(
    name="tensorboard",
    summary="metrics as TensorBoard scalars, in the run folder",
    api=1,
    factory="molt_plugin_tracking.tensorboard:TensorBoard",
    options=TensorBoardOptions,
)
