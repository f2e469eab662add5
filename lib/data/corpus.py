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
NAME = re.compile(r"[^\W\d][\w.:-]*( \w)?")  # of a column: one word, perhaps with a number; anything else is a text
TEXT_NAME = re.compile(  # what columns of texts are called: known from a word that is itself a text
    r"(sent|sentence|text|premise|hypothesis|query|question|answer|document|passage|title|body|anchor|positive|negative|"
    r"hard_neg|first|second|original|paraphrase|source|target|caption|word|phrase|a|b|c)[ _-]?\w?",
    re.IGNORECASE,
)
LABEL_NAME = re.compile(
    r"(gold_?)?(label|score|rating|class|category|similarity|relatedness\w*|entailment_judgment|stars?)s?|(\w+_)?(id|idx|index)",
    re.IGNORECASE,
)
NEGATIVE_NAME = re.compile(
    r"((hard|sent(ence)?|text|passage|doc(ument)?)[ _-]?)?(neg(ative)?s?|contradict\w*|unrelated)([ _-]?(\d+|\w+))?",
    re.IGNORECASE,
)
NUMBER = re.compile(r"([\W\d_]|(?<=\d)[eETZ])*")  # or a date, or a share: 1e-3, "4,5", 50 %
ROWS_OF_A_LABEL, LONGEST_LABEL = (4, 50), 20  # rows per value from which values of one word, of several are labels
OTHER_FORMATS = {".json", ".jsonl", ".ndjson", ".parquet", ".arrow", ".xlsx", ".xls", ".ods", ".xml", ".html", ".pdf"}
OTHER_FORMATS |= {".docx", ".doc", ".zip", ".tar", ".tgz", ".bz2", ".xz", ".zst", ".npy", ".pkl", ".ipynb", ".yaml"}
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
        if size < 0:
            raise DataError(f"corpus_size {size} is no number of rows: give 0 for all.")
        if size == 0 or size == len(self):
            return self
        if size > len(self):
            raise DataError(f"corpus {self.name!r} has {len(self):,} rows, corpus_size asks for {size:,}.")
        rows = np.sort(np.random.default_rng(seed).choice(len(self), size, replace=False))
        columns = [[column[i] for i in rows] for column in self.columns]
        return Corpus(f"{self.name}, {size:,} rows drawn with seed {seed}", columns, self.roles)


def _read_table(path: Path) -> Corpus:
    """Columns of a .csv or .tsv file with a header; a missing cell becomes a single space, as in SimCSE's loader."""
    rows = [(line, [cell.strip() for cell in row]) for line, row in read_table(path)]
    if not rows:
        raise DataError(f"{path} is empty.")
    (_, header), *rows = rows
    header = [name.lower() if name.lower() in ROLE_NAMES else name for name in header]
    if header == ["anchor", "positive", "negative"]:  # as data sets for sentence-transformers name them
        header = list(ROLES)
    named = header[0] == "anchor"
    if not named and (ROLE_NAMES & {*header} or len(header) not in (2, 3)):
        raise DataError(
            f"{path}: the header has {len(header)} columns {header}; give 2 columns (pairs), 3 (sent0,sent1,hard_neg), "
            "or any number under a header of roles that begins with anchor (anchor,positive,...)."
        )
    if not named and (early := [name for name in header[:2] if NEGATIVE_NAME.fullmatch(name)]):
        raise DataError(
            f"{path}: the column {early[0]!r} would be trained on as a text or its positive: put the hard negatives third "
            "(sent0,sent1,hard_neg)."
        )
    if not named and len(set(header)) < len(header):
        raise DataError(
            f"{path}: two columns are called {max(header, key=header.count)!r}: give each a name of its own."
        )
    expect_count(path, len(rows), manifest()["corpora"].get(path.name), "rows")
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} columns where the header has {len(header)}.")
        for cell in row:
            if "\n" in cell:
                raise DataError(f"{path}, line {line}: a cell goes over several lines; is a quote sign left open?")
            if cell and not is_text(cell):
                raise DataError(f"{path}, line {line}: the cell {cell!r} has no visible character.")
    columns = [[row[i] or " " for _, row in rows] for i in range(len(header))]
    _check_columns(str(path), header, columns)
    if not named:
        _check_header(path, header, columns)
    return Corpus(path.name, columns, header if named else ())


def _check_header(path: Path, header: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
    """Raise DataError where the first line is a row, or names a column that is no text."""
    for name, column in zip(header, columns, strict=True):
        if LABEL_NAME.fullmatch(name):
            raise DataError(f"{path}: column {name!r} is no text by its name: take it out of the table.")
        are_words = column and not any(" " in cell.strip() for cell in column)
        if not NAME.fullmatch(name) or (are_words and not TEXT_NAME.fullmatch(name)):
            raise DataError(
                f"{path}: line 1 is a header, and {name!r} is no name of a column of text: write sent0,sent1 above it."
            )


def _check_columns(source: str, names: Iterable[str], columns: Iterable[Sequence[str]]) -> None:
    """Raise DataError for a column that holds something else than texts, or one text alone."""
    for name, column in zip(names, columns, strict=False):
        values = set(column)
        if len(values) < 2:
            fault = f"are the same, {column[0][:60]!r}" if len(column) > 1 else ""
        elif all(map(NUMBER.fullmatch, values)):
            fault = "are numbers, dates or signs alone"
        else:
            are_words = not any(" " in value or len(value) > LONGEST_LABEL for value in values)
            is_few = len(values) * ROWS_OF_A_LABEL[0 if are_words else 1] <= len(column)
            fault = f"are {len(values)} labels, {', '.join(sorted(values)[:3])}" if is_few else ""
        if fault:
            raise DataError(f"{source}: all {len(column):,} rows of {name!r} {fault}: give a column of texts.")


def _read(files: Sequence[Path]) -> Corpus:
    """A table, or text files with one sentence a line; lines without a visible character are dropped."""
    for file in files:
        if other := OTHER_FORMATS & suffixes(file):
            raise DataError(f"{file} is a file of another format ({min(other)}): convert it to .txt, .csv or .tsv.")
    if not any({".csv", ".tsv"} & suffixes(file) for file in files):
        lines = []
        for file in files:
            read = [line.strip() for line in read_counted(file, manifest()["corpora"].get(file.name))]
            if read and (read[0].startswith('{"') or _is_header(read[0])):
                raise DataError(
                    f"{file}, line 1: {read[0][:60]!r} begins a table, not sentences: name it .csv or .tsv."
                )
            if fault := _no_sentences(read):
                raise DataError(f"{file} {fault}.")
            lines += filter(is_text, read)
        return Corpus(", ".join(file.name for file in files), [lines])
    if len(files) > 1:
        raise DataError(f"{len(files)} files match, but a table of columns is read from one file.")
    return _read_table(files[0])


def _no_sentences(lines: Sequence[str]) -> str:
    """What a text file is that is no list of sentences, where that can be seen; empty: nothing."""
    lines = list(filter(is_text, lines))
    first = lines[0].lower() if lines else ""
    if first.startswith("version https://git-lfs.github.com/spec/"):
        return "is the pointer to a file of Git LFS, not the file: fetch it with `git lfs pull`"
    if re.match(r"<(!--|(!doctype|html|\?xml)\b)", first):
        return "is a web page or XML: take the sentences out of it, one a line"
    if len(lines) > 1 and all(re.match(r"\d+\t", line) for line in lines):
        return "has a number and a tab before every sentence: take them out (cut -f2 FILE)"
    if len(lines) > 1 and all(line[:1] == "[" and line[-1:] == "]" for line in lines) and _is_json(lines[0]):
        return "has a JSON list in every line: write a .csv with a header, or one sentence a line"
    return ""


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), list)
    except (ValueError, RecursionError):
        return False


def _is_header(line: str) -> bool:
    """Whether it names columns, in place of a sentence."""
    names = [name.strip(' "') for name in re.split(r"[,\t;]", line)]
    return len(names) > 1 and all(TEXT_NAME.fullmatch(name) or LABEL_NAME.fullmatch(name) for name in names)


def _matching(pattern: str, data_dir: Path) -> list[Path]:
    """The file of this name, else those that the pattern fits."""
    path = paths.expanded(pattern)
    if os.path.isfile(data_dir / path):
        return [data_dir / path]
    files = sorted(data_dir / name for name in glob(str(path), root_dir=data_dir, recursive=True)) if pattern else []
    if not files or not os.path.isfile(files[0]):
        shown = pattern if len(pattern) <= 200 else f"{pattern[:200]}..."
        raise DataError(
            f"corpus {shown!r}: no such file that can be read (data_dir is {data_dir}); give files or patterns relative to "
            "data_dir, an absolute path, or one of `demo`, `demo-triples`, `hub:<file>` alone."
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
    is_file = os.path.isfile(data_dir / paths.expanded(spec))
    if plus and task in (*STS_TASKS, "demo") and not is_file:
        return _add_sentences(load_corpus(base, data_dir, size=size, seed=seed), task, data_dir)
    if spec == "demo":
        corpus = Corpus("doc strings of the installed packages", [demo.docstring_sentences()["sentence"].tolist()])
    elif spec == "demo-triples":
        corpus = Corpus("demo triples", list(zip(*demo.triples(), strict=True)))
    elif spec.startswith("hub:"):
        corpus = _from_hub(spec.removeprefix("hub:"), data_dir)
    elif plus and not is_file and (base in ("demo", "demo-triples") or os.path.isfile(data_dir / paths.expanded(base))):
        raise DataError(f"corpus {spec!r}: STS task {task!r} is unknown: choose from {', '.join(STS_TASKS)}, demo.")
    else:
        patterns = [spec] if is_file else spec.split(",")
        files: dict[str, Path] = {}
        for file in (file for pattern in patterns for file in _matching(pattern.strip(), data_dir)):
            files.setdefault(os.path.realpath(file), file)  # each once
        corpus = _read(list(files.values()))
        _check_columns(corpus.name, ["sentences"], corpus.columns if corpus.kind == "sentences" else [])
    if not len(corpus):
        raise DataError(f"{corpus.name}: no sentence in it.")
    return corpus.sample(size, seed)
