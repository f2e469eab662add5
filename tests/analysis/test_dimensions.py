import numpy as np
import pytest
import torch

from lib.analysis.dimensions import term_scales, toy_views
from lib.losses import dimension_contrast, info_nce
from lib.losses.dimension_contrast import cross_correlation
from tests.methods.test_contract import configure, prepare


def test_values_and_gradients_are_those_of_the_losses(tiny_bert, sentences):
    config = configure(tiny_bert, "", "msse").replace(dropout=0.0, projection="none", decoder_input_dropout=0.0)
    method, tokens = prepare(config, sentences)
    method.eval()
    batch = tokens.batch(np.arange(8))
    frame = term_scales(method, batch)
    assert not method.training
    h = method.encoder(*batch.column("anchor")).detach().requires_grad_()
    for name, loss in {
        "L_NCE": lambda x: info_nce(x, x),
        "L_DCM, sum": lambda x: dimension_contrast(x, x, reduce="sum"),
    }.items():
        value = loss(h)
        assert frame.loc[name, "value"] == pytest.approx(value.item(), rel=1e-3, abs=1e-5)
    both = torch.stack([h, h], 1).detach().requires_grad_()
    gradient = torch.autograd.grad(info_nce(both[:, 0], both[:, 1]), both)[0].norm().item()
    assert frame.loc["L_NCE", "gradient at h"] == pytest.approx(gradient, rel=1e-2, abs=1e-6)
    assert frame.loc["L_NCE", "relative to L_NCE"] == 1 and (frame["gradient at h"] > 0).all()
    assert frame.loc["L_DCM, sum", "value"] == pytest.approx(
        h.size(1) ** 2 * frame.loc["L_DCM, dim2", "value"], rel=1e-4
    )
    words = batch.column("anchor")[1].sum().item()
    whole, share = (frame.loc[f"L_ICM, {how} over the tokens"] for how in ("sum", "mean"))
    assert whole.value == pytest.approx(words * share.value, rel=1e-4)
    assert whole["gradient at h"] == pytest.approx(words * share["gradient at h"], rel=1e-3)


def test_toy_views_leak_and_disagree_as_they_are_told():
    matrices = {name: cross_correlation(*views) for name, views in toy_views(leak=0.9, noise=1.5).items()}
    clean, leaking, noisy = (matrices[name] for name in ("each for itself", "1 leaks into 2", "views disagree"))
    assert clean.diagonal().min() > 0.95 and (clean - torch.diag(clean.diagonal())).abs().max() < 0.2
    assert leaking[0, 1] > 0.5 and leaking[2, 3].abs() < 0.2 and noisy.diagonal().max() < 0.7
    alike = toy_views(leak=0.0, noise=0.2)["1 leaks into 2"][0]
    assert torch.equal(alike, toy_views(leak=0.0, noise=0.2)["each for itself"][0])
