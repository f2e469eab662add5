"""InforMin-CL's forgetting term (Chen et al. 2022, arXiv 2209.10951): each view rebuilt from the other."""

import torch.nn.functional as F
from torch import Tensor


def mutual_reconstruction(z1: Tensor, z2: Tensor, *, reduce: str = "mean") -> Tensor:
    """L_R = mse(z1, z2) + mse(z2, z1) of the vectors at length 1, that is, 4 (1 - cos) / D for every pair.

    What only one of the views holds cannot be rebuilt from the other, and is to be forgotten.

    Args:
        z1, z2: [N, D], the two views; normalised inside.
        reduce: `mean` over all entries (authors' code; nearly nothing for large D), or `sum` over the dimensions and mean
            over the pairs, which is 4 (1 - cos), twice SimCSE's alignment.
    """
    if reduce not in ("mean", "sum"):
        raise ValueError(f"reduce {reduce!r} is unknown: choose mean or sum.")
    if z1.shape != z2.shape or z1.dim() != 2:
        raise ValueError(f"z1 {tuple(z1.shape)} and z2 {tuple(z2.shape)} must both be [N, D].")
    z1, z2 = F.normalize(z1, dim=-1, eps=1e-8), F.normalize(z2, dim=-1, eps=1e-8)
    loss = 2 * F.mse_loss(z1, z2)
    return loss * z1.size(1) if reduce == "sum" else loss
