import numpy as np
import pytest

from lib.checks import DataError
from lib.data.transfer import EXPECTED_LINES, load_transfer
from tests.conftest import fill

FILES = {
    "MR/rt-polarity.pos": b"good  film \nvery good\n",
    "MR/rt-polarity.neg": b"bad film\n",
    "CR/custrev.pos": b"nice phone\n \n",
    "CR/custrev.neg": b"\nbroken\n",
    "SUBJ/subj.objective": b"he goes home\n",
    "SUBJ/subj.subjective": b"a caf\xe9 of delights\x85and more\n",
    "MPQA/mpqa.pos": b"fine\n\n",
    "MPQA/mpqa.neg": b"awful\n\ndire",
    "SST/binary/sentiment-train": "a façade . \t0\nfun\t1\n".encode(),
    "SST/binary/sentiment-dev": b"dull \t0\n",
    "SST/binary/sentiment-test": b"bright \t1\n",
    "TREC/train_5500.label": b"NUM:dist How far is it ?\nABBR:exp What is \xc9 ?\n",
    "TREC/TREC_10.label": b"LOC:city What county is it ?\n",
    "MRPC/msr_paraphrase_train.txt": (
        b'\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe  said so .\t" So " , he said .\n'
    ),
    "MRPC/msr_paraphrase_test.txt": b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tYes\tNo\n",
}
COUNTS = dict(zip(FILES, (2, 1, 2, 2, 1, 1, 2, 3, 2, 1, 1, 2, 1, 1, 1), strict=True))


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    for name, count in COUNTS.items():
        monkeypatch.setitem(EXPECTED_LINES, name, count)
    fill(tmp_path / "senteval/downstream", FILES)
    return tmp_path


def test_tasks_of_folds_which_keep_blank_lines_or_with_their_own_test_set_and_one_that_there_is_not(data_dir):
    splits = load_transfer(data_dir, "MR")
    mr = splits["train"]
    assert list(splits) == ["train"] and mr.sentences2 is None
    assert mr.sentences1 == ["good film", "very good", "bad film"]
    assert mr.labels.tolist() == [1, 1, 0] and mr.labels.dtype == np.int64
    assert load_transfer(data_dir, "CR")["train"].sentences1 == ["nice phone", "", "", "broken"]
    assert load_transfer(data_dir, "MPQA")["train"].sentences1 == ["fine", "", "awful", "", "dire"]
    assert load_transfer(data_dir, "SUBJ")["train"].sentences1 == ["he goes home", "a café of delights and more"]
    sst = load_transfer(data_dir, "SST2")
    assert (sst["train"].sentences1, sst["train"].labels.tolist()) == (["a façade .", "fun"], [0, 1])
    assert (sst["dev"].sentences1, sst["test"].sentences1) == (["dull"], ["bright"])
    trec = load_transfer(data_dir, "TREC")
    assert list(trec) == ["train", "test"] and trec["test"].labels.tolist() == [4]
    assert (trec["train"].sentences1, trec["train"].labels.tolist()) == (["How far is it ?", "What is É ?"], [5, 0])
    mrpc = load_transfer(data_dir, "MRPC")
    assert (mrpc["train"].sentences1, mrpc["train"].sentences2) == (["He said so ."], ['" So " , he said .'])
    assert (mrpc["train"].labels.tolist(), mrpc["test"].labels.tolist()) == ([1], [0])
    with pytest.raises(DataError, match="choose from MR, CR"):
        load_transfer(data_dir, "SST5")


@pytest.mark.parametrize(
    ("name", "file", "content", "words"),
    [
        ("MR", "MR/rt-polarity.pos", b"good film\n", "expected 2 lines, found 1. .*python -m lib.data fetch"),
        ("SST2", "SST/binary/sentiment-dev", b"a line without a label\n", "line 1, is not in SentEval's format"),
        ("TREC", "TREC/TREC_10.label", b"ODD:one What ?\n", "line 1, is not in SentEval's format"),
    ],
)
def test_a_truncated_or_malformed_file_is_named(data_dir, name, file, content, words):
    path = data_dir / "senteval" / "downstream" / file
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as error:
        load_transfer(data_dir, name)
    assert str(path) in str(error.value)
