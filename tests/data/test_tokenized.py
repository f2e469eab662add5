"""Tokenising once: batches against an obvious loop, roles, the cache, rows that are split."""

import numpy as np
import pytest
import torch

from lib.checks import DataError
from lib.data import Corpus, TokenizedCorpus, tokenize_corpus
from lib.encoders import SentenceEncoder


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return SentenceEncoder.from_pretrained(tiny_bert)


def plain(sentences, name="x"):
    return Corpus(name, (tuple(sentences),))


def cached(tmp_path):
    return sorted(path for path in (tmp_path / "cache/tokens").iterdir() if path.is_dir())


def test_a_batch_equals_an_obvious_loop_over_its_sentences():
    texts = [[[1, 2], [3]], [[4], [5, 6, 7]], [[8, 9, 10, 11], [12]]]  # row, column, tokens
    flat = [tokens for row in texts for tokens in row]
    offsets = np.cumsum([0, *map(len, flat)])
    ids = np.array([i for tokens in flat for i in tokens], dtype=np.int32)
    extra = {"row": np.array([0.0, 0.1, 0.2])}
    corpus = TokenizedCorpus(ids, offsets, ("anchor", "negative"), pad_id=99, extra=extra)
    assert len(corpus) == 3 and corpus.lengths().tolist() == [[2, 1], [1, 3], [4, 1]]
    rows = np.array([1, 0])
    batch = corpus.batch(rows)
    longest = max(len(tokens) for i in rows for tokens in texts[i])
    for n, i in enumerate(rows):
        for column, tokens in enumerate(texts[i]):
            padding = longest - len(tokens)
            assert batch.input_ids[n, column].tolist() == tokens + [99] * padding
            assert batch.attention_mask[n, column].tolist() == [1] * len(tokens) + [0] * padding
    assert batch.input_ids.dtype == batch.attention_mask.dtype == torch.int64
    assert len(batch) == 2 and batch.roles == ("anchor", "negative") and batch.extra["row"].tolist() == [0.1, 0.0]


def test_tokens_padding_and_roles_are_those_of_the_tokenizer_and_the_corpus(encoder, sentences):
    roles = ("anchor", "negative", "positive", "hard_negative")
    texts = tuple(tuple(sentences[i : i + 50]) for i in range(0, 200, 50))
    rows = np.array([3, 49, 0])
    corpus = tokenize_corpus(Corpus("x", texts, roles), encoder, max_length=8)
    batch = corpus.batch(rows)
    options = {"truncation": True, "max_length": 8, "padding": True, "return_tensors": "pt"}
    expected = encoder.tokenizer([column[i] for i in rows for column in texts], **options)
    assert corpus.roles == batch.roles == roles and batch.input_ids.shape[:2] == (3, 4)
    assert torch.equal(batch.input_ids.flatten(0, 1), expected["input_ids"])
    assert torch.equal(batch.attention_mask.flatten(0, 1), expected["attention_mask"])
    for i, role in enumerate(roles):
        ids, mask = batch.column(role)
        assert torch.equal(ids, batch.input_ids[:, i]) and torch.equal(mask, batch.attention_mask[:, i])
    with pytest.raises(ValueError, match="not in tuple"):
        batch.column("teacher")


def test_only_another_content_length_or_prompt_is_another_array(tiny_bert, encoder, sentences, tmp_path):
    corpus = plain(sentences[:20])
    prompted = SentenceEncoder.from_pretrained(tiny_bert, pooling="mask_prompt")
    first = tokenize_corpus(corpus, encoder, max_length=8)
    tokenize_corpus(corpus, encoder, max_length=9)
    tokenize_corpus(corpus, encoder, max_length=8, split=True)
    tokenize_corpus(corpus.sample(10, 0), encoder, max_length=8)
    tokenize_corpus(corpus, prompted, max_length=20)
    for role in ("positive", "other"):
        pairs = Corpus("x", corpus.columns * 2, ("anchor", role))
        assert tokenize_corpus(pairs, encoder, max_length=8).roles[1] == role
    assert len(cached(tmp_path)) == 7
    again = tokenize_corpus(plain(sentences[:20], "the same text elsewhere"), encoder, max_length=8)
    np.testing.assert_array_equal(first.ids, again.ids)
    np.testing.assert_array_equal(first.offsets, again.offsets)
    assert len(cached(tmp_path)) == 7


def test_long_texts_are_split_where_it_is_asked_for(encoder, sentences):
    texts = (" ".join(sentences[:3]), sentences[3], " ".join(sentences[4:9]))
    tokens = tokenize_corpus(plain(texts), encoder, max_length=10, split=True)
    opening, closing = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    rows = [tokens.ids[a:b].tolist() for a, b in zip(tokens.offsets, tokens.offsets[1:], strict=False)]
    assert all(len(row) <= 10 and (row[0], row[-1]) == (opening, closing) for row in rows)
    whole = [i for text in texts for i in encoder.tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert [i for row in rows for i in row[1:-1]] == whole and len(tokens) == len(rows) > 3
    assert len(tokenize_corpus(plain(texts), encoder, max_length=10)) == 3  # another array
    with pytest.raises(DataError, match="holds pairs"):
        tokenize_corpus(Corpus("x", (texts, texts)), encoder, max_length=10, split=True)
