"""The attention term (AMI, miCSE's Eq. 3), which can be added to any method that reads a sentence twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Interval
from torch import Tensor

from lib.checks import Checked, ConfigError, Count, NonNegative, check_range
from lib.data import Batch
from lib.encoders import SentenceEncoder
from lib.encoders.packed import AttentionMaps
from lib.losses import attention_mutual_information
from lib.losses.attention_mutual_information import SLICINGS


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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("max_layer", self.max_layer, self.min_layer + 1)
        if self.ami_weight and self.slicing == "layer_parity" and (self.max_layer - self.min_layer) % 2:
            raise ConfigError(
                f"slicing 'layer_parity' pools every second layer and needs an even number of them: min_layer "
                f"{self.min_layer} and max_layer {self.max_layer} leave {self.max_layer - self.min_layer}."
            )


class AttentionTerm:
    """AMI as a term of any method: says which attention maps to capture, and turns them into the weighted loss.

    With several processes, each takes the mean over its own sentences: embeddings are gathered, attention is not.
    Padding and the rows left out then differ from those of one process.

    Raises:
        ConfigError: the backbone has too few layers, or an odd number of heads for head_pairs.
        EncoderError: the encoder gives no attention maps.
    """

    def __init__(self, encoder: SentenceEncoder, arguments: AMIArguments) -> None:
        self.arguments, self.is_on = arguments, arguments.ami_weight > 0
        self.layers = tuple(range(arguments.min_layer, arguments.max_layer))
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
        encoder.check_attention(self.layers)

    def maps(self) -> AttentionMaps | None:
        """What a forward pass is to capture; None when the term is off."""
        return AttentionMaps(self.layers, self.arguments.padded_queries) if self.is_on else None

    def of_copies(self, maps: AttentionMaps | None, batch: Batch) -> dict[str, Tensor]:
        """The term of a pass whose rows 2k and 2k + 1 are the copies of anchor k; {} when it is off."""
        if maps is None:
            return {}
        attention = maps.probabilities()
        return {"ami": self(attention[:, 0::2], attention[:, 1::2], batch.column("anchor")[1])}

    def __call__(self, att1: Tensor, att2: Tensor, mask: Tensor) -> Tensor:
        """att1, att2 [layers, N, heads, L, L] of the views, mask [N, L] of both -> weighted scalar."""
        arguments, tokens = self.arguments, mask.bool()
        queries = torch.ones_like(tokens) if arguments.padded_queries else tokens
        valid, samples = queries[:, :, None] & tokens[:, None, :], arguments.ami_samples
        variant = {"slicing": arguments.slicing, "valid_fraction_factor": arguments.valid_fraction_factor}
        loss = attention_mutual_information(att1, att2, valid=valid, samples=samples, **variant)
        return arguments.ami_weight * loss
