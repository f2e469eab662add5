"""Tokenising once: batches against the tokenizer's own, roles, the cache, rows that are split."""

import dataclasses

import numpy as np
import pytest
import torch

from lib.checks import DataError
from lib.data import Corpus, tokenize_corpus
from lib.encoders import SentenceEncoder


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return SentenceEncoder.from_pretrained(tiny_bert)


def plain(sentences, name="x"):
    return Corpus(name, (tuple(sentences),))


def cached(tmp_path):
    return sorted(path for path in (tmp_path / "cache/tokens").iterdir() if path.is_dir())


def test_batches_are_padded_and_have_the_roles_and_further_columns_of_their_rows(tiny_roberta, sentences):
    """In the order asked for, to the longest of them, with the tokenizer's id (RoBERTa's is not 0)."""
    encoder, rows = SentenceEncoder.from_pretrained(tiny_roberta), np.array([3, 5, 0])
    roles = ("anchor", "negative", "positive", "hard_negative")
    texts = tuple(tuple(sentences[i : i + 50]) for i in range(0, 200, 50))
    corpus = tokenize_corpus(Corpus("x", texts, roles), encoder, max_length=13)
    batch = dataclasses.replace(corpus, extra={"row": np.arange(50) / 10}).batch(rows)
    options = {"truncation": True, "max_length": 13, "padding": True, "return_tensors": "pt"}
    expected = encoder.tokenizer([column[i] for i in rows for column in texts], **options)
    assert corpus.roles == batch.roles == roles and batch.input_ids.shape[:2] == (len(batch), 4) == (3, 4)
    assert torch.equal(batch.input_ids.flatten(0, 1), expected["input_ids"])
    assert torch.equal(batch.attention_mask.flatten(0, 1), expected["attention_mask"])
    assert batch.extra["row"].tolist() == [0.3, 0.5, 0.0]
    assert len(corpus) == 50 and corpus.lengths()[rows].tolist() == batch.attention_mask.sum(-1).tolist()
    assert batch.input_ids.shape[-1] < corpus.lengths().max() == 13, "what is longer is cut"
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
    prompted.backbone.config.max_position_embeddings = 12  # the same tokens, of which fewer fit
    assert tokenize_corpus(corpus, prompted, max_length=20).lengths().max() == 12
    for role in ("positive", "other"):
        pairs = Corpus("x", corpus.columns * 2, ("anchor", role))
        assert tokenize_corpus(pairs, encoder, max_length=8).roles[1] == role
    again = tokenize_corpus(plain(sentences[:20], "the same text elsewhere"), encoder, max_length=8)
    assert first.ids.tolist() == again.ids.tolist() and first.offsets.tolist() == again.offsets.tolist()
    assert len(cached(tmp_path)) == 8


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
