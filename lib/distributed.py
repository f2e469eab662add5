"""Processes and their devices: what `accelerate launch` with several of them needs beyond the library."""

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env
from torch import Tensor


def processes() -> PartialState:
    """This process among those that `accelerate launch` started; joins them at the first call."""
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        ctx.rows = len(x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        start = dist.get_rank() * ctx.rows
        return gradient[start : start + ctx.rows]


def own_rows(x: Tensor, rows: int) -> Tensor:
    """The rows [n, ...] of this process among those that `gather` collected, which come in equal shares of n."""
    start = processes().process_index * rows
    return x[start : start + rows]


def gather(x: Tensor) -> Tensor:
    """Rows of all processes in rank order, with their gradient: [n, D] on each of W processes -> [W n, D].

    Every process then computes the same loss over all rows. The backward pass sums the W equal gradients and DDP
    divides by W, so parameters receive exactly the single-process gradient. (The authors of SimCSE gather without
    gradient and keep the local rows' only, which divides that gradient by W.) Identity with one process.
    """
    return x if processes().num_processes == 1 else _GatherRows.apply(x)
