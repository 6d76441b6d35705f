"""CISPO: REINFORCE with a capped ratio as a constant weight, so that no token loses its gradient.

    L_t = −sg[min(r_t, cap)] A_t log π        r_t = exp(log π − log π_old)

Source: MiniMax, M1 (arXiv 2506.13585), equations 4 and 5. As there, only the upper bound is used; `cap` is
absolute (1 + ε_high of the paper).
Shapes: everything [N].
"""

from __future__ import annotations

from molt_core.api.loss import TokenBatch
from molt_plugin_losses.policy_loss import PolicyLoss, Surrogate
from molt_plugin_losses.ratio import finite, log_ratio
from molt_plugin_losses.spec import CispoOptions


class CispoLoss(PolicyLoss[CispoOptions]):
    def surrogate(self, tokens: TokenBatch) -> Surrogate:
        ratios = log_ratio(tokens.logprobs, tokens.old_logprobs).detach().exp()
        terms = -ratios.clamp(max=self.options.cap) * tokens.advantages * finite(tokens.logprobs)
        return Surrogate(terms=terms, clipped=ratios > self.options.cap)
