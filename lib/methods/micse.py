"""miCSE (Klein, Nabi 2023, arXiv 2211.04928): attention mutual information (AMI), momentum encoder and queue.

With ami_weight 0 it is SimCSE + MoCo, with queue_size 0 SimCSE + AMI, with both SimCSE. The attention term can be
added to other methods, see lib.methods.attention_term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Interval
from torch import Tensor

from lib.checks import ConfigError, Count, NonNegative, Positive, Probability
from lib.data import Batch
from lib.distributed import gather
from lib.encoders import SentenceEncoder
from lib.encoders.heads import projection_head
from lib.losses import info_nce, positives_only
from lib.methods.attention_term import AMIArguments, AttentionTerm
from lib.methods.base import Method, Needs, Views
from lib.methods.momentum import MomentumQueue


@dataclass(frozen=True)
class MiCSEArguments(AMIArguments):
    ami_weight: NonNegative = 1.0e-3  # lambda; the authors' value at 0.1 % of the data
    temperature: Positive = 0.05
    queue_size: Count = 384  # Section 4.1; 0 switches momentum encoder and queue off
    momentum: Probability = 0.995
    momentum_dropout: Annotated[float, Interval(ge=0, le=0.99)] = 0.3  # of the momentum encoder
    negatives: Literal["in_batch", "own_view", "none"] = "in_batch"  # code; Eq. 2; Table 4, lower half
    positive_in_denominator: bool = True  # False as in Eq. 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negatives == "none" and self.queue_size:
            raise ConfigError("negatives 'none' leaves the queue unread: set queue_size to 0.")
        if self.negatives == "none" and not self.positive_in_denominator:
            raise ConfigError("negatives 'none' needs the positive in the denominator: nothing else is there.")


class MiCSE(Method):
    """Terms `info_nce` (Eq. 2) and `ami` (Eq. 3): the same sentence twice, dropout makes the two views."""

    Arguments = MiCSEArguments

    @classmethod
    def needs(cls, arguments: MiCSEArguments) -> Needs:
        return Needs(projected_negatives=arguments.queue_size > 0)

    def __init__(self, encoder: SentenceEncoder, arguments: MiCSEArguments) -> None:
        super().__init__(encoder, arguments)
        self.training_head = projection_head(encoder.dimension)
        self.attention_term = AttentionTerm(encoder, arguments)
        size, momentum, dropout = arguments.queue_size, arguments.momentum, arguments.momentum_dropout
        self.queue = MomentumQueue(encoder, size=size, momentum=momentum, dropout=dropout) if size else None
        self.latest: tuple[Tensor, Tensor] | None = None

    def embed(self, batch: Batch) -> Views:
        input_ids, mask = self.latest = batch.column("anchor")  # [N, L]
        maps = self.attention_term.maps()
        z = self.encoder(input_ids.repeat_interleave(2, 0), mask.repeat_interleave(2, 0), maps=maps)
        negatives = None if self.queue is None else self.queue.negatives().clone()
        return Views({"encoder": z.unflatten(0, (-1, 2))}, negatives=negatives, captured={"maps": maps})

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        pair, arguments = views.by_role().values(), self.arguments
        if arguments.negatives == "none":
            loss = positives_only(*pair, temperature=arguments.temperature)
        else:
            how = {"include_positive": arguments.positive_in_denominator, "own_view": arguments.negatives == "own_view"}
            loss = info_nce(*pair, temperature=arguments.temperature, queue=views.negatives, **how)
        return {"info_nce": loss} | self.attention_term.of_copies(views.captured["maps"], batch)

    def after_step(self) -> None:
        """The copy follows the encoder, then embeds this batch for the next steps, with the online head.

        ESimCSE, whose code the authors build on, lets it follow just before the optimiser's step; here just after.
        """
        super().after_step()
        if self.queue is None:
            return
        self.queue.follow(self.encoder)
        with torch.no_grad():
            self.queue.append(gather(self.training_head(self.queue.encoder(*self.latest))))
