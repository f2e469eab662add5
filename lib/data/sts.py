"""The seven STS tasks in the SentEval folder layout, plus the demo pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.data.errors import DataError
from lib.data.files import expect_count, manifest, read_lines

STS_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")


@dataclass(frozen=True)
class Subset:
    """Scored sentence pairs. sentences1, sentences2: n strings each; gold: float64 [n]."""

    sentences1: tuple[str, ...]
    sentences2: tuple[str, ...]
    gold: np.ndarray

    def __len__(self) -> int:
        return len(self.gold)


@dataclass(frozen=True)
class STSTask:
    """One task: its subsets by name (one subset for STS-B, SICK-R and the demo)."""

    name: str
    split: str
    protocol: str
    subsets: dict[str, Subset]

    @property
    def gold(self) -> np.ndarray:
        """All gold scores, subsets concatenated, float64 [n]."""
        return np.concatenate([subset.gold for subset in self.subsets.values()])

    @property
    def sentences1(self) -> list[str]:
        return [s for subset in self.subsets.values() for s in subset.sentences1]

    @property
    def sentences2(self) -> list[str]:
        return [s for subset in self.subsets.values() for s in subset.sentences2]


def _clean(text: str) -> str:
    return " ".join(text.split())


def _pair(path: Path, number: int, line: str, columns: tuple[int, int]) -> tuple[str, str]:
    parts = line.split("\t")
    if len(parts) <= max(columns):
        raise DataError(f"{path}, line {number}: {len(parts)} tab-separated fields, expected {max(columns) + 1}.")
    return _clean(parts[columns[0]]), _clean(parts[columns[1]])


def _score(path: Path, number: int, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"{path}, line {number}: {text!r} is not a gold score.")
    return score


def _subset(rows: list[tuple[str, str, float]]) -> Subset:
    first, second, gold = zip(*rows, strict=True)
    return Subset(tuple(first), tuple(second), np.array(gold, dtype=np.float64))


def _folder(data_dir: Path) -> Path:
    folder = data_dir / "senteval" / "downstream"
    if not folder.is_dir():
        raise DataError(
            f"{folder} does not exist: the STS tasks are read from <data_dir>/senteval/downstream; give data_dir, or "
            "fetch them with `python -m lib.data fetch senteval`."
        )
    return folder


def _load_years(data_dir: Path, name: str) -> dict[str, Subset]:
    entry = manifest()["sts"][name]
    folder = _folder(data_dir) / "STS" / entry["folder"]
    subsets = {}
    for subset, (lines, scored) in entry["subsets"].items():
        pairs_path, gold_path = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
        pairs, gold = read_lines(pairs_path), read_lines(gold_path)
        expect_count(pairs_path, len(pairs), lines)
        expect_count(gold_path, len(gold), lines)
        rows = [
            (*_pair(pairs_path, i, pair, (0, 1)), _score(gold_path, i, score))
            for i, (pair, score) in enumerate(zip(pairs, gold, strict=True), start=1)
            if score.strip()  # a pair without a gold score was not annotated and does not count
        ]
        expect_count(gold_path, len(rows), scored, "scored lines")
        subsets[subset] = _subset(rows)
    return subsets


def _load_benchmark(data_dir: Path, split: str) -> Subset:
    path = _folder(data_dir) / "STS" / "STSBenchmark" / f"sts-{split}.csv"
    lines = read_lines(path)
    expect_count(path, len(lines), manifest()["sts_benchmark"][split])
    rows = []
    for i, line in enumerate(lines, start=1):
        first, second = _pair(path, i, line, (5, 6))
        rows.append((first, second, _score(path, i, line.split("\t")[4])))
    return _subset(rows)


def _load_sick(data_dir: Path, part: str) -> Subset:
    entry = manifest()["sick"][part]
    path = _folder(data_dir) / "SICK" / entry["file"]
    lines = read_lines(path)[1:]
    expect_count(path, len(lines), entry["rows"], "rows after the header")
    rows = []
    for i, line in enumerate(lines, start=2):
        first, second = _pair(path, i, line, (1, 2))
        rows.append((first, second, _score(path, i, line.split("\t")[3])))
    return _subset(rows)


def _load_demo(split: str) -> Subset:
    from lib import demo

    first, second, gold = demo.similarity(split)
    return Subset(tuple(map(_clean, first)), tuple(map(_clean, second)), np.asarray(gold, dtype=np.float64))


def load_sts(data_dir: Path, name: str, split: str = "test") -> STSTask:
    """One STS task, files read as distributed (lower-cased and tokenised by SentEval's script; SICK in its case).

    Args:
        data_dir: holds senteval/downstream/...
        name: one of STS_TASKS, or `demo` (our own pairs, shipped; no benchmark).
        split: `test`; for STS-B also `train`, `dev`, `all`; for SICK-R also `train`, `trial`, `all`. `all` of SICK-R
            are the 9,927 pairs that MTEB scores, here in SentEval's tokenisation; the papers use `test`, 4,927 pairs.

    Raises:
        DataError: unknown name or split, or a file that is missing, truncated or malformed.
    """
    if name == "demo":
        if split not in ("dev", "test"):
            raise DataError(f"the demo pairs have the splits dev and test, not {split!r}.")
        return STSTask("demo", split, "demo pairs", {"demo": _load_demo(split)})
    if name not in STS_TASKS:
        raise DataError(f"STS task {name!r} is unknown: choose from {', '.join(STS_TASKS)}, demo.")
    if name in manifest()["sts"]:
        if split != "test":
            raise DataError(f"{name} has no split {split!r}, only test.")
        return STSTask(name, split, "SentEval", _load_years(data_dir, name))
    parts = {"STS-B": ("train", "dev", "test"), "SICK-R": ("train", "trial", "test")}[name]
    if split not in (*parts, "all"):
        raise DataError(f"{name} has the splits {', '.join(parts)}, all; not {split!r}.")
    read = _load_benchmark if name == "STS-B" else _load_sick
    chosen = [read(data_dir, part) for part in (parts if split == "all" else (split,))]
    merged = Subset(
        tuple(s for subset in chosen for s in subset.sentences1),
        tuple(s for subset in chosen for s in subset.sentences2),
        np.concatenate([subset.gold for subset in chosen]),
    )
    protocol = "SentEval" if split != "all" or name == "STS-B" else "MTEB pairs, SentEval tokenisation"
    return STSTask(name, split, protocol, {name: merged})
