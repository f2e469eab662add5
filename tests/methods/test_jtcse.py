"""JTCSE as a method: what the first token sees, the cross-attention branch, the coin."""

import numpy as np
import pytest
import torch
from transformers import AutoModel

from lib.data import Batch
from lib.encoders import SentenceEncoder
from lib.encoders.packed import AttentionInputs, AttentionMaps, first_token_layer
from lib.losses import twin_info_nce
from tests.methods.conftest import builder
from tests.methods.conftest import run as run_method

build = builder("jtcse", dropout=0.1, cross_attention_layers=2)


@pytest.fixture(scope="module", params=["bert", "roberta"])
def deep(request, tmp_path_factory, variant):
    """Four layers, weights large enough that attention is not uniform."""
    folder = request.getfixturevalue(f"tiny_{request.param}")
    return variant(folder, tmp_path_factory.mktemp("deep") / request.param, num_hidden_layers=4, initializer_range=0.2)


def run(method, inputs, seed=1):
    """Terms, the vectors [2N, D] of either encoder, and those of either branch (none without branch)."""
    views, terms = run_method(method, inputs, seed)
    vectors = [views.rows(name) for name in method.names]
    return terms, vectors[:2], vectors[2:]


def eager(encoder):
    """The same weights in the library's own attention."""
    model = AutoModel.from_pretrained(
        encoder.backbone.config._name_or_path, attn_implementation="eager", add_pooling_layer=False
    )
    model.load_state_dict(encoder.backbone.state_dict())
    return model.eval()


def heads(x):
    return x.unflatten(-1, (2, 16)).transpose(1, 2)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(
    "pooling, maps", [("cls", None), ("mean", None), ("cls", AttentionMaps((1, 3), True)), ("cls", AttentionMaps((0,)))]
)
def test_the_first_token_sees_what_the_library_computes(deep, sentences, padded, pooling, maps):
    encoder = SentenceEncoder.from_pretrained(deep, pooling=pooling, dropout=0.0).train()
    rows = encoder.tokenizer(sentences[:6], padding=True, return_tensors="pt")
    ids, mask = (rows[k] if padded else rows[k][:, :5] for k in ("input_ids", "attention_mask"))
    assert mask.all() != padded
    inputs, peer = AttentionInputs((0, 2, 3)), eager(encoder)
    encoder(ids, mask, inputs=inputs, maps=maps)
    states = peer(ids, mask, output_hidden_states=True).hidden_states
    assert set(inputs.captured) == {0, 2, 3}
    for at, (hidden, query, key, value, keys) in inputs.captured.items():
        attention = peer.encoder.layer[at].attention.self
        close = {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(hidden, states[at][:, 0], **close)
        torch.testing.assert_close(query, heads(attention.query(states[at]))[:, :, :1], **close)
        real = mask[:, None, :, None]
        for captured, linear in ((key, attention.key), (value, attention.value)):
            torch.testing.assert_close(captured * real, heads(linear(states[at])) * real, **close)
        assert keys is None if not padded else torch.equal(keys[:, 0, 0], mask.bool())
        after = first_token_layer(encoder.backbone.encoder.layer[at], hidden, query, key, value, keys)
        torch.testing.assert_close(after, states[at + 1][:, 0], **close)


def by_hand(method, ids, mask, layers):
    """c_I and c_II with all tokens carried along, from the hidden states of the library's own eager forward."""
    peers = [eager(encoder) for encoder in method.encoder.encoders]
    states = [peer(ids, mask, output_hidden_states=True).hidden_states for peer in peers]
    hide = (1.0 - mask[:, None, None, :].float()) * -1e9
    vectors = []
    for here, there in ((0, 1), (1, 0)):
        c = states[here][layers[0]]
        for j in layers:
            block = peers[here].encoder.layer[j]
            query, key = (heads(f(states[here][j])) for f in (block.attention.self.query, block.attention.self.key))
            value = heads(peers[there].encoder.layer[j].attention.self.value(states[there][j]))
            context = ((query @ key.transpose(2, 3) / 16**0.5 + hide).softmax(-1) @ value).transpose(1, 2).flatten(2)
            attended = block.attention.output(context, c)
            c = block.output(block.intermediate(attended), attended)
        vectors.append(c[:, 0])
    return vectors


@pytest.mark.parametrize("branch", ["carried", "last"])
@pytest.mark.parametrize("count, layers", [(1, [3]), (2, [1, 3]), (4, [0, 1, 2, 3])])
def test_the_branch_is_each_encoders_attention_to_the_values_of_the_other(deep, inputs, branch, count, layers, shake):
    method = build(deep, dropout=0.0, cross_attention_layers=count, branch=branch)
    shake(method.encoder.encoders[1], scale=0.1)
    whole = inputs(method)
    cut = Batch(whole.input_ids[..., :5], whole.attention_mask[..., :5], whole.roles)
    for rows in (whole, cut):
        ids, mask = (x.repeat_interleave(2, 0) for x in rows.column("anchor"))
        assert bool(mask.all()) is (rows is cut)
        _, h, c = run(method, rows)
        expected = by_hand(method, ids, mask, layers if branch == "carried" else layers[-1:])
        for stream, branched, value in zip(h, c, expected, strict=True):
            torch.testing.assert_close(branched, value, rtol=1e-4, atol=1e-4)
            assert abs(branched - stream).max() > 0.1


def test_the_encoders_own_streams_do_not_know_of_the_branch(backbone, inputs):
    results = []
    for count, branch in ((0, "carried"), (1, "carried"), (2, "carried"), (2, "last")):
        method = build(backbone, cross_attention_layers=count, branch=branch)
        terms, h, c = run(method, inputs(method))
        assert len(c) == (2 if count else 0)
        results.append([*h, terms["nce"], terms["ictm"]])
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], result, strict=True))


def test_the_branch_trains_the_queries_of_its_own_and_the_values_of_the_other(tiny_bert, inputs, shake):
    method = build(tiny_bert, dropout=0.0, cross_attention_layers=1)
    shake(method.encoder.encoders[1])
    c = run(method, inputs(method))[2][0]
    (c * torch.linspace(-1, 1, 32)).pow(2).sum().backward()
    first, second = ([layer.attention for layer in e.backbone.encoder.layer] for e in method.encoder.encoders)
    for used in (first[1].self.query, first[1].self.key, first[1].output.dense, second[1].self.value):
        assert used.weight.grad.any()
    for unused in (first[1].self.value, second[1].self.query, second[1].self.key, second[1].output.dense):
        assert unused.weight.grad is None
    assert first[0].self.value.weight.grad.any() and second[0].self.value.weight.grad.any()


@pytest.mark.parametrize("count, coin", [(0, True), (1, True), (2, True), (2, False)])
def test_the_coin_decides_who_looks_in_whom_for_both_pairs(tiny_bert, inputs, count, coin, shake):
    """Without it encoder one always looks."""
    method = build(tiny_bert, cross_attention_layers=count, temperature=0.1, icnce_weight=2.0, coin=coin)
    shake(method.encoder.encoders[1])
    directions = set()
    for step in range(12):
        method.step.fill_(step)
        terms, h, c = run(method, inputs(method), seed=step)
        pairs = [h, c] if count else [h]
        forth = 2 * sum(twin_info_nce(a, b, temperature=0.1) for a, b in pairs)
        back = 2 * sum(twin_info_nce(b, a, temperature=0.1) for a, b in pairs)
        assert abs(forth - back) > 1e-4
        directions.add(method.draw() and coin)
        torch.testing.assert_close(terms["icnce"], back if method.draw() and coin else forth)
    assert directions == ({True, False} if coin else {False})


def draws(method, steps):
    coins = []
    for step in steps:
        method.step.fill_(step)
        coins.append(method.draw())
    return np.array(coins)


@pytest.mark.parametrize("seed", [0, 1, 42])
def test_the_coin_is_fair_forgets_and_depends_on_the_step_and_the_seed_of_the_run_alone(tiny_bert, seed):
    method = build(tiny_bert, seed=seed)
    coins = draws(method, range(4000))
    tolerance = 4 * 0.5 / 4000**0.5
    assert abs(coins.mean() - 0.5) < tolerance
    for lag in (1, 2, 3, 4, 8):
        assert abs((coins[lag:] == coins[:-lag]).mean() - 0.5) < tolerance
    steps, expected = range(64), coins[:64]
    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert np.array_equal(draws(method.eval(), steps[::-1]), expected[::-1])
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(draws(build(tiny_bert, seed=seed), steps), expected)
    assert not np.array_equal(draws(build(tiny_bert, seed=seed + 1), steps), expected)
