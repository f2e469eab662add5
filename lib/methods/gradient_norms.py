"""Norms of the gradients that the terms of a loss send into an encoder, for the history."""

from __future__ import annotations

from torch import Tensor

from lib.distributed import processes


class GradientNorms:
    """Norms of the gradients that arrive at tensors on their way back."""

    def __init__(self) -> None:
        self._latest: dict[str, Tensor] = {}

    def watch(self, name: str, x: Tensor) -> Tensor:
        """The same values; of the gradients at x, only those that come back through this tensor are seen."""
        if not x.requires_grad:
            return x
        watched, world = x.view_as(x), processes().num_processes

        def keep(gradient: Tensor) -> None:  # DDP takes the mean over the processes
            self._latest[name] = gradient.detach().float().norm() / world

        watched.register_hook(keep)
        return watched

    def values(self) -> dict[str, float]:
        """Name -> Euclidean norm over all entries of this process's rows, of the last step."""
        return {name: float(norm) for name, norm in self._latest.items()}
