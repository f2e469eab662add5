"""What 3R looks at in an encoder as it is: dimensions that hardly differ, the vector of a pool, and tokens that are alike."""

from collections.abc import Sequence

import pandas as pd
import torch
import torch.nn.functional as F

from lib.data.tokenized import pad
from lib.encoders import SentenceEncoder
from lib.encoders.sentence_encoder import in_mode
from lib.losses import deviations, reduce_redundancy, redundant_dimensions


def dimension_statistics(
    encoder: SentenceEncoder, texts: Sequence[str], pool: Sequence[str], *, threshold: float
) -> dict[str, float]:
    """The deviations (3R, Eq. 3) of the dimensions over texts, in evaluation mode, and what the pool has to do with them;
    pool: sentences whose mean vector is hbar; threshold: c.

    Returns:
        `σ, smallest`, `σ, median` and `σ, largest` deviation; `redundant, %`, dimensions with a deviation below c;
        `cos(hbar, mean)` of hbar and the mean vector of the texts, over all dimensions, and `where redundant`, over
        these alone (NaN where there are none); `cosine of texts`, mean over their pairs, the same `after subtraction` of
        hbar in the redundant dimensions, and `after centring`, where the mean of the texts is taken away there instead.
    """
    h, hbar = torch.from_numpy(encoder.encode(list(texts))), torch.from_numpy(encoder.encode(list(pool))).mean(0)
    sigma, mean, every = deviations(h), h.mean(0), h.new_ones(len(h))
    mask = redundant_dimensions(sigma, threshold)
    there = F.cosine_similarity(hbar * mask, mean * mask, dim=0).item() if mask.any() else float("nan")
    return {
        "σ, smallest": sigma.min().item(),
        "σ, median": sigma.median().item(),
        "σ, largest": sigma.max().item(),
        "redundant, %": 100 * mask.mean().item(),
        "cos(hbar, mean)": F.cosine_similarity(hbar, mean, dim=0).item(),
        "where redundant": there,
        "cosine of texts": _mean_cosine(h, every).item(),
        "after subtraction": _mean_cosine(reduce_redundancy(h, hbar, mask), every).item(),
        "after centring": _mean_cosine(reduce_redundancy(h, mean, mask), every).item(),
    }


@torch.no_grad()
def smoothness(encoder: SentenceEncoder, texts: Sequence[str], *, batch_size: int = 64) -> pd.DataFrame:
    """How alike the tokens of a text are, layer by layer (over-smoothing; SSCL, arXiv 2305.06154): layer (0: the embeddings),
    metric, value: the mean cosine of two different tokens, special ones too, over the texts, in evaluation mode."""
    sums = 0.0
    with in_mode(encoder, training=False):
        for start in range(0, len(texts), batch_size):
            ids = encoder.tokenize(list(texts[start : start + batch_size]))
            input_ids, mask = pad(ids, encoder.tokenizer.pad_token_id, device=encoder.device)
            hidden = encoder.run_backbone(input_ids, mask, output_hidden_states=True).hidden_states
            sums = sums + torch.stack([_mean_cosine(layer.float(), mask).sum() for layer in hidden]).cpu()
    return pd.DataFrame({"layer": range(len(sums)), "metric": "token cosine", "value": (sums / len(texts)).tolist()})


def _mean_cosine(h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Over all pairs of different rows: h [..., N, D], mask [..., N] of the rows that count -> [...]."""
    unit, n = F.normalize(h, dim=-1) * mask.unsqueeze(-1), mask.sum(-1)
    return (unit.sum(-2).square().sum(-1) - n) / (n * (n - 1))
