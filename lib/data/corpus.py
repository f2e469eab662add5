"""Training corpora: text columns with roles, from a local file, or from the hub where the user names it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np

from lib import paths
from lib.checks import DataError
from lib.data import demo, hub
from lib.data.files import expect_count, is_text, manifest, read_counted, read_table, suffixes
from lib.data.sts import STS_TASKS, load_sts

ROLES = ("anchor", "positive", "hard_negative")  # of the first, second and third column where nothing else is said
ROLE_NAMES = {*ROLES, "negative"}
KINDS = {ROLES[:1]: "sentences", ROLES[:2]: "pairs", ROLES: "triples"}
# What a name of a column holds: which column it must be; that it is of a text; that it is of something else.
PLACES = {"anchor": 0, "positive": 1, "neg": 2, "contradict": 2}
TEXT_NAME = re.compile(
    "anchor|positive|neg|contradict|entail|sent|text|premise|hypothesis|query|question|answer|doc|passage|title|caption|"
    "summary|word|phrase|original|paraphrase|source|target",
    re.IGNORECASE,
)
OTHER_NAME = re.compile(r"label|score|rating|class|categor|judg?ment|(\b|_)(id|idx|index)(\b|_|\d)", re.IGNORECASE)
OTHER_FORMATS = {".json", ".jsonl", ".ndjson", ".parquet", ".arrow", ".xlsx", ".xml", ".html", ".zip", ".tar"}


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


def _is_text_name(name: str) -> bool:
    return len(name.split()) <= 3 and bool(TEXT_NAME.search(name)) and not OTHER_NAME.search(name)


def _roles(path: Path, header: list[str]) -> tuple[str, ...]:
    """The roles that a header gives: its own names if the first is `anchor`, otherwise none, for columns in order.

    Raises:
        DataError: a name of one to three columns is none of a text, or of a text that belongs in another place; more
            columns whose first is no anchor.
    """
    header = [name.lower() if name.lower() in ROLE_NAMES else name for name in header]
    if header == ["anchor", "positive", "negative"]:  # as data sets for sentence-transformers name them
        return ROLES
    if header[0] == "anchor":
        return tuple(header)
    if len(header) > len(ROLES):
        raise DataError(
            f"{path}: the header has {len(header)} columns; give 1 (sentences), 2 (pairs), 3 (sent0,sent1,hard_neg), "
            "or any number under a header of roles that begins with anchor (anchor,positive,...)."
        )
    for place, name in enumerate(header):
        if not _is_text_name(name):
            raise DataError(
                f"{path}: line 1 is a header, and {name!r} is no name of a column of text: write sent0,sent1 above the "
                "rows, or take a column of labels out."
            )
        if any(word in name.lower() and place != right for word, right in PLACES.items()):
            raise DataError(
                f"{path}: the column {name!r} would be trained on as {ROLES[place]}: order the columns as sent0,sent1,"
                "hard_neg, or name their roles (anchor,negative)."
            )
    return ()


def _read_table(path: Path) -> Corpus:
    """Columns of a .csv or .tsv file with a header; a missing cell becomes a single space, as in SimCSE's loader."""
    rows = [(line, [cell.strip() for cell in row]) for line, row in read_table(path)]
    if not rows:
        raise DataError(f"{path} is empty.")
    (_, header), *rows = rows
    roles = _roles(path, header)
    expect_count(path, len(rows), manifest()["corpora"].get(path.name), "rows")
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} columns where the header has {len(header)}.")
        if any("\n" in cell for cell in row):
            raise DataError(f"{path}, line {line}: a cell goes over several lines; is a quote sign left open?")
    columns = [[row[i] or " " for _, row in rows] for i in range(len(header))]
    _check_columns(str(path), header, columns)
    return Corpus(path.name, columns, roles)


def _check_columns(source: str, names: Iterable[str], columns: Iterable[Sequence[str]]) -> None:
    """Raise DataError for a column of several rows that holds numbers, or one text alone."""
    for name, column in zip(names, columns, strict=True):
        values = set(column)
        fault = f"are the same, {column[0][:60]!r}" if len(values) == 1 else ""
        if not any(character.isalpha() for value in values for character in value):
            fault = "are numbers or signs alone"
        if fault and len(column) > 1:
            raise DataError(f"{source}: all {len(column):,} rows of {name!r} {fault}: give a column of texts.")


def _read(files: Sequence[Path]) -> Corpus:
    """A table, or text files with one sentence a line; lines without a visible character are dropped."""
    for file in files:
        if other := OTHER_FORMATS & suffixes(file):
            raise DataError(f"{file} is a file of another format ({min(other)}): convert it to .txt, .csv or .tsv.")
    if any({".csv", ".tsv"} & suffixes(file) for file in files):
        if len(files) > 1:
            raise DataError(f"{len(files)} files match, but a table of columns is read from one file.")
        return _read_table(files[0])
    lines: list[str] = []
    for file in files:
        read = [line.strip() for line in read_counted(file, manifest()["corpora"].get(file.name))]
        cells = re.split(r"[,\t;]", read[0]) if read else []
        if len(cells) > 1 and all(_is_text_name(cell) or OTHER_NAME.fullmatch(cell.strip()) for cell in cells):
            raise DataError(f"{file}, line 1: {read[0][:60]!r} begins a table, not sentences: name it .csv or .tsv.")
        lines += filter(is_text, read)
    corpus = Corpus(", ".join(file.name for file in files), [lines])
    _check_columns(corpus.name, ["sentences"], corpus.columns)
    return corpus


def _matching(pattern: str, data_dir: Path) -> list[Path]:
    """The file of this name, else those that the pattern fits."""
    path = paths.expanded(pattern)
    if os.path.isfile(data_dir / path):
        return [data_dir / path]
    files = sorted(data_dir / name for name in glob(str(path), root_dir=data_dir, recursive=True)) if pattern else []
    if not files or not os.path.isfile(files[0]):
        raise DataError(
            f"corpus {pattern[:200]!r}: no such file that can be read (data_dir is {data_dir}); give files or patterns "
            "relative to data_dir, an absolute path, or one of `demo`, `demo-triples`, `hub:<file>` alone, and behind it + "
            "and an STS task if its sentences are to be added."
        )
    return files


def _from_hub(spec: str, data_dir: Path) -> Corpus:
    files = {file: name for name, file in manifest()["hub"]["files"].items() if name != "senteval"}
    if spec in files:
        return _read([hub.fetch(files[spec], data_dir)])
    name, _, columns = spec.partition(":")
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise DataError(f"corpus 'hub:{spec}': {name!r} is no name of the hub: write hub:<user>/<data set>.")
    named = [item.rpartition("=") for item in columns.split(",") if columns]
    roles = [role for role, _, _ in named] if "=" in columns else []
    Corpus(name, [[]] * (len(named) or 1), roles)  # checks the roles before anything is downloaded
    corpus = Corpus(name, hub.load_columns(name, [column for _, _, column in named]), roles)
    _check_columns(spec, corpus.roles, corpus.columns)
    return corpus


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
            roles of any number of columns. Any other has one to three columns in the order of ROLES, and a known word
            in the name of each: sent0,sent1,hard_neg; premise,hypothesis; query text,positive text;
            `hub:<file>` for a file of SimCSE's data set repository;
            `hub:<user>/<data set>[:<column>[,<column>...]]` for the train split of any other data set: up to three
            columns in the order of ROLES, or any number as `<role>=<column>,...`, the anchor first;
            `<one of these>+<STS task>`, which adds the distinct sentences of the task to plain sentences (JTCSE, Table
            VIII): of all splits of STS-B and SICK-R, else of the test pairs. Scores on this task are then no longer
            those of unseen text.
        data_dir: folder for relative names; hub files that already lie there are not fetched.
        size, seed: a random subset, see `Corpus.sample`; drawn before a task's sentences are added.

    Raises:
        DataError: missing, truncated, empty, in another format, without texts in a column, or smaller than `size`.
    """
    base, plus, task = spec.rpartition("+")
    is_file = os.path.isfile(data_dir / paths.expanded(spec))
    if plus and task in (*STS_TASKS, "demo") and not is_file:
        return _add_sentences(load_corpus(base, data_dir, size=size, seed=seed), task, data_dir)
    if spec == "demo":
        corpus = Corpus("doc strings of the installed packages", [demo.docstring_sentences()["sentence"].tolist()])
    elif spec == "demo-triples":
        corpus = Corpus("demo triples", list(zip(*demo.triples(), strict=True)))
    elif spec.startswith("hub:"):
        corpus = _from_hub(spec.removeprefix("hub:"), data_dir)
    else:
        patterns = [spec] if is_file else spec.split(",")
        files = [file for pattern in patterns for file in _matching(pattern.strip(), data_dir)]
        corpus = _read(list({os.path.realpath(file): file for file in files}.values()))  # each once
    if not len(corpus):
        raise DataError(f"{corpus.name}: no sentence in it.")
    return corpus.sample(size, seed)
