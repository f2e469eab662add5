"""Texts with a label each, for clustering (MSSE, Figure 4) and for classification as in MTEB (Figure 5)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.checks import DataError
from lib.data import demo
from lib.data.files import expect_count, manifest, read_lines, read_table, suffixes

SETS = ("demo", *manifest()["labelled"])


@dataclass(frozen=True)
class LabelledTexts:
    """n texts and the label of each, in file order."""

    name: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def fingerprint(self) -> str:
        """SHA-256 over texts and labels."""
        return hashlib.sha256(repr((self.texts, self.labels)).encode("utf8", "surrogatepass")).hexdigest()


def load_labelled(data_dir: Path | str, name: str, split: str = "test") -> LabelledTexts:
    """Texts and labels by name.

    Args:
        name: one of SETS (`demo`: 600 titles on 20 topics, written for this project), or a .csv or .tsv file with the
            header text, label, relative to data_dir or absolute.
        split: `train` or `test`, of the sets that have both.

    Raises:
        DataError: unknown, missing, truncated, in another format, or with one label alone.
    """
    known = manifest()["labelled"].get(name)
    if known:
        if split not in known["splits"]:
            raise DataError(f"{name} has no split {split!r}: there are {', '.join(known['splits'])}.")
        files, expected = [Path(data_dir) / file for file in known["splits"][split]], known["rows"][split]
        if len(files) == 2:
            texts, labels = (read_lines(file, expected) for file in files)
        else:
            texts, labels = _columns(files[0], known["header"], expected)
    elif name == "demo" or {".csv", ".tsv"} & suffixes(Path(name)):
        file = demo.ASSETS / "topics.csv" if name == "demo" else Path(data_dir) / Path(name).expanduser()
        texts, labels = _columns(file, ["text", "label"])
    else:
        raise DataError(
            f"no texts with labels are called {name!r}: choose from {', '.join(SETS)}, or give a .csv or .tsv file."
        )
    if len(set(labels)) < 2:
        raise DataError(f"{name}: {len(texts)} texts with one label: there is nothing to tell apart.")
    return LabelledTexts(Path(name).stem, tuple(texts), tuple(labels))


def _columns(path: Path, header: Sequence[str], expected: int | None = None) -> tuple[list[str], list[str]]:
    _, rows = read_table(path, header)
    expect_count(path, len(rows), expected, "rows")
    if empty := [row for row in rows if not all(map(str.strip, row))]:
        raise DataError(f"{path}: {len(empty)} rows without a text or a label, the first is {empty[0]}.")
    return [text for text, _ in rows], [label.strip() for _, label in rows]
