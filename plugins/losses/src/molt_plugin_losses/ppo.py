"""PPO's clipped surrogate, one term for each sampled token, with an optional second bound for bad tokens.

    r_t = exp(log π − log π_old)
    L_t = −min(r_t A_t, clip(r_t, 1 − clip_low, 1 + clip_high) A_t)
    dual clip c > 1:  where A_t < 0, L_t is at most −c A_t

The bounds may differ (DAPO's "clip higher"). Without the second one, a token with a negative advantage and a
huge ratio has an unbounded loss.

Source: Schulman et al., PPO (arXiv 1707.06347), equation 7; Yu et al., DAPO (arXiv 2503.14476), equation 8, for
the two bounds; Ye et al. (arXiv 1912.09729), equation 5, for the dual clip.
Shapes: everything [N].
"""

from __future__ import annotations

import torch
from torch import Tensor

from molt_core.api.loss import TokenBatch
from molt_plugin_losses.policy_loss import PolicyLoss, Surrogate
from molt_plugin_losses.ratio import log_ratio
from molt_plugin_losses.spec import PpoOptions


def clipped_surrogate(
    log_ratios: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> Surrogate:
    ratios = log_ratios.exp()
    plain = ratios * advantages
    clipped = ratios.clamp(1.0 - clip_low, 1.0 + clip_high) * advantages
    terms = -torch.minimum(plain, clipped)
    was_clipped = clipped < plain
    if dual_clip is not None:
        bound = -dual_clip * advantages
        beyond = (advantages < 0) & (terms > bound)
        terms = torch.where(beyond, bound, terms)
        was_clipped = was_clipped | beyond
    return Surrogate(terms=terms, clipped=was_clipped)


class PpoLoss(PolicyLoss[PpoOptions]):
    def surrogate(self, tokens: TokenBatch) -> Surrogate:
        options = self.options
        ratios = log_ratio(tokens.logprobs, tokens.old_logprobs)
        return clipped_surrogate(
            ratios, tokens.advantages, options.clip_low, options.clip_high, options.dual_clip
        )
