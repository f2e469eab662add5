"""Training corpora: text columns with roles, from a local file, or from the hub where the user names it."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob
from itertools import chain
from pathlib import Path

import numpy as np

from lib.checks import DataError, reason, remark
from lib.data import demo, hub
from lib.data.files import expect_count, manifest, read_lines, read_table, suffixes
from lib.data.sts import STS_TASKS, load_sts

ROLES = ("anchor", "positive", "hard_negative")  # of the first, second and third column where nothing else is said
KINDS = {ROLES[:1]: "sentences", ROLES[:2]: "pairs", ROLES: "triples"}
HARD_NEGATIVE = re.compile(r"hard_negative|negative_\d+")  # the roles of columns with one for each row
NUMBER = re.compile(r"[-+\d.,:/]*")
SOME_COPIES = 0.01  # share of the rows
MOST_LABELS = 10  # words that a column of labels has, over and over
TABLES = {".csv", ".tsv"}
CHOSEN = re.compile(r"(.+\.(?:[ct]sv|txt)(?:\.gz)?):([^/\\]+)", re.IGNORECASE)  # files, and what is taken of them
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")  # a rule: it ends one behind "Mr." too
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
                "of a table."
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


def _read_table(path: Path, chosen: str = "") -> Corpus:
    """Columns of a .csv or .tsv file with a header, or of `_running_text`; chosen: see `_choose`, empty: all."""
    if TABLES & suffixes(path):
        header, rows = read_table(path)
        if any(len(name.split()) > 3 or re.search(r"[;|\t]", name) for name in header):
            raise DataError(f"{path}: line 1 is no header with commas (.tsv: tabs): write sent0,sent1 above the rows.")
        expect_count(path, len(rows), manifest()["corpora"].get(path.name), "rows")
    else:
        header, rows = _running_text(path)
    if chosen:
        header, rows = _choose(path, header, rows, chosen)
    if broken := next((cell for row in rows for cell in row if "\n" in cell.strip()), ""):
        raise DataError(f"{path}: a cell goes over several lines, {broken[:60]!r}: is a quote sign left open?")
    columns = [[row[i].strip() for row in rows] for i in range(len(header))]
    for name, column in zip(header, columns, strict=True):
        cells = set(column)
        are_labels = len(cells) <= MOST_LABELS < len(column) and not any(" " in cell for cell in cells)
        if rows and (are_labels or all(map(NUMBER.fullmatch, cells))):
            raise DataError(f"{path}: the column {name!r} holds numbers or labels, which are no text: take it out.")
    roles = tuple(name.lower() for name in header)
    if roles == ("anchor", "positive", "negative"):  # as data sets for sentence-transformers name them
        roles = ROLES
    return _without_gaps(Corpus(path.name, columns, roles if ROLES[0] in roles else ()))


def _running_text(path: Path) -> tuple[list[str], list[list[str]]]:
    """A table of the sentences of a text file with one paragraph a line: sentence, the next one, and one of the next three,
    drawn always in the same way; a row for each sentence that has a next one in its paragraph (SimCSE, Table 2)."""
    draw, rows = random.Random(0), []
    for paragraph in read_lines(path, manifest()["corpora"].get(path.name)):
        sentences = SENTENCE_END.split(paragraph.strip())
        for i, sentence in enumerate(sentences[:-1], start=1):
            rows.append([sentence, sentences[i], draw.choice(sentences[i : i + 3])])
    return ["sentence", "next", "one_of_next_3"], rows


def _choose(
    path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], chosen: str
) -> tuple[list[str], list[list[str]]]:
    """Of a table the columns in `chosen` (premise,hypothesis) and the rows that it asks for (label=entailment)."""
    parts = [part.strip().partition("=") for part in chosen.split(",")]
    if unknown := [name for name, _, _ in parts if name not in header]:
        raise DataError(f"{path} has no column {unknown[0]!r}, only {', '.join(header)}.")
    names = [name for name, equals, _ in parts if not equals]
    if not names:
        raise DataError(f"{path}:{chosen} says which rows and no column of text: name one of {', '.join(header)}.")
    wanted = {header.index(name): value for name, equals, value in parts if equals}
    kept = [row for row in rows if all(row[place] == value for place, value in wanted.items())]
    return names, [[row[header.index(name)] for name in names] for row in kept]


def _without_gaps(corpus: Corpus) -> Corpus:
    """The corpus, with a space in the place of hard negatives that are empty, as in SimCSE's loader: they are trained on, and
    counted aloud. Raises DataError for another text that is empty."""
    columns = []
    for role, column in zip(corpus.roles, corpus.columns, strict=True):
        empty = [row for row, text in enumerate(column, start=1) if not text.strip()]
        if empty and not HARD_NEGATIVE.fullmatch(role):
            raise DataError(
                f"{corpus.name}, row {empty[0]:,}: its {role} is empty, of {len(empty):,} such rows: take them out."
            )
        if empty:
            remark(
                f"{corpus.name}: {len(empty):,} of {len(column):,} hard negatives are empty; they are trained on as such."
            )
        columns.append([text if text.strip() else " " for text in column])
    return replace(corpus, columns=columns)


def _read(files: Sequence[Path], chosen: str = "") -> Corpus:
    """One table, the chosen columns of several, or text files with one sentence a line; empty lines are dropped."""
    for file in files:
        if other := OTHER_FORMATS & suffixes(file):
            raise DataError(f"{file} is a file of another format ({min(other)}): convert it to .txt, .csv or .tsv.")
    name, are_tables = ", ".join(file.name for file in files), {bool(TABLES & suffixes(file)) for file in files}
    if are_tables == {False} and not chosen:
        lines = (line for file in files for line in read_lines(file, manifest()["corpora"].get(file.name)))
        return Corpus(name, [list(filter(None, map(str.strip, lines)))])
    if len(are_tables) > 1 or (len(files) > 1 and not chosen):
        raise DataError(
            f"{name}: several tables are read together when their columns are named, as in *.tsv:sentence1,sentence2, and "
            "never with plain text."
        )
    parts = [_read_table(file, chosen) for file in files]
    columns = [chain(*several) for several in zip(*(part.columns for part in parts), strict=True)]
    return Corpus(f"{name}:{chosen}" if chosen else name, columns, parts[0].roles)


def _matching(pattern: str, data_dir: Path) -> list[Path]:
    """The file of this name, else those that the pattern fits."""
    path = Path(pattern).expanduser()
    names = [path] if os.path.isfile(data_dir / path) else sorted(glob(str(path), root_dir=data_dir, recursive=True))
    files = [data_dir / name for name in names]
    if not files or not os.path.isfile(files[0]):
        raise DataError(
            f"corpus {pattern[:200]!r}: no such file that can be read (data_dir is {data_dir}); give files or patterns, "
            "or one of `demo`, `demo-triples`, `hub:<file>`; behind it + and an STS task adds the task's sentences."
        )
    return files


def _from_hub(spec: str, data_dir: Path) -> Corpus:
    if spec in hub.FILES.values():
        return _read([hub.fetch(next(name for name, file in hub.FILES.items() if file == spec), data_dir)])
    from datasets import load_dataset

    name, _, columns = spec.partition(":")
    try:
        table = load_dataset(name, split="train")
        texts = [[text or "" for text in table[column]] for column in columns.split(",")]
        if not all(isinstance(text, str) for column in texts for text in column):
            raise ValueError("a column holds no text")
    except Exception as error:  # the library raises a dozen kinds
        raise DataError(
            f"corpus 'hub:{spec}' is no hub:<user>/<data set>:<column> to be had ({reason(error)})."
        ) from error
    return _without_gaps(Corpus(name, texts))


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
            roles of any number of columns (several hard negatives: `negative_1`, `negative_2`, ...), any other stands above
            one to three columns in the order of ROLES;
            `<tables>:<column>[,<column>...][,<column>=<value>...]` for these columns of one or more tables, and the rows
            with these values alone: `snli/*.tsv:sentence1,sentence2,label=entailment`;
            `<text files>:sentence[,next]` for the sentences of text with one paragraph a line, each with the one behind it,
            or `:sentence,one_of_next_3`;
            `hub:<file>` for a file of SimCSE's data set repository;
            `hub:<user>/<data set>:<column>[,<column>...]` for up to three columns of text of any other data set's train
            split, in the order of ROLES;
            `<one of these>+<STS task>`, which adds the distinct sentences of the task to plain sentences (JTCSE, Table
            VIII): of all splits of STS-B and SICK-R, else of the test pairs. It is then no longer unseen text.
        data_dir: folder for relative names; hub files that already lie there are not fetched.
        size, seed: a random subset, see `Corpus.sample`; drawn before a task's sentences are added.

    Raises:
        DataError: missing, truncated, empty, in another format, without texts in a column, or smaller than `size`.
    """
    base, plus, task = spec.rpartition("+")
    is_file = os.path.isfile(data_dir / Path(spec).expanduser())
    if plus and task in (*STS_TASKS, "demo") and not is_file:
        return _add_sentences(load_corpus(base, data_dir, size=size, seed=seed), task, data_dir)
    if spec == "demo":
        corpus = Corpus("doc strings of the installed packages", [demo.docstring_sentences()])
    elif spec == "demo-triples":
        corpus = replace(_read_table(demo.ASSETS / "triples.csv"), name="demo triples")
    elif spec.startswith("hub:"):
        corpus = _from_hub(spec.removeprefix("hub:"), data_dir)
    else:
        choice = None if is_file else CHOSEN.fullmatch(spec)
        names, chosen = choice.groups() if choice else (spec, "")
        patterns = [names] if is_file else names.split(",")
        files = [file for pattern in patterns for file in _matching(pattern.strip(), data_dir)]
        corpus = _read(list({os.path.realpath(file): file for file in files}.values()), chosen)  # each once
    if not len(corpus):
        raise DataError(f"{corpus.name}: no sentence in it.")
    corpus = corpus.sample(size, seed)
    copies = len(corpus) - len(set(zip(*corpus.columns, strict=True)))
    if copies > SOME_COPIES * len(corpus):
        remark(
            f"{corpus.name}: {copies / len(corpus):.0%} of the rows are there already. Copies in one batch are each other's "
            "negatives: take them out, or set equal_texts to left_out (method simcse)."
        )
    return corpus
