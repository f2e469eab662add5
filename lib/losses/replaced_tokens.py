"""Replaced-token detection (ELECTRA, arXiv 2003.10555), which DiffCSE (arXiv 2204.10298) conditions on a sentence."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def replaced_token_detection(logits: Tensor, original: Tensor, filled: Tensor) -> Tensor:
    """Cross-entropy of the question "was this token replaced?", mean over all positions given.

    A token that the generator guessed right counts as not replaced.

    Args:
        logits: [..., 2], not replaced and replaced.
        original, filled: [...], token ids of the sentence and of its filled copy.
    """
    replaced = (filled != original).long()
    return F.cross_entropy(logits.flatten(0, -2), replaced.flatten())
