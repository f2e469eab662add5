import pytest
import torch
from torch import nn

from lib.encoders import SentenceEncoder
from lib.encoders.dropout import Dropout, dropout
from lib.encoders.heads import late_layers


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.99])
def test_drops_the_share_asked_for_and_keeps_the_mean(p):
    torch.manual_seed(0)
    x = dropout(torch.ones(1000, 1001), p)
    share, error = (x == 0).double().mean().item(), (p * (1 - p) / x.numel()) ** 0.5
    assert abs(share - p) < 5 * error
    assert abs(x.double().mean().item() - 1) < 5 * error / (1 - p)
    assert len(x.unique()) == 2


def test_neighbouring_entries_are_dropped_independently():
    torch.manual_seed(0)
    is_dropped = (dropout(torch.ones(2**20), 0.5) == 0).double()
    for distance in range(1, 9):  # four entries share one random word
        both = (is_dropped[:-distance] * is_dropped[distance:]).mean().item()
        assert both == pytest.approx(0.25, abs=0.003)


def test_gradient_through_kept_entries_and_what_is_kept_at_rates_0_and_1_and_outside_training():
    x = torch.randn(7, 15, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.4)
    y.sum().backward()
    assert torch.allclose(x.grad, y.detach() / x.detach())
    assert (Dropout(0.5)(x) == 0).any() and torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(dropout(x, 0.0), x) and torch.equal(dropout(x, 1.0), torch.zeros_like(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5,), (2, 3, 7)])
def test_keeps_shape_and_dtype(shape, dtype):
    y = dropout(torch.ones(shape, dtype=dtype), 0.1)
    assert y.shape == shape and y.dtype == dtype


def test_an_encoder_has_no_other_dropout_and_is_loaded_without_dropping():
    backbone = SentenceEncoder.from_pretrained("demo").backbone
    for model in (backbone, late_layers(backbone, 1, "random")):
        kinds = {type(m) for m in model.modules() if isinstance(m, nn.Dropout)}
        assert kinds == {Dropout}
    assert not any(m.training for m in backbone.modules())
