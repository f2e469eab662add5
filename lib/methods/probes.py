"""What the history shows of training and no weight depends on: gradients of single terms, a loss with other vectors."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from lib.distributed import processes
from lib.encoders.sentence_encoder import random_kept


class Probes:
    """Values by name, each process of its own rows; see `Method.logged`."""

    def __init__(self) -> None:
        self._norms: dict[str, Tensor] = {}
        self._losses: dict[str, float] = {}

    def watch(self, name: str, x: Tensor) -> Tensor:
        """The same values; logs the norm of the gradient that comes back through this tensor, of no other at x."""
        if not x.requires_grad:
            return x
        watched, world = x.view_as(x), processes().num_processes

        def keep(gradient: Tensor) -> None:  # DDP takes the mean over the processes
            norm = gradient.detach().float().norm() / world
            self._norms[name] = torch.hypot(self._norms[name], norm) if name in self._norms else norm  # of all chunks

        watched.register_hook(keep)
        return watched

    @torch.no_grad()
    def swap(self, loss: Callable[[Tensor], Tensor], vectors: Mapping[str, Tensor]) -> None:
        """Logs the loss with each of these [N, D]; all of them, and then training, draw the same random numbers."""
        for name, h in vectors.items():
            with random_kept(h.device):
                self._losses[name] = float(loss(h))

    def values(self) -> dict[str, float]:
        """Norms over all entries of the last step, and the losses that it compared, if it did."""
        values = {name: float(norm) for name, norm in self._norms.items()} | self._losses
        self._norms, self._losses = {}, {}
        return values
