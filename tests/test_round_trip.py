"""Round-trip translation with small sequence-to-sequence models of random weights: order, cache, resume, refusal."""

import json

import pytest
import torch

from lib import augment, round_trip
from lib.config import ConfigError
from lib.data import Corpus, DataError


@pytest.fixture(scope="module")
def models(tmp_path_factory, sentences):
    """Two BART models of one layer, and a byte-pair tokenizer."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import BartConfig, BartForConditionalGeneration, BartTokenizerFast

    folders = []
    for seed in (0, 1):
        folder = tmp_path_factory.mktemp(f"translator-{seed}")
        trained = ByteLevelBPETokenizer()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        trained.train_from_iterator(sentences, vocab_size=300, special_tokens=special)
        trained.save_model(str(folder))
        tokenizer = BartTokenizerFast.from_pretrained(str(folder))
        torch.manual_seed(seed)
        config = BartConfig(
            vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=128,
        )  # fmt: skip
        BartForConditionalGeneration(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders.append(str(folder))
    return folders


def test_every_sentence_keeps_its_place_whatever_it_is_batched_with(models, sentences):
    texts = sentences[:5]
    together = round_trip.round_trip(texts, *models)
    assert together == [round_trip.round_trip([text], *models)[0] for text in texts]
    assert len(together) == 5 and all(text.strip() for text in together)


def test_the_second_call_translates_nothing_and_a_killed_one_goes_on(models, sentences, monkeypatch):
    monkeypatch.setattr(round_trip, "CHUNK", 2)
    translated = []
    real = round_trip._Translator.__call__
    monkeypatch.setattr(
        round_trip._Translator, "__call__", lambda self, texts: translated.append(len(texts)) or real(self, texts)
    )
    first = round_trip.round_trip(sentences[:5], *models)
    assert translated == [2, 2, 2, 2, 1, 1]
    files = sorted((round_trip.paths.cache() / "round_trip").glob("*/*.json"))
    files[1].unlink()
    translated.clear()
    assert round_trip.round_trip(sentences[:5], *models) == first and translated == [2, 2]
    assert round_trip.round_trip(sentences[:5], *models[::-1]) is not None and len(translated) == 8  # other models


def test_an_empty_translation_is_replaced_by_the_sentence(models, sentences, monkeypatch):
    monkeypatch.setattr(round_trip._Translator, "__call__", lambda self, texts: [" "] * len(texts))
    assert round_trip.round_trip(sentences[:3], *models) == sentences[:3]


def test_as_an_augmentation_it_replaces_the_text_or_makes_pairs(models, sentences):
    corpus = Corpus("c", (tuple(sentences[:4]),))
    expected = tuple(round_trip.round_trip(sentences[:4], *models))
    there, back = models
    assert augment.augment_corpus(corpus, f"round_trip({there},{back})", 0).columns == (expected,)
    pairs = augment.augment_corpus(corpus, f"round_trip_pairs({there}, {back})", 0)
    assert pairs.columns == (corpus.columns[0], expected) and pairs.kind == "pairs"
    with pytest.raises(ConfigError, match="with two models"):
        augment.parse(f"round_trip({there})")


def test_a_substitute_is_taken_and_said(models, capsys):
    there, back = models
    assert augment.usable(f"round_trip({there},{back})", "shuffle") == f"round_trip({there},{back})"
    assert capsys.readouterr().out == ""
    assert augment.usable(f"round_trip({there},some/translator)", "shuffle") == "shuffle"
    assert "some/translator" in (said := capsys.readouterr().out) and "Here: shuffle." in said


def test_without_the_models_it_refuses_in_one_sentence(tmp_path, models):
    with pytest.raises(DataError, match=r"no loadable model 'some/translator'.*word_repetition"):
        round_trip.round_trip(["a"], "some/translator", models[1])
    with pytest.raises(DataError, match="some/translator"):
        augment.check(f"round_trip({models[0]},some/translator)")
    augment.check(f"round_trip({models[0]},{models[1]})")
    augment.check("word_repetition(0.2)")
    incomplete = tmp_path / "incomplete"
    incomplete.mkdir()
    (incomplete / "config.json").write_text(json.dumps({"model_type": "bart"}))
    with pytest.raises(DataError, match="incomplete"):
        round_trip.round_trip(["a"], models[0], str(incomplete))
