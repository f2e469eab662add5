"""TNCSE as a method: the twins and their poolers, every term against the loss on the vectors, what is kept."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from lib.encoders import SentenceEncoder
from lib.encoders.layer_norms import removed
from lib.losses import tensor_modulus, twin_info_nce
from tests.methods.conftest import builder, run

build = builder("tncse", dropout=0.1)


@pytest.mark.parametrize("halved", [True, False])
@pytest.mark.parametrize("layer_norms_removed", [0, 1])
def test_the_terms_are_the_losses_of_the_vectors(backbone, halved, layer_norms_removed, inputs, shake):
    """Without LayerNorms the lengths compared are those of the vectors, with them those of the poolers' outputs."""
    options = {"halved": halved, "layer_norms_removed": layer_norms_removed}
    method = build(backbone, temperature=0.1, **options)
    shake(method.encoder.encoders[1])
    shake(method.poolers[1])
    views, terms = run(method, inputs(method))
    h1, h2 = (views.rows(name) for name in method.names)
    p1, p2 = h1, h2
    if not layer_norms_removed:
        layers = [pooler[0] for pooler in method.poolers]
        p1, p2 = (torch.tanh(h @ one.weight.T + one.bias) for h, one in zip((h1, h2), layers, strict=True))
    expected = {
        "nce": twin_info_nce(h1, temperature=0.1) + twin_info_nce(h2, temperature=0.1),
        "icnce": twin_info_nce(h1, h2, temperature=0.1),
        "ictm": (tensor_modulus(h1, h2, p1, p2) + tensor_modulus(h2, h1, p2, p1)) * (1 if halved else 2),
    }
    assert set(terms) == set(expected) and expected["ictm"] > 1e-4
    assert abs(expected["icnce"] - twin_info_nce(h2, h1, temperature=0.1)) > 1e-5  # encoder I looks in II
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value, msg=name)


@pytest.mark.parametrize("pretrained", [False, True])
def test_twins_and_poolers_start_equal_share_nothing_and_the_poolers_are_thrown_away(tiny_bert, tmp_path, pretrained):
    method = build(tiny_bert, pooler_from=str(tiny_bert) if pretrained else "")
    for pair in (method.encoder.encoders, method.poolers):
        for first, second in zip(*(list(module.parameters()) for module in pair), strict=True):
            assert torch.equal(first, second) and first is not second and first.data_ptr() != second.data_ptr()
    method.save(tmp_path / "saved")
    kept = [name for path in tmp_path.glob("saved/*/model.safetensors") for name in load_file(path)]
    assert len(kept) == len(list(method.encoder.parameters())) and not any("pooler" in name for name in kept)


def test_the_second_backbone_is_encoder_two(tiny_bert, tmp_path, sentences, shake):
    folder = str(tmp_path / "second")
    shake(SentenceEncoder.from_pretrained(tiny_bert)).save(folder)
    method = build(tiny_bert, second_backbone=folder, dropout=0.2)
    rates = {m.p for m in method.encoder.encoders[1].modules() if isinstance(m, torch.nn.Dropout)}
    assert rates == {0.2}
    vectors = [encoder.encode(sentences[:6]) for encoder in method.encoder.encoders]
    expected = [SentenceEncoder.from_pretrained(name).encode(sentences[:6]) for name in (tiny_bert, folder)]
    assert abs(expected[0] - expected[1]).max() > 1e-2
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_the_pretrained_pooler_is_the_backbones(backbone, sentences):
    method = build(backbone, pooler_from=str(backbone))
    encoder = method.encoder.encoders[0].eval()
    ids = encoder.tokenizer(sentences[:5], padding=True, return_tensors="pt")
    h = encoder(ids["input_ids"], ids["attention_mask"])
    expected = SentenceEncoder.from_pretrained(backbone, pooling="pooler")(ids["input_ids"], ids["attention_mask"])
    for pooler in method.poolers:
        torch.testing.assert_close(pooler(h), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["tncse", "jtcse"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_both_encoders_lose_the_layer_norms_of_their_last_layers_and_need_no_pooler(tiny_bert, kind, count, inputs):
    branch = {"cross_attention_layers": 2} if kind == "jtcse" else {}
    method = builder(kind, **branch)(tiny_bert, dropout=0.1, layer_norms_removed=count)
    assert [removed(encoder.backbone.config) for encoder in method.encoder.encoders] == [count] * 2
    sum(method(inputs(method)).values()).backward()
    for name, parameter in method.named_parameters():  # a key's bias moves all scores of a query alike
        assert parameter.grad is not None, name
        assert parameter.grad.any() or name.endswith("key.bias") or "type" in name, name
    assert bool(list(method.poolers.parameters())) is (count == 0)
