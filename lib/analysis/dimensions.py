"""What the terms of MSSE send to the vectors that they read, and what its dimensions have in common."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.data.sts import POSITIVE_GOLD, STSTask
from lib.losses.dimension_contrast import cross_correlation
from lib.results import history


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
