"""Text files, read strictly: a missing, truncated or wrongly encoded file is named, with what to do."""

from __future__ import annotations

import gzip
import unicodedata
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lib import paths
from lib.checks import DataError

FETCH_AGAIN = "delete it (for SentEval, the folder senteval/downstream) and run `python -m lib.data fetch`."


@cache
def manifest() -> dict[str, Any]:
    """Expected counts and hub names (lib/data/manifest.yaml)."""
    return yaml.safe_load(Path(__file__).with_name("manifest.yaml").read_text(encoding="utf8"))


def read_lines(path: Path, *, encoding: str = "utf8") -> list[str]:
    """Lines of a text file, or of its .gz form, without their line ends and a byte order mark; only a line feed ends a
    line.

    Raises:
        DataError: missing, a truncated or damaged .gz, not in `encoding`, binary, or with carriage returns alone.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding=encoding, newline="\n") as file:
            lines = [line.rstrip("\r\n") for line in file]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: check data_dir, or run `python -m lib.data fetch`.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder where a text file is expected.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): fetch it again.") from error
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} cannot be read"
        raise DataError(
            f"{path} is not {encoding} text ({reason}): convert it to {encoding}, or fetch it again."
        ) from error
    if lines:
        lines[0] = lines[0].removeprefix("\ufeff")  # spreadsheets and some editors write a byte order mark
    if binary := next((number for number, line in enumerate(lines, start=1) if "\x00" in line), 0):
        raise DataError(
            f"{path}, line {binary}: a NUL character; it is binary or UTF-16: convert it to {encoding} text."
        )
    if len(lines) == 1 and "\r" in lines[0]:
        raise DataError(f"{path}: its lines end with carriage returns alone: convert them to line feeds.")
    return lines


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
    try:
        return paths.made_once(path, make, folder=folder)
    except OSError as error:
        raise DataError(f"the cache {path.parent} cannot be written ({error}): set CSE_CACHE.") from error
