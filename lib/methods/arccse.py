"""ArcCSE (Zhang et al., ACL 2022): SimCSE with an angular margin, and triplets of a sentence and two masked copies."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from annotated_types import Interval
from torch import Tensor

from lib.checks import ConfigError, NonNegative, Probability
from lib.data import Batch
from lib.encoders import SentenceEncoder
from lib.encoders.sentence_encoder import in_mode
from lib.methods.base import Needs, Views
from lib.methods.mirror_bert import mask_span
from lib.methods.simcse import SimCSE, SimCSEArguments


@dataclass(frozen=True)
class ArcCSEArguments(SimCSEArguments):
    """There is no authors' code: margins and triplet_weight are those of a third-party port."""

    margin: Annotated[float, Interval(ge=0, le=90)] = 10.0  # degrees; 0 is SimCSE's loss
    triplet_weight: NonNegative = 0.1  # lambda
    triplet_margin: NonNegative = 0.0  # by how much nearer the less masked copy has to be
    smaller_span: Probability = 0.2  # shares of the word pieces that are masked; ours, the paper's are not known here
    larger_span: Probability = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smaller_span >= self.larger_span:
            raise ConfigError(f"smaller_span {self.smaller_span} must be below larger_span {self.larger_span}.")


class ArcCSE(SimCSE):
    """Terms of SimCSE, the angle of each positive pair widened, and `triplet`:

        lambda mean max(0, cos(h, h'') - cos(h, h') + m2)

    h is the anchor's vector before any head that only training has, without dropout (as in the port); h' and h'' are those
    of its copies with a smaller and a larger span masked, one inside the other. With several processes `triplet` is that of
    each process's own sentences. Raises ConfigError where a prompt would be masked.
    """

    Arguments = ArcCSEArguments

    @classmethod
    def needs(cls, arguments: ArcCSEArguments) -> Needs:
        needs = super().needs(arguments)
        if arguments.triplet_weight:
            needs = replace(needs, passes=5, beside_embeddings=(*needs.beside_embeddings, "triplet_weight"))
        return needs

    def __init__(self, encoder: SentenceEncoder, arguments: ArcCSEArguments) -> None:
        super().__init__(encoder, arguments)
        if arguments.triplet_weight and encoder.pooling == "mask_prompt":
            raise ConfigError("arccse would mask words of the prompt: set triplet_weight to 0 or pool otherwise.")

    def embed(self, batch: Batch) -> Views:
        views = super().embed(batch)
        return views.replace(captured={"triplets": self.triplets(batch)}) if self.arguments.triplet_weight else views

    def triplets(self, batch: Batch) -> Tensor:
        """[3, N, D]: of the anchors, and of their copies with the smaller and the larger span masked; no dropout, in fp32."""
        (input_ids, mask), arguments = batch.column("anchor"), self.arguments  # [N, L]
        words = mask.sum(1) - 2
        lengths = torch.stack([(share * words).long() for share in (arguments.smaller_span, arguments.larger_span)])
        masked = mask_span(input_ids, mask, lengths, self.encoder.tokenizer.mask_token_id)  # [2, N, L]
        texts = torch.cat([input_ids[None], masked])
        with in_mode(self.encoder, training=False):
            return self.encoder(texts.flatten(0, 1), mask.repeat(3, 1)).unflatten(0, (3, -1))

    def further(self, views: Views, batch: Batch) -> dict[str, Any]:
        return super().further(views, batch) | {"margin": self.arguments.margin}

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        arguments, terms = self.arguments, super().loss(views, batch)
        if arguments.triplet_weight:
            h, less, more = views.captured["triplets"]
            nearer = F.cosine_similarity(h, less, dim=-1) - F.cosine_similarity(h, more, dim=-1)
            terms["triplet"] = arguments.triplet_weight * F.relu(arguments.triplet_margin - nearer).mean()
        return terms
