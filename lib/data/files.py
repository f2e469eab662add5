"""Text files, read strictly: a missing, truncated or wrongly encoded file is named, with what to do."""

from __future__ import annotations

import gzip
import unicodedata
import zlib
from collections.abc import Callable, Iterator
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


def stream_lines(path: Path, *, encoding: str = "utf8") -> Iterator[str]:
    """Lines of a text file, or of its .gz form, without their line ends and a byte order mark, one at a time; only a line
    feed ends a line.

    Raises:
        DataError: missing, a truncated or damaged .gz, not in `encoding`, binary, or with carriage returns alone.
    """
    opener, number, line = gzip.open if path.suffix == ".gz" else open, 0, ""
    try:
        with opener(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                line = raw.decode(encoding).rstrip("\r\n")
                if number == 1:
                    line = line.removeprefix("\ufeff")  # spreadsheets and some editors write a byte order mark
                if "\x00" in line:
                    kind = "a NUL character; it is binary or UTF-16"
                    raise DataError(f"{path}, line {number}: {kind}: convert it to {encoding} text.")
                yield line
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: check data_dir, or run `python -m lib.data fetch`.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder where a text file is expected.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged after line {number} ({error}): fetch it again.") from error
    except UnicodeDecodeError as error:
        reason = f"line {number}, byte {error.start} cannot be read"
        raise DataError(
            f"{path} is not {encoding} text ({reason}): convert it to {encoding}, or fetch it again."
        ) from error
    if number == 1 and "\r" in line:
        raise DataError(f"{path}: its lines end with carriage returns alone: convert them to line feeds.")


def read_lines(path: Path, *, encoding: str = "utf8") -> list[str]:
    """All lines of `stream_lines`; raises what it raises."""
    return list(stream_lines(path, encoding=encoding))


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
