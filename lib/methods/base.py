"""What the training loop knows of a method."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from lib.encoder import SentenceEncoder


class Method(nn.Module):
    """The encoder that is trained and the loss terms it is trained with.

    A subclass names its `Arguments` (a frozen dataclass that validates itself), the kinds of corpus it takes, and
    implements `forward`. Every term is switched off by its weight.
    """

    Arguments: ClassVar[type]
    corpora: ClassVar[tuple[str, ...]] = ("sentences", "pairs", "triples")

    def __init__(self, encoder: SentenceEncoder, arguments: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.arguments = arguments

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """batch: input_ids, attention_mask [N, S, L] of this process -> weighted terms whose sum is the loss."""
        raise NotImplementedError

    def after_step(self) -> None:
        """Moving averages and queues, after the optimiser's step."""
