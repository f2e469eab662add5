"""Contrastive Tension, CT (Carlsson et al., ICLR 2021): two encoders that start equal and share nothing."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lib.checks import PositiveCount
from lib.data import Batch
from lib.encoders import SentenceEncoder
from lib.losses import contrastive_tension
from lib.methods.base import Method, Needs, Views
from lib.methods.micse import AMIArguments, AttentionTerm


@dataclass(frozen=True)
class CTArguments(AMIArguments):
    negatives_per_sentence: PositiveCount = 7


class CT(Method):
    """Terms `contrastive_tension` and, with a positive ami_weight, `ami` (miCSE, Table 2); the first encoder is kept.

    The paper pools by the mean and trains with RMSProp, batch 16; optimisation here is that of all methods.
    """

    Arguments = CTArguments

    @classmethod
    def needs(cls, arguments: CTArguments) -> Needs:
        return Needs(trained_encoders=2, beside_embeddings=arguments.beside_embeddings)

    def __init__(self, encoder: SentenceEncoder, arguments: CTArguments) -> None:
        super().__init__(encoder, arguments)
        self.names = ("first", "second")
        self.twin = copy.deepcopy(encoder)
        self.attention_term = AttentionTerm(encoder, arguments)

    def read(
        self, input_ids: Tensor, attention_mask: Tensor, maps: Mapping[str, Any] | None = None
    ) -> dict[str, Tensor]:
        twins = zip(self.names, (self.encoder, self.twin), strict=True)
        return {name: encoder(input_ids, attention_mask, maps=(maps or {}).get(name)) for name, encoder in twins}

    def embed(self, batch: Batch) -> Views:
        maps = {name: self.attention_term.maps() for name in self.names}
        vectors = self.read(*batch.column("anchor"), maps)
        return Views({name: h.unsqueeze(1) for name, h in vectors.items()}, ("anchor",), captured={"maps": maps})

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        first, second, negatives = views.rows("first"), views.rows("second"), self.arguments.negatives_per_sentence
        terms = {"contrastive_tension": contrastive_tension(first, second, negatives=negatives)}
        if self.attention_term.is_on:
            attention = [maps.probabilities() for maps in views.captured["maps"].values()]
            terms["ami"] = self.attention_term(*attention, batch.column("anchor")[1])
        return terms
