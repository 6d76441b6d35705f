"""What the package offers. Light: no imports beyond Molt's interface."""

from __future__ import annotations

from molt_core.api.options import option, options
from molt_core.api.spec import AgentSpec


@options
class RiddleOptions:
    hint_costs: float = option(0.5, help="what an answer that needed the hint loses", ge=0, le=1)


RIDDLES = AgentSpec(
    name="riddles",
    summary="asks a riddle of --data (columns riddle, hint, answers) and gives one hint",
    api=1,  # the slot's API number that this was written against
    factory="molt_plugin_riddles.agent:Riddles",
    options=RiddleOptions,
    grades=True,  # its results carry a reward, so no environment is needed
)
