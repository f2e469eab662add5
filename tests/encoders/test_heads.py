"""The MLM head: read from what was saved, or new; see tests/methods/test_mlm.py for its training."""

import copy

import pytest
import torch
import torch.nn.functional as F
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForMaskedLM

from lib.encoders.heads import BatchNormMLP, fresh_mlm_head
from lib.encoders.packed import MODEL_TYPES

SIZES = {"vocab_size": 60, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "pad_token_id": 1}


@pytest.fixture(params=[(family, tied) for family in MODEL_TYPES for tied in (True, False)], ids=str)
def backbone(request):
    """One of each family, from nowhere, with an activation that is not the usual one; its config ties or not."""
    family, tied = request.param
    config = CONFIG_MAPPING[family](
        **SIZES, intermediate_size=64, max_position_embeddings=40, hidden_act="relu", tie_word_embeddings=tied
    )
    torch.manual_seed(0)
    model = AutoModel.from_config(config, add_pooling_layer=False)
    model.config._name_or_path = "nowhere/at-all"
    return model


def parts(head):
    """Dense layer, LayerNorm, decoder and output bias of either family's head."""
    predictions = getattr(head, "predictions", head)
    transform = getattr(predictions, "transform", predictions)
    norm = transform.LayerNorm if hasattr(transform, "LayerNorm") else transform.layer_norm
    return transform.dense, norm, predictions.decoder, predictions.bias


def test_a_fresh_head_is_drawn_near_the_identity_and_leaves_the_backbone_as_it_is(backbone):
    before, drawn = copy.deepcopy(backbone), []
    for seed in (2, 1, 1):
        torch.manual_seed(seed)
        dense, norm, decoder, bias = parts(fresh_mlm_head(backbone))
        drawn.append(dense.weight)
    assert torch.equal(drawn[1], drawn[2]) and not torch.equal(drawn[0], drawn[1])
    assert all(torch.equal(tensor, before.state_dict()[name]) for name, tensor in backbone.state_dict().items())
    noise = (dense.weight - torch.eye(64)).detach()
    assert 0.019 < noise.std() < 0.021 and abs(noise.mean()) < 0.0015 and noise.abs().max() < 0.12
    assert 0.014 < noise.diagonal().std() < 0.026  # 1 was added to it, not put in its place
    assert torch.equal(norm.weight, torch.ones(64)) and not norm.bias.any()
    assert not dense.bias.any() and not bias.any() and bias.shape == (60,)
    assert decoder.weight is backbone.get_input_embeddings().weight and decoder.bias is bias


def test_a_fresh_head_computes_what_the_family_computes(backbone):
    head = fresh_mlm_head(backbone)
    dense, norm, decoder, bias = parts(head)
    with torch.no_grad():
        for parameter in (dense.bias, norm.weight, norm.bias, bias):
            parameter.normal_()
    x = torch.randn(3, 5, 64)
    activation = F.relu if backbone.config.model_type == "bert" else F.gelu  # RoBERTa's class has no choice
    inner = F.layer_norm(activation(x @ dense.weight.T + dense.bias), (64,), norm.weight, norm.bias, norm.eps)
    expected = inner @ backbone.get_input_embeddings().weight.T + bias
    torch.testing.assert_close(head(x), expected, rtol=1e-4, atol=1e-5)
    assert norm.eps == backbone.config.layer_norm_eps
    model = AutoModelForMaskedLM.from_config(copy.deepcopy(backbone.config))
    assert type(head) in {type(module) for module in model.children()}


def test_the_projection_with_batch_norm_by_hand():
    """Over all rows of [N, S, D] together; nothing but two matrices and one scale and shift is trained."""
    torch.manual_seed(0)
    head, h = BatchNormMLP(4).train(), torch.randn(6, 2, 4)
    assert {name: tuple(p.shape) for name, p in head.named_parameters()} == {
        "0.weight": (8, 4), "1.weight": (8,), "1.bias": (8,), "3.weight": (4, 8),
    }  # fmt: skip

    def normalised(x):
        return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()

    hidden = normalised(h.view(12, 4) @ head[0].weight.T).relu()
    expected = normalised(hidden @ head[3].weight.T)
    torch.testing.assert_close(head(h), expected.view(6, 2, 4), rtol=1e-4, atol=1e-5)
