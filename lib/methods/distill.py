"""Distillation: one encoder learns the vectors of another or of an ensemble (JTCSE's D and UCD)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from lib.checks import Checked, ConfigError
from lib.data import Batch, Corpus
from lib.distributed import processes
from lib.encoders import SentenceEncoder, ensemble
from lib.methods.base import Method, Needs, Views


@dataclass(frozen=True)
class DistillArguments(Checked):
    teacher: str = ""  # folder of a saved encoder or ensemble, or a hub name; there has to be one


class Distill(Method):
    """Term `mse`, the mean squared error between the student's and the teacher's vectors.

    The teacher reads the text before training (each process all of it), without dropout and with its own tokenizer.
    """

    Arguments = DistillArguments

    @classmethod
    def needs(cls, arguments: DistillArguments) -> Needs:
        return Needs(passes=1, encoders={"teacher": arguments.teacher}, fixed_targets=True)

    def __init__(self, encoder: SentenceEncoder, arguments: DistillArguments) -> None:
        super().__init__(encoder, arguments)
        teacher, student = ensemble.load(arguments.teacher, device="cpu", what="teacher").dimension, encoder.dimension
        if teacher != student:
            raise ConfigError(f"the teacher's vectors have {teacher} dimensions, those of the backbone {student}.")

    def row_data(self, corpus: Corpus, max_length: int) -> dict[str, np.ndarray]:
        return {"teacher": teacher_vectors(self.arguments.teacher, corpus.columns[0], max_length)}

    def embed(self, batch: Batch) -> Views:
        student = self.encoder(*batch.column("anchor"))
        return Views({"encoder": student.unsqueeze(1), "teacher": batch.extra["teacher"].unsqueeze(1)}, ("anchor",))

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        return {"mse": F.mse_loss(views.rows(), views.rows("teacher"))}


def teacher_vectors(name: str, texts: Sequence[str], max_length: int, *, what: str = "teacher") -> np.ndarray:
    """Vectors [n, D] of n texts by a saved encoder or ensemble, which reads no more than max_length tokens of each. what: the
    parameter that names it, for errors."""
    teacher = ensemble.load(name, device=processes().device, what=what)
    for part in ensemble.parts(teacher):
        part.max_length = min(part.max_length, max_length)
    return teacher.encode(texts, show_progress=True)
