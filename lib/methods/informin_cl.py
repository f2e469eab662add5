"""InforMin-CL (Chen et al. 2022, arXiv 2209.10951): SimCSE, and each view rebuilt from the other. Facts from the
authors' code."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lib.checks import check_choice, check_range
from lib.data import Batch
from lib.losses import mutual_reconstruction
from lib.methods.base import Views
from lib.methods.simcse import SimCSE, SimCSEArguments


@dataclass(frozen=True)
class InforMinCLArguments(SimCSEArguments):
    projection: str = "none"  # the script reads the raw [CLS] vector; see PROJECTIONS
    forgetting_weight: float = 1.0  # the argument's default; the paper's tables have larger weights
    forgetting_reduce: str = "mean"  # over all entries (code), or their sum over the dimensions

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("forgetting_weight", self.forgetting_weight, 0)
        check_choice("forgetting_reduce", self.forgetting_reduce, ("mean", "sum"))


class InforMinCL(SimCSE):
    """Terms of SimCSE, and `forgetting`; both read the vectors behind the projection, if there is one."""

    Arguments = InforMinCLArguments

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        arguments, terms, z = self.arguments, super().loss(views, batch), views.by_role()
        if arguments.forgetting_weight:
            loss = mutual_reconstruction(z["anchor"], z["positive"], reduce=arguments.forgetting_reduce)
            terms["forgetting"] = arguments.forgetting_weight * loss
        return terms
