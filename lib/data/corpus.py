"""Training corpora: plain sentences, pairs, triples; a local file first, the hub where the user names it."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.data.errors import DataError
from lib.data.files import expect_count, manifest, read_lines
from lib.data.sts import STS_TASKS, load_sts


@dataclass(frozen=True)
class Corpus:
    """Training data as columns of text.

    columns: one list of n strings for plain sentences; two for pairs (anchor, positive); three for triples
    (anchor, positive, hard negative). name: where it came from, for people.
    """

    name: str
    columns: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def kind(self) -> str:
        return {1: "sentences", 2: "pairs", 3: "triples"}[len(self.columns)]

    def fingerprint(self) -> str:
        """SHA-256 over the text itself, so that the same content has the same name wherever it lies."""
        digest = hashlib.sha256(str(len(self.columns)).encode())
        for column in self.columns:
            for start in range(0, len(column), 10_000):
                digest.update("\x00".join(column[start : start + 10_000]).encode("utf8", "surrogatepass"))
                digest.update(b"\x01")
        return digest.hexdigest()

    def sample(self, size: int, seed: int) -> Corpus:
        """`size` rows drawn without replacement (kept in their order); 0 keeps all.

        Raises:
            DataError: fewer rows than asked for.
        """
        if size == 0 or size == len(self):
            return self
        if size > len(self):
            raise DataError(f"corpus {self.name!r} has {len(self):,} rows, corpus_size asks for {size:,}.")
        rows = np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False))
        columns = tuple(tuple(column[i] for i in rows) for column in self.columns)
        return Corpus(f"{self.name}, {size:,} rows drawn with seed {seed}", columns)


def read_sentences(paths: Sequence[Path]) -> Corpus:
    """One sentence a line from .txt or .txt.gz files; blank lines are dropped."""
    sentences: list[str] = []
    for path in paths:
        lines = read_lines(path)
        _check_manifest(path, len(lines), "lines")
        sentences += [line.strip() for line in lines if line.strip()]
    return _corpus(", ".join(path.name for path in paths), [sentences])


def read_table(path: Path) -> Corpus:
    """Pairs or triples from .csv or .tsv (also .gz): a header, then 2 or 3 columns (anchor, positive, hard negative).

    A missing cell becomes a single space, as in SimCSE's loader.
    """
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    reader = csv.reader(io.StringIO("\n".join(read_lines(path))), delimiter=delimiter)
    try:
        header = next(reader)
    except StopIteration:
        raise DataError(f"{path} is empty.") from None
    if len(header) not in (2, 3):
        raise DataError(
            f"{path}: the header has {len(header)} columns {header}; expected 2 (pairs) or 3 (sent0,sent1,hard_neg)."
        )
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise DataError(f"{path}, near line {reader.line_num}: {error}; is a quote sign left open?") from error
    _check_manifest(path, len(rows), "rows")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise DataError(f"{path}, row {number}: {len(row)} columns where the header has {len(header)}.")
    return _corpus(path.name, [[row[i].strip() or " " for row in rows] for i in range(len(header))])


def _corpus(name: str, columns: Sequence[Sequence[str]]) -> Corpus:
    if not columns[0]:
        raise DataError(f"{name}: no sentence in it.")
    return Corpus(name, tuple(tuple(column) for column in columns))


def _check_manifest(path: Path, found: int, what: str) -> None:
    expected = manifest()["corpora"].get(path.name, {}).get(what)
    if expected is not None:
        expect_count(path, found, expected, what)


def _read(paths: Sequence[Path]) -> Corpus:
    tables = [path for path in paths if {".csv", ".tsv"} & set(path.suffixes)]
    if not tables:
        return read_sentences(paths)
    if len(paths) > 1:
        raise DataError(f"{len(paths)} files match, but pairs and triples are read from one file.")
    return read_table(tables[0])


def _matching(spec: str, data_dir: Path) -> list[Path]:
    pattern = Path(spec).expanduser()
    base, name = (
        (Path(pattern.anchor), str(pattern.relative_to(pattern.anchor))) if pattern.is_absolute() else (data_dir, spec)
    )
    paths = sorted(base.glob(name)) if any(c in name for c in "*?[") else [base / name]
    if not spec or not paths or not paths[0].is_file():
        raise DataError(
            f"corpus {spec!r}: no such file in {base}; give files or patterns relative to data_dir, an absolute path, or "
            "one of `demo`, `demo-triples`, `hub:<file>` alone."
        )
    return paths


def add_sentences(corpus: Corpus, task: str, data_dir: Path) -> Corpus:
    """Plain sentences and, after them, the distinct sentences of an STS task without their scores.

    Of all splits where load_sts has them (STS-B, SICK-R), else of the test pairs: they are test sentences, so scores on
    this task are no longer those of unseen text.

    Raises:
        DataError: the corpus holds pairs or triples, or the task cannot be read.
    """
    if corpus.kind != "sentences":
        raise DataError(
            f"the sentences of {task} can be added to plain sentences only; {corpus.name!r} holds {corpus.kind}."
        )
    pairs = load_sts(data_dir, task, "all" if task in ("STS-B", "SICK-R") else "test")
    added = dict.fromkeys([*pairs.sentences1, *pairs.sentences2])
    return Corpus(f"{corpus.name}, and {len(added):,} sentences of {task}", ((*corpus.columns[0], *added),))


def load_corpus(spec: str, data_dir: Path, *, size: int = 0, seed: int = 0) -> Corpus:
    """A corpus by name.

    Args:
        spec: `demo` (sentences of the installed packages' doc strings), `demo-triples` (written for this project),
            files or glob patterns with commas between them (absolute, or relative to data_dir), `hub:<file>` for a file
            of SimCSE's data set repository, or `hub:<user>/<data set>[:<column>[,<column>...]]` for the train split of any other.
            `<one of these>+<STS task>` adds the task's sentences, see `add_sentences` (JTCSE, Table VIII).
        data_dir: folder for relative names; hub files that already lie there are not fetched.
        size, seed: a random subset, see `Corpus.sample`; drawn before a task's sentences are added.

    Raises:
        DataError: missing, truncated, empty, in another format, or smaller than `size`.
    """
    base, plus, task = spec.rpartition("+")
    if plus and task in (*STS_TASKS, "demo"):
        return add_sentences(load_corpus(base, data_dir, size=size, seed=seed), task, data_dir)
    if spec in ("demo", "demo-triples"):
        from lib import demo

        if spec == "demo":
            corpus = _corpus("doc strings of the installed packages", [demo.docstring_sentences()["sentence"].tolist()])
        else:
            corpus = _corpus("demo triples", list(zip(*demo.triples(), strict=True)))
    elif spec.startswith("hub:"):
        from lib.data import hub

        corpus = hub.load(spec.removeprefix("hub:"), data_dir)
    else:
        parts = [spec] if "," not in spec or (data_dir / spec).is_file() else spec.split(",")
        paths = list(dict.fromkeys(path for part in parts for path in _matching(part.strip(), data_dir)))
        corpus = _read(paths)
    return corpus.sample(size, seed)
