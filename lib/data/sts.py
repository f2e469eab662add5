"""The seven STS tasks in the SentEval folder layout, plus the demo pairs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lib.checks import DataError
from lib.data import demo
from lib.data.files import expect_count, manifest, read_counted, single_spaced

PAIR_FIELDS = (2, 4)  # of a line of STS12 to STS16; two more name the sources (STS16 as it was published)
SCALE = (0, 5)  # of their gold scores
POSITIVE_GOLD = 4.0  # pairs scored strictly above this mean the same (SimCSE, Figure 2); every task has some
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
    """One task: its subsets by name (one subset for STS-B, SICK-R and the demo), n pairs in all."""

    name: str
    split: str
    protocol: str
    subsets: dict[str, Subset]

    @property
    def gold(self) -> np.ndarray:
        """All gold scores, one subset after the other, float64 [n]."""
        return np.concatenate([subset.gold for subset in self.subsets.values()])

    @property
    def sentences1(self) -> list[str]:
        return [sentence for subset in self.subsets.values() for sentence in subset.sentences1]

    @property
    def sentences2(self) -> list[str]:
        return [sentence for subset in self.subsets.values() for sentence in subset.sentences2]

    def fingerprint(self) -> str:
        """SHA-256 over the pairs and their scores."""
        return hashlib.sha256(repr((self.sentences1, self.sentences2, self.gold.tolist())).encode()).hexdigest()


def _fields(path: Path, number: int, line: str, expected: Sequence[int]) -> list[str]:
    fields = line.split("\t")
    if len(fields) not in expected:
        allowed = " or ".join(map(str, expected))
        raise DataError(f"{path}, line {number}: {len(fields)} tab-separated fields, expected {allowed}.")
    return fields


def _score(path: Path, number: int, text: str, scale: Sequence[float]) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not scale[0] <= score <= scale[1]:
        raise DataError(f"{path}, line {number}: {text!r} is no gold score between {scale[0]} and {scale[1]}.")
    return score


def _subset(rows: Iterable[tuple[str, str, float]]) -> Subset:
    first, second, gold = zip(*rows, strict=True)
    return Subset(tuple(map(single_spaced, first)), tuple(map(single_spaced, second)), np.array(gold, dtype=np.float64))


def _read_table(path: Path, expected: int, table: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Two sentences and their score from these columns of every line."""
    rows, header = [], table["header"]
    for number, line in enumerate(read_counted(path, expected, header=header), start=header + 1):
        fields = _fields(path, number, line, table["fields"])
        first, second, score = (fields[column] for column in table["columns"])
        rows.append((first, second, _score(path, number, score, table["scale"])))
    return rows


def _read_subset(folder: Path, name: str, lines: int, scored: int) -> Subset:
    """One subset of STS12 to STS16: a pair without a gold score was not annotated and does not count."""
    pairs_path, gold_path = folder / f"STS.input.{name}.txt", folder / f"STS.gs.{name}.txt"
    pairs, gold = read_counted(pairs_path, lines), read_counted(gold_path, lines)
    rows = []
    for number, (pair, score) in enumerate(zip(pairs, gold, strict=True), start=1):
        if score.strip():
            first, second = _fields(pairs_path, number, pair, PAIR_FIELDS)[:2]
            rows.append((first, second, _score(gold_path, number, score, SCALE)))
    expect_count(gold_path, len(rows), scored, "scored lines")
    return _subset(rows)


def protocol(name: str, split: str) -> str:
    """Whose pairs they are, as tables say it."""
    if name == "demo":
        return "demo pairs"
    return "MTEB pairs, SentEval tokenisation" if (name, split) == ("SICK-R", "all") else "SentEval"


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
    table = manifest()["sts_tables"].get(name)
    if name == "demo":
        subsets = {name: _subset(zip(*demo.similarity(split), strict=True))}
        return STSTask(name, split, protocol(name, split), subsets)
    if name not in STS_TASKS:
        raise DataError(f"STS task {name!r} is unknown: choose from {', '.join(STS_TASKS)}, demo.")
    splits = [*table["splits"], "all"] if table else ["test"]
    if split not in splits:
        raise DataError(f"{name} has no split {split!r}: choose from {', '.join(splits)}.")
    downstream = data_dir / "senteval" / "downstream"
    if table:
        files = table["splits"].values() if split == "all" else [table["splits"][split]]
        rows = [row for file, count in files for row in _read_table(downstream / file, count, table)]
        subsets = {name: _subset(rows)}
    else:
        year = manifest()["sts"][name]
        folder = downstream / "STS" / year["folder"]
        subsets = {subset: _read_subset(folder, subset, *counts) for subset, counts in year["subsets"].items()}
    return STSTask(name, split, protocol(name, split), subsets)
