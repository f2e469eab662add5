"""What the training loop knows of a method."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from lib.data.corpus import Corpus
from lib.encoder import SentenceEncoder


class Method(nn.Module):
    """The encoder that is trained and the loss terms it is trained with.

    A subclass names its `Arguments` (a frozen dataclass that validates itself), the kinds of corpus it takes, and
    implements `forward`. Every term is switched off by its weight.
    """

    Arguments: ClassVar[type]
    corpora: ClassVar[tuple[str, ...]] = ("sentences", "pairs", "triples")
    views: ClassVar[int] = 2  # forward passes per text, for the memory estimate; a corpus with more columns has more
    encoders: ClassVar[int] = 1  # copies of the backbone that are trained, for the memory estimate
    reads_files: ClassVar[tuple[str, ...]] = ()  # of the backbone's folder, beyond what the encoder reads
    splits_long_rows: ClassVar[bool] = False  # a text longer than max_length becomes several rows, else it is cut
    groups_lengths: ClassVar[bool] = False  # rows of similar length share a batch: less padding, less chance
    backbone_arguments: ClassVar[tuple[str, ...]] = ()  # name further encoders, whose content is part of the run id
    keeps_last: ClassVar[bool] = False  # the last step is kept, whatever the dev scores

    def __init__(self, encoder: SentenceEncoder, arguments: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.arguments = arguments

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """batch: input_ids, attention_mask [N, S, L] of this process -> weighted terms whose sum is the loss."""
        raise NotImplementedError

    def row_data(self, corpus: Corpus, max_length: int, show_progress: bool) -> dict[str, np.ndarray]:
        """Further columns [n, ...] of the batches, computed from the text once, before the first step."""
        return {}

    def after_step(self) -> None:
        """Moving averages and queues, after the optimiser's step."""

    def save(self, folder: str | os.PathLike) -> None:
        """Write what is kept of the trained method, see SentenceEncoder.save."""
        self.encoder.save(folder)
