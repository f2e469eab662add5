"""The seven STS tasks in the SentEval folder layout, plus the demo pairs."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lib.checks import DataError
from lib.data import demo
from lib.data.files import expect_count, manifest, read_lines, read_pattern, read_table, single_spaced

PROTOCOLS = {"demo": "demo pairs"}  # whose pairs they are, as tables say it; of all others SentEval
OWN = "own pairs"  # the protocol of a file
COLUMNS = ("sentence1", "sentence2", "score")  # of a file
SCALE = (0, 5)  # of gold scores
POSITIVE_GOLD = 4.0  # pairs scored strictly above this mean the same (SimCSE, Figure 2); every task has some
STS_TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")

_SCORE = r"(?P<score>[0-4](\.\d*)?|5(\.0*)?)"
_PAIR = r"(?P<first>[^\t]*)\t(?P<second>[^\t]*)"
_SOURCES = r"(\t[^\t]*){2}"  # or licence and author
_PAIR_LINE = rf"{_PAIR}({_SOURCES})?"
_GOLD_LINE = rf"({_SCORE})?\s*"  # a pair without a score was not annotated
_TABLE_LINES = {
    "STS-B": rf"([^\t]*\t){{4}}{_SCORE}\t{_PAIR}({_SOURCES})?",
    "SICK-R": rf"[^\t]*\t{_PAIR}\t{_SCORE}\t[^\t]*",
}


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
    """One task: its subsets by name; one for STS-B, SICK-R and the demo."""

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


def _subset(pairs: Iterable[Sequence[str]]) -> Subset:
    """Of (sentence, sentence, score): those that have a score."""
    scored = [(single_spaced(a), single_spaced(b), float(score)) for a, b, score in pairs if score is not None]
    first, second, gold = zip(*scored, strict=True)
    return Subset(first, second, np.array(gold))


def _read_subset(folder: Path, name: str, lines: int, scored: int) -> Subset:
    """One subset of STS12 to STS16."""
    path = folder / f"STS.gs.{name}.txt"
    pairs = read_pattern(folder / f"STS.input.{name}.txt", lines, _PAIR_LINE)
    gold = read_pattern(path, lines, _GOLD_LINE)
    subset = _subset((*pair.group("first", "second"), score["score"]) for pair, score in zip(pairs, gold, strict=True))
    expect_count(path, len(subset), scored, "scored lines")
    return subset


def is_file_of_pairs(name: str) -> bool:
    """Whether a task is a file of one's own pairs, by its ending."""
    return Path(name).suffix.lower() in (".csv", ".tsv", ".jsonl")


def _own_pairs(path: Path) -> Subset:
    """Pairs of any language, length and scale, which becomes 0 to 5: lines of sentence1, sentence2 and score."""
    if path.suffix.lower() == ".jsonl":
        lines = filter(str.strip, read_lines(path))
        try:
            rows = [[line.get(name) for name in COLUMNS] for line in map(json.loads, lines)]
        except (ValueError, AttributeError) as error:
            raise DataError(f"{path}: a line is no JSON object ({error}).") from error
    else:
        header, cells = read_table(path)
        if missing := {*COLUMNS} - {*header}:
            raise DataError(
                f"{path}, line 1: the header lacks {', '.join(sorted(missing))}; it must name {', '.join(COLUMNS)}."
            )
        places = [header.index(name) for name in COLUMNS]
        rows = [[row[place] for place in places] for row in cells]
    for number, (first, second, score) in enumerate(rows, start=1):
        if not (isinstance(first, str) and isinstance(second, str) and first.strip() and second.strip()):
            raise DataError(f"{path}, pair {number:,}: sentence1 or sentence2 is missing or empty.")
        with suppress(ValueError, TypeError):
            if np.isfinite(float(score)):
                continue
        raise DataError(f"{path}, pair {number:,}: the score {score!r} is no number.")
    gold = np.array([float(score) for *_, score in rows])
    if len(np.unique(gold)) < 2:
        raise DataError(f"{path}: {len(gold):,} pairs with {len(np.unique(gold))} different scores cannot be ranked.")
    gold = SCALE[1] * (gold - gold.min()) / (gold.max() - gold.min())
    return Subset(*zip(*((single_spaced(a), single_spaced(b)) for a, b, _ in rows), strict=True), gold)


def load_sts(data_dir: Path, name: str, split: str = "test") -> STSTask:
    """One STS task, files read as distributed (lower-cased and tokenised by SentEval's script; SICK in its case).

    Args:
        data_dir: holds senteval/downstream/...
        name: one of STS_TASKS, or `demo` (our own pairs, shipped; no benchmark), or a .csv, .tsv or .jsonl file of one's own,
            absolute or relative to data_dir, with sentence1, sentence2 and score on any scale. Its name is the task's.
        split: `test`; for STS-B also `train`, `dev`, `all`; for SICK-R also `train`, `trial`, `all`. `all` of SICK-R
            are the 9,927 pairs that MTEB scores; the papers use `test`, 4,927 pairs. Of a file a label alone.

    Raises:
        DataError: unknown name or split, or a file that is missing, truncated or malformed.
    """
    if is_file_of_pairs(name):
        path = data_dir / Path(name).expanduser()
        return STSTask(path.name, split, OWN, {path.name: _own_pairs(path)})
    if name not in (*STS_TASKS, "demo"):
        raise DataError(
            f"STS task {name!r} is unknown: choose from {', '.join(STS_TASKS)}, demo, or give a .csv, .tsv or .jsonl file."
        )
    table, downstream = manifest()["sts_tables"].get(name, {}), data_dir / "senteval" / "downstream"
    splits = ["dev", "test"] if name == "demo" else [*table, "all"] if table else ["test"]
    if split not in splits:
        raise DataError(f"{name} has no split {split!r}: choose from {', '.join(splits)}.")
    if name == "demo":
        _, rows = read_table(demo.ASSETS / "similarity.csv")  # sentence1, sentence2, score, topic, kind, split
        subsets = {name: _subset(row[:3] for row in rows if row[-1] == split)}
    elif table:
        how = {"pattern": _TABLE_LINES[name], "header": int(name == "SICK-R")}
        rows = [row for file, lines in _parts(name, split) for row in read_pattern(downstream / file, lines, **how)]
        subsets = {name: _subset(row.group("first", "second", "score") for row in rows)}
    else:
        year = manifest()["sts"][name]
        folder = downstream / "STS" / year["folder"]
        subsets = {subset: _read_subset(folder, subset, *counts) for subset, counts in year["subsets"].items()}
    return STSTask(name, split, PROTOCOLS.get(name, "SentEval"), subsets)


def _parts(name: str, split: str) -> list[list]:
    """File and number of lines of each part of STS-B or SICK-R."""
    table = manifest()["sts_tables"][name]
    return list(table.values()) if split == "all" else [table[split]]


def file_facts(data_dir: Path, task: STSTask) -> dict[str, Any]:
    """What stands in the files of a task (none for the demo's pairs), so that two people can compare theirs.

    Returns:
        split, files (how many), pairs, without a score (pairs that nobody reads), scored, SHA-256 (of the files, one after the
        other), not SentEval's (names of the files whose SHA-256 is not the manifest's).
    """
    if year := manifest()["sts"].get(task.name):
        kinds = [f"STS/{year['folder']}/STS.{kind}.{{}}.txt" for kind in ("input", "gs")]
        names = [kind.format(subset) for subset in year["subsets"] for kind in kinds]
        lines = sum(count for count, _ in year["subsets"].values())
    else:
        parts = _parts(task.name, task.split) if task.name in manifest()["sts_tables"] else []
        names, lines = [name for name, _ in parts], sum(count for _, count in parts) or len(task.gold)
    contents = {name: (data_dir / "senteval" / "downstream" / name).read_bytes() for name in names}
    known = manifest()["sha256"]
    other = [name for name, content in contents.items() if hashlib.sha256(content).hexdigest() != known[name]]
    whole = hashlib.sha256(b"".join(contents.values())).hexdigest() if names else task.fingerprint()
    facts = {"split": task.split, "files": len(names), "pairs": lines, "without a score": lines - len(task.gold)}
    return facts | {"scored": len(task.gold), "SHA-256": whole, "not SentEval's": ", ".join(other) or "none"}
