"""Text files, read strictly: a missing, truncated or wrongly encoded file is named, with what to do."""

from __future__ import annotations

import gzip
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lib.data.errors import DataError


@cache
def manifest() -> dict[str, Any]:
    """Expected counts and hub names (lib/data/manifest.yaml)."""
    return yaml.safe_load(Path(__file__).with_name("manifest.yaml").read_text(encoding="utf8"))


def read_lines(path: Path, *, encoding: str = "utf8") -> list[str]:
    """Lines of a .txt/.csv/.tsv file, or of its .gz form, without their line ends.

    Raises:
        DataError: missing, a truncated or damaged .gz, or not in `encoding`.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding=encoding, newline="\n") as file:
            return [line.rstrip("\r\n") for line in file]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: check data_dir and the file name.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder where a text file is expected.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): fetch it again.") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not {encoding} text (byte {error.start} cannot be read): convert the file to {encoding}."
        ) from error


def expect_count(path: Path, found: int, expected: int, what: str = "lines") -> None:
    """Stop when a file of the manifest is not whole.

    Raises:
        DataError: names the file, the expected and the found count.
    """
    if found != expected:
        raise DataError(
            f"{path}: expected {expected:,} {what}, found {found:,}; the file is truncated or another version, "
            "fetch it again with `python -m lib.data fetch`."
        )
