"""What the policy losses have in common: from a surrogate to the loss of a micro-batch.

    loss = Σ_t c_t w_t L_t  +  kl_coef · mean_t KL_t  −  entropy_coef · mean_t H_t

L is the surrogate of `ppo`, `gspo` or `cispo`, w the correction's weight and c the aggregation's. Correction
`score-centering` adds a term of its own to w_t L_t. KL and entropy are means over all sampled tokens of the window,
whatever the aggregation. Summed over micro-batches and ranks this is the loss of the window.

A subclass gives `surrogate`; everything here is [N] except the loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from attrs import frozen
from torch import Tensor

from molt_core.api.loss import LossOutput, TokenBatch
from molt_plugin_losses.aggregation import AGGREGATIONS
from molt_plugin_losses.kl import KlCoefficient, kl_estimate
from molt_plugin_losses.ratio import log_ratio
from molt_plugin_losses.score_centering import centering_term
from molt_plugin_losses.spec import LossOptions

Options = TypeVar("Options", bound=LossOptions)


@frozen(kw_only=True, eq=False)
class Surrogate:
    terms: Tensor
    """[N] with gradient."""
    clipped: Tensor
    """[N] bool, where a bound took the gradient or part of the weight."""


class PolicyLoss(ABC, Generic[Options]):
    def __init__(self, options: Options) -> None:
        self.options = options
        self._coefficients = AGGREGATIONS[options.aggregation]
        self._kl = KlCoefficient(options.kl_coef, options.kl_target, options.kl_horizon)

    @abstractmethod
    def surrogate(self, tokens: TokenBatch) -> Surrogate:
        """Terms to be minimised, before weights and aggregation."""

    def __call__(self, tokens: TokenBatch) -> LossOutput:
        """Scalar with gradient to `tokens.logprobs`, and to `tokens.entropy` with an entropy bonus; 0 for no tokens."""
        surrogate = self.surrogate(tokens)
        # where, not a product: a token that is left out must not bring in an infinity times 0
        terms = (surrogate.terms * tokens.weights).where(tokens.weights != 0, 0.0) + centering_term(tokens)
        loss = (self._coefficients(tokens) * terms).sum()
        sums: dict[str, Tensor] = {
            "policy/loss": terms.detach().sum(),
            "policy/clip_ratio": surrogate.clipped.sum().float(),
            "policy/kl": -log_ratio(tokens.logprobs, tokens.behaviour_logprobs).detach().sum(),
        }
        if self.options.kl_coef > 0:
            kl = self._penalty(tokens)
            loss = loss + self._kl.value * kl.sum() / tokens.window.num_tokens
            sums["policy/kl_penalty"] = kl.detach().sum()
        if self.options.entropy_coef != 0:
            loss = loss - self.options.entropy_coef * tokens.entropy.sum() / tokens.window.num_tokens
        return LossOutput(loss=loss, token_sums=sums)

    def _penalty(self, tokens: TokenBatch) -> Tensor:
        by_sampler = self.options.kl_reference == "sampler"
        reference = tokens.behaviour_logprobs if by_sampler else tokens.reference_logprobs
        assert reference is not None, "facts of the spec ask for a reference model"
        return kl_estimate(tokens.logprobs, reference, self.options.kl_form, sampled_by_reference=by_sampler)

    def after_step(self, means: Mapping[str, float], num_rollouts: int) -> Mapping[str, float]:
        """Steer the KL coefficient by the step's means; returns metrics of its own."""
        if self.options.kl_coef == 0:
            return {}
        self._kl.observe(means["policy/kl_penalty"], num_rollouts)
        return {"policy/kl_coef": self._kl.value}

    def state(self) -> dict[str, Any]:
        """For checkpoints, as JSON."""
        return {"kl_coef": self._kl.value}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._kl.value = float(state["kl_coef"])
