"""What the terms of MSSE send to the vectors that they read."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from lib.results import history


def term_history(*quantities: str) -> Callable[[Any], pd.DataFrame]:
    """As `results.history`, with further quantities at the steps where MSSE exchanged vectors (`swap_every`).

    dimension, reconstruction: what each weighted term sends to the vectors, relative to the contrastive one. saves,
    misleads (nats a token): L_ICM with the mean vector of the batch, and with the next sentence's, minus L_ICM with the
    own one.
    """

    def derive(steps: pd.DataFrame) -> pd.DataFrame:
        steps = steps.drop(columns=["dimension", "reconstruction"], errors="ignore")  # the losses, by the same names
        if "own_vector" not in steps:
            return steps
        own, ratios = steps.own_vector, {}
        for name in {"dimension_gradient", "reconstruction_gradient"} & {*steps}:
            ratios[name.removesuffix("_gradient")] = (steps[name] / steps.contrastive_gradient).where(own.notna())
        return steps.assign(saves=steps.mean_vector - own, misleads=steps.other_vector - own, **ratios)

    return history(*quantities, derive=derive)
