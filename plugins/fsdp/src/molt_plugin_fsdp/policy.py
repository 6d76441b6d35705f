"""The model as a trainer needs it: log-probabilities and entropy in the places of sampled tokens, nothing else.

In: a packed row on the model's device. Out: float32 numbers for its N sampled tokens. Logits exist for a
few rows at a time (`token_scores`), so memory for them does not grow with tokens times vocabulary.

Not for models that change their logits after the output layer; `model` refuses those.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from molt_plugin_fsdp.row import Row
from molt_plugin_fsdp.token_scores import TokenScores


class Policy(nn.Module):
    """Root of the sharded modules. Its forward, not the inner model's, triggers the gathering of weights."""

    def __init__(
        self, model: PreTrainedModel, *, temperature: float, logit_rows: int, entropy_gradient: bool = False
    ) -> None:
        super().__init__()
        self._entropy_gradient = entropy_gradient
        self.model = model
        self._temperature = temperature
        self._logit_rows = logit_rows

    def forward(self, row: Row) -> tuple[Tensor, Tensor, Tensor]:
        """[N] log-probs with gradient, [N] entropies without unless asked, [N, k] log-probs of `row.top_ids` with.

        All float32 and at the temperature.
        """
        hidden = hidden_states(self.model.base_model, row)
        device = hidden.device
        predicting = hidden.index_select(0, torch.from_numpy(row.predictors).to(device))
        wanted = torch.from_numpy(np.column_stack([row.targets, row.top_ids])).to(device)
        head = self.model.get_output_embeddings()
        logprobs, entropy = TokenScores.apply(
            predicting, head.weight, head.bias, wanted, self._temperature, self._logit_rows
        )
        if not self._entropy_gradient:
            entropy = entropy.detach()
        # copies: FSDP warns of outputs that are views of one tensor
        return logprobs[:, 0].clone(), entropy, logprobs[:, 1:].clone()


def hidden_states(model: nn.Module, row: Row) -> Tensor:
    """[T, D] in compute dtype, the last layer's output for every input token of the row."""
    device = model.get_input_embeddings().weight.device  # type: ignore[operator]
    # without branches the positions restart at every item, and transformers derives the same mask from
    # them, which keeps sliding windows and faster kernels possible
    mask = torch.from_numpy(row.visible())[None, None].to(device) if row.branched else None
    output = model(
        input_ids=torch.from_numpy(row.token_ids)[None].to(device),
        position_ids=torch.from_numpy(row.position_ids)[None].to(device),
        attention_mask=mask,
        use_cache=False,
    )
    hidden: Tensor = output.last_hidden_state[0]
    return hidden
