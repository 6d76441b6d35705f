"""What a rule may look at: run options, chosen parts, facts about the model and the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from molt_core.api.findings import Source
    from molt_core.api.run_options import RunOptions
    from molt_core.api.spec import Spec


@frozen(kw_only=True)
class ChosenPart:
    """One chosen plugin with its typed options."""

    spec: Spec
    options: Any
    dist: str
    version: str

    @property
    def owner(self) -> str:
        return f"{self.dist} {self.version}"


@frozen(kw_only=True)
class ModelFacts:
    """Read from the model's folder or its package, without torch. None where it can't be known yet."""

    source: str
    """`folder`, `packaged` or `hub`."""
    max_length: int | None = None
    has_tokenizer: bool | None = None
    has_chat_template: bool | None = None
    architectures: tuple[str, ...] = ()


@frozen(kw_only=True)
class PlanView:
    """Read-only view of a run before launch."""

    run: RunOptions
    parts: Mapping[str, tuple[ChosenPart, ...]]
    """Slot to chosen parts."""
    model: ModelFacts
    facts: Mapping[str, tuple[str, ...]] = field(factory=dict)
    """Provided facts, each with the names of those who provide it."""
    top_logprobs: int = 0
    """Likeliest tokens that are recorded beside each sampled one."""
    origins: Mapping[str, str] = field(factory=dict)
    """Dotted option (`temperature`, `estimator.kl_coef`) to the flag or `file:line` that set it."""

    def source(self, option: str) -> Source:
        """Name an option's value and where it was set, for a finding's `because`."""
        from molt_core.api.findings import Source

        table, _, knob = option.rpartition(".")
        owner: Any = self.run
        for part in (part for chosen in self.parts.values() for part in chosen):
            # several hooks share a flag, so theirs is `hook.NAME`
            if table in (part.spec.flag, f"{part.spec.flag}.{part.spec.name}"):
                owner = part.options
        return Source(f"{option} = {getattr(owner, knob)!r}", self.origins.get(option, "default"))
