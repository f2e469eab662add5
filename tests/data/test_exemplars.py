"""3R's words and pool: the shipped files, and files that are none."""

import string
from collections import Counter

import pytest

from lib.checks import DataError
from lib.data.exemplars import load_pool, load_words


def test_the_shipped_pool_has_each_shipped_word_at_least_twice():
    """As the paper asks; a word is what white space separates, without punctuation at its ends."""
    pool, words = load_pool(), load_words()
    assert len(pool) == len(set(pool)) == 64
    assert len(words) == len(set(words)) == 300 and words[:3] == ("the", "of", "in")
    uses = Counter(part.strip(string.punctuation) for sentence in pool for part in sentence.split())
    assert [word for word in words if uses[word] < 2] == []


@pytest.mark.parametrize(
    ("load", "text", "words"),
    [
        (load_words, "the,5\n", "the header must be word, count"),
        (load_words, "word,count\nthe\n", "line 2: 1 columns where the header has 2"),
        (load_words, "word,count\n", "holds no word"),
    ],
)
def test_files_that_are_none(tmp_path, load, text, words):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        load(str(tmp_path / "a.csv"))
