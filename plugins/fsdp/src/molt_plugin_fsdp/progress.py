"""What a checkpoint remembers besides tensors: applied steps, and the state of loss and estimator.

In: the live optimizer, critic and plugins. Out: a record of JSON values, and the same things set back from one.
Equal on all ranks. Tensors and files are in `checkpoint`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from molt_core.api.trainer import Stateful, TrainerParts
from molt_core.errors import RunError
from molt_plugin_fsdp.critic import Critic
from molt_plugin_fsdp.optimizer import Optimizer


@frozen(kw_only=True)
class Progress:
    num_steps: int
    critic_num_steps: int
    """0 without a critic."""
    loss: Mapping[str, Any]
    """Empty where it remembers nothing; so are the others."""
    estimator: Mapping[str, Any]

    @classmethod
    def of(cls, optimizer: Optimizer, critic: Critic | None, parts: TrainerParts) -> Progress:
        return cls(
            num_steps=optimizer.num_steps,
            critic_num_steps=0 if critic is None else critic.optimizer.num_steps,
            loss=_state(parts.loss),
            estimator=_state(parts.estimator),
        )

    def restore(self, optimizer: Optimizer, critic: Critic | None, parts: TrainerParts) -> None:
        """Raises RunError where loss or estimator is another one than was saved."""
        optimizer.set_num_steps(self.num_steps)
        if critic is not None:
            critic.optimizer.set_num_steps(self.critic_num_steps)
        for name, part, saved in (
            ("loss", parts.loss, self.loss),
            ("estimator", parts.estimator, self.estimator),
        ):
            if saved.keys() != _state(part).keys():
                raise RunError(
                    f"the checkpoint is that of another {name}: it saved {sorted(saved)}, "
                    f"this one remembers {sorted(_state(part))}"
                )
            if isinstance(part, Stateful):
                part.restore(saved)


def _state(part: object) -> Mapping[str, Any]:
    return part.state() if isinstance(part, Stateful) else {}
