"""ESimCSE (Wu et al., COLING 2022, arXiv 2109.04380): repeated word pieces, and a momentum queue. Facts from its code."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from annotated_types import Interval
from torch import Tensor

from lib.checks import ConfigError, Count, Probability
from lib.data import Batch
from lib.encoders import SentenceEncoder
from lib.encoders.kinds import longest_input
from lib.methods.base import Needs, Views
from lib.methods.micse import MomentumQueue
from lib.methods.simcse import SimCSE, SimCSEArguments, with_positive


@dataclass(frozen=True)
class ESimCSEArguments(SimCSEArguments):
    repetition_rate: Probability = 0.32  # of the second view's word pieces, see `repeat_tokens`; 0 repeats none
    queue_size: Count = 160  # 2.5 batches of 64; 0 switches momentum encoder and queue off
    momentum: Probability = 0.995
    momentum_dropout: Annotated[float, Interval(ge=0, le=0.99)] = 0.0  # of the momentum encoder
    momentum_start: Literal["pretrained", "random"] = "pretrained"  # random: as released, before the weights load

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.queue_size and self.projection == "bn_mlp":
            raise ConfigError(
                "esimcse's queue is projected one view at a time, which would move bn_mlp's averages: set queue_size to 0."
            )


class ESimCSE(SimCSE):
    """Terms of SimCSE; the queue's vectors are further negatives of `info_nce`.

    Word pieces are drawn anew for every batch (code: once before training). `augmentation: word_repetition(0.32)` with
    repetition_rate 0 repeats words of the text instead. Raises ConfigError where a prompt would be repeated.
    """

    Arguments = ESimCSEArguments

    @classmethod
    def needs(cls, arguments: ESimCSEArguments) -> Needs:
        return replace(super().needs(arguments), projected_negatives=arguments.queue_size > 0)

    def __init__(self, encoder: SentenceEncoder, arguments: ESimCSEArguments) -> None:
        super().__init__(encoder, arguments)
        if arguments.repetition_rate and encoder.pooling == "mask_prompt":
            raise ConfigError("esimcse would repeat words of the prompt: set repetition_rate to 0 or pool otherwise.")
        self.queue = MomentumQueue(encoder, arguments) if arguments.queue_size else None
        if self.queue is not None and arguments.momentum_start == "random":
            fresh = type(encoder.backbone)(encoder.backbone.config)
            self.queue.encoder.backbone.load_state_dict(fresh.state_dict(), strict=False)  # perhaps without a pooler

    def embed(self, batch: Batch) -> Views:
        rate = self.arguments.repetition_rate
        views = super().embed(repeat_tokens(batch, rate, self.encoder) if rate else batch)
        return views if self.queue is None else views.replace(negatives=self.queue.negatives().clone())

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        self.latest = batch.column("anchor")  # [N, L], for the queue
        return super().loss(views, batch)

    def after_step(self) -> None:
        super().after_step()
        if self.queue is not None:
            self.queue.update(self, *self.latest)


def repeat_tokens(batch: Batch, rate: float, encoder: SentenceEncoder, most: int = 10) -> Batch:
    """The batch with k different tokens of each positive (else of a copy of the anchor) doubled in place, none of them special.
    k is uniform in 0 to min(most, rate n) - 1 for n tokens; at most as many as the encoder takes. Padding is on the right."""
    input_ids, mask, roles = with_positive(batch)  # [N, S, L]
    (n, _, longest), times, positive = mask.shape, mask.clone(), roles.index("positive")
    lengths, place = mask[:, positive].sum(1), torch.arange(longest, device=mask.device)  # [N], [L]
    draw = torch.rand(n, 1 + longest, device="cpu").to(mask.device)
    count = (draw[:, 0] * (rate * lengths).long().clamp(max=most)).long()
    count = count.minimum(longest_input(encoder.backbone) - lengths)
    special = (place == 0) | (place >= lengths[:, None] - 1)
    rank = draw[:, 1:].masked_fill(special, 2.0).argsort(1).argsort(1)  # of the inner tokens, which come first
    times[:, positive] += (rank < count[:, None]) & ~special
    lengths = times.sum(2, keepdim=True)  # [N, S, 1]
    kept = torch.arange(int(lengths.max()), device=mask.device) < lengths
    longer = input_ids.new_full(kept.shape, encoder.tokenizer.pad_token_id)
    longer[kept] = input_ids.flatten().repeat_interleave(times.flatten())
    return replace(batch, input_ids=longer, attention_mask=kept.to(mask.dtype), roles=roles)
