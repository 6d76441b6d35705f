"""Before launch: can this machine confine what the Python tool runs? Light, imported with the spec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from molt_core.api.findings import Finding, error

if TYPE_CHECKING:
    from molt_core.api.plan_view import PlanView

CODE: Final = "ENVS2"


def python_is_confined(view: PlanView) -> Iterator[Finding]:
    """The kernel has what the sandbox needs, or the user does without."""
    from molt_plugin_envs.sandbox_child import gap

    (part,) = view.parts["envs"]
    if not part.options.unconfined and (reason := gap()):
        message = f"the Python tool can't be confined here: {reason}"
        fix = "--env.unconfined, if the policy may use network, processes and files as you may"
        yield error(CODE, message, view.source("env.unconfined"), fix=fix)
