"""InfoNCE over all 2N x 2N copies: the contrastive loss of SimCLR, Mirror-BERT, TNCSE and JTCSE."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def twin_info_nce(a: Tensor, b: Tensor | None = None, *, temperature: float = 0.05) -> Tensor:
    """Every copy looks for the other copy of its sentence among all copies but itself.

        l_i = -log( e^{cos(a_i, b_pi(i))/t} / sum_{j != i} e^{cos(a_i, b_j)/t} ),   pi(2k) = 2k+1, pi(2k+1) = 2k

    With one encoder (b = a) each copy has 2N - 2 negatives, from both views (SimCLR's NT-Xent, arXiv 2002.05709, Eq. 1;
    Mirror-BERT, arXiv 2104.08027, Eq. 1; JTCSE, Eq. 11). With two, the same row of the other encoder is neither positive
    nor negative (Eq. 12; both as the authors' code reads them); twin_info_nce(a, b) and twin_info_nce(b, a) differ.
    Returns the mean over the 2N rows.

    Args:
        a, b: [2N, D]; rows 2k and 2k+1 are the two copies of sentence k; normalised inside. None: b = a.
    """
    b = a if b is None else b
    if a.dim() != 2 or a.shape != b.shape or len(a) % 2:
        raise ValueError(f"a {tuple(a.shape)} and b {tuple(b.shape)} must both be [2N, D].")
    if temperature <= 0:
        raise ValueError("temperature must be positive.")
    similarities = F.normalize(a, dim=-1, eps=1e-8) @ F.normalize(b, dim=-1, eps=1e-8).T / temperature  # [2N, 2N]
    similarities = similarities.masked_fill(torch.eye(len(a), dtype=torch.bool, device=a.device), -math.inf)
    partner = torch.arange(len(a), device=a.device) ^ 1
    return F.cross_entropy(similarities, partner)
