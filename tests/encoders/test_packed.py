"""The packed forward against the backbone's own: values, gradients, attention maps, and what it leaves out."""

import copy

import pytest
import torch

from lib.encoders import SentenceEncoder, packed


@pytest.fixture
def case(backbone, sentences):
    encoder = SentenceEncoder.from_pretrained(backbone, dropout=0.0).eval()
    inputs = encoder.tokenizer(sentences[:9], padding=True, return_tensors="pt")
    return encoder.backbone, inputs["input_ids"], inputs["attention_mask"]


def gradients(values, parameters):
    """Of a sum to which every place of the last dimension adds in its own way."""
    weighted = values * torch.linspace(-1, 1, values.size(-1))
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    return torch.autograd.grad(weighted.pow(2).sum(), list(parameters), **options)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("first_only", [True, False])
def test_values_and_gradients_equal_the_backbones_own(case, padded, first_only):
    backbone, ids, mask = case
    if not padded:
        ids, mask = ids[:, :4], mask[:, :4]
    found = packed.last_hidden(backbone, ids, mask, first_only=first_only)
    expected = backbone(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None]
    expected = expected[:, :1] if first_only else expected
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
    both = (gradients(values, backbone.parameters()) for values in (found, expected))
    torch.testing.assert_close(*both, rtol=1e-4, atol=2e-5)


def test_no_linear_layer_sees_padding_and_the_last_one_sees_first_tokens_only(case):
    backbone, ids, mask = case
    rows = []
    for layer in backbone.encoder.layer:
        layer.intermediate.register_forward_pre_hook(lambda module, args: rows.append(len(args[0])))
    packed.last_hidden(backbone, ids, mask, first_only=True)
    assert rows == [int(mask.sum())] * (len(backbone.encoder.layer) - 1) + [len(ids)]
    assert mask.sum() < mask.numel()


@pytest.mark.parametrize("length", [128, 129])
def test_attention_drops_at_the_rate_it_is_given_written_out_and_fused(length):
    """Of values that are all 1, what is left of every sum is the kept weights: 0 or 1 / (1 - p) for one key."""
    torch.manual_seed(0)
    query = torch.ones(1, 1, 20_000 if length == 128 else 1, 4, requires_grad=True)
    key = torch.ones(1, 1, length, 4)
    keys = torch.arange(length)[None, None, None, :] == 0
    out = torch.cat([packed._attend(query, key, key, keys, 0.25) for _ in range(1 if length == 128 else 2_000)])
    assert out.unique().tolist() == pytest.approx([0, 4 / 3], abs=1e-4)
    assert (out == 0).double().mean().item() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("layers", [(0,), (1,), (0, 1), (1, 0)])
@pytest.mark.parametrize("padded_queries", [True, False])
@pytest.mark.parametrize("first_only", [True, False])
def test_attention_maps_and_their_gradients_equal_eager_attention(case, layers, padded_queries, first_only):
    backbone, ids, mask = case
    peer, maps = copy.deepcopy(backbone), packed.AttentionMaps(layers, padded_queries)
    peer.set_attn_implementation("eager")
    plain = packed.last_hidden(backbone, ids, mask, first_only=first_only)
    hidden = packed.last_hidden(backbone, ids, mask, first_only=first_only, maps=maps)
    kept = mask[:, : plain.size(1), None]
    torch.testing.assert_close(hidden * kept, plain * kept, rtol=1e-4, atol=1e-5)  # they change no vector
    probabilities = maps.probabilities()
    expected = torch.stack(peer(ids, mask, output_attentions=True).attentions)[list(layers)]
    if not padded_queries:
        expected = expected * mask[None, :, None, :, None]
    torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-6)
    both = []
    for model, attention in ((backbone, probabilities), (peer, expected)):
        read = [model.encoder.layer[layer].attention.self for layer in layers]
        both.append(gradients(attention, [weight for a in read for weight in (a.query.weight, a.key.weight)]))
    assert all(gradient.any() for gradient in both[0])
    torch.testing.assert_close(*both, rtol=1e-4, atol=1e-6)


def test_maps_hold_what_the_values_were_weighted_with_after_dropout(case):
    backbone, ids, mask = case
    ids, mask = ids[:, :4], mask[:, :4]  # no padding: packed rows are easy to place
    evaluated, maps = packed.AttentionMaps((0,)), packed.AttentionMaps((0,))
    packed.last_hidden(backbone, ids, mask, first_only=False, maps=evaluated)
    layer = backbone.encoder.layer[0]
    layer.attention.self.dropout.p = 0.5
    tensors = []
    layer.attention.self.value.register_forward_hook(lambda module, args, out: tensors.append(out))
    layer.attention.output.register_forward_pre_hook(lambda module, args: tensors.append(args[0]))
    packed.last_hidden(backbone.train(), ids, mask, first_only=False, maps=maps)
    probabilities, (value, context) = maps.probabilities()[0], tensors
    kept = probabilities > 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(probabilities[kept], 2 * evaluated.probabilities()[0][kept])
    value = value.view(9, 4, 2, 16).transpose(1, 2)
    torch.testing.assert_close(context.view(9, 4, 32), (probabilities @ value).transpose(1, 2).flatten(2))


def test_wrapped_keys_and_values_are_called(case):
    backbone, ids, mask = case
    expected = packed.last_hidden(backbone, ids, mask, first_only=True)
    attention = backbone.encoder.layer[-1].attention.self
    attention.value = torch.nn.Sequential(attention.value)  # as adapters do
    wrapped = packed.last_hidden(backbone, ids, mask, first_only=True)
    torch.testing.assert_close(wrapped, expected, rtol=1e-4, atol=1e-5)


def test_only_wanted_tokens_leave_the_last_layer(tiny_bert, sentences):
    encoder = SentenceEncoder.from_pretrained(tiny_bert).eval()
    ids = encoder.tokenizer(sentences[:6], padding=True, return_tensors="pt")
    tokens = packed.Tokens(ids["attention_mask"].bool())
    hidden = tokens.pack(encoder.backbone.embeddings(input_ids=ids["input_ids"]))
    layers = encoder.backbone.encoder.layer
    whole = packed.run_layers(layers, hidden, tokens)
    for share in (0.0, 0.4, 1.0):
        random = torch.rand(tokens.keep.shape, generator=torch.Generator().manual_seed(0))
        wanted = packed.Tokens(tokens.keep & (random < share))
        some = packed.run_layers(layers, hidden, tokens, wanted=wanted)
        assert some.shape == (int(wanted.keep.sum()), 32)
        expected = whole[wanted.keep[tokens.keep]]
        torch.testing.assert_close(some, expected, rtol=1e-4, atol=1e-5)
        if share:
            both = (gradients(x, layers.parameters()) for x in (some, expected))
            torch.testing.assert_close(*both, rtol=1e-3, atol=1e-4)
