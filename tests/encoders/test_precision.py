"""bf16 on a CPU without instructions for it computes what PyTorch's own bf16 does."""

import pytest
import torch

from lib.encoders import SentenceEncoder, precision
from lib.encoders.pooling import POOLINGS


@pytest.fixture
def has_bf16(monkeypatch):
    """Function (whether this CPU is to have instructions for bf16)."""
    return lambda answer: monkeypatch.setattr(precision, "computes_bf16", lambda device: answer)


def trained_once(encoder, inputs):
    """A vector for each sentence, and the gradients of a sum to which all their entries add."""
    encoder.zero_grad()
    h = encoder(**inputs)
    (h * torch.linspace(-1, 1, h.numel()).view_as(h).sin()).sum().backward()
    gradients = [p.grad.flatten() for p in encoder.parameters() if p.grad is not None]
    return h.detach().flatten(), torch.cat(gradients)


@pytest.mark.parametrize("pooling", sorted(POOLINGS.keys() - {"last"}))
def test_products_of_rounded_numbers_are_far_nearer_to_bf16_than_fp32_is(
    tiny_bert, sentences, pooling, has_bf16, bf16_products
):
    encoder = SentenceEncoder.from_pretrained(tiny_bert, pooling=pooling, dropout=0.0).train()
    inputs = dict(encoder.tokenizer(sentences[:9], padding=True, return_tensors="pt"))
    inputs.pop("token_type_ids", None)
    fp32 = trained_once(encoder, inputs)
    encoder.training_dtype = torch.bfloat16
    has_bf16(True)
    with bf16_products as products:
        native = trained_once(encoder, inputs)
    assert products
    has_bf16(False)
    with bf16_products as products:
        rounded = trained_once(encoder, inputs)
    assert not products
    for exact, theirs, ours in zip(fp32, native, rounded, strict=True):
        assert not torch.equal(theirs, exact)
        assert (ours - theirs).norm() < 0.5 * (exact - theirs).norm()


def test_nothing_is_rounded_in_another_precision_or_outside(has_bf16, bf16_products):
    x, device = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)), torch.device("cpu")
    has_bf16(False)
    with precision.autocast(device, None):
        assert torch.equal(x @ x, torch.mm(x, x)) and (x @ x).dtype == torch.float32
    with precision.autocast(device, torch.bfloat16), bf16_products as products:
        inside = x @ x
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(x @ x, torch.mm(x, x)) and (x @ x).dtype == torch.float32
    assert inside.dtype == torch.bfloat16 and not products
    assert torch.equal(inside, (x.bfloat16().float() @ x.bfloat16().float()).bfloat16())
    assert (x @ x).dtype == torch.float32
    with precision.autocast(device, torch.float16), bf16_products as products:
        assert (x @ x).dtype == torch.float16
