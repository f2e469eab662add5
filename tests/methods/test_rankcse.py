"""RankCSE: the teachers' cosines beside the tokens, the terms, who is trained."""

import numpy as np
import pytest
import torch

from lib.encoders import SentenceEncoder, ensemble
from lib.losses import list_mle, list_net, ranking_consistency
from tests.methods.conftest import builder, tokenized

ROWS, LENGTH = np.array([11, 4, 17, 0, 8]), 8  # some sentences are longer
build = builder("rankcse", projection="none")


@pytest.fixture(scope="module")
def teachers(tiny_bert, tiny_roberta, tmp_path_factory, variant, shake):
    """Folders: one of another length of vectors, one with another tokenizer."""
    tmp_path = tmp_path_factory.mktemp("teachers")
    narrow = variant(tiny_bert, tmp_path / "backbone", hidden_size=16)
    for name, folder, pooling in (("teacher", narrow, "mean"), ("second_teacher", tiny_roberta, "cls")):
        shake(SentenceEncoder.from_pretrained(folder, pooling=pooling), scale=0.2).save(tmp_path / name)
    return {name: str(tmp_path / name) for name in ("teacher", "second_teacher")}


def prepared(method, *columns, roles=()):
    return tokenized(method, *columns, roles=roles, max_length=LENGTH).batch(ROWS)


def vectors(encoder, texts):
    encoder.max_length = LENGTH
    return torch.from_numpy(encoder.encode([texts[i] for i in ROWS]))


def cosines(folder, first, second):
    x, y = (vectors(ensemble.load(folder), texts) for texts in (first, second))
    return torch.cosine_similarity(x[:, None], y[None], dim=-1)


@pytest.mark.parametrize("ranking", ["list_mle", "list_net"])
@pytest.mark.parametrize("names", [(), ("teacher",), ("second_teacher",), ("teacher", "second_teacher")])
@pytest.mark.parametrize("pairs", [False, True])
def test_the_terms_are_those_of_the_lists(tiny_bert, teachers, sentences, ranking, names, pairs):
    named = {name: teachers[name] for name in names}
    method = build(tiny_bert, **named, ranking=ranking, teacher_share=0.3, ranking_weight=2.0, consistency_weight=3.0)
    first, second = sentences[:20], sentences[20:40] if pairs else sentences[:20]
    terms = method(prepared(method, *([first, second] if pairs else [first])))
    z1, z2 = (vectors(method.encoder, texts) for texts in (first, second))
    expected = {"consistency": 3 * ranking_consistency(z1, z2)}
    if names:
        several = [cosines(folder, first, second) for folder in named.values()]
        mixed = 0.3 * several[0] + 0.7 * several[1] if len(several) == 2 else several[0]
        expected["ranking"] = 2 * (list_mle if ranking == "list_mle" else list_net)(z1, z2, mixed)
    assert set(terms) == {"info_nce", *expected}
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value, rtol=1e-3, atol=1e-5)


def test_lists_hold_no_hard_negatives_and_a_teacher_that_nothing_reads_is_not_loaded(tiny_bert, teachers, sentences):
    method = build(tiny_bert, **teachers)
    columns, roles = (sentences[:20], sentences[40:60], sentences[20:40]), ("anchor", "hard_negative", "positive")
    triples, pairs = method(prepared(method, *columns, roles=roles)), method(prepared(method, *columns[::2]))
    assert triples["info_nce"] > pairs["info_nce"]
    for name in ("ranking", "consistency"):
        torch.testing.assert_close(triples[name], pairs[name], rtol=1e-4, atol=1e-6)
    unread = build(tiny_bert, teacher="there is none", ranking_weight=0.0)
    assert not prepared(unread, sentences[:20]).extra
