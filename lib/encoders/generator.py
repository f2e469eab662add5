"""The generator of replaced-token detection: a frozen masked-language model that guesses every token of a masked text."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer

from lib.checks import ConfigError
from lib.encoders.heads import masked_lm_model
from lib.encoders.saved import model_files
from lib.encoders.weights import architecture, hash_weights
from lib.session import quiet

LOGITS = 2**25  # entries of the largest tensor of guesses, 128 MiB in float32


class Generator(nn.Module):
    """Without gradient, and with its dropout only where `dropout` is set and the method around it is in training. Of any
    family of masked-language models (the authors take DistilBERT) whose vocabulary is the encoder's."""

    dropout = False

    def __init__(self, model: nn.Module, vocabulary: dict[str, int]) -> None:
        super().__init__()
        self.model, self.vocabulary = model.requires_grad_(False).eval(), vocabulary

    @classmethod
    def from_pretrained(cls, path_or_id: str) -> Generator:
        """Load a local folder or a hub name. Raises EncoderError where it is neither or a pickle, and ConfigError where it is
        no masked-language model, or one without its head."""
        quiet()
        folder = model_files(path_or_id, "generator")
        model = masked_lm_model(str(folder), "generator")
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return cls(model, tokenizer.get_vocab())

    def train(self, mode: bool = True) -> Generator:
        return super().train(mode and self.dropout)

    @torch.no_grad()
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The likeliest token at every place: input_ids, attention_mask [N, L] -> ids [N, L]."""
        rows = max(1, LOGITS // (input_ids.size(1) * self.model.config.vocab_size))
        parts = zip(input_ids.split(rows), attention_mask.split(rows), strict=True)
        return torch.cat([self.model(input_ids=ids, attention_mask=mask).logits.argmax(-1) for ids, mask in parts])

    def check(self, name: str, encoder: Any) -> None:
        """Raise ConfigError when an encoder cannot read what this generator fills in, or the other way round."""
        theirs, ours, words = self.model.config, encoder.backbone.config, encoder.tokenizer.get_vocab()
        if self.vocabulary != words or theirs.vocab_size != ours.vocab_size:
            common = len(self.vocabulary.items() & words.items())
            raise ConfigError(
                f"generator {name!r} has another vocabulary than the backbone ({common:,} tokens in common; weights for "
                f"{theirs.vocab_size:,} and {ours.vocab_size:,}): the encoder reads what it fills in, so take one with the "
                "backbone's tokenizer."
            )
        if (longest := theirs.max_position_embeddings) < (needed := ours.max_position_embeddings):
            raise ConfigError(f"generator {name!r} takes {longest} tokens, the backbone {needed}: take a longer one.")

    def fingerprint(self) -> str:
        """SHA-256 of its weights, architecture and vocabulary."""
        parts = [architecture(self.model.config), sorted(self.vocabulary.items())]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode())
        hash_weights(digest, self.model)
        return digest.hexdigest()
