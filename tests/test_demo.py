"""Sentences from doc strings, and a backbone that starts as an average of word vectors."""

import numpy as np
import pytest
import torch

from lib import demo
from lib.encoder import SentenceEncoder

MODULE = '''
"""Tools for rows. They sort the rows of a table by several keys!"""

def first(x):
    """Return the first row of ``x``, see :func:`~package.other` for the last one.

    Parameters
    ----------
    x : array
        The table whose rows are searched, one row after the other.

    >>> first([1])
    This line is output and not prose, whatever it looks like.
    """
    return "Strings inside code are never read as sentences."
'''


def sentences_of_module():
    return [s for text in demo.doc_strings(MODULE) for s in demo.sentences_of(text)]


def test_prose_is_kept_and_cleaned_code_is_not():
    found = sentences_of_module()
    assert "They sort the rows of a table by several keys!" in found
    assert "Return the first row of x, see other for the last one." in found
    assert "The table whose rows are searched, one row after the other." in found
    assert not any("output" in s or "never read" in s or ">>>" in s for s in found)


@pytest.mark.parametrize(
    "text, kept",
    [
        ("The values are sorted in place and returned.", True),
        ("the values are sorted in place and returned.", False),
        ("The values are sorted in place and returned", False),
        ("Too short.", False),
        ("The x = y + z is a[0] formula {here} and there.", False),
    ],
)
def test_what_is_prose(text, kept):
    assert demo.is_prose(text) is kept


def test_reading_is_sorted_unique_and_skips_tests(tmp_path):
    for name, text in {"b.py": "One more", "a.py": "This", "tests/c.py": "No"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'"""{text} sentence is about the order of the files. The same in both of the files."""')
    frame = demo.read_docstring_sentences({"package": tmp_path})
    assert frame.sentence.tolist() == [
        "This sentence is about the order of the files.",
        "The same in both of the files.",
        "One more sentence is about the order of the files.",
    ]


@pytest.fixture(scope="module")
def built(sentences, tmp_path_factory):
    options = {"vocabulary": 200, "hidden": 16, "layers": 2, "heads": 2, "intermediate": 32, "max_positions": 32}
    folders = [tmp_path_factory.mktemp("demo") / str(i) for i in range(2)]
    return [demo.build_backbone(sentences, folder, **options) for folder in folders]


def test_two_builds_are_identical(built):
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (built[0] / name).read_bytes() == (built[1] / name).read_bytes(), name


def test_it_starts_as_an_average_of_word_vectors(built, sentences):
    encoder = SentenceEncoder.from_pretrained(built[0]).eval()
    words = encoder.backbone.embeddings.word_embeddings.weight.detach()
    vectors = encoder.encode(sentences[:50])
    means = torch.stack([words[torch.tensor(ids[1:-1])].mean(0) for ids in encoder.tokenize(sentences[:50])]).numpy()
    centred = [x - x.mean(0) for x in (vectors, means)]
    cosines = (centred[0] * centred[1]).sum(1) / np.prod([np.linalg.norm(x, axis=1) for x in centred], axis=0)
    assert np.median(cosines) > 0.9


def test_it_brings_a_head_for_masked_language_modelling(built):
    from transformers import AutoModelForMaskedLM

    report = AutoModelForMaskedLM.from_pretrained(built[0], output_loading_info=True)[1]
    assert not report["missing_keys"]


def test_word_vectors_know_what_stands_nearby():
    """Tokens 0 and 1 have the same neighbours (2, 3), tokens 4 and 5 others (6, 7)."""
    lines = [[0, 2, 3], [1, 3, 2], [3, 0, 2], [2, 1, 3], [4, 6, 7], [5, 7, 6], [7, 4, 6], [6, 5, 7]] * 5
    x = demo.word_vectors(lines, 8, 4, window=2, seed=0)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1)
    assert x[0] @ x[1] > 0.9 and x[4] @ x[5] > 0.9 and abs(x[0] @ x[4]) < 0.3


def test_the_written_tables():
    first, second, scores = demo.similarity("dev")
    assert len(first) == len(second) == len(scores) == 150 and 0 <= min(scores) < max(scores) <= 5
    assert all(len(set(triple)) == 3 for triple in demo.triples()) and len(demo.triples()) >= 200
    texts, labels = demo.topics()
    assert len(texts) == len(set(texts)) == 600 and len(set(labels)) == 20
    with pytest.raises(ValueError, match="choose from dev, test"):
        demo.similarity("train")
