"""Parts that several methods share: the attention term (AMI), momentum encoder and queue, token masking, gradient norms."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lib.checks import ConfigError, check_choice, check_range, check_types
from lib.data import Batch
from lib.distributed import processes
from lib.encoders import SentenceEncoder
from lib.encoders.packed import AttentionMaps
from lib.losses import attention_mutual_information, mask_tokens
from lib.losses.attention_mutual_information import SLICINGS


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


class GradientNorms:
    """Norms of the gradients that arrive at tensors on their way back."""

    def __init__(self) -> None:
        self._latest: dict[str, Tensor] = {}

    def watch(self, name: str, x: Tensor) -> Tensor:
        """The same values; of the gradients at x, only those that come back through this tensor are seen."""
        if not x.requires_grad:
            return x
        watched, world = x.view_as(x), processes().num_processes

        def keep(gradient: Tensor) -> None:  # DDP takes the mean over the processes
            self._latest[name] = gradient.detach().float().norm() / world

        watched.register_hook(keep)
        return watched

    def values(self) -> dict[str, float]:
        """Name -> Euclidean norm over all entries of this process's rows, of the last step."""
        return {name: float(norm) for name, norm in self._latest.items()}


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
        for slow, fast in zip(self.encoder.parameters(), encoder.parameters(), strict=True):
            slow.lerp_(fast, 1 - self.momentum)

    @torch.no_grad()
    def append(self, z: Tensor) -> None:
        """z [N, D] are the newest rows; the oldest ones beyond `size` go."""
        kept = torch.cat([self.negatives(), z])[-len(self.rows) :]
        self.rows[: len(kept)] = kept
        self.filled.fill_(len(kept))


class TokenMasking(nn.Module):
    """BERT's choice of tokens to predict: never special tokens, never padding.

    Raises:
        ConfigError: the vocabulary has no mask token, or whole words were asked for and it does not mark the pieces
            that continue a word.
    """

    def __init__(
        self, encoder: SentenceEncoder, *, probability: float, whole_words: bool = False, mask_only: bool = False
    ) -> None:
        super().__init__()
        self.probability, self.mask_id = probability, encoder.tokenizer.mask_token_id
        self.mask_only = mask_only
        if self.mask_id is None:
            raise ConfigError("this backbone's vocabulary has no mask token, so its words cannot be hidden.")
        pieces = encoder.tokenizer.convert_ids_to_tokens(list(range(encoder.backbone.config.vocab_size)))
        special = torch.zeros(len(pieces), dtype=torch.bool)
        special[encoder.tokenizer.all_special_ids] = True
        self.register_buffer("special", special, persistent=False)
        continues = [piece is not None and piece.startswith("##") for piece in pieces]
        self.register_buffer("continues", torch.tensor(continues) if whole_words else None, persistent=False)
        if whole_words and not any(continues):
            raise ConfigError("whole_words needs a WordPiece vocabulary (pieces that continue a word start with ##).")

    def forward(self, input_ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """input_ids, mask [N, L] -> masked input_ids and labels, see `losses.mask_tokens`."""
        maskable = ~self.special[input_ids] & mask.bool()
        continues = None if self.continues is None else self.continues[input_ids]
        rule = {"mask_id": self.mask_id, "vocabulary_size": len(self.special), "mask_only": self.mask_only}
        return mask_tokens(input_ids, maskable, probability=self.probability, continues=continues, **rule)
