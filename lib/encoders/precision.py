"""A forward pass in lower precision, also in bf16 on a CPU that has no instructions for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lib.distributed import computes_bf16

PRODUCTS = {  # what autocast computes in bf16, as far as encoders use it
    F.linear,
    F.scaled_dot_product_attention,
    torch.addmm,
    torch.baddbmm,
    torch.bmm,
    torch.einsum,
    torch.matmul,
    Tensor.bmm,
    Tensor.matmul,
    Tensor.__matmul__,
}


@contextmanager
def autocast(device: torch.device, dtype: torch.dtype | None) -> Iterator[None]:
    """PyTorch's autocast to `dtype`; None: as it is. A CPU without instructions for bf16 takes the time of fp32 for it, where
    PyTorch's own products of bf16 take 25 to 75 times as long (measured on two): see `RoundedProducts`."""
    rounded = dtype == torch.bfloat16 and not computes_bf16(device)
    with (
        torch.autocast(device.type, dtype=dtype, enabled=dtype is not None),
        RoundedProducts() if rounded else nullcontext(),
    ):
        yield


class RoundedProducts(TorchFunctionMode):
    """Within autocast: products in fp32 of factors rounded to bf16, the result rounded again, and so their gradients.

    This is what instructions for bf16 compute (exact products of bf16, summed in fp32), but for the order of the sums.
    """

    def __torch_function__(
        self,
        function: Callable,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if function not in PRODUCTS:
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            factors = {name: _rounded(value) for name, value in kwargs.items()}
            return function(*map(_rounded, args), **factors).bfloat16()


def _rounded(value: Any) -> Any:
    return value.bfloat16().float() if isinstance(value, Tensor) and value.is_floating_point() else value
