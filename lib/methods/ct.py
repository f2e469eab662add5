"""Contrastive Tension, CT (Carlsson et al., ICLR 2021): two encoders that start equal and share nothing."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from torch import Tensor

from lib.config import check_range
from lib.distributed import gather
from lib.encoder import SentenceEncoder
from lib.losses import contrastive_tension
from lib.methods.base import Method
from lib.methods.micse import AMIArguments, AttentionTerm


@dataclass(frozen=True)
class CTArguments(AMIArguments):
    negatives_per_sentence: int = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("negatives_per_sentence", self.negatives_per_sentence, 1)


class CT(Method):
    """Terms `contrastive_tension` and, with a positive ami_weight, `ami` (miCSE, Table 2); the first encoder is kept.

    The paper pools by the mean and trains with RMSProp, batch 16; optimisation here is that of all methods.
    """

    Arguments = CTArguments
    corpora = ("sentences",)
    encoders = 2

    def __init__(self, encoder: SentenceEncoder, arguments: CTArguments) -> None:
        super().__init__(encoder, arguments)
        self.twin = copy.deepcopy(encoder)
        self.attention_term = AttentionTerm(encoder, arguments)

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        input_ids, mask = batch["input_ids"][:, 0], batch["attention_mask"][:, 0]  # [N, L]
        maps = [self.attention_term.maps() for _ in range(2)]
        z1 = gather(self.encoder(input_ids, mask, maps=maps[0]))
        z2 = gather(self.twin(input_ids, mask, maps=maps[1]))
        terms = {"contrastive_tension": contrastive_tension(z1, z2, negatives=self.arguments.negatives_per_sentence)}
        if self.attention_term.is_on:
            terms["ami"] = self.attention_term(*(m.probabilities() for m in maps), mask)
        return terms
