"""The SentEval layout: empty gold, splits, counts, truncated files."""

import hashlib

import numpy as np
import pytest

from lib.checks import DataError
from lib.data import files, load_sts
from lib.data.sts import STS_TASKS, file_facts
from tests.conftest import REAL, fill

STS15, BENCH = "STS/STS15-en-test", "STS/STSBenchmark"
SICK = [f"SICK/SICK_{part}.txt" for part in ("train", "trial", "test")]
FILES = {  # of SentEval's folder, a few lines each
    f"{STS15}/STS.input.a.txt": "a  b\tc\nd\te\nf\tg\n",
    f"{STS15}/STS.gs.a.txt": "1.5\n\n5\n",
    f"{STS15}/STS.input.b.c.txt": "h\ti\nj\tk\n",
    f"{STS15}/STS.gs.b.c.txt": "0\n2.25\n",
    f"{BENCH}/sts-train.csv": "genre\tfile\tyear\tid\t0\ts0\tt0\n",
    f"{BENCH}/sts-dev.csv": "genre\tfile\tyear\tid\t1\ts1\tt1\n",
    f"{BENCH}/sts-test.csv": 'genre\tfile\tyear\tid\t2\ts2\tt2\ngenre\tfile\tyear\tid\t4.5\ts"\tt3\n',
    **{file: f"pair_ID\tA\tB\tscore\tjudgement\n1\tA\tB\t{i}.5\tX\n" for i, file in enumerate(SICK, start=2)},
}
MANIFEST = {  # that expects just these
    "sts": {"STS15": {"folder": "STS15-en-test", "subsets": {"a": [3, 2], "b.c": [2, 2]}}},
    "sts_tables": {
        "STS-B": {p: [f"{BENCH}/sts-{p}.csv", n] for p, n in (("train", 1), ("dev", 1), ("test", 2))},
        "SICK-R": {p: [file, 1] for p, file in zip(("train", "trial", "test"), SICK, strict=True)},
    },
    "sha256": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in FILES.items()},
}


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    for kind, expected in MANIFEST.items():
        monkeypatch.setitem(files.manifest(), kind, expected)
    fill(tmp_path / "senteval/downstream", FILES)
    return tmp_path


def test_pairs_without_gold_are_dropped_together_and_splits_have_their_own_pairs_and_fingerprint(data_dir):
    task = load_sts(data_dir, "STS15")
    assert list(task.subsets) == ["a", "b.c"]
    assert task.sentences1 == ["a b", "f", "h", "j"] and task.sentences2 == ["c", "g", "i", "k"]
    np.testing.assert_array_equal(task.gold, [1.5, 5, 0, 2.25])
    assert load_sts(data_dir, "STS-B", "test").sentences1 == ["s2", 's"']  # a quote sign is text, not csv
    assert load_sts(data_dir, "STS-B", "all").gold.tolist() == [0, 1, 2, 4.5]
    assert load_sts(data_dir, "SICK-R").gold.tolist() == [4.5]
    assert load_sts(data_dir, "SICK-R", "all").gold.tolist() == [2.5, 3.5, 4.5]
    for name, split in [("STS-B", "trial"), ("STS15", "dev"), ("SICK-R", "dev"), ("demo", "train"), ("STS17", "test")]:
        with pytest.raises(DataError, match="choose from"):
            load_sts(data_dir, name, split)
    task = load_sts(data_dir, "STS-B")
    text = """(['s2', 's"'], ['t2', 't3'], [2.0, 4.5])"""
    assert task.fingerprint() == hashlib.sha256(text.encode()).hexdigest()
    assert task.fingerprint() != load_sts(data_dir, "STS-B", "all").fingerprint()


def test_the_files_of_a_task_are_counted_and_compared_with_the_manifest(data_dir, monkeypatch):
    monkeypatch.setitem(MANIFEST["sha256"], f"{STS15}/STS.gs.b.c.txt", "")
    facts = file_facts(data_dir, load_sts(data_dir, "STS15"))
    assert [facts[name] for name in ("files", "pairs", "without a score", "scored")] == [4, 5, 1, 4]
    assert facts["not SentEval's"] == f"{STS15}/STS.gs.b.c.txt"
    whole = "".join(FILES[file] for file in SICK).encode()
    facts = file_facts(data_dir, load_sts(data_dir, "SICK-R", "all"))
    assert (facts["files"], facts["pairs"], facts["without a score"], facts["not SentEval's"]) == (3, 3, 0, "none")
    assert facts["SHA-256"] == hashlib.sha256(whole).hexdigest()
    demo = load_sts(data_dir, "demo")
    assert (file_facts(data_dir, demo)["files"], file_facts(data_dir, demo)["SHA-256"]) == (0, demo.fingerprint())


@pytest.mark.parametrize(
    "file, content, words",
    [
        (f"{STS15}/STS.input.a.txt", "a\tb\n", "expected 3 lines, found 1"),
        (f"{STS15}/STS.input.a.txt", "1\ta\tb\nd\te\nf\tg\n", r"line 1, is not in SentEval's format \('1"),
        (f"{STS15}/STS.gs.a.txt", "1\n\n\n", "expected 2 scored lines, found 1"),
        (f"{STS15}/STS.gs.a.txt", "1\n\n5.5\n", "line 3, is not in SentEval's format"),
        (f"{BENCH}/sts-test.csv", "", "expected 2 lines, found 0"),
        (f"{BENCH}/sts-test.csv", "g\tf\ty\ti\t2\tmore\ts\tt\n" * 2, "line 1, is not in SentEval's format"),
        ("SICK/SICK_test.txt", None, "SICK_test.txt does not exist: .*python -m lib.data fetch"),
        ("SICK/SICK_test.txt", "header\n1\ta\tb\t6\tX\n", "line 2, is not in SentEval's format"),
    ],
)
def test_a_missing_truncated_or_malformed_file_is_named(data_dir, file, content, words):
    path = data_dir / "senteval/downstream" / file
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(DataError, match=words) as caught:
        for name in ("STS15", "STS-B", "SICK-R"):
            load_sts(data_dir, name)
    assert str(path) in str(caught.value)


def test_demo_pairs_have_both_splits_and_share_no_sentence(tmp_path):
    dev, test = (load_sts(tmp_path, "demo", split) for split in ("dev", "test"))
    assert len(dev.gold) >= 100 and len(test.gold) >= 100
    assert not {*dev.sentences1, *dev.sentences2} & {*test.sentences1, *test.sentences2}
    for task in (dev, test):
        assert task.gold.min() >= 0 and task.gold.max() <= 5 and (task.gold > 4).sum() >= 20


@pytest.mark.skipif(not (REAL / "senteval").is_dir(), reason="needs CSE_DATA with senteval")
def test_real_files_have_the_published_counts():
    files.manifest.cache_clear()
    counts = {name: len(load_sts(REAL, name).gold) for name in STS_TASKS}
    expected = (3108, 1500, 3750, 3000, 1186, 1379, 4927)
    assert counts == dict(zip(STS_TASKS, expected, strict=True))
    assert len(load_sts(REAL, "SICK-R", "all").gold) == 9927
    facts = [file_facts(REAL, load_sts(REAL, name)) for name in STS_TASKS]
    assert sum(one["without a score"] for one in facts) == 5500 + 7997
    assert {one["not SentEval's"] for one in facts} == {"none"}
    assert (load_sts(REAL, "STS-B", "all").gold > 4).sum() == 1491
