"""What the terms of MSSE send to the vectors that they read, for one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.analysis.geometry import dimension_agreement
from lib.data import load_corpus, tokenize_corpus
from lib.data.sts import POSITIVE_GOLD, STSTask
from lib.encoders import SentenceEncoder
from lib.losses import dimension_contrast, info_nce
from lib.losses.dimension_contrast import REDUCTIONS
from lib.results import history


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


def scales_at_start(config: Any) -> pd.DataFrame:
    """`term_scales` of a run of MSSE (its RunConfig) before its first step, on a batch of its sentences, every term with weight 1."""
    weights = dict.fromkeys(("nce_weight", "dimension_weight", "reconstruction_weight"), 1.0)
    sentences = load_corpus(config.corpus, config.data_folder(), size=config.batch_size, seed=config.corpus_seed)
    encoder = SentenceEncoder.from_pretrained(config.backbone, pooling=config.pooling, dropout=config.dropout)
    torch.manual_seed(config.seed)
    batch = tokenize_corpus(sentences, encoder, max_length=config.max_length).batch(range(len(sentences)))
    return term_scales(config.spec.build(encoder, {**config.method_arguments, **weights}), batch.to(encoder.device))


def term_history(*quantities: str) -> Callable[[Any], pd.DataFrame]:
    """As `results.history`, with further quantities at the steps where MSSE exchanged vectors (`swap_every`).

    dimension, reconstruction: what each weighted term sends to the vectors, relative to the contrastive one. saves,
    misleads (nats a token): L_ICM with the mean vector of the batch, and with the next sentence's, minus L_ICM with the
    own one.
    """
    return history(*quantities, derive=_of_terms)


def _of_terms(steps: pd.DataFrame) -> pd.DataFrame:
    if "own_vector" not in steps:
        return steps
    own, ratios = steps.own_vector, {}
    for name in {"dimension_gradient", "reconstruction_gradient"} & {*steps}:
        ratios[name.removesuffix("_gradient")] = (steps[name] / steps.contrastive_gradient).where(own.notna())
    return steps.assign(saves=steps.mean_vector - own, misleads=steps.other_vector - own, **ratios)


def agreement(encoder: Any, task: STSTask) -> pd.DataFrame:
    """How far dimensions agree across pairs that mean the same (gold above 4): rows of `geometry.dimension_agreement`."""
    first, second = (np.array(side)[task.gold > POSITIVE_GOLD].tolist() for side in (task.sentences1, task.sentences2))
    found = dimension_agreement(encoder.encode(first), encoder.encode(second))
    names = {"own": "correlation with itself", "others": "correlation with others"}
    frame = pd.DataFrame({"metric": [names[name] for name in found], "value": list(found.values())})
    return frame.assign(task=task.name, split=task.split, protocol=f"pairs with gold above {POSITIVE_GOLD:g}")
