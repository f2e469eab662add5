"""What the terms of MSSE send to the vectors that they read, for one batch."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from lib.losses import dimension_contrast, info_nce
from lib.losses.dimension_contrast import REDUCTIONS


def term_scales(method: Any, batch: Any) -> pd.DataFrame:
    """Value of each term with weight 1, and the norm of its gradient at the vectors it reads, in training mode.

    Args:
        method: MSSE with all three weights above 0. batch: of anchors; on its device.

    Returns:
        index: L_NCE; L_DCM with every reduction, columns and weights as the method has them; L_ICM as mean and sum over
        the tokens. Columns: value, gradient at h, and relative to L_NCE, of the gradients.
    """
    was_training, arguments = method.training, method.arguments
    method.train()
    embedded = method.embed(batch)
    leaves = {name: z.detach().requires_grad_() for name, z in embedded.embeddings.items()}
    views = method.project(embedded.replace(embeddings=leaves))
    z, columns, memory = (views.by_role(name) for name in ("encoder", "dimensions", "memory"))
    terms = {"L_NCE": ("encoder", info_nce(z["anchor"], z["positive"], temperature=arguments.temperature))}
    options = {"normalise": arguments.dimension_normalise, "diagonal_weight": arguments.diagonal_weight}
    options |= {"off_diagonal_weight": arguments.off_diagonal_weight}
    for how in REDUCTIONS:
        loss = dimension_contrast(columns["anchor"], columns["positive"], reduce=how, **options)
        terms[f"L_DCM, {how}"] = "dimensions", loss
    for how in ("mean", "sum"):
        terms[f"L_ICM, {how} over the tokens"] = "memory", method.rebuild(memory["anchor"], batch, how)
    rows = {
        name: (loss.item(), torch.autograd.grad(loss, leaves[which], retain_graph=True)[0].norm().item())
        for name, (which, loss) in terms.items()
    }
    method.train(was_training)
    frame = pd.DataFrame(rows, index=["value", "gradient at h"]).T
    return frame.assign(**{"relative to L_NCE": frame["gradient at h"] / frame.loc["L_NCE", "gradient at h"]})


def gradient_ratios(history: pd.DataFrame) -> pd.DataFrame:
    """MSSE's history with the columns dimension and reconstruction: what each weighted term sends to the vectors, relative
    to the contrastive one, at the steps where vectors were exchanged (`swap_every`)."""
    terms = ("dimension", "reconstruction")
    ratios = {name: history[f"{name}_gradient"] / history.contrastive_gradient for name in terms}
    return history.assign(**ratios).dropna(subset="own_vector")


def vector_savings(history: pd.DataFrame) -> pd.DataFrame:
    """MSSE's history with the columns saves and misleads (nats a token): L_ICM with the mean vector of the batch, and with
    the next sentence's, minus L_ICM with the own one."""
    own = history.own_vector
    return history.assign(saves=history.mean_vector - own, misleads=history.other_vector - own)


def toy_views(leak: float, noise: float) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Two views [400, 4] of random vectors, in three cases: every dimension for itself; `leak` of the first in the second
    one, too; a second view with `noise`, as deviation, where the others have 0.2."""
    random = torch.Generator().manual_seed(0)
    clean = torch.randn(400, 4, generator=random, dtype=torch.float64)
    polluted = clean.clone()
    polluted[:, 1] += leak * clean[:, 0]
    cases = {"each for itself": (clean, 0.2), "1 leaks into 2": (polluted, 0.2), "views disagree": (clean, noise)}
    return {name: (h, h + size * torch.randn(400, 4, generator=random)) for name, (h, size) in cases.items()}
