"""Readers of the seven SentEval transfer tasks, from the folder layout as SentEval distributes it.

Source: the data files of facebookresearch/SentEval (Conneau and Kiela, 2018, arXiv:1803.05449), the form that
SimCSE and its successors evaluate on. Files lie in `<data_dir>/senteval/downstream/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from lib.data.errors import DataError

TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")

# Lines of each file, relative to `senteval/downstream`. Blank lines are lines: two in each CR file, one in
# mpqa.pos and two in mpqa.neg; the official counts (CR 3,775 and MPQA 10,606) include them. MRPC files have a
# header besides.
EXPECTED_LINES: dict[str, int] = {
    "MR/rt-polarity.pos": 5331,
    "MR/rt-polarity.neg": 5331,
    "CR/custrev.pos": 2407,
    "CR/custrev.neg": 1368,
    "SUBJ/subj.objective": 5000,
    "SUBJ/subj.subjective": 5000,
    "MPQA/mpqa.pos": 3312,
    "MPQA/mpqa.neg": 7294,
    "SST/binary/sentiment-train": 67349,
    "SST/binary/sentiment-dev": 872,
    "SST/binary/sentiment-test": 1821,
    "TREC/train_5500.label": 5452,
    "TREC/TREC_10.label": 500,
    "MRPC/msr_paraphrase_train.txt": 4076,
    "MRPC/msr_paraphrase_test.txt": 1725,
}

FETCH = "python -m lib.data fetch senteval"
TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

# Folds tasks: the file of class 1, then the file of class 0.
_FOLD_FILES = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}


@dataclass(frozen=True)
class Split:
    """Sentences (single-spaced) or sentence pairs with their classes, in file order.

    sentences1: n texts; sentences2: n texts of pair tasks, else None; labels: int64 [n], classes from 0.
    """

    sentences1: list[str]
    sentences2: list[str] | None
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.sentences1)


@dataclass(frozen=True)
class TransferTask:
    """One task. `folds`: everything is in `train` and is cross-validated; `train_test`: the penalty is chosen
    by folds of `train`; `train_dev_test`: it is chosen on `dev`. `pairs`: classifies sentence pairs."""

    name: str
    kind: Literal["folds", "train_test", "train_dev_test"]
    train: Split
    test: Split | None
    dev: Split | None
    pairs: bool


def load_transfer(data_dir: Path | str, name: str) -> TransferTask:
    """Read one of TRANSFER_TASKS from `<data_dir>/senteval/downstream`.

    Raises:
        DataError: a file is missing, has another number of lines than EXPECTED_LINES, or a line without a
            valid class.
        ValueError: `name` is not a transfer task.
    """
    folder = Path(data_dir) / "senteval" / "downstream"
    if name in _FOLD_FILES:
        ones, zeros = (_lines(folder, file, "latin-1") for file in _FOLD_FILES[name])
        labels = [1] * len(ones) + [0] * len(zeros)
        return TransferTask(name, "folds", _split(ones + zeros, None, labels), test=None, dev=None, pairs=False)
    if name == "SST2":
        train, dev, test = (_sst(folder, f"SST/binary/sentiment-{part}") for part in ("train", "dev", "test"))
        return TransferTask(name, "train_dev_test", train, test=test, dev=dev, pairs=False)
    if name == "TREC":
        train, test = (_trec(folder, f"TREC/{file}") for file in ("train_5500.label", "TREC_10.label"))
        return TransferTask(name, "train_test", train, test=test, dev=None, pairs=False)
    if name == "MRPC":
        train, test = (_mrpc(folder, f"MRPC/msr_paraphrase_{part}.txt") for part in ("train", "test"))
        return TransferTask(name, "train_test", train, test=test, dev=None, pairs=True)
    raise ValueError(f"{name!r} is not a transfer task: choose from {', '.join(TRANSFER_TASKS)}.")


def _lines(folder: Path, file: str, encoding: str, header: int = 0) -> list[str]:
    """Lines of a file without its header, counted against EXPECTED_LINES. Only a line feed ends a line: other
    characters that Python counts as line ends occur inside latin-1 text."""
    path, expected = folder / file, EXPECTED_LINES[file]
    try:
        lines = path.read_bytes().decode(encoding).split("\n") if path.is_file() else []
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not {encoding} text; fetch it again with `{FETCH}`.") from error
    if lines and lines[-1] == "":
        lines.pop()
    lines = lines[header:]
    if len(lines) != expected:
        found = f"found {len(lines):,}" if path.is_file() else "found no such file"
        raise DataError(
            f"{path}: expected {expected:,} lines{' after the header' if header else ''}, {found}; "
            f"fetch it again with `{FETCH}`."
        )
    return lines


def _sst(folder: Path, file: str) -> Split:
    rows = [line.rpartition("\t") for line in _lines(folder, file, "utf-8")]
    texts, labels = [text for text, _, _ in rows], [label.strip() for _, _, label in rows]
    return _split(texts, None, _classes(folder / file, labels, ("0", "1")))


def _trec(folder: Path, file: str) -> Split:
    rows = [line.partition(" ") for line in _lines(folder, file, "latin-1")]
    texts, labels = [text for _, _, text in rows], [label.partition(":")[0] for label, _, _ in rows]
    return _split(texts, None, _classes(folder / file, labels, TREC_CLASSES))


def _mrpc(folder: Path, file: str) -> Split:
    rows = [line.split("\t") for line in _lines(folder, file, "utf-8-sig", header=1)]
    if any(len(row) != 5 for row in rows):
        raise _malformed(folder / file, next(n for n, row in enumerate(rows) if len(row) != 5) + 2)
    labels = _classes(folder / file, [row[0] for row in rows], ("0", "1"), first_line=2)
    return _split([row[3] for row in rows], [row[4] for row in rows], labels)


def _classes(path: Path, labels: list[str], names: tuple[str, ...], first_line: int = 1) -> list[int]:
    numbers = {name: number for number, name in enumerate(names)}
    for line, label in enumerate(labels, start=first_line):
        if label not in numbers:
            raise _malformed(path, line)
    return [numbers[label] for label in labels]


def _malformed(path: Path, line: int) -> DataError:
    return DataError(f"{path}, line {line}, is not in SentEval's format; fetch it again with `{FETCH}`.")


def _split(sentences1: list[str], sentences2: list[str] | None, labels: list[int]) -> Split:
    def single_spaced(texts: list[str]) -> list[str]:
        return [" ".join(text.split()) for text in texts]

    return Split(
        single_spaced(sentences1),
        None if sentences2 is None else single_spaced(sentences2),
        np.asarray(labels, dtype=np.int64),
    )
