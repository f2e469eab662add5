"""InforMin-CL (Chen et al. 2022, arXiv 2209.10951): SimCSE, and each view rebuilt from the other. Facts from the
authors' code."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lib.checks import NonNegative
from lib.data import Batch
from lib.losses import mutual_reconstruction
from lib.methods.base import Views
from lib.methods.simcse import Projection, SimCSE, SimCSEArguments


@dataclass(frozen=True)
class InforMinCLArguments(SimCSEArguments):
    projection: Projection = "none"  # the script reads the raw [CLS] vector
    forgetting_weight: NonNegative = 1.0  # the argument's default; the paper's tables have larger weights
    forgetting_reduce: Literal["mean", "sum"] = "mean"  # over all entries (code), or their sum over the dimensions


class InforMinCL(SimCSE):
    """Terms of SimCSE, and `forgetting`; both read the vectors behind the projection, if there is one."""

    Arguments = InforMinCLArguments

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        arguments, terms, z = self.arguments, super().loss(views, batch), views.by_role()
        if arguments.forgetting_weight:
            loss = mutual_reconstruction(z["anchor"], z["positive"], reduce=arguments.forgetting_reduce)
            terms["forgetting"] = arguments.forgetting_weight * loss
        return terms
