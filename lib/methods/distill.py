"""Distillation: one encoder learns the vectors of another or of an ensemble (JTCSE's D and UCD)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from lib import ensemble
from lib.config import ConfigError, check_types
from lib.data.corpus import Corpus
from lib.distributed import gather, processes
from lib.encoder import SentenceEncoder
from lib.methods.base import Method


@dataclass(frozen=True)
class DistillArguments:
    teacher: str = ""  # folder of a saved encoder or ensemble, or a hub name

    def __post_init__(self) -> None:
        check_types(self)
        if not self.teacher:
            raise ConfigError("method distill needs a teacher: the folder of a saved encoder or ensemble.")


class Distill(Method):
    """Term `mse`, the mean squared error between the student's and the teacher's vectors.

    The teacher reads the text before training (each process all of it), without dropout and with its own tokenizer.
    """

    Arguments = DistillArguments
    corpora = ("sentences",)
    views = 1
    backbone_arguments = ("teacher",)

    def __init__(self, encoder: SentenceEncoder, arguments: DistillArguments) -> None:
        super().__init__(encoder, arguments)
        size = ensemble.load(arguments.teacher, device="cpu").dimension
        if size != encoder.dimension:
            raise ConfigError(
                f"the teacher's vectors have {size} dimensions, those of the backbone {encoder.dimension}."
            )

    def row_data(self, corpus: Corpus, max_length: int, show_progress: bool) -> dict[str, np.ndarray]:
        teacher = ensemble.load(self.arguments.teacher, device=processes().device)
        for part in ensemble.parts(teacher):
            part.max_length = min(part.max_length, max_length)
        return {"teacher": teacher.encode(list(corpus.columns[0]), show_progress=show_progress)}

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        z = self.encoder(batch["input_ids"][:, 0], batch["attention_mask"][:, 0])
        return {"mse": F.mse_loss(gather(z), gather(batch["teacher"]))}
