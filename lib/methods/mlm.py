"""Masked language modelling (BERT), and Condenser's late head on top of it (Gao, Callan 2021, arXiv 2104.08253),
which is the first stage of InfoCSE (Wu et al. 2022, arXiv 2210.06432, Eqs. 5 and 6)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM
from transformers.utils import cached_file

from lib import packed
from lib.config import ConfigError, check_range, check_types
from lib.encoder import EncoderError, SentenceEncoder
from lib.losses import IGNORED, mask_tokens, masked_lm
from lib.methods.base import Method

LATE_LAYERS = "condenser_head.safetensors"  # beside the model's own files


@dataclass(frozen=True)
class MLMArguments:
    mlm_probability: float = 0.15
    whole_words: bool = False  # all pieces of a word are masked together; Condenser does
    condenser_weight: float = 0.0  # weight of the late head's loss; 1 in Condenser, 0 is plain BERT
    early_layers: int = 0  # the late head reads the tokens after this many layers; 0: half of the backbone's
    late_layers: int = 2  # layers of the late head

    def __post_init__(self) -> None:
        check_types(self)
        check_range("mlm_probability", self.mlm_probability, 0, 1, above=True)
        check_range("condenser_weight", self.condenser_weight, 0)
        check_range("early_layers", self.early_layers, 0)
        check_range("late_layers", self.late_layers, 1)


class MLM(Method):
    """Terms `mlm` (Eq. 5) and, with a positive condenser_weight, `condenser` (Eq. 6).

    The late head predicts the same masked tokens from [h_cls after the last layer; tokens after the early layers]:
    what the early layers do not know of the sentence, it can only learn from the [CLS] vector. Both losses share one
    LM head, tied to the word embeddings; nothing is detached, everything is trained.
    """

    Arguments = MLMArguments
    corpora = ("sentences",)
    views = 1
    reads_files = ("model*.safetensors", LATE_LAYERS)
    splits_long_rows = True
    groups_lengths = True
    keeps_last = True

    def __init__(self, encoder: SentenceEncoder, arguments: MLMArguments) -> None:
        super().__init__(encoder, arguments)
        backbone = encoder.backbone
        if not packed.supports(backbone):
            raise EncoderError("method mlm needs a backbone loaded with fused attention (attention='sdpa').")
        depth = backbone.config.num_hidden_layers
        self.early = arguments.early_layers or depth // 2
        if arguments.condenser_weight and not 0 < self.early < depth:
            raise ConfigError(
                f"early_layers must lie between 1 and {depth - 1}, below the last layer; got {self.early}."
            )
        self.lm_head = mlm_head(encoder, tied=True)
        self.late = late_layers(encoder, arguments.late_layers) if arguments.condenser_weight else None
        pieces = encoder.tokenizer.convert_ids_to_tokens(list(range(backbone.config.vocab_size)))
        special = torch.zeros(len(pieces), dtype=torch.bool)
        special[encoder.tokenizer.all_special_ids] = True
        self.register_buffer("special", special, persistent=False)
        continues = [piece is not None and piece.startswith("##") for piece in pieces]
        self.register_buffer("continues", torch.tensor(continues), persistent=False)
        if arguments.whole_words and not any(continues):
            raise ConfigError("whole_words needs a WordPiece vocabulary (pieces that continue a word start with ##).")

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        input_ids, mask = batch["input_ids"][:, 0], batch["attention_mask"][:, 0].bool()
        masked, labels = mask_tokens(
            input_ids,
            ~self.special[input_ids] & mask,
            mask_id=self.encoder.tokenizer.mask_token_id,
            vocabulary_size=self.encoder.backbone.config.vocab_size,
            probability=self.arguments.mlm_probability,
            continues=self.continues[input_ids] if self.arguments.whole_words else None,
        )
        tokens = packed.Tokens(mask)
        labels = tokens.pack(labels.unsqueeze(-1)).squeeze(-1)  # [T]
        chosen = (labels != IGNORED).nonzero().squeeze(-1)  # the head sees these only
        labels = labels[chosen]
        backbone, layers = self.encoder.backbone, self.encoder.backbone.encoder.layer
        with self.encoder.precision(input_ids.device):
            embedded = tokens.pack(backbone.embeddings(input_ids=masked))
            early = packed.run_layers(layers[: self.early], embedded, tokens)
            last = packed.run_layers(layers[self.early :], early, tokens)
            logits = {"mlm": self.lm_head(last[chosen])}
            if self.late is not None:
                starts = tokens.starts()
                hidden = early.index_copy(0, starts, last[starts].to(early.dtype))  # [h_cls; M[1:]]
                logits["condenser"] = self.lm_head(packed.run_layers(self.late, hidden, tokens)[chosen])
        terms = {name: masked_lm(values.float(), labels) for name, values in logits.items()}
        if self.late is not None:
            terms["condenser"] = self.arguments.condenser_weight * terms["condenser"]
        return terms

    def save(self, folder: str | os.PathLike) -> None:
        """The encoder with its MLM head, and the late layers beside it."""
        self.encoder.save(folder)
        folder, backbone = Path(folder), self.encoder.backbone
        config = json.loads((folder / "config.json").read_text(encoding="utf8"))
        model = AutoModelForMaskedLM.from_config(backbone.config)
        setattr(model, model.base_model_prefix, backbone)
        setattr(model, _head_name(model), self.lm_head)
        model.config.tie_word_embeddings = True
        model.save_pretrained(folder)
        config |= json.loads((folder / "config.json").read_text(encoding="utf8"))
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf8")
        if self.late is not None:
            weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.late.state_dict().items()}
            save_file(weights, folder / LATE_LAYERS)


def _head_name(model: nn.Module) -> str:
    return "cls" if hasattr(model, "cls") else "lm_head"


def mlm_head(encoder: SentenceEncoder, *, tied: bool) -> nn.Module:
    """The MLM head [.., H] -> [.., V] that was saved with the backbone, in float32.

    Args:
        tied: its decoder shares the word embeddings of `encoder`, or has its own copy of what was saved.

    Raises:
        ConfigError: the backbone was saved without one.
    """
    source = encoder.backbone.config._name_or_path
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(source, output_loading_info=True, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ConfigError(f"backbone {source!r} cannot be read with an MLM head: {error}") from error
    head = getattr(model, _head_name(model))
    if any(not key.startswith(f"{model.base_model_prefix}.") for key in report["missing_keys"]):
        raise ConfigError(f"backbone {source!r} was saved without an MLM head, which mlm_weight or method mlm needs.")
    decoder = head.predictions.decoder if hasattr(head, "predictions") else head.decoder
    embeddings = encoder.backbone.get_input_embeddings().weight
    decoder.weight = embeddings if tied else nn.Parameter(decoder.weight.detach().clone())
    return head


def late_layers(encoder: SentenceEncoder, count: int) -> nn.ModuleList:
    """Condenser's head: `count` layers like the backbone's, those saved beside it or new ones.

    New ones start as lib.backbone starts layers: they hand on a mixture of what they read.

    Raises:
        ConfigError: another number was saved.
    """
    from lib.backbone import average_layers

    backbone = encoder.backbone
    like = backbone.encoder.layer[0]
    layers = nn.ModuleList(type(like)(backbone.config, layer_idx=i) for i in range(count))
    source = backbone.config._name_or_path
    saved = cached_file(source, LATE_LAYERS, _raise_exceptions_for_missing_entries=False)
    if saved is not None:
        try:
            layers.load_state_dict(load_file(saved))
        except (RuntimeError, SafetensorError) as error:
            raise ConfigError(
                f"{LATE_LAYERS} of {source} does not hold {count} layers of this shape: {error}"
            ) from error
        return layers.float()
    for module in layers.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=backbone.config.initializer_range)
            nn.init.zeros_(module.bias)
    average_layers(layers)
    return layers
