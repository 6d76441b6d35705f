"""Correction `score-centering`: takes out what the gradient expects of a token before it is sampled.

A policy gradient weighs the score ∇log p(v) of a token v ~ q by A f(p/q). Where the sampler q is not the policy p and f
is not the ratio itself, the score has a mean

    E_q[f(p/q) ∇log p] = Σ_v q_v f(p_v / q_v) ∇log p_v

that pulls the policy towards the sampler in proportion to the advantage, whichever token was drawn. One more term of
the loss takes it off. On the k likeliest tokens H both are known; in the tail they are taken to be proportional,
q_v = ρ p_v, which makes its part of the sum −α Σ_H ∇p_v with α = ρ f(1/ρ):

    L += A_t Σ_{v in H} c_v log p(v)        c_v = sg[q_v f(p_v / q_v) − α p_v]
    ρ = (1 − Σ_H q) / (1 − Σ_H p)           both held above 1e-6

    level off     f = 1
    level token   f = the weight of correction `importance` with gate ratio: masked, clipped or truncated

p is the policy before the step: there is one step for each window. H must not depend on the token that was drawn, so it
holds it only where it is one of the k likeliest. The term stays where a token's own weight is 0.

Source: Marek and Ryabinin, Score Centering Stabilizes Off-policy Reinforcement Learning (arXiv 2609.20807).
Left out: weights that a whole rollout decides, as they are no function of one token.
Shapes: [N] and [N, k] in, weights [N] and c [N, k] out.
"""

from __future__ import annotations

import torch
from attrs import evolve
from torch import Tensor

from molt_core.api.correction import CorrectionBatch, CorrectionWeights
from molt_core.api.loss import TokenBatch
from molt_plugin_losses.correction_spec import ImportanceOptions, ScoreCenteringOptions
from molt_plugin_losses.importance import ImportanceCorrection
from molt_plugin_losses.ratio import finite, log_ratio, probability, rest


class ScoreCentering:
    def __init__(self, options: ScoreCenteringOptions) -> None:
        self._top_k = options.top_k
        self._importance = None
        if options.level == "token":
            token_level = ImportanceOptions(mode=options.mode, threshold=options.threshold)
            self._importance = ImportanceCorrection(token_level)

    def weights(self, batch: CorrectionBatch) -> CorrectionWeights:
        assert batch.top_logprobs is not None, "the facts of the spec ask for them"
        assert batch.top_behaviour_logprobs is not None
        log_p, log_q = (top[:, : self._top_k] for top in (batch.top_logprobs, batch.top_behaviour_logprobs))
        p, q = probability(log_p), probability(log_q)
        rho = rest(q) / rest(p)
        alpha = rho * self._weigh(-rho.log()).weights
        centering = q * self._weigh(log_ratio(log_p, log_q)).weights - alpha[:, None] * p
        sampled = self._weigh(log_ratio(batch.logprobs, batch.behaviour_logprobs))
        return evolve(sampled, centering=centering)

    def _weigh(self, log_ratios: Tensor) -> CorrectionWeights:
        """f of ratios of any shape."""
        zeros = torch.zeros_like(log_ratios)
        if self._importance is None:
            return CorrectionWeights(weights=zeros + 1, kept=zeros == 0)
        return self._importance.weights(
            CorrectionBatch(logprobs=log_ratios, behaviour_logprobs=zeros, rollout_index=zeros)
        )


def centering_term(tokens: TokenBatch) -> Tensor:
    """[N] A_t Σ_v c_v log p(v), with gradient to `tokens.top_logprobs`; 0 without coefficients."""
    if tokens.centering is None:
        return torch.zeros_like(tokens.advantages)
    assert tokens.top_logprobs is not None, "coefficients come with the tokens that they are of"
    head = finite(tokens.top_logprobs[:, : tokens.centering.shape[1]])
    return tokens.advantages * (tokens.centering * head).sum(-1)
