"""PPO's clipped surrogate, one term for each sampled token.

    r_t = exp(log π_new − log π_behaviour)
    L   = − Σ_t min(r_t A_t, clip(r_t, 1 − clip_low, 1 + clip_high) A_t) / N

N is the number of sampled tokens of the whole optimizer window, so the terms of all micro-batches and ranks
add up to the mean over tokens. The bounds may differ (DAPO's "clip higher").

Source: Schulman et al., PPO (arXiv 1707.06347), equation 7; Yu et al., DAPO (arXiv 2503.14476), equation 12
for the two bounds and the mean over tokens.
Shapes: everything [N], the loss a scalar.
Left out: dual clip, value loss, entropy bonus, KL penalty, aggregations other than the token mean.
"""

from __future__ import annotations

import torch

from molt_core.api.loss import LossOutput, TokenBatch
from molt_plugin_losses.ratio import log_ratio
from molt_plugin_losses.spec import PpoOptions


class PpoLoss:
    def __init__(self, options: PpoOptions) -> None:
        self._lowest = 1.0 - options.clip_low
        self._highest = 1.0 + options.clip_high

    def __call__(self, tokens: TokenBatch) -> LossOutput:
        """Scalar loss with gradient to `tokens.logprobs`; 0 for no tokens."""
        log_ratios = log_ratio(tokens.logprobs, tokens.behaviour_logprobs)
        ratios = log_ratios.exp()
        plain = ratios * tokens.advantages
        clipped = ratios.clamp(self._lowest, self._highest) * tokens.advantages
        per_token = -torch.minimum(plain, clipped)
        return LossOutput(
            loss=per_token.sum() / tokens.window.num_tokens,
            token_sums={
                "policy/loss": per_token.detach().sum(),
                "policy/clip_ratio": (clipped < plain).sum().float(),
                "policy/kl": -log_ratios.detach().sum(),
            },
        )
