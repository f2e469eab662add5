"""Momentum encoder and queue of further negatives (MoCo)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from lib.encoders import SentenceEncoder


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
