"""Over-smoothing: how alike the token vectors of a sentence are, layer by layer (SSCL, arXiv 2305.06154)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from lib.encoders import SentenceEncoder
from lib.encoders.sentence_encoder import in_mode, pad


def token_cosines(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean cosine between two different tokens of a sentence: hidden [N, L, H], mask [N, L] -> [N]; NaN for one token."""
    unit = F.normalize(hidden.float(), dim=-1) * mask.unsqueeze(-1)
    tokens = mask.sum(1)
    return (unit.sum(1).square().sum(-1) - tokens) / (tokens * (tokens - 1))


@torch.no_grad()
def smoothness(encoder: SentenceEncoder, texts: Sequence[str], *, batch_size: int = 64) -> pd.DataFrame:
    """`token_cosines` by layer, in evaluation mode: layer (0: the embeddings), metric, value (mean over the texts).

    Special tokens count; 1 means that all tokens of a sentence have one direction.
    """
    sums, count = 0.0, 0
    with in_mode(encoder, training=False):
        for start in range(0, len(texts), batch_size):
            ids = encoder.tokenize(list(texts[start : start + batch_size]))
            input_ids, mask = pad(ids, encoder.tokenizer.pad_token_id, device=encoder.device)
            hidden = encoder.run_backbone(input_ids, mask, output_hidden_states=True).hidden_states
            sums = sums + torch.stack([token_cosines(layer, mask).sum() for layer in hidden]).cpu()
            count += len(ids)
    return pd.DataFrame({"layer": range(len(sums)), "metric": "token cosine", "value": (sums / count).tolist()})


@torch.no_grad()
def token_similarity(encoder: SentenceEncoder, sentence: str) -> tuple[pd.DataFrame, list[str]]:
    """Cosine of every two token vectors of the last layer, in evaluation mode (3R, Figures 1 and 3).

    Returns:
        row, column (positions), value; and the word pieces, special tokens included.
    """
    input_ids, mask = pad(encoder.tokenize([sentence]), encoder.tokenizer.pad_token_id, device=encoder.device)
    with in_mode(encoder, training=False):
        hidden = encoder.run_backbone(input_ids, mask).last_hidden_state[0]
    unit = F.normalize(hidden.float(), dim=-1)
    cosines = pd.DataFrame((unit @ unit.T).cpu().numpy())
    frame = cosines.rename_axis("row").reset_index().melt("row", var_name="column", value_name="value")
    return frame, encoder.tokenizer.convert_ids_to_tokens(input_ids[0].tolist())
