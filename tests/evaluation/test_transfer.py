"""The transfer protocol on a few easy lines per task: folds, settings, rows."""

import numpy as np
import pandas as pd
import pytest

from lib.data import transfer as data
from lib.evaluation import RESULT_COLUMNS, evaluate_transfer, transfer
from lib.evaluation.logistic_regression import Setting, fit_classifiers


def test_pair_features():
    u, v = np.array([[1.0, -2.0]]), np.array([[3.0, 4.0]])
    np.testing.assert_array_equal(transfer.pair_features(u, v), [[2.0, 6.0, 3.0, -8.0]])


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """CR, SST2, TREC and MRPC with a few easy lines each: the class word is in the text, among noise."""
    generator = np.random.default_rng(0)

    def text(word):
        return " ".join(["w" + str(n) for n in generator.integers(0, 30, size=3)] + [word])

    trec = [f"{name}:x {text(name.lower())}" for name in data.TREC_CLASSES for _ in range(12)]
    sst = [f"{text(word)} \t{label}" for label, word in enumerate(("bad", "good")) for _ in range(15)]
    mrpc = ["header"]
    for number in range(30):
        one = text("x")
        mrpc.append(f"{number % 2}\t1\t2\t{one}\t{one if number % 2 else text('y')}")
    files = {
        "CR/custrev.pos": [text("good") for _ in range(30)] + [""],
        "CR/custrev.neg": [text("bad") for _ in range(21)],
        "TREC/train_5500.label": trec,
        "TREC/TREC_10.label": trec[::3],
        "MRPC/msr_paraphrase_train.txt": mrpc,
        "MRPC/msr_paraphrase_test.txt": mrpc,
    } | {f"SST/binary/sentiment-{part}": sst for part in ("train", "dev", "test")}
    for name, lines in files.items():
        path = tmp_path / "senteval" / "downstream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        monkeypatch.setitem(data.EXPECTED_LINES, name, len(lines) - name.startswith("MRPC"))
    return tmp_path


class BagOfWords:
    """Every word has its own random direction; counts calls."""

    def __init__(self):
        self.calls, self.words = [], {}

    def __call__(self, texts):
        self.calls.append(texts)
        for word in sorted({word for text in texts for word in text.split()}):
            seed = int.from_bytes(word.encode(), "little")
            self.words.setdefault(word, np.random.default_rng(seed).normal(size=24))
        return np.stack([sum((self.words[word] for word in text.split()), np.zeros(24)) for text in texts])


TASKS = ("CR", "SST2", "TREC", "MRPC")


def test_rows_and_determinism(data_dir, monkeypatch):
    """As the papers' tables: ten folds of 0.9 of the rows in each of ten, four penalties, a refit; but in few passes."""
    fits = []

    def quick(*arguments, setting, seed):
        fits.append((len(arguments[4]), setting, seed))
        return fit_classifiers(*arguments, setting=Setting(3e-2, 8, tenacity=1, passes_per_evaluation=1), seed=seed)

    monkeypatch.setattr(transfer, "fit_classifiers", quick)
    encode = BagOfWords()
    tasks = [(name, data.load_transfer(data_dir, name)) for name in TASKS]
    frame = pd.concat([evaluate_transfer(encode, *task) for task in tasks], ignore_index=True)
    numbers, settings, seeds = zip(*fits, strict=True)
    assert numbers == (400, 10, 4, 40, 1, 40, 1)  # CR, SST2, TREC, MRPC
    assert {*settings} == {Setting(1e-3, 64, tenacity=5, passes_per_evaluation=4)} and {*seeds} == {1111}
    assert frame.columns.tolist() == RESULT_COLUMNS
    assert frame["task"].tolist() == [task for task in TASKS for _ in range(2)]
    assert frame["split"].tolist() == ["test", "dev"] * 4
    assert set(frame["protocol"]) == {"SentEval, logistic regression, full"}
    assert frame["value"].between(60, 100).all()
    assert len(encode.calls) == 4 and all(len(set(call)) == len(call) for call in encode.calls)
    assert evaluate_transfer(BagOfWords(), *tasks[3]).equals(frame[6:].reset_index(drop=True))


def test_rejects(data_dir):
    splits = data.load_transfer(data_dir, "CR")
    with pytest.raises(ValueError, match="non-finite"):
        evaluate_transfer(lambda texts: np.full((len(texts), 2), np.nan), "CR", splits)
