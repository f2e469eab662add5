"""miCSE (Klein, Nabi 2023, arXiv 2211.04928): attention mutual information (AMI), momentum encoder and queue.

With ami_weight 0 it is SimCSE + MoCo, with queue_size 0 SimCSE + AMI, with both SimCSE. The attention term can be
added to other methods, see AttentionTerm.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lib.config import ConfigError, check_choice, check_range, check_types
from lib.distributed import gather
from lib.encoder import SentenceEncoder, projection_head
from lib.losses import attention_mutual_information, info_nce, positives_only
from lib.losses.attention_mutual_information import SLICINGS
from lib.methods.base import Method
from lib.packed import AttentionMaps


@dataclass(frozen=True)
class AMIArguments:
    """The attention term. Defaults are the authors' commands; the paper's text differs, see the notebook."""

    ami_weight: float = 0.0  # lambda: 2.5e-3 in the paper, 1e-4 to 1e-3 in the authors' commands; 0 switches it off
    min_layer: int = 7  # attention is taken from the layers [min_layer, max_layer), counted from 0
    max_layer: int = 11
    slicing: str = "layer_parity"  # layer_parity (code) or head_pairs (paper)
    ami_samples: int = 150  # attention entries drawn per row; rows that have fewer are left out
    padded_queries: bool = True  # entries whose query is padding may be drawn (code), or tokens only (paper)
    valid_fraction_factor: bool = True  # the code's factor for padding and dropout, one for a batch; the paper has none

    def __post_init__(self) -> None:
        check_types(self)
        check_range("ami_weight", self.ami_weight, 0)
        check_range("min_layer", self.min_layer, 0)
        check_range("max_layer", self.max_layer, self.min_layer + 1)
        check_range("ami_samples", self.ami_samples, 2)
        check_choice("slicing", self.slicing, SLICINGS)
        if self.ami_weight and self.slicing == "layer_parity" and (self.max_layer - self.min_layer) % 2:
            raise ConfigError(
                f"slicing 'layer_parity' pools every second layer and needs an even number of them: min_layer "
                f"{self.min_layer} and max_layer {self.max_layer} leave {self.max_layer - self.min_layer}."
            )


class AttentionTerm:
    """AMI as a term of any method: it gives what to capture, and the weighted loss of what was captured.

    With several processes each takes the mean over the rows of its own sentences (embeddings are gathered, attention is
    not), so padding and the rows left out differ from one process.

    Raises:
        ConfigError: the backbone has too few layers, or an odd number of heads for head_pairs.
        EncoderError: the encoder gives no attention maps.
    """

    def __init__(self, encoder: SentenceEncoder, arguments: AMIArguments) -> None:
        self.arguments = arguments
        self.is_on = arguments.ami_weight > 0
        if not self.is_on:
            return
        config = encoder.backbone.config
        if arguments.max_layer > config.num_hidden_layers:
            raise ConfigError(
                f"max_layer {arguments.max_layer} is beyond the {config.num_hidden_layers} layers of this backbone: "
                "choose min_layer and max_layer within them (the authors' 7 and 11 are for 12 layers)."
            )
        if arguments.slicing == "head_pairs" and config.num_attention_heads % 2:
            raise ConfigError(f"slicing 'head_pairs' needs an even number of heads, got {config.num_attention_heads}.")
        encoder.check_attention(self._layers)

    @property
    def _layers(self) -> tuple[int, ...]:
        return tuple(range(self.arguments.min_layer, self.arguments.max_layer))

    def maps(self) -> AttentionMaps | None:
        """What a forward pass is to capture; None when the term is off."""
        return AttentionMaps(self._layers, self.arguments.padded_queries) if self.is_on else None

    def __call__(self, att1: Tensor, att2: Tensor, mask: Tensor) -> Tensor:
        """att1, att2 [layers, N, heads, L, L] of the views, mask [N, L] of both -> weighted scalar."""
        arguments, tokens = self.arguments, mask.bool()
        queries = torch.ones_like(tokens) if arguments.padded_queries else tokens
        return arguments.ami_weight * attention_mutual_information(
            att1,
            att2,
            valid=queries[:, :, None] & tokens[:, None, :],
            slicing=arguments.slicing,
            samples=arguments.ami_samples,
            valid_fraction_factor=arguments.valid_fraction_factor,
        )


class MomentumQueue(nn.Module):
    """A slowly following copy of the encoder, and its embeddings of the latest batches.

    Args:
        size: rows kept; fewer during the first steps.
        momentum: theta_m <- momentum theta_m + (1 - momentum) theta.
        dropout: of the copy, which embeds in training mode.
    """

    def __init__(self, encoder: SentenceEncoder, *, size: int, momentum: float, dropout: float) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).requires_grad_(False)
        for module in self.encoder.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
        self.momentum = momentum
        self.register_buffer("rows", torch.zeros(size, encoder.dimension))
        self.register_buffer("filled", torch.tensor(0))

    def negatives(self) -> Tensor:
        """[Q, D], Q at most `size`, oldest first."""
        return self.rows[: int(self.filled)]

    @torch.no_grad()
    def follow(self, encoder: SentenceEncoder) -> None:
        for own, other in zip(self.encoder.parameters(), encoder.parameters(), strict=True):
            own.lerp_(other, 1 - self.momentum)

    @torch.no_grad()
    def append(self, z: Tensor) -> None:
        """z [N, D] are the newest rows; the oldest ones beyond `size` go."""
        kept = torch.cat([self.negatives(), z])[-len(self.rows) :]
        self.rows[: len(kept)] = kept
        self.filled.fill_(len(kept))


@dataclass(frozen=True)
class MiCSEArguments(AMIArguments):
    ami_weight: float = 1.0e-3  # lambda; the authors' value at 0.1 % of the data
    temperature: float = 0.05
    queue_size: int = 384  # Section 4.1; 0 switches momentum encoder and queue off
    momentum: float = 0.995
    momentum_dropout: float = 0.3  # of the momentum encoder
    negatives: str = "in_batch"  # in_batch or none (Table 4, lower half)
    positive_in_denominator: bool = True  # False as in Eq. 2 (whose negatives also come from the anchor's own view)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("temperature", self.temperature, 0, above=True)
        check_range("queue_size", self.queue_size, 0)
        check_range("momentum", self.momentum, 0, 1)
        check_range("momentum_dropout", self.momentum_dropout, 0, 0.99)
        check_choice("negatives", self.negatives, ("in_batch", "none"))
        if self.negatives == "none" and self.queue_size:
            raise ConfigError("negatives 'none' leaves the queue unread: set queue_size to 0.")
        if self.negatives == "none" and not self.positive_in_denominator:
            raise ConfigError("negatives 'none' needs the positive in the denominator: nothing else is there.")


class MiCSE(Method):
    """Terms `info_nce` (Eq. 2) and `ami` (Eq. 3): the same sentence twice, dropout makes the two views."""

    Arguments = MiCSEArguments
    corpora = ("sentences",)

    def __init__(self, encoder: SentenceEncoder, arguments: MiCSEArguments) -> None:
        super().__init__(encoder, arguments)
        self.training_head = projection_head(encoder.dimension)
        self.attention_term = AttentionTerm(encoder, arguments)
        self.queue = None
        if arguments.queue_size:
            self.queue = MomentumQueue(
                encoder, size=arguments.queue_size, momentum=arguments.momentum, dropout=arguments.momentum_dropout
            )
        self.latest: tuple[Tensor, Tensor] | None = None

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        input_ids, mask = batch["input_ids"][:, 0], batch["attention_mask"][:, 0]  # [N, L]
        self.latest = (input_ids, mask)
        maps = self.attention_term.maps()
        # rows 2k and 2k + 1 are the two views of sentence k
        z = self.encoder(input_ids.repeat_interleave(2, 0), mask.repeat_interleave(2, 0), maps=maps)
        z = self.training_head(z)
        z1, z2 = gather(z[0::2]), gather(z[1::2])
        temperature = self.arguments.temperature
        if self.arguments.negatives == "none":
            terms = {"info_nce": positives_only(z1, z2, temperature=temperature)}
        else:
            terms = {
                "info_nce": info_nce(
                    z1,
                    z2,
                    temperature=temperature,
                    queue=None if self.queue is None else self.queue.negatives().clone(),
                    include_positive=self.arguments.positive_in_denominator,
                )
            }
        if maps is not None:
            attention = maps.probabilities()
            terms["ami"] = self.attention_term(attention[:, 0::2], attention[:, 1::2], mask)
        return terms

    def after_step(self) -> None:
        """The copy follows the encoder, then embeds this batch for the next steps, with the online head.

        ESimCSE, whose code the authors build on, lets it follow just before the optimiser's step; here just after.
        """
        if self.queue is None:
            return
        self.queue.follow(self.encoder)
        with torch.no_grad():
            self.queue.append(gather(self.training_head(self.queue.encoder(*self.latest))))
