"""GSPO: the ratio of a whole rollout, clipped, with each token's own gradient.

    s_r     = exp( mean over the rollout's tokens of log π − log π_old )
    s_t     = sg[s_r] · exp(log π − sg[log π])          equal to s_r, with the gradient of token t
    L_t     = −min(s_t A_t, clip(s_t, 1 − clip_low, 1 + clip_high) A_t)

A rollout counts as one sequence however many segments it has. Its mean comes from the pass before the step, as
its tokens may lie in several micro-batches.

Source: Zheng et al., GSPO (arXiv 2507.18071), equations 5, 7 and 14 (GSPO-token).
Shapes: everything [N].
Left out: the dual clip, which has no sense for a ratio that all tokens share.
"""

from __future__ import annotations

from molt_core.api.loss import TokenBatch
from molt_plugin_losses.policy_loss import PolicyLoss, Surrogate
from molt_plugin_losses.ppo import clipped_surrogate
from molt_plugin_losses.ratio import log_ratio
from molt_plugin_losses.spec import GspoOptions


class GspoLoss(PolicyLoss[GspoOptions]):
    def surrogate(self, tokens: TokenBatch) -> Surrogate:
        of_token = log_ratio(tokens.logprobs, tokens.logprobs.detach())
        log_ratios = log_ratio(tokens.rollout_log_ratio, -of_token)
        return clipped_surrogate(log_ratios, tokens.advantages, self.options.clip_low, self.options.clip_high)
