"""bf16 on a CPU without instructions for it computes what PyTorch's own bf16 does."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from lib.encoders import SentenceEncoder, precision
from lib.encoders.pooling import POOLINGS

NAMES_OF_PRODUCTS = ("mm", "matmul", "linear", "einsum", "dot", "conv")


class Products(TorchFunctionMode):
    """Collects what multiplies matrices, by its name."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if any(part in name for part in NAMES_OF_PRODUCTS):
            self.seen.add(function)
        return function(*args, **kwargs or {})


def trained_once(encoder, inputs):
    """A vector for each sentence, and the gradients of a sum to which all their entries add."""
    encoder.zero_grad()
    h = encoder(**inputs)
    (h * torch.linspace(-1, 1, h.numel()).view_as(h).sin()).sum().backward()
    gradients = [p.grad.flatten() for p in encoder.parameters() if p.grad is not None]
    return h.detach().flatten(), torch.cat(gradients)


@pytest.mark.parametrize("pooling", sorted(POOLINGS.keys() - {"last"}))
def test_products_of_rounded_numbers_are_far_nearer_to_bf16_than_fp32_is(backbone, sentences, pooling, monkeypatch):
    encoder = SentenceEncoder.from_pretrained(backbone, pooling=pooling, dropout=0.0).train()
    inputs = dict(encoder.tokenizer(sentences[:9], padding=True, return_tensors="pt"))
    inputs.pop("token_type_ids", None)
    fp32 = trained_once(encoder, inputs)
    encoder.training_dtype = torch.bfloat16
    monkeypatch.setattr(precision, "computes_bf16", lambda device: True)
    native = trained_once(encoder, inputs)
    monkeypatch.setattr(precision, "computes_bf16", lambda device: False)
    with Products() as products:
        rounded = trained_once(encoder, inputs)
    assert products.seen and products.seen <= precision.PRODUCTS
    for exact, theirs, ours in zip(fp32, native, rounded, strict=True):
        assert not torch.equal(theirs, exact)
        assert (ours - theirs).norm() < 0.5 * (exact - theirs).norm()


def test_nothing_is_rounded_in_another_precision_or_outside(monkeypatch):
    monkeypatch.setattr(precision, "computes_bf16", lambda device: False)
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    with precision.autocast(x.device, None):
        assert torch.equal(x @ x, torch.mm(x, x)) and (x @ x).dtype == torch.float32
    with precision.autocast(x.device, torch.bfloat16):
        inside = x @ x
    assert inside.dtype == torch.bfloat16
    assert torch.equal(inside, (x.bfloat16().float() @ x.bfloat16().float()).bfloat16())
    assert (x @ x).dtype == torch.float32
