"""How one vector is read from a backbone's output: a table of names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# SimCSE's and PromptBERT's template; [X] is the sentence, the embedding is read at the mask token.
PROMPT = 'This sentence : " [X] " means [MASK] .'


@dataclass(frozen=True)
class Pooling:
    """A way to read the vector.

    read: (backbone output, input_ids [N, L], attention_mask [N, L], id of the mask token) -> [N, D].
    layers: what it reads, `last`, `all` or `pooler`.
    """

    read: Callable[[Any, Tensor, Tensor, int | None], Tensor]
    layers: str = "last"


def masked_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean over real tokens, [CLS] and [SEP] included. hidden [N, L, D], mask [N, L] -> [N, D]."""
    weights = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


def _at_last(hidden: Tensor, wanted: Tensor) -> Tensor:
    """hidden [N, L, D] at the last place that wanted [N, L] names -> [N, D]."""
    place = wanted.size(1) - 1 - wanted.flip(1).int().argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), place]


def _at_mask_token(output: Any, input_ids: Tensor, mask: Tensor, mask_id: int | None) -> Tensor:
    """The last mask token: a sentence may contain one itself, and the template's comes after it."""
    return _at_last(output.last_hidden_state, input_ids == mask_id)


def _mean_of_two(first: int) -> Pooling:
    def read(output: Any, input_ids: Tensor, mask: Tensor, mask_id: int | None) -> Tensor:
        return (masked_mean(output.hidden_states[first], mask) + masked_mean(output.last_hidden_state, mask)) / 2

    return Pooling(read, "all")


POOLINGS = {
    "cls": Pooling(lambda output, input_ids, mask, mask_id: output.last_hidden_state[:, 0]),
    "mean": Pooling(lambda output, input_ids, mask, mask_id: masked_mean(output.last_hidden_state, mask)),
    "first_last_mean": _mean_of_two(1),
    "embeddings_last_mean": _mean_of_two(0),
    "last": Pooling(lambda output, input_ids, mask, mask_id: _at_last(output.last_hidden_state, mask)),
    "mask_prompt": Pooling(_at_mask_token),
    "pooler": Pooling(lambda output, input_ids, mask, mask_id: output.pooler_output, "pooler"),
}


def pooled(pooling: str, output: Any, input_ids: Tensor, attention_mask: Tensor, mask_id: int | None) -> Tensor:
    """A backbone's output, read by one of POOLINGS: [N, D] in float32."""
    return POOLINGS[pooling].read(output, input_ids, attention_mask, mask_id).float()
