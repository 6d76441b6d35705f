"""On-policy distillation by the reverse KL to a teacher, over the policy's likeliest tokens and a bucket for the rest.

    L_t = Σ_{v in H} p_v log(p_v / t_v)  +  p_rest log(p_rest / t_rest)        x_rest = 1 − Σ_H x, held above 1e-6

p is the policy, t the teacher, both at the sampling temperature; H are the k tokens that the policy found likeliest
when it sampled the token in this place. The sum is the KL divergence once all other tokens count as one: 0 only where
p and t agree on H, never above the whole divergence, and equal to it where H is the whole vocabulary. Without the rest,
the policy could lower it by moving probability out of H.

The gradient is exact and needs no advantage, where the estimator `on_policy_distill` learns from the sampled token
alone. Advantages play no part, nor does the effect of a token on the contexts that follow.

Source: Agarwal et al. (arXiv 2306.13649), reverse KL on the student's own samples; the bucket as in Tail-Aware Top-k
On-Policy Distillation (arXiv 2608.14728), there over the teacher's tokens.
Left out: a KL penalty and an entropy bonus beside it; corrections, since a term does not depend on the token drawn.
Shapes: [N, k] in, the loss is a scalar.
"""

from __future__ import annotations

from molt_core.api.loss import LossOutput, TokenBatch
from molt_plugin_losses.aggregation import AGGREGATIONS
from molt_plugin_losses.ratio import log_ratio, probability, rest
from molt_plugin_losses.spec import TopkReverseKlOptions


class TopkReverseKl:
    def __init__(self, options: TopkReverseKlOptions) -> None:
        self._top_k = options.top_k
        self._coefficients = AGGREGATIONS[options.aggregation]

    def __call__(self, tokens: TokenBatch) -> LossOutput:
        """Scalar with gradient to `tokens.top_logprobs`; 0 for no tokens."""
        assert tokens.top_logprobs is not None, "the facts of the spec ask for them and for a teacher"
        assert tokens.top_reference_logprobs is not None
        log_p, log_t = (top[:, : self._top_k] for top in (tokens.top_logprobs, tokens.top_reference_logprobs))
        p, t = probability(log_p), probability(log_t)
        divergence = (p * log_ratio(log_p, log_t)).sum(-1) + rest(p) * (rest(p) / rest(t)).log()
        sampled = log_ratio(tokens.logprobs, tokens.behaviour_logprobs)
        return LossOutput(
            loss=(self._coefficients(tokens) * divergence).sum(),
            token_sums={"policy/loss": divergence.detach().sum(), "policy/kl": -sampled.detach().sum()},
        )
