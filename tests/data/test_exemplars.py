"""3R's words and pool: the shipped files, the checker and its commands."""

import re

import pytest

from lib.checks import DataError
from lib.data import __main__ as command
from lib.data.exemplars import load_pool, load_words, pool_faults, words_of


def test_words_keep_their_case_and_lose_the_punctuation_at_their_ends():
    words = words_of('The King, of "York" (U.S.) — won 3,000 points.')
    assert words == ["The", "King", "of", "York", "U.S", "won", "3,000", "points"]


def test_the_shipped_pool_is_one():
    pool, words = load_pool(), load_words()
    assert len(pool) == 64 and len(words) == len(set(words)) == 300 and words[:3] == ("the", "of", "in")
    assert pool_faults(pool, words) == []


def test_a_bad_pool_is_refused_with_what_is_wrong(tmp_path, capsys):
    words = tmp_path / "words.csv"
    words.write_text("word,count\ncat,9\ndog,5\n")
    bad, good = tmp_path / "bad.txt", tmp_path / "good.txt"
    bad.write_text("a cat and a dog\na cat and a dog\ncat\n\n")
    assert pool_faults(load_pool(str(bad)), ["cat", "dog", "cow"]) == [
        "1 of 3 words occur fewer than 2 times: cow (0)",
        "1 sentences come twice, the first is 'a cat and a dog'",
    ]
    good.write_text("a cat and a dog\nthe dog sees the cat\n")
    assert command.main(["check-pool", str(good), "--words", str(words)]) == 0
    assert "2 sentences of 5 words, each of the 2 words at least twice" in capsys.readouterr().out
    for arguments, words_said in [
        (["check-pool", str(bad), "--words", str(words)], "come twice"),
        (["check-pool", str(good)], "300 of 300 words|29[0-9] of 300 words"),
        (["check-pool", str(tmp_path / "none.txt")], "does not exist"),
    ]:
        assert command.main(arguments) == 2
        assert re.search(words_said, capsys.readouterr().err)
    with pytest.raises(SystemExit):
        command.main(["check-pool"])


@pytest.mark.parametrize(
    ("load", "text", "words"),
    [
        (load_pool, "fine\n" + "word " * 33 + "\n", "line 2: 33 words, a pool's sentences have at most 32"),
        (load_pool, "\n", "holds no sentence"),
        (load_words, "the,5\n", "expected a table word,count with a header"),
        (load_words, "word,count\nthe\n", "expected a table word,count with a header"),
    ],
)
def test_files_that_are_none(tmp_path, load, text, words):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        load(str(tmp_path / "a.csv"))
