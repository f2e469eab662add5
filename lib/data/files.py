"""Text files, read strictly: a missing, truncated or wrongly encoded file is named, with what to do."""

from __future__ import annotations

import csv
import gzip
import io
import unicodedata
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lib import paths
from lib.checks import DataError, refusal

FETCH_AGAIN = "delete it (for SentEval, the folder senteval/downstream) and run `python -m lib.data fetch`."


@cache
def manifest() -> dict[str, Any]:
    """Expected counts and hub names (lib/data/manifest.yaml)."""
    return yaml.safe_load(Path(__file__).with_name("manifest.yaml").read_text(encoding="utf8"))


def read_lines(path: Path, *, encoding: str = "utf8") -> list[str]:
    """Lines of a text file, or of its .gz form, without line ends and byte order mark; only a line feed ends a line.

    Raises:
        DataError: missing, unreadable, a folder or a pipe, a truncated .gz, binary, not in `encoding` (or Latin-1 that was
            converted to UTF-8), or with carriage returns alone.
    """
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is a folder, a pipe or a device where a text file is expected.")
        with opener(path, "rb") as file:
            content = file.read()
        text = content.decode(encoding).removeprefix("\ufeff")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: check data_dir, or run `python -m lib.data fetch`.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): fetch it again.") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path} is not {encoding} text (see line {line}): convert it to {encoding}, or fetch it again."
        ) from error
    except OSError as error:
        raise DataError(refusal(error)) from error
    if encoding == "latin-1" and not content.isascii():
        with suppress(UnicodeDecodeError):
            content.decode("utf8")
            raise DataError(f"{path} was converted to UTF-8, and is distributed as Latin-1: {FETCH_AGAIN}")
    if "\x00" in text:
        raise DataError(f"{path} is binary or UTF-16 (it has a NUL character): convert it to {encoding} text.")
    if text.count("\r") > text.count("\n"):
        raise DataError(f"{path}: its lines end with carriage returns alone: convert them to line feeds.")
    lines = [line.rstrip("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def suffixes(path: Path) -> set[str]:
    """The endings of a file's name, in lower case."""
    return {suffix.lower() for suffix in path.suffixes}


def read_table(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a .csv or .tsv file (also as .gz) that are not empty: number of the line where each ends, and cells.

    Raises:
        DataError: see `read_lines`; a quote sign that is left open or stands inside a cell.
    """
    text = io.StringIO("\n".join(read_lines(path)))
    reader = csv.reader(text, delimiter="\t" if ".tsv" in suffixes(path) else ",", strict=True)
    try:
        return [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise DataError(
            f"{path}, near line {reader.line_num}: {error}; is a quote sign left open? A cell with quote signs stands in "
            "quote signs itself, each of its own doubled."
        ) from error


def expect_count(path: Path, count: int, expected: int | None, what: str = "lines") -> None:
    """Raise DataError, with both counts, when a file of the manifest (`expected` is not None) is not whole."""
    if expected not in (count, None):
        counts = f"expected {expected:,} {what}, found {count:,}"
        raise DataError(f"{path}: {counts}. The file is truncated or another version: {FETCH_AGAIN}")


def read_counted(path: Path, expected: int | None, *, encoding: str = "utf8", header: int = 0) -> list[str]:
    """`read_lines` without the lines of the header, as many as expected, else DataError."""
    lines = read_lines(path, encoding=encoding)[header:]
    expect_count(path, len(lines), expected, "lines after the header" if header else "lines")
    return lines


def single_spaced(text: str) -> str:
    return " ".join(text.split())


def is_text(text: str) -> bool:
    """Whether there is anything to read: a character that is no space, control or zero-width one."""
    return any(unicodedata.category(character)[0] not in "ZC" for character in text)


def cached(path: Path, make: Callable[[Path], object], *, folder: bool = False) -> Path:
    """`paths.made_once` for a path in the cache; DataError when the cache cannot be written."""
    if not path.exists():
        try:
            paths.check_writable(path.parent)
        except DataError as error:
            reason = str(error).rstrip(".")
            raise DataError(f"the cache {path.parent} cannot be written ({reason}): set CSE_CACHE.") from error
    return paths.made_once(path, make, folder=folder)
