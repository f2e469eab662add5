"""Readers of the seven SentEval transfer tasks, from the folder layout as SentEval distributes it.

Source: the data files of facebookresearch/SentEval (Conneau and Kiela, 2018, arXiv:1803.05449), the form that
SimCSE and its successors evaluate on. Files lie in `<data_dir>/senteval/downstream/`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.checks import DataError
from lib.data.files import manifest, read_lines, read_pattern, single_spaced

TRANSFER_TASKS = ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")
EXPECTED_LINES: dict[str, int] = manifest()["transfer"]  # of each file, relative to senteval/downstream
TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")

# Tasks without a test set: the file of class 1, then the file of class 0.
_FOLD_FILES = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}
_SPLIT_FILES = {
    "SST2": {part: f"SST/binary/sentiment-{part}" for part in ("train", "dev", "test")},
    "TREC": {"train": "TREC/train_5500.label", "test": "TREC/TREC_10.label"},
    "MRPC": {part: f"MRPC/msr_paraphrase_{part}.txt" for part in ("train", "test")},
}
# Classes from 0, and the pattern of a line; what `read_lines` must know beside.
_FORMATS = {
    "SST2": ("01", r"(?P<text1>.*)\t(?P<label>[01]) *"),
    "TREC": (TREC_CLASSES, rf"(?P<label>{'|'.join(TREC_CLASSES)}):\S* (?P<text1>.*)"),
    "MRPC": ("01", r"(?P<label>[01])\t[^\t]*\t[^\t]*\t(?P<text1>[^\t]*)\t(?P<text2>[^\t]*)"),
}
_OPTIONS = {"SST2": {}, "TREC": {"encoding": "latin-1"}, "MRPC": {"header": 1}}


@dataclass(frozen=True)
class Split:
    """n sentences (single-spaced) or sentence pairs with their classes, from 0, int64 [n], in file order."""

    sentences1: list[str]
    sentences2: list[str] | None
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.sentences1)


def load_transfer(data_dir: Path | str, name: str) -> dict[str, Split]:
    """Read one of TRANSFER_TASKS from `<data_dir>/senteval/downstream`: `train`, of some tasks `dev` and `test`, too.

    Raises:
        DataError: `name` is not a transfer task; a file is missing, has another number of lines than EXPECTED_LINES, or a
            line without a class.
    """
    if name not in TRANSFER_TASKS:
        raise DataError(f"{name!r} is not a transfer task: choose from {', '.join(TRANSFER_TASKS)}.")
    folder = Path(data_dir) / "senteval" / "downstream"
    if name in _SPLIT_FILES:
        return {part: _read(folder, name, file) for part, file in _SPLIT_FILES[name].items()}
    ones, zeros = (read_lines(folder / file, EXPECTED_LINES[file], encoding="latin-1") for file in _FOLD_FILES[name])
    labels = np.repeat([1, 0], [len(ones), len(zeros)])
    return {"train": Split([single_spaced(line) for line in ones + zeros], None, labels)}


def fingerprint(splits: Mapping[str, Split]) -> str:
    """SHA-256 over the sentences and classes of what `load_transfer` gives."""
    content = {part: (split.sentences1, split.sentences2, split.labels.tolist()) for part, split in splits.items()}
    return hashlib.sha256(repr(content).encode()).hexdigest()


def _read(folder: Path, name: str, file: str) -> Split:
    classes, pattern = _FORMATS[name]
    rows = read_pattern(folder / file, EXPECTED_LINES[file], pattern, **_OPTIONS[name])
    labels = np.array([classes.index(row["label"]) for row in rows], dtype=np.int64)
    texts1 = [single_spaced(row["text1"]) for row in rows]
    texts2 = [single_spaced(row["text2"]) for row in rows] if name == "MRPC" else None
    return Split(texts1, texts2, labels)
