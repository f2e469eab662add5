"""Attention read from an encoder: padding, positive and negative pairs, where attention goes."""

import copy

import numpy as np
import pytest
import torch

from lib.analysis import attention
from lib.data import Corpus, load_sts
from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum
from lib.evaluation.sts import cosine
from lib.losses import attention_mutual_information

HOW = {"layers": (0, 1), "slicing": "layer_parity"}


@pytest.fixture
def encoder(tiny_bert):
    return SentenceEncoder.from_pretrained(tiny_bert, dropout=0.1).eval()


def test_information_of_a_pair_is_minus_the_loss_and_its_cosine_that_of_the_vectors(encoder):
    text = "the dog runs in the park"
    found = attention.pair_information(encoder, [text], [text], **HOW)
    torch.manual_seed(0)
    maps, _ = attention.attention_of(encoder.train(), [text, text], (0, 1))
    options = {"valid": torch.ones(1, 8, 8, dtype=torch.bool), "valid_fraction_factor": False}
    expected = -attention_mutual_information(maps[:, :1], maps[:, 1:], **options)
    assert found["x"] == pytest.approx([expected.item()], rel=1e-5)
    torch.manual_seed(0)
    ids = torch.tensor(encoder.tokenize([text, text]))
    with torch.no_grad():
        z = encoder(ids, torch.ones_like(ids))
    assert found["y"] == pytest.approx([torch.cosine_similarity(*z, dim=0).item()], rel=1e-5)


@pytest.mark.parametrize("padded_queries", [True, False])
def test_the_batch_factor_is_the_squared_share_of_entries_that_both_passes_kept(encoder, padded_queries):
    texts, how = ["the dog runs in the park", "snow"], HOW | {"max_length": 6, "padded_queries": padded_queries}
    without_dropout = SentenceEncoder.from_pretrained(encoder.backbone.config._name_or_path, dropout=0.0)
    share = (6 * 6 + 6 * 3 if padded_queries else 6 * 6 + 3 * 3) / (2 * 6 * 6)  # 6 tokens after the cut, and 3
    assert attention.batch_factor(without_dropout, texts, **how).value.tolist() == pytest.approx([share**2], abs=1e-5)
    first, again = (attention.batch_factor(encoder, 20 * texts, **how) for _ in range(2))
    assert first.equals(again) and not encoder.training
    assert first.value.tolist() == pytest.approx([(0.9**2 * share) ** 2], rel=0.1)


def test_copies_tell_more_of_each_other_than_other_sentences_and_are_closer(sentences):
    encoder = SentenceEncoder.from_pretrained("demo")  # with random weights, dropout hides what a sentence says
    first, second = sentences[:40], sentences[40:80]
    state, mode = torch.get_rng_state(), encoder.training
    same, different, again = (attention.pair_information(encoder, first, one, **HOW) for one in (first, second, first))
    assert same["x"].shape == (40,) and same["x"].mean() > 1.5 * different["x"].mean()
    assert same["y"].max() < 1 - 1e-6 and same["y"].mean() > different["y"].mean() + 0.01
    assert torch.equal(torch.get_rng_state(), state) and encoder.training is mode
    np.testing.assert_array_equal(same["x"], again["x"])


def test_the_pairs_of_the_figures(encoder, sentences, tmp_path):
    dev, texts = load_sts(tmp_path, "demo", "dev"), Corpus("toy", [sentences[:5]])
    found = attention.figure_pairs(encoder, texts, dev, **HOW)
    assert list(found) == ["table", "metric", "group", "item", "x", "y"]
    (five, pairs), (seven, gold) = found.groupby("table")
    assert (five, seven) == ("Figure 5", "Figure 7") and pairs.item.tolist() == 2 * [0, 1, 2, 3, 4]
    first = list(texts.sample(5, seed=0).columns[0])
    for group, second in {"positive": first, "negative": first[1:] + first[:1]}.items():
        part, expected = pairs[pairs.group == group], attention.pair_information(encoder, first, second, **HOW)
        np.testing.assert_array_equal(part[["x", "y"]], np.stack([*expected.values()], 1))
    assert gold.x.tolist() == dev.gold.tolist()
    expected = cosine(encoder.encode(dev.sentences1[3:4]), encoder.encode(dev.sentences2[3:4]))
    assert gold.y.iloc[3] == pytest.approx(expected[0], abs=1e-5)


def test_log_deviation_by_hand(encoder):
    texts, expected = ["the dog runs in the park", "snow"], np.zeros(2)
    for text in texts:
        torch.manual_seed(0)
        maps, _ = attention.attention_of(encoder.train(), [text, text], (0, 1))
        for layer in (0, 1):
            seen = maps[layer, 0][(maps[layer] > 0).all(0)]
            assert maps[layer, 0].numel() / 2 < len(seen) < maps[layer, 0].numel()  # dropout took some entries
            expected[layer] += seen.log().numpy().std(ddof=1) / 2
    found = attention.log_deviation(encoder.eval(), texts)
    assert found.layer.tolist() == [1, 2] and not encoder.training
    assert found.value.tolist() == pytest.approx(expected.tolist(), rel=1e-5)


def by_sentence(encoder, text):
    """Attention [layers, heads, L, L], what the layers read [layers, L, D] and token ids, from the plain backbone."""
    plain = SentenceEncoder.from_pretrained(encoder.backbone.config._name_or_path).eval()
    plain.backbone.set_attn_implementation("eager")
    inputs = plain.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        output = plain.backbone(**inputs, output_attentions=True, output_hidden_states=True)
    return torch.cat(output.attentions), torch.cat(output.hidden_states[:-1]), inputs["input_ids"][0].tolist()


def test_token_shares_are_means_over_sentences_heads_and_queries(encoder):
    texts = ["snow.", "the dog runs in the park .", "rain", "a cat : street", ". . the dog . ."]
    groups = {"[CLS]": 0, "[SEP]": 1, ".": 3, ":": 3, "the": 4, "in": 4, "a": 4}
    expected, tokens = np.zeros((2, 6)), np.zeros(6)
    for text in texts:
        maps, _, ids = by_sentence(encoder, text)
        pieces = encoder.tokenizer.convert_ids_to_tokens(ids)
        for key, piece in enumerate(pieces):
            group = 2 if piece == "." and key == len(pieces) - 2 else groups.get(piece, 5)  # the last mark alone
            expected[:, group] += maps[:, :, :, key].mean((1, 2)).numpy() / len(texts)
            tokens[group] += 1 / len(ids) / len(texts)
    assert (tokens > 0).all()
    for batch_tokens in (9, 2048):
        shares = attention.token_shares(encoder.train(), texts, batch_tokens=batch_tokens)
        assert encoder.training and list(shares.group[:6]) == list(attention.TOKEN_GROUPS)
        values = {metric: part.value.to_numpy().reshape(2, 6) for metric, part in shares.groupby("metric")}
        assert list(values) == ["attention share", "uniform share"] and list(shares.layer) == 2 * (6 * [1] + 6 * [2])
        np.testing.assert_allclose(values["attention share"], expected, atol=1e-5)
        np.testing.assert_allclose(values["uniform share"], [tokens] * 2, atol=1e-6)


def test_cls_energies_are_those_of_the_context_tensor_or_of_the_layer_output_of_each_sentence(encoder, sentences):
    """Eq. 9: attention times values, all heads side by side, before anything else is done to it."""
    expected = {"context tensor": np.zeros(2), "layer output": np.zeros(2)}
    for text in sentences[:7]:
        for at, (heads, hidden) in enumerate(zip(*by_sentence(encoder, text)[:2], strict=True)):
            layer = encoder.backbone.encoder.layer[at]
            values = layer.attention.self.value(hidden).detach().chunk(2, dim=-1)
            context = torch.cat([a @ v for a, v in zip(heads, values, strict=True)], -1)
            attended = layer.attention.output(context, hidden)
            output = layer.output(layer.intermediate(attended), attended).detach()
            for name, state in zip(expected, (context, output), strict=True):
                expected[name][at] += float(state[0].norm() / state[1:].norm()) / 7
    for batch_tokens in (12, 2048):
        energies = attention.cls_energies(encoder.train(), sentences[:7], batch_tokens=batch_tokens)
        assert encoder.training and set(energies.metric) == {"cls energy"} and set(energies.group) == set(expected)
        for name, part in energies.groupby("group"):
            assert part.layer.tolist() == [1, 2]
            np.testing.assert_allclose(part.value, expected[name], rtol=1e-5)


def test_maps_of_one_sentence_are_means_over_heads_or_one_head(encoder, tiny_roberta, sentences):
    """Of those encoders that cut the sentence as the first does."""
    encoder.train()  # the maps are without dropout all the same
    frame, tokens = attention.sentence_maps({"a": encoder, "b": encoder}, sentences[0])
    second, _ = attention.sentence_maps({"a": encoder}, sentences[0], head=2)
    assert encoder.training and (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]")
    maps, _, _ = by_sentence(encoder, sentences[0])
    np.testing.assert_allclose(frame[frame.encoder == "b"].value, maps.mean(1).flatten(), atol=1e-6)
    np.testing.assert_allclose(second.value, maps[:, 1].flatten(), atol=1e-6)
    corner = second.query("layer == 2 and query == 3 and key == 0").value.item()
    assert corner == pytest.approx(maps[1, 1, 3, 0].item(), abs=1e-6)
    both = {"a": encoder, "other": SentenceEncoder.from_pretrained(tiny_roberta), "b": encoder}
    for order, kept, opening in ((["a", "other", "b"], ["a", "b"], "[CLS]"), (["other", "a"], ["other"], "<s>")):
        frame, tokens = attention.sentence_maps({name: both[name] for name in order}, sentences[0])
        assert list(frame.encoder.unique()) == kept and tokens[0] == opening and list(frame.layer.unique()) == [1, 2]


def test_readers_are_the_members_of_sums_and_the_same_weights_once(encoder, tiny_roberta, sentences):
    roberta = SentenceEncoder.from_pretrained(tiny_roberta, pooling="first_last_mean")
    mean = copy.copy(encoder)
    mean.pooling = "mean"
    both = EncoderSum([mean, roberta])
    found = attention.readers({"a": encoder, "b": mean, "sum": both, "last": roberta})
    assert list(found) == ["a", "sum, encoder 2"] and roberta.pooling == "first_last_mean"
    for reader in found.values():
        attention.sentence_maps({"x": reader}, sentences[0])  # whatever pooling it came with


def test_rows_that_are_alike_do_not_differ_and_uniform_ones_have_entropy_one(encoder, sentences, monkeypatch):
    uniform, own = torch.full((1, 1, 1, 4, 4), 0.25), torch.eye(4)[None, None, None]
    given = {"uniform": uniform, "own token": own, "first token": own[..., :1, :].expand(-1, -1, -1, 4, -1)}
    given["two tokens"] = torch.tensor([0.5, 0.5, 0, 0]).expand(1, 1, 1, 4, 4)
    with monkeypatch.context() as patch:
        patch.setattr(attention, "attention_of", lambda _, texts, layers: (given[texts[0]], None))
        found = {name: attention.row_differences(encoder, [name]).loc[1].round(6).tolist() for name in given}
    assert found == {"uniform": [1, 0], "own token": [0, 0.75], "first token": [0, 0], "two tokens": [0.5, 0]}
    table = attention.row_differences(encoder, sentences[:3])
    each = [attention.row_differences(encoder, [sentence]) for sentence in sentences[:3]]
    assert np.allclose(table, sum(each) / 3, atol=1e-6) and list(table.index) == [1, 2]
