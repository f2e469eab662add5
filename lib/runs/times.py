"""What work took on this machine: seconds per unit of each kind, kept in the store and read by the next plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from lib import paths
from lib.encoders.saved import write_json

SPENT = "spent"  # all seconds that were ever remembered: what a notebook took beside them is the rest of its time


def _file() -> Path:
    return paths.runs() / "times.json"


def read() -> dict[str, float]:
    """kind -> seconds per unit, as the last work of that kind took; empty where the file is missing or damaged."""
    try:
        return {str(kind): float(seconds) for kind, seconds in json.loads(_file().read_text(encoding="utf8")).items()}
    except (OSError, ValueError, AttributeError, TypeError):  # only an estimate depends on it
        return {}


@contextmanager
def _changed() -> Iterator[dict[str, float]]:
    _file().parent.mkdir(parents=True, exist_ok=True)
    with FileLock(_file().with_name(".times.lock")):
        known = read()
        yield known
        with paths.whole_file(_file()) as new:
            write_json(new, known)


def remember(kind: str, seconds: float, units: float = 1, *, spent: bool = True) -> None:
    """`units` of this kind took `seconds`.

    Args:
        spent: count the seconds as work of a notebook (not so for a calibration).
    """
    if units <= 0:
        return
    with _changed() as known:
        known[kind] = float(f"{seconds / units:.4g}")
        known[SPENT] = round(known.get(SPENT, 0.0) + seconds * spent, 3)
