"""What one forward pass of an encoder costs, and what one training step of a method costs."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum, parts


@torch.no_grad()
def multiply_accumulates(encoder: SentenceEncoder | EncoderSum, length: int) -> float:
    """Multiply-accumulate operations of all matrix products for one sentence of `length` tokens, in units of 10^9.

    Counted in the backbone's own forward (every token through every layer), as other tools count. `encode` needs fewer
    where it computes the last layer for [CLS] alone. A sum of encoders costs the sum of their costs.
    """
    operations = 0
    for part in parts(encoder):
        ids = torch.full((1, length), part.tokenizer.unk_token_id, device=part.device)
        implementation = part.backbone.config._attn_implementation
        part.backbone.set_attn_implementation("eager")  # the counter does not know the fused kernel of every device
        try:
            with FlopCounterMode(display=False) as counter:
                part.backbone(input_ids=ids, attention_mask=torch.ones_like(ids))
        finally:
            part.backbone.set_attn_implementation(implementation)
        operations += counter.get_total_flops() / 2  # a multiply-accumulate is two operations
    return operations / 1e9


def training_step(method: Any, batch: Any, *, repeats: int = 3) -> dict[str, float]:
    """What one step of a method costs, forward, backward and what it does after a step, without the optimiser.

    Args:
        method: a Method, on its device. batch: what it trains on. repeats: of the step that is timed.

    Returns:
        operations: multiply-accumulates of all matrix products, in units of 10^9; kept: what is kept for the backward
        pass, in MiB, each tensor once, weights left out; trained: parameters that get a gradient, in millions;
        seconds: the median of the repeats, after one step that is not timed.
    """
    weights = {p.untyped_storage().data_ptr() for p in method.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)  # memory that is given back would be counted as the same tensor
        return tensor

    def step() -> None:
        method.zero_grad(set_to_none=True)
        sum(method(batch).values()).backward()
        method.after_step()

    method.train()
    alive: list[torch.Tensor] = []
    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        step()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    trained = sum(p.numel() for p in method.parameters() if p.grad is not None)
    method.zero_grad(set_to_none=True)
    size = sum(size for place, size in kept.items() if place not in weights)
    counts = {"operations": counter.get_total_flops() / 2e9, "kept": size / 2**20, "trained": trained / 1e6}
    return counts | {"seconds": statistics.median(seconds)}
