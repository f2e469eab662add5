"""A small BERT from text: the same files twice, an averaging network, and sentences about what does not fit."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from lib import paths
from lib.checks import ConfigError
from lib.data import Corpus, demo, load_sts
from lib.encoders import SentenceEncoder, mini_bert
from lib.encoders.saved import SHIPPED
from lib.evaluation import evaluate_sts

SIZES = {"vocabulary": 300, "hidden": 32, "layers": 2, "heads": 2, "intermediate": 64, "max_positions": 64}


@pytest.fixture(scope="module")
def corpus():
    """500 different sentences from one small installed package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "PACKAGES", ["joblib"])
        sentences = demo.docstring_sentences()
    sentences += [f"{sentence} {later}" for sentence, later in zip(sentences, sentences[7:], strict=False)]
    return sentences[:500]


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    return mini_bert.build(corpus, tmp_path_factory.mktemp("built"), **SIZES)


def test_two_builds_give_the_same_files(corpus, folder, tmp_path):
    torch.manual_seed(7)  # what happened before must not matter
    state = torch.get_rng_state()
    again = mini_bert.build(corpus, tmp_path / "again", **SIZES)
    assert torch.equal(state, torch.get_rng_state())
    names = sorted(path.name for path in folder.iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(names)
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (folder / name).read_bytes() == (again / name).read_bytes(), name


def masked_lm(folder):
    """Its language model; the files hold all of its weights and no others."""
    model, report = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def test_auto_classes_load_it_offline(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.is_fast and tokenizer.model_max_length == SIZES["max_positions"]
    assert tokenizer("The MEMORY").input_ids == tokenizer("the memory").input_ids
    assert tokenizer.tokenize("Zyx$!")[-2:] == ["$", "!"]  # all of printable ASCII is known
    assert len(tokenizer) == masked_lm(folder).config.vocab_size == SIZES["vocabulary"]


def test_the_first_dimension_is_the_weight_of_a_piece_with_which_cls_is_the_average_of_the_word_vectors(corpus, folder):
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [i for sentence in corpus for i in tokenizer(sentence, add_special_tokens=False)["input_ids"]]
    held = model.embeddings.word_embeddings.weight[:, 0].tolist()
    for piece in ("the", "file", "s", "##s"):
        share = ids.count(tokenizer.vocab[piece]) / len(ids)
        weight = mini_bert.SMOOTHING / (mini_bert.SMOOTHING + share)
        assert held[tokenizer.vocab[piece]] == pytest.approx(mini_bert.LOGARITHM * np.log(weight), abs=1e-6)
    lowest = held[tokenizer.cls_token_id]
    assert lowest == held[tokenizer.sep_token_id] == min(held) < held[tokenizer.mask_token_id] == 0
    inputs = tokenizer(corpus[:1], return_tensors="pt")
    with torch.no_grad():
        first = model.embeddings(inputs["input_ids"])[0, :, 0]
        maps = model(**inputs, output_attentions=True).attentions[0][0]  # [heads, n, n]
    expected = torch.softmax(mini_bert.GAIN * first, 0).expand_as(maps)
    assert torch.allclose(maps, expected, atol=0.02) and expected.max() > 2 * expected.min()
    model.set_attn_implementation("sdpa")  # the usual one, which gives no maps
    with torch.no_grad():
        for sentence in corpus[:64]:
            inputs = tokenizer(sentence, truncation=True, return_tensors="pt")
            embeddings = model.embeddings(inputs["input_ids"])[0]
            average = torch.softmax(mini_bert.GAIN * embeddings[:, 0], 0) @ embeddings
            cls = model(**inputs).last_hidden_state[0, 0]
            assert torch.cosine_similarity(cls, average, dim=0) > 0.6


def test_ppmi_equals_a_loop():
    sentences, size, window = [[0, 1, 2, 1], [2, 3], [3, 0, 0, 1, 2]], 5, 2
    counts = np.zeros((size, size))
    for ids in sentences:
        for i, a in enumerate(ids):
            for j, b in enumerate(ids):
                if 0 < abs(i - j) <= window:
                    counts[a, b] += abs(i - j) ** -0.5
    expected = np.zeros_like(counts)
    context = counts.sum(0) ** 0.75
    for a, b in zip(*counts.nonzero(), strict=True):
        ratio = counts[a, b] / counts[a].sum() / (context[b] / context.sum())
        expected[a, b] = max(0.0, np.log(ratio))
    np.testing.assert_allclose(mini_bert.positive_pmi(sentences, size, window=window).toarray(), expected, atol=1e-12)


@pytest.mark.parametrize(("name", "most"), [("demo", 20e6), ("demo-simcse", 14e6), ("demo-msse", 14e6)])
def test_what_is_shipped_is_small_and_in_half_precision(name, most):
    files = [path for path in SHIPPED[name].rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < most and SHIPPED[name] / "README.md" in files
    weights = [load_file(path) for path in files if path.suffix == ".safetensors"]
    assert len(weights) == (2 if name == "demo" else 1)  # its Condenser head is beside it
    assert {tensor.dtype for part in weights for tensor in part.values()} == {torch.float16}


def test_the_shipped_mini_bert_is_complete_and_trained():
    encoder = SentenceEncoder.from_pretrained("demo")
    config = encoder.backbone.config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (6, 256, 4)
    assert config.hidden_dropout_prob == 0.1 and len(encoder.tokenizer) == config.vocab_size == 8192
    model, vocabulary = masked_lm(SHIPPED["demo"]), encoder.tokenizer.vocab
    hidden = {"she went to the [MASK] and bought some bread .": "market", "the capital of france is [MASK] .": "paris"}
    for text, word in hidden.items():
        inputs = encoder.tokenizer(text, return_tensors="pt")
        place = inputs["input_ids"][0].tolist().index(encoder.tokenizer.mask_token_id)
        with torch.no_grad():
            logits = model(**inputs).logits[0, place]
        assert (logits > logits[vocabulary[word]]).sum() < 400, text  # among the likeliest 5 % of 8,192


def test_shipped_encoders_are_better_than_their_start_on_pairs_that_none_saw():
    pairs, names = load_sts(paths.root(), "demo", "test"), ("demo", "demo-simcse", "demo-msse")
    start, *trained = (evaluate_sts(SentenceEncoder.from_pretrained(one).encode, [pairs]).value[0] for one in names)
    assert min(trained) > start + 5, (start, trained)


def test_a_start_is_built_once(corpus, monkeypatch):
    read, build = [], mini_bert.build
    monkeypatch.setattr(mini_bert, "build", lambda rows, *a, **k: read.append(len(rows)) or build(rows, *a, **k))
    text = Corpus("text", (tuple(corpus[:100]),))
    folder, random = mini_bert.start(text, **SIZES), mini_bert.start(text, **SIZES, averaging=False)
    assert (folder.name, random.name) == ("averaging start", "random start") and read == [100, 100]
    assert mini_bert.start(text, **SIZES) == folder and read == [100, 100]
    assert (folder / "tokenizer.json").read_bytes() == (random / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 33}, "cannot be divided among 2 heads"),
        ({"vocabulary": 3000, "hidden": 1000}, "must be more than hidden .1,000."),
        ({"vocabulary": 40}, "give 109 word pieces, which must be .* at most vocabulary .40."),
        ({"intermediate": 10**9}, "parameters are too many for the free memory"),
    ],
)
def test_sizes_that_do_not_fit(corpus, tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        mini_bert.build(corpus[:20], tmp_path / "built", **SIZES | change)
    assert not (tmp_path / "built").exists()


def test_export_halves_the_file_and_keeps_the_vectors(corpus, folder, tmp_path):
    encoder = SentenceEncoder.from_pretrained(folder, dropout=0.0)
    encoder.save(tmp_path / "saved")
    out = mini_bert.copy_halved(tmp_path / "saved", tmp_path / "out")
    assert all(tensor.dtype == torch.float16 for tensor in load_file(out / "model.safetensors").values())
    again = SentenceEncoder.from_pretrained(out)
    assert next(AutoModel.from_pretrained(out).parameters()).dtype == next(again.parameters()).dtype == torch.float32
    assert again.backbone.config.hidden_dropout_prob == again.backbone.config.attention_probs_dropout_prob == 0.1
    full, half = encoder.encode(corpus[:50]), again.encode(corpus[:50])
    assert np.abs(full - half).max() / np.abs(full).max() < 5e-3
