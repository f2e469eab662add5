"""What the terms of MSSE send to the vectors that they read, and what its dimensions have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.data import load_corpus, tokenize_corpus
from lib.data.sts import POSITIVE_GOLD, STSTask
from lib.encoders import SentenceEncoder
from lib.losses import dimension_contrast, info_nce
from lib.losses.dimension_contrast import REDUCTIONS, cross_correlation
from lib.results import history


def scales_at_start(config: Any) -> pd.DataFrame:
    """Value of each term of a run of MSSE (its RunConfig) with weight 1, and the norm of its gradient at the vectors it
    reads: before the first step, for one batch of its sentences in training mode.

    Returns:
        index: L_NCE; L_DCM with every reduction, columns and weights as the method has them; L_ICM as mean and sum over
        the tokens. Columns: value, gradient at h, and relative to L_NCE, of the gradients.
    """
    sentences = load_corpus(config.corpus, config.data_folder(), size=config.batch_size, seed=config.corpus_seed)
    encoder = SentenceEncoder.from_pretrained(config.backbone, pooling=config.pooling, dropout=config.dropout)
    torch.manual_seed(config.seed)
    tokens = tokenize_corpus(sentences, encoder, max_length=config.max_length)
    batch = tokens.batch(range(len(sentences))).to(encoder.device)
    weights = dict.fromkeys(("nce_weight", "dimension_weight", "reconstruction_weight"), 1.0)
    method = config.spec.build(encoder, {**config.method_arguments, **weights}).train()
    arguments, embedded = method.arguments, method.embed(batch)
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
    frame = pd.DataFrame(rows, index=["value", "gradient at h"]).T
    return frame.assign(**{"relative to L_NCE": frame["gradient at h"] / frame.loc["L_NCE", "gradient at h"]})


def term_history(*quantities: str) -> Callable[[Any], pd.DataFrame]:
    """As `results.history`, with further quantities at the steps where MSSE exchanged vectors (`swap_every`).

    dimension, reconstruction: what each weighted term sends to the vectors, relative to the contrastive one. saves,
    misleads (nats a token): L_ICM with the mean vector of the batch, and with the next sentence's, minus L_ICM with the
    own one.
    """

    def derive(steps: pd.DataFrame) -> pd.DataFrame:
        if "own_vector" not in steps:
            return steps
        own, ratios = steps.own_vector, {}
        for name in {"dimension_gradient", "reconstruction_gradient"} & {*steps}:
            ratios[name.removesuffix("_gradient")] = (steps[name] / steps.contrastive_gradient).where(own.notna())
        return steps.assign(saves=steps.mean_vector - own, misleads=steps.other_vector - own, **ratios)

    return history(*quantities, derive=derive)


def agreement(encoder: Any, task: STSTask) -> pd.DataFrame:
    """How far dimensions agree across pairs that mean the same (gold above 4), which MSSE's dimension-level contrast asks
    for: the mean correlation of a dimension `with itself` in the partners (higher is better), and the root mean square of
    that `with others`, near 1 / sqrt(pairs) where columns are independent. As rows of scores.
    """
    first, second = (np.array(side)[task.gold > POSITIVE_GOLD].tolist() for side in (task.sentences1, task.sentences2))
    correlation = cross_correlation(*(torch.from_numpy(encoder.encode(side)).double() for side in (first, second)))
    own, size = correlation.diagonal(), len(correlation)
    others = (correlation.square().sum() - own.square().sum()) / (size * (size - 1))
    values = {"correlation with itself": float(own.mean()), "correlation with others": float(others.sqrt())}
    frame = pd.DataFrame({"metric": values.keys(), "value": values.values()})
    return frame.assign(task=task.name, split=task.split, protocol=f"pairs with gold above {POSITIVE_GOLD:g}")
