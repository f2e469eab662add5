"""Masked language modelling (BERT), and Condenser's late head on top of it (Gao, Callan 2021, arXiv 2104.08253),
which is the first stage of InfoCSE (Wu et al. 2022, arXiv 2210.06432, Eqs. 4 to 6)."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from lib.checks import Checked, ConfigError, Count, NonNegative, PositiveCount, PositiveProbability
from lib.data import Batch
from lib.encoders import SentenceEncoder, heads, packed
from lib.losses import IGNORED, mask_tokens, masked_lm
from lib.methods.base import Method, Needs, Views


@dataclass(frozen=True)
class MLMArguments(Checked):
    mlm_probability: PositiveProbability = 0.15
    whole_words: bool = False  # all pieces of a word are masked together; Condenser does
    condenser_weight: NonNegative = 0.0  # weight of the late head's loss; 1 in Condenser, 0 is plain BERT
    early_layers: Count = 0  # the late head reads the tokens after this many layers; 0: half of the backbone's
    late_layers: PositiveCount = 2  # layers of the late head
    lm_head: Literal[heads.MLM_HEAD_STARTS] = "pretrained"  # start: as saved with the backbone, or new (fresh)
    head: Literal[heads.LATE_LAYER_STARTS] = "random"  # late layers; pretrained: beside the backbone


class MLM(Method):
    """Terms `mlm` (Eq. 4) and, with a positive condenser_weight, `condenser` (Eq. 5).

    The late head predicts the same masked tokens from [h_cls after the last layer; tokens after the early layers]:
    what the early layers do not know of the sentence, it can only learn from the [CLS] vector. Both losses share one
    LM head, tied to the word embeddings; nothing is detached, everything is trained. A backbone that was saved without
    an LM head, as sentence encoders are, gets one with lm_head 'fresh'.
    """

    Arguments = MLMArguments

    @classmethod
    def needs(cls, arguments: MLMArguments) -> Needs:
        files = (heads.MODEL_FILES,) if arguments.lm_head == "pretrained" else ()
        files += (heads.LATE_LAYERS,) if arguments.condenser_weight and arguments.head == "pretrained" else ()
        layers = arguments.late_layers if arguments.condenser_weight else 0
        return Needs(passes=1, further_layers=layers, files=files, pretraining=True)

    def __init__(self, encoder: SentenceEncoder, arguments: MLMArguments) -> None:
        super().__init__(encoder, arguments)
        backbone = encoder.backbone
        self.lm_head = heads.mlm_head(backbone, tied=True, start=arguments.lm_head)
        self.late, self.early = None, 0
        if arguments.condenser_weight:
            self.early = heads.count_early_layers(backbone, arguments.early_layers)
            self.late = heads.late_layers(backbone, arguments.late_layers, arguments.head)
        self.masking = TokenMasking(encoder, probability=arguments.mlm_probability, whole_words=arguments.whole_words)

    def embed(self, batch: Batch) -> Views:
        """No embeddings of sentences: captured are the labels [M] of the masked tokens, and what the LM head reads of
        them [M, H], by the name of the term."""
        input_ids, mask = batch.column("anchor")
        masked, labels = self.masking(input_ids, mask)
        tokens = packed.Tokens(mask.bool())
        labels = tokens.pack(labels.unsqueeze(-1)).squeeze(-1)  # [T]
        chosen = (labels != IGNORED).nonzero().squeeze(-1)  # the head sees these only
        backbone, layers = self.encoder.backbone, self.encoder.backbone.encoder.layer
        with self.encoder.precision(input_ids.device):
            embedded = tokens.pack(backbone.embeddings(input_ids=masked))
            early = packed.run_layers(layers[: self.early], embedded, tokens)
            last = packed.run_layers(layers[self.early :], early, tokens)
            hidden = {"mlm": last[chosen]}
            if self.late is not None:
                starts = tokens.starts()
                mixed = early.index_copy(0, starts, last[starts].to(early.dtype))  # [h_cls; M[1:]]
                hidden["condenser"] = packed.run_layers(self.late, mixed, tokens)[chosen]
        return Views(captured={"labels": labels[chosen], "hidden": hidden})

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        labels, terms = views.captured["labels"], {}
        for name, hidden in views.captured["hidden"].items():
            with self.encoder.precision(hidden.device):
                logits = self.lm_head(hidden)
            terms[name] = masked_lm(logits.float(), labels)
        if self.late is not None:
            terms["condenser"] = self.arguments.condenser_weight * terms["condenser"]
        return terms

    def save(self, folder: Path) -> None:
        """The encoder with its MLM head, and the late layers beside it."""
        self.encoder.save(folder)
        heads.save_mlm_head(folder, self.encoder.backbone, self.lm_head, self.late)


class TokenMasking(nn.Module):
    """BERT's choice of tokens to predict: never special tokens, never padding. Raises ConfigError for whole words where the
    vocabulary does not mark the pieces that continue a word."""

    def __init__(
        self, encoder: SentenceEncoder, *, probability: float, whole_words: bool = False, mask_only: bool = False
    ) -> None:
        super().__init__()
        self.probability, self.mask_id = probability, encoder.tokenizer.mask_token_id
        self.mask_only = mask_only
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


class TokenReplacement(nn.Module):
    """A view with other words: a frozen copy of the backbone and its MLM head guess a share of a text's tokens ("MLM" in
    SimCSE's Table 1). Raises ConfigError for a backbone without that head."""

    def __init__(self, encoder: SentenceEncoder, *, rate: float) -> None:
        super().__init__()
        self.backbone, self.head = copy.deepcopy(encoder.backbone), heads.mlm_head(encoder.backbone, tied=False)
        self.requires_grad_(False).eval()
        self.masking = TokenMasking(encoder, probability=rate, mask_only=True)
        self.precision = encoder.precision

    def train(self, mode: bool = True) -> "TokenReplacement":
        return super().train(False)  # it guesses without dropout

    @torch.no_grad()
    def forward(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """input_ids, mask [N, L] -> ids [N, L]; a guess may be the token that stood there."""
        masked, labels = self.masking(input_ids, mask)
        chosen = labels != IGNORED
        with self.precision(input_ids.device):
            hidden = self.backbone(input_ids=masked, attention_mask=mask).last_hidden_state
            return input_ids.masked_scatter(chosen, self.head(hidden[chosen].float()).argmax(-1))
