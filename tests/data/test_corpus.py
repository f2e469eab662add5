"""Readers of training data: formats, strictness, sampling, tokenising once."""

import gzip

import numpy as np
import pytest

from lib import augment
from lib.config import ConfigError
from lib.data import Corpus, DataError, files, load_corpus, load_sts, tokenize_corpus
from lib.data import tokenized as tokenized_module
from lib.encoder import SentenceEncoder


def test_sentences_from_text_gzip_and_pattern(tmp_path):
    (tmp_path / "a.txt").write_text("One.\n\n  Two. \n", encoding="utf8")
    with gzip.open(tmp_path / "b.txt.gz", "wt", encoding="utf8") as file:
        file.write("Three é.\n")
    assert load_corpus("a.txt", tmp_path).columns == (("One.", "Two."),)
    both = load_corpus("*.txt*", tmp_path)
    assert both.columns == (("One.", "Two.", "Three é."),) and both.kind == "sentences"


def test_unicode_line_separators_do_not_split_a_sentence(tmp_path):
    (tmp_path / "a.txt").write_text("One\u2028still one.\x0bstill one.\nTwo.\n", encoding="utf8")
    assert len(load_corpus("a.txt", tmp_path)) == 2


def test_triples_and_pairs(tmp_path):
    (tmp_path / "t.csv").write_text('sent0,sent1,hard_neg\n"A, b",c,d\n"say ""x""",,z\n')
    triples = load_corpus("t.csv", tmp_path)
    assert triples.kind == "triples" and triples.columns == (("A, b", 'say "x"'), ("c", " "), ("d", "z"))
    (tmp_path / "p.tsv").write_text("sentence1\tsentence2\na\tb\n")
    assert load_corpus("p.tsv", tmp_path).kind == "pairs"


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("a.txt", b"\n \n", "no sentence"),
        ("a.txt", "caf\xe9".encode("latin-1"), "not utf8 text"),
        ("a.txt.gz", gzip.compress(b"sentence\n" * 1000, mtime=0)[:-20], "truncated or damaged"),
        ("a.txt.gz", b"not gzip at all", "truncated or damaged"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b'sent0,sent1\n"open,' + b"x" * 200_000 + b"\n", "quote sign left open"),
        ("a.csv", b"only\nx\n", "header has 1 columns"),
        ("a.csv", b"sent0,sent1,hard_neg\na,b\n", "row 2: 2 columns"),
        ("wiki1m_for_simcse.txt", b"one\ntwo\n", "expected 1,000,000 lines, found 2"),
        ("nli_for_simcse.csv", b"sent0,sent1,hard_neg\na,b,c\n", "expected 275,601 rows, found 1"),
    ],
)
def test_a_bad_file_is_named(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load_corpus(name, tmp_path)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_corpus("none.txt", tmp_path)
    with pytest.raises(DataError, match="no such file"):
        load_corpus("*.gz", tmp_path)


def test_sample_is_a_function_of_the_seed(sentences):
    corpus = Corpus("x", (tuple(sentences),))
    first, again, other = corpus.sample(50, 1), corpus.sample(50, 1), corpus.sample(50, 2)
    assert first == again and first.columns != other.columns and len(set(first.columns[0])) == 50
    assert corpus.sample(0, 1) is corpus
    with pytest.raises(DataError, match="asks for 201"):
        corpus.sample(201, 0)


def test_fingerprint_depends_on_content_only(sentences):
    assert Corpus("a", (("x", "y"),)).fingerprint() == Corpus("b", (("x", "y"),)).fingerprint()
    assert Corpus("a", (("x", "y"),)).fingerprint() != Corpus("a", (("x",), ("y",))).fingerprint()


def test_tokenised_once_and_padded_as_the_tokenizer_does(tiny_bert, sentences, monkeypatch):
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    corpus = Corpus("x", (tuple(sentences[:50]), tuple(sentences[50:100])))
    monkeypatch.setattr(tokenized_module, "CHUNK", 16)
    tokens = tokenize_corpus(corpus, encoder, max_length=8)
    monkeypatch.setattr(encoder, "tokenize", lambda *a: pytest.fail("tokenised again"))
    again = tokenize_corpus(corpus, encoder, max_length=8)
    np.testing.assert_array_equal(tokens.ids, again.ids)
    rows = np.array([3, 49, 0])
    batch = again.batch(rows)
    texts = [s for i in rows for s in (sentences[i], sentences[50 + i])]
    expected = encoder.tokenizer(texts, truncation=True, max_length=8, padding=True, return_tensors="pt")
    assert batch["input_ids"].shape[:2] == (3, 2)
    assert (batch["input_ids"].flatten(0, 1) == expected["input_ids"]).all()
    assert (batch["attention_mask"].flatten(0, 1) == expected["attention_mask"]).all()


def test_another_length_content_or_prompt_is_another_array(tiny_bert, sentences, tmp_path):
    corpus = Corpus("x", (tuple(sentences[:20]),))
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    prompted = SentenceEncoder.from_pretrained(tiny_bert, pooling="mask_prompt")
    tokenize_corpus(corpus, encoder, max_length=8)
    tokenize_corpus(corpus, encoder, max_length=9)
    tokenize_corpus(corpus.sample(10, 0), encoder, max_length=8)
    tokenize_corpus(corpus, prompted, max_length=20)
    assert len(list((tmp_path / "cache/tokens").iterdir())) == 4


def test_long_texts_are_split_where_the_method_asks_for_it(tiny_bert, sentences):
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    texts = (" ".join(sentences[:3]), sentences[3], " ".join(sentences[4:9]))
    tokens = tokenize_corpus(Corpus("texts", (texts,)), encoder, max_length=10, split=True)
    opening, closing = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    rows = [tokens.ids[a:b].tolist() for a, b in zip(tokens.offsets, tokens.offsets[1:], strict=False)]
    assert all(len(row) <= 10 and (row[0], row[-1]) == (opening, closing) for row in rows)
    whole = [i for text in texts for i in encoder.tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert [i for row in rows for i in row[1:-1]] == whole and len(rows) > 3
    assert len(tokenize_corpus(Corpus("texts", (texts,)), encoder, max_length=10)) == 3  # another array


def test_several_patterns(tmp_path):
    for folder, lines in (("a", "one here\n"), ("b", "two here\nthree here\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(lines)
    corpus = load_corpus("b/x.txt, a/*.txt", tmp_path)
    assert corpus.columns[0] == ("two here", "three here", "one here")
    with pytest.raises(DataError, match="corpus 'c/x.txt': no such file"):
        load_corpus("a/x.txt,c/x.txt", tmp_path)


def test_a_damaged_cache_is_named(tiny_bert, sentences, tmp_path):
    corpus, encoder = Corpus("x", (tuple(sentences[:20]),)), SentenceEncoder.from_pretrained(tiny_bert)
    tokenize_corpus(corpus, encoder, max_length=8)
    folder = next((tmp_path / "cache/tokens").iterdir())
    np.save(folder / "ids.npy", np.zeros(3, dtype=np.int32))
    with pytest.raises(DataError, match="delete it"):
        tokenize_corpus(corpus, encoder, max_length=8)


def test_augmentations():
    random = np.random.default_rng(0)
    sentence = "one two three four five six seven eight nine ten"
    words = sentence.split()
    crop = augment.augment(sentence, "crop", 0.3, random)
    assert len(crop.split()) == 7 and crop in sentence
    assert len(augment.augment(sentence, "delete_one_word", 0, random).split()) == 9
    assert sorted(augment.augment(sentence, "shuffle", 0, random).split()) == sorted(words)
    kept = [len(augment.augment(sentence, "word_deletion", 0.2, random).split()) for _ in range(500)]
    assert np.mean(kept) == pytest.approx(8, abs=0.2)
    repeated = augment.augment(sentence, "word_repetition", 0.3, random).split()
    assert list(dict.fromkeys(repeated)) == words
    for name in ("crop", "word_deletion", "delete_one_word", "shuffle", "word_repetition"):
        assert augment.augment("word", name, 0.9, random) == "word"
        assert augment.augment("two words", name, 0.9, random)


def test_augmented_corpus_is_pairs_and_repeats_for_a_seed(sentences):
    corpus = Corpus("x", (tuple(sentences),))
    pairs = augment.augment_corpus(corpus, "word_deletion(0.2)", 3)
    assert pairs.kind == "pairs" and pairs == augment.augment_corpus(corpus, "word_deletion(0.2)", 3)
    assert augment.augment_corpus(corpus, "none", 3) is corpus
    with pytest.raises(ConfigError, match="plain sentences"):
        augment.augment_corpus(pairs, "shuffle", 0)


def test_every_count_of_the_manifest_is_a_number():
    manifest = files.manifest()
    scored = {name: sum(s for _, s in task["subsets"].values()) for name, task in manifest["sts"].items()}
    assert scored == {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}


def test_the_sentences_of_a_task_are_added_after_the_sample(tmp_path):
    (tmp_path / "a.txt").write_text("One.\nTwo.\nThree.\n")
    (tmp_path / "b+demo.txt").write_text("A plus sign in a file name.\n")
    alone, corpus = load_corpus("a.txt", tmp_path, size=2, seed=1), load_corpus("a.txt+demo", tmp_path, size=2, seed=1)
    task = load_sts(tmp_path, "demo", "test")
    assert corpus.columns[0][:2] == alone.columns[0] and corpus.kind == "sentences"
    assert set(corpus.columns[0][2:]) == {*task.sentences1, *task.sentences2}
    assert len(set(corpus.columns[0][2:])) == len(corpus) - 2 and "sentences of demo" in corpus.name
    assert load_corpus("b+demo.txt", tmp_path).columns == (("A plus sign in a file name.",),)
    with pytest.raises(DataError, match="plain sentences only; .* holds triples"):
        load_corpus("demo-triples+demo", tmp_path)
    with pytest.raises(DataError, match="senteval"):
        load_corpus("a.txt+SICK-R", tmp_path)
