"""Training corpora: text columns with roles, from a local file, or from the hub where the user names it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np

from lib.checks import DataError
from lib.data import demo, hub
from lib.data.files import expect_count, is_text, manifest, read_counted, read_lines
from lib.data.sts import STS_TASKS, load_sts

ROLES = ("anchor", "positive", "hard_negative")  # of the first, second and third column where nothing else is said
WORDS_OF_A_NAME = 4  # of a column at most; more of them are a sentence that stands where the header should
KINDS = {ROLES[:1]: "sentences", ROLES[:2]: "pairs", ROLES: "triples"}


@dataclass(frozen=True)
class Corpus:
    """Training data as S columns of text with n rows; DataError when the roles do not fit the columns.

    name: where it came from, for people. columns: S x n strings, kept as tuples. roles: what each column is to a loss,
    "anchor" first; up to three columns without roles are plain sentences, pairs or triples, with the first of ROLES.
    """

    name: str
    columns: tuple[tuple[str, ...], ...]
    roles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = tuple(map(tuple, self.columns))
        roles = tuple(self.roles) or ROLES[: len(columns)]
        if len(roles) != len(columns) or len(set(roles)) < len(roles) or not all(roles) or roles[:1] != ROLES[:1]:
            given = f"{len(columns)} columns and the roles {', '.join(map(repr, roles))}"
            raise DataError(
                f"corpus {self.name!r} has {given}: give each column a role of its own, 'anchor' first, in the header "
                "of a table or as hub:<user>/<data set>:<role>=<column>,..."
            )
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "roles", roles)

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def kind(self) -> str:
        """`sentences`, `pairs`, `triples`, or `columns` with the roles."""
        return KINDS.get(self.roles, f"columns {', '.join(self.roles)}")

    def fingerprint(self) -> str:
        """SHA-256 over the roles and the text: the same content has the same name wherever it lies."""
        columns = str(len(self.columns)) if self.roles in KINDS else json.dumps(self.roles)
        digest = hashlib.sha256(columns.encode())
        for column in self.columns:
            for start in range(0, len(column), 10_000):
                digest.update("\x00".join(column[start : start + 10_000]).encode("utf8", "surrogatepass"))
                digest.update(b"\x01")
        return digest.hexdigest()

    def sample(self, size: int, seed: int) -> Corpus:
        """`size` rows drawn without replacement (kept in their order); 0 keeps all, DataError when there are fewer."""
        if size == 0 or size == len(self):
            return self
        if size > len(self):
            raise DataError(f"corpus {self.name!r} has {len(self):,} rows, corpus_size asks for {size:,}.")
        rows = np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False))
        columns = [[column[i] for i in rows] for column in self.columns]
        return Corpus(f"{self.name}, {size:,} rows drawn with seed {seed}", columns, self.roles)


def _read_table(path: Path) -> Corpus:
    """Columns of a .csv or .tsv file with a header; a missing cell becomes a single space, as in SimCSE's loader."""
    text = "\n".join(read_lines(path))
    reader = csv.reader(io.StringIO(text), delimiter="\t" if ".tsv" in path.suffixes else ",")
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise DataError(f"{path}, near line {reader.line_num}: {error}; is a quote sign left open?") from error
    if not rows:
        raise DataError(f"{path} is empty.")
    (_, header), *rows = rows
    if header == ["anchor", "positive", "negative"]:  # as data sets for sentence-transformers name them
        header = list(ROLES)
    named = header[0] == "anchor"
    if not named and len(header) not in (2, 3):
        raise DataError(
            f"{path}: the header has {len(header)} columns {header}; give 2 columns (pairs), 3 (sent0,sent1,hard_neg), "
            "or any number under a header of roles that begins with anchor (anchor,positive,...)."
        )
    if not named and (sentence := next((cell for cell in header if len(cell.split()) > WORDS_OF_A_NAME), "")):
        raise DataError(
            f"{path}: line 1 is a header, and {sentence!r} is no name of a column: write sent0,sent1 above it."
        )
    expect_count(path, len(rows), manifest()["corpora"].get(path.name), "rows")
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} columns where the header has {len(header)}.")
    columns = [[row[i] or " " for _, row in rows] for i in range(len(header))]
    for name, column in zip(header, columns, strict=True):
        if column and not named and all(cell.lstrip("-").replace(".", "", 1).isdecimal() for cell in column):
            raise DataError(f"{path}: column {name!r} holds numbers alone, not text: take it out of the table.")
    return Corpus(path.name, columns, header if named else ())


def _read(files: Sequence[Path]) -> Corpus:
    """A table, or text files with one sentence a line; lines without a visible character are dropped."""
    if not any({".csv", ".tsv"} & set(file.suffixes) for file in files):
        lines = [line.strip() for file in files for line in read_counted(file, manifest()["corpora"].get(file.name))]
        return Corpus(", ".join(file.name for file in files), [[line for line in lines if is_text(line)]])
    if len(files) > 1:
        raise DataError(f"{len(files)} files match, but a table of columns is read from one file.")
    return _read_table(files[0])


def _matching(pattern: str, data_dir: Path) -> list[Path]:
    names = glob(os.path.expanduser(pattern), root_dir=data_dir, recursive=True)
    files = sorted(data_dir / name for name in names)
    if not files or not files[0].is_file():
        raise DataError(
            f"corpus {pattern!r}: no such file (data_dir is {data_dir}); give files or patterns relative to data_dir, "
            "an absolute path, or one of `demo`, `demo-triples`, `hub:<file>` alone."
        )
    return files


def _from_hub(spec: str, data_dir: Path) -> Corpus:
    files = {file: name for name, file in manifest()["hub"]["files"].items() if name != "senteval"}
    if spec in files:
        return _read([hub.fetch(files[spec], data_dir)])
    name, _, columns = spec.partition(":")
    named = [item.rpartition("=") for item in columns.split(",") if columns]
    roles = [role for role, _, _ in named] if "=" in columns else []
    Corpus(name, [[]] * (len(named) or 1), roles)  # checks the roles before anything is downloaded
    return Corpus(name, hub.load_columns(name, [column for _, _, column in named]), roles)


def _add_sentences(corpus: Corpus, task: str, data_dir: Path) -> Corpus:
    if corpus.kind != "sentences":
        raise DataError(
            f"the sentences of {task} can be added to plain sentences only; {corpus.name!r} holds {corpus.kind}."
        )
    pairs = load_sts(data_dir, task, "all" if task in ("STS-B", "SICK-R") else "test")
    added = dict.fromkeys([*pairs.sentences1, *pairs.sentences2])
    return Corpus(f"{corpus.name}, and {len(added):,} sentences of {task}", [[*corpus.columns[0], *added]])


def load_corpus(spec: str, data_dir: Path, *, size: int = 0, seed: int = 0) -> Corpus:
    """A corpus by name.

    Args:
        spec: one of
            `demo` (sentences of the installed packages' doc strings), `demo-triples` (written for this project);
            files or glob patterns with commas between them, absolute or relative to data_dir: .txt files with one
            sentence a line, or one .csv or .tsv table (each also as .gz). A header that begins with `anchor` names the
            roles of any number of columns; under any other there are two or three columns, in the order of ROLES;
            `hub:<file>` for a file of SimCSE's data set repository;
            `hub:<user>/<data set>[:<column>[,<column>...]]` for the train split of any other data set: up to three
            columns in the order of ROLES, or any number as `<role>=<column>,...`, the anchor first;
            `<one of these>+<STS task>`, which adds the distinct sentences of the task to plain sentences (JTCSE, Table
            VIII): of all splits of STS-B and SICK-R, else of the test pairs. Scores on this task are then no longer
            those of unseen text.
        data_dir: folder for relative names; hub files that already lie there are not fetched.
        size, seed: a random subset, see `Corpus.sample`; drawn before a task's sentences are added.

    Raises:
        DataError: missing, truncated, empty, one text repeated, in another format, or smaller than `size`.
    """
    base, plus, task = spec.rpartition("+")
    if plus and task in (*STS_TASKS, "demo"):
        return _add_sentences(load_corpus(base, data_dir, size=size, seed=seed), task, data_dir)
    if spec == "demo":
        corpus = Corpus("doc strings of the installed packages", [demo.docstring_sentences()["sentence"].tolist()])
    elif spec == "demo-triples":
        corpus = Corpus("demo triples", list(zip(*demo.triples(), strict=True)))
    elif spec.startswith("hub:"):
        corpus = _from_hub(spec.removeprefix("hub:"), data_dir)
    else:
        patterns = [spec] if (data_dir / spec).is_file() else spec.split(",")
        files = dict.fromkeys(file for pattern in patterns for file in _matching(pattern.strip(), data_dir))
        corpus = _read(list(files))
    if not len(corpus):
        raise DataError(f"{corpus.name}: no sentence in it.")
    anchors = corpus.columns[0]
    if len(anchors) > 1 and anchors.count(anchors[0]) == len(anchors):
        raise DataError(f"{corpus.name}: all {len(anchors):,} rows begin with the same text, {anchors[0][:60]!r}.")
    return corpus.sample(size, seed)
