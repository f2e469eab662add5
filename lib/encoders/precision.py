"""A forward pass in lower precision, also in bf16 on a CPU that has no instructions for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}  # of autocast; fp32 goes without
PRODUCTS = {  # what autocast computes in bf16, as far as encoders and decoders use it
    F.linear,
    F.conv1d,
    F.scaled_dot_product_attention,
    F.multi_head_attention_forward,
    torch.addmm,
    torch.baddbmm,
    torch.bmm,
    torch.einsum,
    torch.matmul,
    torch.mm,
    Tensor.bmm,
    Tensor.matmul,
    Tensor.mm,
    Tensor.__matmul__,
}


def computes_bf16(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16."""
    can_ask = torch.backends.mkldnn.is_available()
    return device.type != "cpu" or (can_ask and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def is_rounded(device: torch.device, dtype: torch.dtype | None) -> bool:
    """Whether `autocast` multiplies rounded numbers in fp32: in bf16, on a CPU without instructions for it, where PyTorch's
    own products of bf16 take 25 to 75 times as long as those of fp32 (measured on two)."""
    return dtype == torch.bfloat16 and not computes_bf16(device)


@contextmanager
def autocast(device: torch.device, dtype: torch.dtype | None) -> Iterator[None]:
    """PyTorch's autocast to `dtype`; None: as it is. See `is_rounded`."""
    rounding = RoundedProducts() if is_rounded(device, dtype) else nullcontext()
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None), rounding:
        yield


class RoundedProducts(TorchFunctionMode):
    """Within autocast: products in fp32 of factors rounded to bf16, the result rounded again, and so their gradients.

    This is what instructions for bf16 compute (exact products of bf16, summed in fp32), but for the order of the sums, and
    for attention that PyTorch computes as a whole, which is rounded as a whole.
    """

    def __torch_function__(
        self,
        function: Callable,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if function not in PRODUCTS or not torch.is_autocast_enabled("cpu"):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            product = function(*map(_rounded, args), **{name: _rounded(value) for name, value in kwargs.items()})
        return tuple(map(_lower, product)) if isinstance(product, tuple) else _lower(product)


def _lower(value: Any) -> Any:
    return value.bfloat16() if isinstance(value, Tensor) and value.is_floating_point() else value


def _rounded(value: Any) -> Any:
    return _lower(value).float() if isinstance(value, Tensor) and value.is_floating_point() else value
