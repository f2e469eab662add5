"""What the training loop knows of a method, and what a method put around another one knows of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lib.checks import ConfigError
from lib.data import Batch, Corpus
from lib.distributed import gather
from lib.encoders import SentenceEncoder
from lib.encoders.heads import TRAINING_HEAD
from lib.encoders.weights import save_weights
from lib.methods.probes import Probes


@dataclass(frozen=True)
class Needs:
    """What a run with a method needs; known from its arguments alone, before anything is loaded."""

    roles: tuple[str, ...] = ("anchor",)  # columns of the corpus that must be there
    optional_roles: tuple[str, ...] = ()  # columns that may be there
    passes: int = 2  # forward passes per text, for the memory estimate; a corpus with more columns has more
    trained_encoders: int = 1  # copies of the backbone that are trained, for the memory estimate
    further_layers: int = 0  # layers like the backbone's that a head has, for the memory estimate
    files: tuple[str, ...] = ()  # patterns of files of the backbone's folder that are read beside the encoder's
    encoders: Mapping[str, str] = field(default_factory=dict)  # argument -> further encoder that it names
    generators: Mapping[str, str] = field(default_factory=dict)  # argument -> masked-language model that it names
    texts: Mapping[str, str] = field(default_factory=dict)  # argument -> file of texts; empty: the shipped one
    fixed_targets: bool = False  # the loss compares embeddings with vectors that do not come from this batch
    projected_negatives: bool = False  # Views.negatives lie behind the projection
    batch_norm: bool = False  # in the projection: what is taken away from all rows before it is gone behind it
    # of tokens: `embed` gives a wrapper no sentences, long texts become several rows, rows of similar length share a
    # batch (less padding, less chance), and the last step is kept, whatever the dev scores
    pretraining: bool = False
    # weights above 0 of terms that read more of the texts than their embeddings: such a batch is not embedded in chunks
    beside_embeddings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Views:
    """What the losses read of one batch.

    embeddings: name -> [N, S, D], N sentences, S views of each in the order of `roles`; the name is "encoder" where
        there is only one, see Method.names.
    negatives: [Q, D], further negatives of the anchors (a momentum queue), without gradient.
    captured: whatever else the losses read; rows of this process alone.
    """

    embeddings: Mapping[str, Tensor] = field(default_factory=dict)
    roles: tuple[str, ...] = ("anchor", "positive")
    negatives: Tensor | None = None
    captured: Mapping[str, Any] = field(default_factory=dict)

    def replace(self, **changes: Any) -> Views:
        return dataclasses.replace(self, **changes)

    def rows(self, name: str = "encoder") -> Tensor:
        """[N S, D] of an encoder, the views of a sentence one after the other."""
        return self.embeddings[name].flatten(0, 1)

    def by_role(self, name: str = "encoder") -> dict[str, Tensor]:
        """role -> [N, D] of an encoder."""
        return dict(zip(self.roles, self.embeddings[name].unbind(1), strict=True))


class Method(nn.Module):
    """The encoder that is trained and kept, and the loss terms it is trained with; each is switched off by its weight.

    A subclass names its `Arguments` (a frozen dataclass that validates itself), says what it `needs`, and implements
    `embed` and `loss`, perhaps `project`. `training_head` [.., D] -> [.., D] is a projection that exists in training only.
    """

    Arguments: ClassVar[type]
    encoder: SentenceEncoder

    def __init__(self, encoder: SentenceEncoder, arguments: Any) -> None:
        super().__init__()
        self.encoder, self.arguments = encoder, arguments
        self.names: tuple[str, ...] = ("encoder",)  # what Views call the embeddings that `read` gives
        self.training_head: nn.Module | None = None
        self.probes = Probes()
        self.register_buffer("step", torch.tensor(0))  # steps that were taken

    @classmethod
    def needs(cls, arguments: Any) -> Needs:
        return Needs()

    def read(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """Texts [N, L] as `embed` reads a sentence: name of embeddings in Views -> [N, D]."""
        return {"encoder": self.encoder(input_ids, attention_mask)}

    def embed(self, batch: Batch) -> Views:
        """The embeddings of this process's rows, before any projection, and whatever else the losses read."""
        raise NotImplementedError

    def project(self, views: Views) -> Views:
        """What heads that exist in training only make of the embeddings of all processes."""
        if self.training_head is None:
            return views
        return views.replace(embeddings={name: self.training_head(z) for name, z in views.embeddings.items()})

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        """Weighted terms by name, from the embeddings of all processes; the loss is their sum."""
        raise NotImplementedError

    def forward(self, batch: Batch, chunk_size: int = 0) -> dict[str, Tensor]:
        """The terms of this process's batch, which is embedded at once (chunk_size 0) or in chunks of so many rows.
        Embeddings are gathered over the processes here and nowhere else."""
        in_chunks = 0 < chunk_size < len(batch)
        views = embed_in_chunks(self.embed, batch, chunk_size) if in_chunks else self.embed(batch)
        gathered = views.replace(embeddings={name: gather(z) for name, z in views.embeddings.items()})
        return self.loss(self.project(gathered), batch)

    def parameter_groups(self, config: Any) -> list[dict[str, Any]]:
        """Groups for the optimiser, with the RunConfig's weight decay on matrices only, as usual for BERT."""
        trainable = [p for p in self.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trainable if p.dim() > 1], "weight_decay": config.weight_decay},
            {"params": [p for p in trainable if p.dim() <= 1], "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]

    def logged(self) -> dict[str, float]:
        """Values of the last step for the history, shown beside the terms and never summed."""
        return self.probes.values()

    def row_data(self, corpus: Corpus, max_length: int) -> dict[str, np.ndarray]:
        """Further columns [n, ...] of the batches (`Batch.extra`), computed from the text once before training."""
        return {}

    def after_step(self) -> None:
        """After the optimiser's step: counts it; a subclass moves averages and queues."""
        self.step += 1

    def kept(self) -> nn.ModuleDict:
        """The modules that end with the weights of the best step."""
        heads = {} if self.training_head is None else {"training_head": self.training_head}
        return nn.ModuleDict({"encoder": self.encoder} | heads)

    def save(self, folder: Path) -> None:
        """Write the encoder (see SentenceEncoder.save), and beside it the projection that only training uses."""
        self.encoder.save(folder)
        if self.training_head is not None:
            save_weights(self.training_head.state_dict(), folder / TRAINING_HEAD)


def embed_in_chunks(embed: Callable[[Batch], Views], batch: Batch, size: int) -> Views:
    """The embeddings that `embed` gives of `size` rows at a time; nothing else that it captures.

    GradCache (Gao et al. 2021, arXiv 2101.06983): no chunk keeps what its backward pass needs. That pass brings the
    gradient of the whole batch's loss to the embeddings, and there embeds chunk after chunk once more, with the random
    numbers of the first time. So the gradient is exact, and memory holds one chunk.
    """

    def again(input_ids: Tensor, attention_mask: Tensor, *extra: Tensor) -> Views:
        return embed(Batch(input_ids, attention_mask, batch.roles, dict(zip(batch.extra, extra, strict=True))))

    tensors = (batch.input_ids, batch.attention_mask, *batch.extra.values())
    chunks = zip(*(x.split(size) for x in tensors), strict=True)
    views = [checkpoint(again, *chunk, use_reentrant=False) for chunk in chunks]
    joined = {name: torch.cat([part.embeddings[name] for part in views]) for name in views[0].embeddings}
    return views[0].replace(embeddings=joined, captured={})


class Wrapper(nn.Module):
    """A method around another one. What a method has and this one does not define is the inner method's: by itself it
    changes nothing.

    A subclass changes the views between the stages: in `project` before or after the inner method's heads, or in
    `loss`; it adds what it trains to `parameter_groups`. Its terms and arguments have names of their own.
    """

    Arguments: ClassVar[type]
    forward = Method.forward

    def __init__(self, inner: Method | Wrapper, arguments: Any) -> None:
        super().__init__()
        self.inner, self.arguments = inner, arguments

    def __getattr__(self, name: str) -> Any:
        """Asked for what is neither defined here nor a part of this module."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    @classmethod
    def needs(cls, arguments: Any, inner: Needs) -> Needs:
        """The inner method's needs; a subclass adds its own, or refuses them with ConfigError."""
        return inner


def check_some_weight(arguments: Any, *weights: str) -> None:
    """Raise ConfigError when all of these arguments are 0."""
    if not any(getattr(arguments, name) for name in weights):
        raise ConfigError(f"{', '.join(weights)} are all 0: nothing would be trained.")
