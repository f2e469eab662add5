"""Round-trip translation: order, cache, resume, refusal; models whose output is known, and real classes of random weights."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

from lib import runs
from lib.checks import ConfigError, DataError
from lib.config import RunConfig
from lib.data import Corpus, augment, round_trip


def marian(folder, sentences, seed):
    """A Marian model of one layer with random weights and a SentencePiece vocabulary, as opus-mt has them."""
    import sentencepiece
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    (folder / "text").write_text("\n".join(sentences))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "spm"), vocab_size=60, minloglevel=9
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    words = ["</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, len(pieces))), "<pad>"]
    (folder / "vocabulary").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    spm = str(folder / "spm.model")
    tokenizer = MarianTokenizer(source_spm=spm, target_spm=spm, vocab=str(folder / "vocabulary"))
    torch.manual_seed(seed)
    pad = len(words) - 1
    config = MarianConfig(
        vocab_size=len(words), d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=128,
        pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, forced_eos_token_id=0, init_std=1.0,
    )  # fmt: skip
    target = folder / "model"
    MarianMTModel(config).save_pretrained(target)
    tokenizer.save_pretrained(target)
    return str(target)


@pytest.fixture(scope="module")
def marians(tmp_path_factory, sentences):
    return [marian(tmp_path_factory.mktemp(f"marian-{seed}"), sentences, seed) for seed in (0, 1)]


@pytest.fixture
def models(marians, monkeypatch):
    """The two folders; what the models generate is known: the first turns the tokens round, the second drops one."""
    real = round_trip.load

    def load(name):
        tokenizer, model, files = real(name)

        def generate(input_ids, attention_mask, **options):
            rows = [ids[mask.bool()][:-1] for ids, mask in zip(input_ids, attention_mask, strict=True)]  # without </s>
            rows = [ids.flip(0) if name == marians[0] else ids[1:] for ids in rows]
            padding = model.config.pad_token_id
            return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)

        model.generate = generate
        return tokenizer, model, files

    monkeypatch.setattr(round_trip, "load", load)
    return marians


def by_hand(text, models):
    """Without batches and files."""
    for i, name in enumerate(models):
        tokenizer, *_ = round_trip.load(name)
        ids = tokenizer(text)["input_ids"][:-1]
        text = tokenizer.decode(ids[::-1] if i == 0 else ids[1:], skip_special_tokens=True)
    return text


def test_every_sentence_keeps_its_place_whatever_it_is_batched_with(models, sentences, monkeypatch):
    monkeypatch.setattr(round_trip, "BATCH", 5)
    texts = sentences[:12]  # three batches
    translated = round_trip.round_trip(texts, *models)
    assert translated == [by_hand(text, models) for text in texts]
    assert len(set(translated)) > 10 and not set(translated) & set(texts)
    assert round_trip.round_trip(texts[:5], *models[::-1]) != translated[:5]


def test_the_second_call_translates_nothing_and_a_killed_or_grown_one_goes_on(models, sentences, monkeypatch):
    monkeypatch.setattr(round_trip, "CHUNK", 2)
    translated, real = [], round_trip.translate
    monkeypatch.setattr(round_trip, "translate", lambda texts, *a: translated.append(len(texts)) or real(texts, *a))
    first = round_trip.round_trip(sentences[:5], *models)
    assert translated == [2, 2, 2, 2, 1, 1] and len(set(first)) == 5
    next((round_trip.paths.cache() / "round_trip").glob("*.json")).unlink()
    translated.clear()
    assert round_trip.round_trip(sentences[:5], *models) == first and len(translated) == 2
    translated.clear()
    assert round_trip.round_trip(sentences[:6], *models)[:5] == first and translated == [2, 2]  # the last chunk is new


def test_an_empty_translation_is_replaced_and_many_are_refused(models, sentences, monkeypatch):
    monkeypatch.setattr(round_trip, "translate", lambda texts, *a: [" ", *(f"new {text}" for text in texts[1:])])
    translated = round_trip.round_trip(sentences[:20], *models)
    assert translated[0] == sentences[0] and translated[1] == f"new new {sentences[1]}"
    with pytest.raises(DataError, match="translate 1 of 3 sentences to nothing"):
        round_trip.round_trip(sentences[:3], *models)


def test_as_an_augmentation_it_replaces_the_text_or_makes_pairs(models, sentences):
    corpus = Corpus("c", (tuple(sentences[:4]),))
    expected = tuple(round_trip.round_trip(sentences[:4], *models))
    there, back = models
    assert augment.augment_corpus(corpus, f"round_trip({there},{back})", 0).columns == (expected,)
    pairs = augment.augment_corpus(corpus, f"round_trip_pairs({there}, {back})", 0)
    assert pairs.columns == (corpus.columns[0], expected) and expected != corpus.columns[0]
    assert augment.roles(corpus, f"round_trip_pairs({there},{back})") == pairs.roles == ("anchor", "positive")
    assert augment.roles(corpus, f"round_trip({there},{back})") == ("anchor",)


def test_nothing_is_translated_before_everything_else_is_checked(marians, corpus_file, tiny_bert, monkeypatch):
    monkeypatch.setattr(round_trip, "translate", lambda *a: pytest.fail("it translates"))
    name = f"round_trip({marians[0]},{marians[1]})"
    config = RunConfig(corpus=str(corpus_file), backbone=str(tiny_bert), max_length=16, batch_size=8, augmentation=name)
    runs.preflight(config)
    with pytest.raises(ConfigError, match="max_length"):
        runs.run(config.replace(max_length=2000))


def changed(folder, name, **entries):
    """Other entries in a file of JSON."""
    (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | entries))


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (shutil.rmtree, "no loadable model .*word_repetition"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "bert"}'), "no loadable model"),
        (lambda folder: halve(folder / "model.safetensors"), "no loadable model .*broken"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "model.safetensors"),
        (lambda folder: changed(folder, "config.json", transformers_weights="x.bin"), "names a file of weights"),
        (lambda folder: changed(folder, "config.json", task_specific_params={"a": {"prefix": "x"}}), "a task beside"),
    ],
)
def test_a_model_that_cannot_translate_is_refused(marians, tmp_path, damage, words):
    broken = shutil.copytree(marians[0], tmp_path / "broken")
    damage(broken)
    augment.check(f"round_trip({marians[0]},{marians[1]})")
    with pytest.raises(DataError, match=words):
        augment.check(f"round_trip({marians[1]},{broken})")


def test_a_model_of_the_hub_is_known_by_its_content_and_translates(marians, sentences, hub):
    name = hub(marians[0], "some/there")
    translated = round_trip.round_trip(sentences[:3], name, marians[1])
    assert all(translated) and not set(translated) & set(sentences[:3])  # random weights: anything but the text
    assert round_trip.round_trip(sentences[:3], *marians) == translated
    kept = list((round_trip.paths.cache() / "round_trip").glob("*.json"))
    round_trip.round_trip(sentences[:3], *marians[::-1])
    assert len(kept) == 1 and len(list(kept[0].parent.glob("*.json"))) == 2


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
@pytest.mark.process
def test_code_beside_a_model_never_runs(marians, tmp_path, file):
    folder, marker = shutil.copytree(marians[0], tmp_path / "foreign"), tmp_path / "it ran"
    foreign = f"open({str(marker)!r}, 'w')\nclass Config: pass\nclass Tokenizer: pass\nclass Model: pass\n"
    (folder / "foreign.py").write_text(foreign)
    classes = {"AutoConfig": "foreign.Config", "AutoModelForSeq2SeqLM": "foreign.Model"}
    new = {"model_type": "foreign", "auto_map": classes}
    if file == "tokenizer_config.json":
        new = {"tokenizer_class": "Foreign", "auto_map": {"AutoTokenizer": ["foreign.Tokenizer", None]}}
    changed(folder, file, **new)
    code = (
        "import sys; from lib.checks import DataError; from lib.data import augment\n"
        "try: augment.check(f'round_trip({sys.argv[1]},{sys.argv[1]})')\n"
        "except DataError as error: print(error); sys.exit(3)"
    )
    command = [sys.executable, "-c", code, str(folder)]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, cwd=round_trip.paths.root(),
        env=os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")},
    )  # fmt: skip
    assert not marker.exists() and "[y/N]" not in ended.stdout + ended.stderr
    assert ended.returncode == 3, ended.stderr
    assert "no loadable model" in ended.stdout and len(ended.stdout.splitlines()) == 1
    assert file != "config.json" or "code of its own, which is never run" in ended.stdout
