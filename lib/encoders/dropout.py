"""Dropout whose masks cost little on CPU, where PyTorch draws them one after the other: 15 % of a training step.

The arithmetic is PyTorch's; 16 random bits per entry take the place of a random float, so the rate p is a multiple of
1 / 65536 (0.1 becomes 0.1000061), and kept entries are scaled by 1 / (1 - p) for just that p. Fused attention keeps
PyTorch's own: inputs of more than 128 tokens, passes without gradient, the backbone's own forward pass; but for a last
layer of which [CLS] alone is read (`packed.py`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16


def dropout(x: Tensor, p: float) -> Tensor:
    """x with entries set to 0 with probability p (from 0 to 1) and the others scaled by 1 / (1 - p); same shape."""
    dropped = round(p * LEVELS)
    if x.device.type != "cpu" or not 0 < dropped < LEVELS:
        return F.dropout(x, p)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device)
    words.random_(-(2**63), None)  # all 64 bits
    draws = words.view(torch.int16)[: x.numel()].view(x.shape)  # from -LEVELS / 2
    noise = (draws >= dropped - LEVELS // 2).to(x.dtype).div_(1 - dropped / LEVELS)
    return x * noise


class Dropout(nn.Dropout):
    """`nn.Dropout` that draws its masks with `dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x


def replace_dropout(model: nn.Module) -> None:
    """Put `Dropout` in the place of every `nn.Dropout` of the model, with the same rate and mode."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, Dropout(child.p).train(child.training))
