"""Contrastive Tension (Carlsson et al., ICLR 2021): two encoders told apart by dot products."""

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive_tension(z1: Tensor, z2: Tensor, *, negatives: int = 7) -> Tensor:
    """Binary cross-entropy: is the dot product of two encoders' vectors one of the same sentence or of two?

    Sentence i of the first encoder meets itself (label 1) and the next `negatives` sentences of the batch (label 0) in
    the second encoder; fewer where the batch is smaller. The paper draws them from the corpus, also seven to one.
    Returns the mean over the N (1 + negatives) dot products.

    Args:
        z1, z2: [N, D], the same sentences by the two encoders; not normalised.
    """
    if z1.shape != z2.shape or z1.dim() != 2:
        raise ValueError(f"z1 {tuple(z1.shape)} and z2 {tuple(z2.shape)} must both be [N, D].")
    if negatives < 0:
        raise ValueError("negatives must not be below 0.")
    n = len(z1)
    others = torch.arange(min(negatives, n - 1) + 1, device=z1.device)  # 0 is the sentence itself
    partner = (torch.arange(n, device=z1.device)[:, None] + others) % n  # [N, 1 + negatives]
    logits = (z1[:, None] * z2[partner]).sum(-1)
    return F.binary_cross_entropy_with_logits(logits, (others == 0).to(logits.dtype).expand_as(logits))
