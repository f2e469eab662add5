"""RankCSE (Liu et al., ACL 2023, arXiv 2305.16726): SimCSE whose views rank the batch alike, and as its teachers do."""

import itertools
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from lib.checks import NonNegative, Positive, Probability
from lib.data import Batch, Corpus
from lib.distributed import gather
from lib.losses import list_mle, list_net, ranking_consistency
from lib.methods.base import Needs, Views
from lib.methods.distill import teacher_vectors
from lib.methods.simcse import SimCSE, SimCSEArguments


@dataclass(frozen=True)
class RankCSEArguments(SimCSEArguments):
    consistency_weight: NonNegative = 1.0  # beta
    teacher: str = ""  # folder of a saved encoder or ensemble, or a hub name; empty: consistency alone
    second_teacher: str = ""  # empty: one teacher alone
    teacher_share: Probability = 0.33  # alpha: of the first one in the mixed cosines; the rest is the second one's
    ranking: Literal["list_mle", "list_net"] = "list_mle"
    ranking_weight: NonNegative = 1.0  # gamma; of ListMLE the mean over the ranks: times N it is the paper's
    ranking_temperature: Positive = 0.05  # tau_2, of the student's cosines
    teacher_temperature: Positive = 0.025  # tau_3, of the teachers', which ListNet alone reads

    def teachers(self) -> dict[str, str]:
        """Argument -> the encoder that it names, of those that are read."""
        named = {"teacher": self.teacher, "second_teacher": self.second_teacher}
        return {what: name for what, name in named.items() if name and self.ranking_weight}


class RankCSE(SimCSE):
    """Terms of SimCSE, `consistency`, and with a teacher `ranking`; teachers read as in `distill`."""

    Arguments = RankCSEArguments

    @classmethod
    def needs(cls, arguments: RankCSEArguments) -> Needs:
        return replace(super().needs(arguments), encoders=arguments.teachers())

    def row_data(self, corpus: Corpus, max_length: int) -> dict[str, np.ndarray]:
        columns, found = dict(zip(corpus.roles, corpus.columns, strict=True)), {}  # [n, 1, D], with positives [n, 2, D]
        sides = [columns[role] for role in ("anchor", "positive") if role in columns]
        for what, name in self.arguments.teachers().items():
            vectors = teacher_vectors(name, [*itertools.chain(*sides)], max_length, what=what)
            found[what] = vectors.reshape(len(sides), len(corpus), -1).swapaxes(0, 1)
        return found

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        arguments, terms, z = self.arguments, super().loss(views, batch), views.by_role()
        both, how = (z["anchor"], z["positive"]), {"temperature": arguments.ranking_temperature}
        if arguments.consistency_weight:
            loss = ranking_consistency(*both, temperature=arguments.temperature)
            terms["consistency"] = arguments.consistency_weight * loss
        if arguments.teachers():
            if arguments.ranking == "list_net":
                loss = list_net(*both, self.mixed(batch), **how, teacher_temperature=arguments.teacher_temperature)
            else:
                loss = list_mle(*both, self.mixed(batch), **how)
            terms["ranking"] = arguments.ranking_weight * loss
        return terms

    def mixed(self, batch: Batch) -> Tensor:
        """The teachers' cosines [N, N] of the rows of all processes: T = alpha C_1 + (1 - alpha) C_2."""
        vectors = [F.normalize(gather(batch.extra[what]), dim=-1) for what in self.arguments.teachers()]
        first, *second = (t[:, 0] @ t[:, -1].T for t in vectors)
        share = self.arguments.teacher_share
        return share * first + (1 - share) * second[0] if second else first
