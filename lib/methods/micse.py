"""miCSE (Klein, Nabi 2023, arXiv 2211.04928): attention mutual information (AMI), momentum encoder and queue.

With ami_weight 0 it is SimCSE + MoCo, with queue_size 0 SimCSE + AMI, with both SimCSE. Other methods that read a
sentence twice can have the attention term, too.
"""

import copy
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Interval
from torch import Tensor, nn

from lib.checks import Checked, ConfigError, Count, NonNegative, Positive, Probability, check_range
from lib.data import Batch
from lib.distributed import gather
from lib.encoders import SentenceEncoder
from lib.encoders.heads import projection_head
from lib.encoders.kinds import check_attention, check_packed
from lib.encoders.packed import AttentionMaps
from lib.losses import attention_mutual_information, info_nce, positives_only
from lib.losses.attention_mutual_information import SLICINGS
from lib.methods.base import Method, Needs, Views


@dataclass(frozen=True)
class AMIArguments(Checked):
    """The attention term. Defaults are the authors' commands; the paper's text differs, see the notebook."""

    ami_weight: NonNegative = 0.0  # lambda: 2.5e-3 in the paper, 1e-4 to 1e-3 in the authors' commands
    min_layer: Count = 7  # attention is taken from the layers [min_layer, max_layer), counted from 0
    max_layer: int = 11
    slicing: Literal[SLICINGS] = "layer_parity"  # layer_parity (code) or head_pairs (paper)
    ami_samples: Annotated[int, Interval(ge=2)] = 150  # entries drawn per row; rows with fewer are left out
    padded_queries: bool = True  # entries whose query is padding may be drawn (code), or tokens only (paper)
    valid_fraction_factor: bool = True  # the code's factor for padding and dropout, one for a batch; the paper has none

    @property
    def beside_embeddings(self) -> tuple[str, ...]:
        """See `Needs.beside_embeddings`."""
        return ("ami_weight",) if self.ami_weight else ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("max_layer", self.max_layer, self.min_layer + 1)
        if self.ami_weight and self.slicing == "layer_parity" and (self.max_layer - self.min_layer) % 2:
            raise ConfigError(
                f"slicing 'layer_parity' pools every second layer and needs an even number of them, not those from "
                f"min_layer {self.min_layer} to max_layer {self.max_layer}."
            )


@dataclass(frozen=True)
class MiCSEArguments(AMIArguments):
    ami_weight: NonNegative = 1.0e-3  # lambda; the authors' value at 0.1 % of the data
    temperature: Positive = 0.05
    queue_size: Count = 384  # Section 3.1; 0 switches momentum encoder and queue off
    momentum: Probability = 0.995
    momentum_dropout: Annotated[float, Interval(ge=0, le=0.99)] = 0.3  # of the momentum encoder
    negatives: Literal["in_batch", "own_view", "none"] = "in_batch"  # code; Eq. 2; Table 4, lower half
    positive_in_denominator: bool = True  # False as in Eq. 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negatives == "none" and (self.queue_size or not self.positive_in_denominator):
            raise ConfigError("negatives 'none' needs queue_size 0 and the positive in the denominator.")


class MiCSE(Method):
    """Terms `info_nce` (Eq. 2) and `ami` (Eqs. 4 and 5): the same sentence twice, dropout makes the two views."""

    Arguments = MiCSEArguments

    @classmethod
    def needs(cls, arguments: MiCSEArguments) -> Needs:
        return Needs(projected_negatives=arguments.queue_size > 0, beside_embeddings=arguments.beside_embeddings)

    def __init__(self, encoder: SentenceEncoder, arguments: MiCSEArguments) -> None:
        super().__init__(encoder, arguments)
        self.training_head = projection_head(encoder.dimension)
        self.attention_term = AttentionTerm(encoder, arguments)
        self.queue = MomentumQueue(encoder, arguments) if arguments.queue_size else None

    def embed(self, batch: Batch) -> Views:
        input_ids, mask = batch.column("anchor")  # [N, L]
        maps = self.attention_term.maps()
        z = self.encoder(input_ids.repeat_interleave(2, 0), mask.repeat_interleave(2, 0), maps=maps)
        negatives = None if self.queue is None else self.queue.negatives().clone()
        return Views({"encoder": z.unflatten(0, (-1, 2))}, negatives=negatives, captured={"maps": maps})

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        pair, arguments = views.by_role().values(), self.arguments
        self.latest = batch.column("anchor")  # [N, L], for the queue
        if arguments.negatives == "none":
            loss = positives_only(*pair, temperature=arguments.temperature)
        else:
            how = {"include_positive": arguments.positive_in_denominator, "own_view": arguments.negatives == "own_view"}
            loss = info_nce(*pair, temperature=arguments.temperature, queue=views.negatives, **how)
        return {"info_nce": loss} | self.attention_term.of_copies(views, batch)

    def after_step(self) -> None:
        super().after_step()
        if self.queue is not None:
            self.queue.update(self, *self.latest)


class AttentionTerm:
    """AMI as a term of any method: says which attention maps to capture, and turns them into the weighted loss.

    With several processes, each takes the mean over its own sentences: embeddings are gathered, attention is not.
    Padding and the rows left out then differ from those of one process. Raises ConfigError where the backbone has
    too few layers, EncoderError where it gives no attention maps.
    """

    def __init__(self, encoder: SentenceEncoder, arguments: AMIArguments) -> None:
        self.arguments, self.is_on = arguments, arguments.ami_weight > 0
        self.layers = tuple(range(arguments.min_layer, arguments.max_layer))
        if not self.is_on:
            return
        depth = encoder.backbone.config.num_hidden_layers
        if arguments.max_layer > depth:
            raise ConfigError(f"max_layer {arguments.max_layer} is beyond the {depth} layers of this backbone.")
        check_attention(encoder, self.layers)

    def maps(self) -> AttentionMaps | None:
        """What a forward pass is to capture; None when the term is off."""
        return AttentionMaps(self.layers, self.arguments.padded_queries) if self.is_on else None

    def of_copies(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        """The term of a pass whose rows 2k and 2k + 1 are the copies of anchor k; {} when it is off."""
        if not self.is_on:
            return {}
        attention = views.captured["maps"].probabilities()
        return {"ami": self(attention[:, 0::2], attention[:, 1::2], batch.column("anchor")[1])}

    def __call__(self, att1: Tensor, att2: Tensor, mask: Tensor) -> Tensor:
        """att1, att2 [layers, N, heads, L, L] of the views, mask [N, L] of both -> weighted scalar."""
        arguments, tokens = self.arguments, mask.bool()
        queries = torch.ones_like(tokens) if arguments.padded_queries else tokens
        valid, samples = queries[:, :, None] & tokens[:, None, :], arguments.ami_samples
        variant = {"slicing": arguments.slicing, "valid_fraction_factor": arguments.valid_fraction_factor}
        loss = attention_mutual_information(att1, att2, valid=valid, samples=samples, **variant)
        return arguments.ami_weight * loss


class MomentumQueue(nn.Module):
    """MoCo's slowly following copy of the encoder, and its embeddings of the latest batches as further negatives.

    arguments: with queue_size, momentum and momentum_dropout, see MiCSEArguments.
    """

    def __init__(self, encoder: SentenceEncoder, arguments: Any) -> None:
        super().__init__()
        check_packed(encoder.backbone.config, "the momentum encoder's own dropout (queue_size)")
        self.encoder = copy.deepcopy(encoder).requires_grad_(False)
        for module in self.encoder.modules():
            if isinstance(module, nn.Dropout):
                module.p = arguments.momentum_dropout
        self.momentum = arguments.momentum
        self.register_buffer("rows", torch.zeros(arguments.queue_size, encoder.dimension))
        self.register_buffer("filled", torch.tensor(0))

    def negatives(self) -> Tensor:
        """[Q, D], oldest first; Q is `queue_size`, and less during the first steps."""
        return self.rows[: int(self.filled)]

    @torch.no_grad()
    def update(self, method: Method, input_ids: Tensor, attention_mask: Tensor) -> None:
        """After a step: the copy follows the method's encoder, then embeds this batch [N, L] for the next steps, with the
        online head. In the code of ESimCSE, on which miCSE builds, it follows just before the optimiser's step."""
        for slow, fast in zip(self.encoder.parameters(), method.encoder.parameters(), strict=True):
            slow.lerp_(fast, 1 - self.momentum)
        views = Views({"encoder": self.encoder(input_ids, attention_mask)})
        z = gather(method.project(views).embeddings["encoder"])
        kept = torch.cat([self.negatives(), z])[-len(self.rows) :]
        self.rows[: len(kept)] = kept
        self.filled.fill_(len(kept))
