"""Which tokens of a text are hidden and predicted (BERT's rule)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lib.checks import ConfigError
from lib.encoders import SentenceEncoder
from lib.losses import mask_tokens


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
