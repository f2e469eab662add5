"""Reading text files strictly, and the manifest of what they must hold."""

import gzip

import pytest

from lib.checks import DataError
from lib.data import files
from lib.data.transfer import EXPECTED_LINES


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_end_at_line_feeds_only(tmp_path, name):
    content = "\ufeffone\r\n\n two\u2028still two\x0b\nthree".encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    lines = ["one", "", " two\u2028still two\x0b", "three"]
    assert files.read_lines(tmp_path / name) == lines
    assert files.read_lines(tmp_path / name, 3, header=1) == lines[1:]


def test_encodings(tmp_path):
    (tmp_path / "a").write_bytes(b"caf\xe9\x85\n")
    assert files.read_lines(tmp_path / "a", encoding="latin-1") == ["caf\xe9\x85"]
    (tmp_path / "a").write_text("café\nplain\n", encoding="utf8")
    with pytest.raises(DataError, match="a was converted to UTF-8, and is distributed as Latin-1"):
        files.read_lines(tmp_path / "a", encoding="latin-1")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "a.gz does not exist: check data_dir, or run `python -m lib.data fetch`"),
        (gzip.compress(b"sentence\n" * 1000, mtime=0)[:-20], "truncated or damaged"),
        (b"not gzip at all", "truncated or damaged"),
        (gzip.compress(b"one\ncaf\xe9\n", mtime=0), r"a.gz is not utf8 text \(see line 2\)"),
        (gzip.compress(b"one\ntwo\n", mtime=0), "a.gz: expected 1,000 lines, found 2. .*python -m lib.data fetch"),
    ],
    ids=["missing", "cut", "no gzip", "Latin-1", "too short"],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, words):
    if content is not None:
        (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(DataError, match=words):
        files.read_lines(tmp_path / "a.gz", 1000)


def test_counts_of_the_manifest_are_the_published_ones():
    manifest = files.manifest()
    scored = {name: sum(s for _, s in task["subsets"].values()) for name, task in manifest["sts"].items()}
    assert scored == {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}
    assert EXPECTED_LINES["CR/custrev.pos"] + EXPECTED_LINES["CR/custrev.neg"] == 3775
    assert EXPECTED_LINES["MPQA/mpqa.pos"] + EXPECTED_LINES["MPQA/mpqa.neg"] == 10606
    assert EXPECTED_LINES["MRPC/msr_paraphrase_train.txt"] == 4076
