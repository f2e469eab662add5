"""Text files, read strictly: a missing, truncated or wrongly encoded file is named, with what to do."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lib.checks import DataError, refusal

FETCH_AGAIN = "delete it (for SentEval, the folder senteval/downstream) and run `python -m lib.data fetch`."
QUOTED = re.compile(r'"((?:[^"]|"")*)"')  # a whole cell of a .tsv file


@cache
def manifest() -> dict[str, Any]:
    """Expected counts and hub names (lib/data/manifest.yaml)."""
    return yaml.safe_load(Path(__file__).with_name("manifest.yaml").read_text(encoding="utf8"))


def read_lines(path: Path, expected: int | None = None, *, encoding: str = "utf8", header: int = 0) -> list[str]:
    """Lines of a text file, or of its .gz form, without byte order mark; only a line feed ends a line.

    expected: how many there are after the `header` lines, which are left out; None: any number.

    Raises:
        DataError: missing, unreadable, a truncated .gz, in another encoding, or of another length.
    """
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as file:
            content = file.read()
        text = content.decode(encoding).removeprefix("\ufeff")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: check data_dir, or run `python -m lib.data fetch`.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): fetch it again.") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path} is not {encoding} text (see line {line}): convert it, or fetch it again.") from error
    except OSError as error:
        raise DataError(refusal(error)) from error
    if encoding == "latin-1" and not content.isascii():
        with suppress(UnicodeDecodeError):
            content.decode("utf8")
            raise DataError(f"{path} was converted to UTF-8, and is distributed as Latin-1: {FETCH_AGAIN}")
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    expect_count(path, len(lines) - header, expected, "lines after the header" if header else "lines")
    return lines[header:]


def expect_count(path: Path, count: int, expected: int | None, what: str = "lines") -> None:
    """Raise DataError, with both counts, when a file of the manifest (`expected` is not None) is not whole."""
    if expected not in (count, None):
        counts = f"expected {expected:,} {what}, found {max(count, 0):,}"
        raise DataError(f"{path}: {counts}. The file is truncated or another version: {FETCH_AGAIN}")


def read_pattern(path: Path, expected: int, pattern: str, **options: Any) -> list[re.Match[str]]:
    """The lines of a file of SentEval, each a match of the pattern; `expected` and options as in `read_lines`.

    Raises:
        DataError: as `read_lines`, or for the first line that is no match.
    """
    lines = read_lines(path, expected, **options)
    rows = [re.fullmatch(pattern, line) for line in lines]
    if None in rows:
        bad = rows.index(None)
        number = bad + 1 + options.get("header", 0)
        raise DataError(f"{path}, line {number}, is not in SentEval's format ({lines[bad][:60]!r}): {FETCH_AGAIN}")
    return rows


def suffixes(path: Path) -> set[str]:
    """The endings of a file's name, in lower case."""
    return {suffix.lower() for suffix in path.suffixes}


def read_table(path: Path, header: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
    """Names and rows of a .csv or .tsv file with a header (also as .gz); empty lines are left out. In a .tsv file a line is a
    row, and quote signs are text, as in the files of GLUE, unless all cells that begin with one are quoted as a whole.

    header: what it must be; empty: any.

    Raises:
        DataError: see `read_lines`; another header or none, a row of another length, or, in a .csv file, a quote sign that
            is left open or stands inside a cell.
    """
    lines = read_lines(path)
    if ".tsv" in suffixes(path):
        rows = [(number, line.split("\t")) for number, line in enumerate(lines, 1) if line]
        if all(QUOTED.fullmatch(cell) for _, row in rows for cell in row if cell.startswith('"')):
            rows = [(number, [*map(_unquoted, row)]) for number, row in rows]
    else:
        reader = csv.reader(io.StringIO("\n".join(lines)), strict=True)
        try:
            rows = [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:
            raise DataError(f"{path}, near line {reader.line_num}: {error}; is a quote sign left open?") from error
    if not rows:
        raise DataError(f"{path} is empty.")
    (_, first), *rows = rows
    names = [name.strip() for name in first]
    if header and names != list(header):
        raise DataError(f"{path}, line 1: the header must be {', '.join(header)}; got {', '.join(names)}.")
    for line, row in rows:
        if len(row) != len(names):
            raise DataError(f"{path}, line {line}: {len(row)} columns where the header has {len(names)}.")
    return names, [row for _, row in rows]


def _unquoted(cell: str) -> str:
    quoted = QUOTED.fullmatch(cell)
    return quoted[1].replace('""', '"') if quoted else cell


def single_spaced(text: str) -> str:
    """`text` with one space wherever it has white space, and none at its ends."""
    return " ".join(text.split())
