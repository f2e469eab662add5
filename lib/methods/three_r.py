"""3R (redundant representation reduction), around any method that compares views of sentences: where a dimension hardly
differs between the sentences of a batch, a vector of very common words is taken away before the loss.

The authors' code was not reachable. What the paper leaves open is an argument here; see the notebook.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lib.checks import Checked, ConfigError, Positive, PositiveCount, Probability
from lib.data.exemplars import load_pool, load_words
from lib.data.tokenized import pad
from lib.encoders import ensemble
from lib.encoders.kinds import longest_input
from lib.encoders.sentence_encoder import random_kept
from lib.losses import deviations, reduce_redundancy, redundant_dimensions
from lib.losses.redundancy import RELAXATIONS
from lib.methods.base import Method, Needs, Views, Wrapper


@dataclass(frozen=True)
class ThreeRArguments(Checked):
    exemplars: PositiveCount = 6  # k: pool sentences drawn for each batch (Figure 4)
    pool: str = ""  # file of sentences, one a line; empty: the shipped 64
    words: str = ""  # table word,count; empty: the shipped 300. Read by the variants with words alone
    threshold: Probability = 0.5  # where c starts; the paper draws it from (0, 1)
    threshold_rate: Probability = 1.0e-3  # its own learning rate; 0 keeps it fixed (Table 8)
    relaxation: Literal[RELAXATIONS] = "straight_through"  # how c gets a gradient: see losses.redundant_dimensions
    relaxation_width: Positive = 0.05
    deviation_gradient: bool = False  # also into the deviations, so that the encoder could dodge the mask
    redundant_gradient: bool = True  # also into the vector that is taken away
    redundant_from: Literal["pool", "words"] = "pool"  # what it is the mean of; words: "token subtraction", Table 3
    dimensions: Literal["batch", "all", "words"] = "batch"  # Eq. 3; "overall subtraction"; "static identification"
    operation: Literal["subtract", "zero"] = "subtract"  # zero: these dimensions are set to 0 ("dynamic mask")
    place: Literal["embedding", "projection"] = "embedding"  # of deviations and subtraction; behind the inner one

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.operation == "zero" and self.dimensions == "all":
            raise ConfigError("operation 'zero' with dimensions 'all' would leave nothing of any embedding.")


class ThreeR(Wrapper):
    """The inner method's terms, of reduced embeddings (Eqs. 3 to 5); `dimensions`, `redundant_from` and `operation` are what
    Table 3 compares it with.

    Per name in the inner method's Views: deviations over the anchors of all processes, one mask for all roles, one
    redundant vector, read as the inner method reads a sentence under that name; a queue's negatives are reduced like
    the embeddings of the first name, without gradient. Training only: what is kept is the encoder. The pool is read
    with dropout, from random numbers of its own, so that the inner method draws what it draws without 3R.

    Logged: `threshold` (c), `redundant` (share of the dimensions that are redundant), `deviation` (mean over dimensions).
    """

    Arguments = ThreeRArguments

    @classmethod
    def needs(cls, arguments: ThreeRArguments, inner: Needs) -> Needs:
        if inner.fixed_targets:
            raise ConfigError("three_r changes what a loss compares: it means nothing where a target is fixed.")
        if inner.projected_negatives and arguments.place == "embedding":
            raise ConfigError("this queue holds projected vectors: set place to projection, or queue_size to 0.")
        if inner.batch_norm and arguments.operation == "subtract":  # behind it, the pool's own mean is 0
            raise ConfigError("three_r subtracts nothing around a batch norm: set projection to train_only or none.")
        texts = dict(inner.texts)
        if arguments.operation == "subtract" and arguments.redundant_from == "pool":
            texts["pool"] = arguments.pool
        if arguments.dimensions == "words" or arguments.redundant_from == "words":
            texts["words"] = arguments.words
        return replace(inner, texts=texts)

    def __init__(self, inner: Method, arguments: ThreeRArguments) -> None:
        super().__init__(inner, arguments)
        self.pool, self.words = load_pool(arguments.pool), load_words(arguments.words)  # also unread ones: a typo shows
        if len(self.pool) < arguments.exemplars:
            raise ConfigError(f"exemplars {arguments.exemplars}: the pool holds {len(self.pool)} sentences.")
        is_learnt = arguments.threshold_rate > 0 and arguments.dimensions != "all"  # all: nothing reads it
        self.threshold = nn.Parameter(torch.tensor(arguments.threshold), requires_grad=is_learnt)
        self.seed = torch.initial_seed() % 2**31  # of the pool's own random numbers
        self.latest: dict[str, Tensor] = {}  # what is logged of the last step
        for name in inner.names if arguments.dimensions == "words" else ():  # taken in the first step, and then kept
            self.register_buffer(f"deviation_{name}", torch.full((inner.encoder.dimension,), torch.nan))

    def project(self, views: Views) -> Views:
        if self.arguments.place == "embedding":
            return self.inner.project(self.reduce(views))
        return self.reduce(self.inner.project(views))

    def reduce(self, views: Views) -> Views:
        """Views with reduced embeddings; unchanged for one sentence, the rest of an epoch, which has no deviations."""
        if self.arguments.dimensions == "batch" and len(next(iter(views.embeddings.values()))) == 1:
            return views
        vectors, reduced, negatives = self.redundant_vectors(), {}, views.negatives
        for name, h in views.embeddings.items():  # [N, S, D]
            deviation = self.deviation(name, h[:, 0])  # of the anchors
            mask = self.mask(deviation)
            reduced[name] = without(h, vectors[name], mask)
            if len(reduced) == 1:
                self.latest = {"redundant": mask.detach().mean(), "deviation": deviation.detach().mean()}
                if negatives is not None:
                    with torch.no_grad():
                        negatives = without(negatives, vectors[name], mask)
        return views.replace(embeddings=reduced, negatives=negatives)

    def deviation(self, name: str, anchors: Tensor) -> Tensor:
        """sigma [D] of the anchors [N, D] (Eq. 3), or of the words."""
        if self.arguments.dimensions != "words":
            return deviations(anchors)
        if self.get_buffer(f"deviation_{name}").isnan().any():
            for each, h in self.read_apart(self.words).items():
                self.get_buffer(f"deviation_{each}").copy_(deviations(h).detach())
        return self.get_buffer(f"deviation_{name}")

    def mask(self, deviation: Tensor) -> Tensor:
        """[D], 1 where the deviation is below c (Section 3.2)."""
        arguments = self.arguments
        if arguments.dimensions == "all":
            return torch.ones_like(deviation)
        sigma = deviation if arguments.deviation_gradient else deviation.detach()
        how = {"relaxation": arguments.relaxation, "width": arguments.relaxation_width}
        return redundant_dimensions(sigma, self.threshold, **how)

    def redundant_vectors(self) -> dict[str, Tensor | None]:
        """name -> hbar [D], the mean of pool sentences drawn for this step (Section 3.1) or of the words; None: nothing is
        subtracted."""
        if self.arguments.operation == "zero":
            return dict.fromkeys(self.inner.names)
        texts = self.words if self.arguments.redundant_from == "words" else self.drawn()
        return {name: h.mean(0) for name, h in self.read_apart(texts).items()}

    def drawn(self) -> list[str]:
        """The sentences of this step: drawn without replacement, the same on every process."""
        rows = np.random.default_rng([self.seed, int(self.step)]).permutation(len(self.pool))
        return [self.pool[row] for row in rows[: self.arguments.exemplars]]

    def read_apart(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """name -> [M, D] at the place of reduction, in the encoder's mode, with random numbers of this step's own."""
        encoder = ensemble.parts(self.inner.encoder)[0]  # all read the same tokens
        longest = min(64, longest_input(encoder.backbone))
        inputs = pad(encoder.tokenize(texts, longest), encoder.tokenizer.pad_token_id, device=encoder.device)
        has_gradient = self.arguments.redundant_gradient and torch.is_grad_enabled()
        with random_kept(encoder.device), torch.set_grad_enabled(has_gradient):
            torch.manual_seed(self.seed + int(self.step))
            vectors = self.inner.read(*inputs)
            if self.arguments.place == "projection":
                views = Views({name: h.unsqueeze(1) for name, h in vectors.items()}, ("anchor",))
                vectors = {name: h.squeeze(1) for name, h in self.inner.project(views).embeddings.items()}
        return vectors

    def parameter_groups(self, config: Any) -> list[dict[str, Any]]:
        groups = self.inner.parameter_groups(config)
        if self.threshold.requires_grad:
            groups.append({"params": [self.threshold], "weight_decay": 0.0, "lr": self.arguments.threshold_rate})
        return groups

    def logged(self) -> dict[str, float]:
        latest = {name: float(value) for name, value in self.latest.items()}
        return self.inner.logged() | latest | {"threshold": float(self.threshold.detach())}

    def after_step(self) -> None:
        self.inner.after_step()
        with torch.no_grad():
            self.threshold.clamp_(0)  # a deviation is never below 0


def without(h: Tensor, redundant: Tensor | None, mask: Tensor) -> Tensor:
    """h [..., D] without the redundant vector (Eq. 5), or with zeros, in the dimensions of the mask."""
    return h * (1 - mask) if redundant is None else reduce_redundancy(h, redundant, mask)
