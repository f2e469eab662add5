"""What one forward pass of an encoder costs, and what one training step of a method costs."""

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
        ids = torch.full((1, length), part.tokenizer.unk_token_id or 0, device=part.device)
        implementation = part.backbone.config._attn_implementation
        part.backbone.set_attn_implementation("eager")  # the counter does not know the fused kernel of every device
        try:
            with FlopCounterMode(display=False) as counter:
                part.backbone(input_ids=ids, attention_mask=torch.ones_like(ids))
        finally:
            part.backbone.set_attn_implementation(implementation)
        operations += counter.get_total_flops() / 2  # a multiply-accumulate is two operations
    return operations / 1e9


def training_step(method: Any, batch: Any) -> dict[str, float]:
    """What one step of a method costs on a batch, forward, backward and what it does after a step, without the optimiser.

    Returns:
        operations: multiply-accumulates of all matrix products, in units of 10^9; kept: what is kept for the backward
        pass, in MiB, each tensor once, weights left out; trained: parameters that get a gradient, in millions.
    """
    weights = {p.untyped_storage().data_ptr() for p in method.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor  # alive: memory given back would count as the same tensor
        return tensor

    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        _step(method, batch)
    trained = sum(p.numel() for p in method.parameters() if p.grad is not None)
    method.zero_grad(set_to_none=True)
    size = sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)
    return {"operations": counter.get_total_flops() / 2e9, "kept": size / 2**20, "trained": trained / 1e6}


def relative_time(method: Any, batch: Any, peer: Any, its_batch: Any, *, rounds: int) -> float:
    """How long a step of `training_step` takes, in steps of a peer: the median ratio over rounds in which both take turns,
    since a machine that is slow for a while is so for both then. A first round is not timed."""
    ratios = []
    for _ in range(rounds + 1):
        seconds = []
        for one, sentences in ((peer, its_batch), (method, batch)):
            start = time.perf_counter()
            _step(one, sentences)
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()  # a GPU may still be at work
            seconds.append(time.perf_counter() - start)
        ratios.append(seconds[1] / seconds[0])
    method.zero_grad(set_to_none=True)
    return statistics.median(ratios[1:])


def _step(method: Any, batch: Any) -> None:
    method.train().zero_grad(set_to_none=True)
    sum(method(batch).values()).backward()
    method.after_step()
