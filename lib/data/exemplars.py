"""3R's frequent words and its pool of sentences made of them (Section 3.1 of the paper)."""

from pathlib import Path

from lib import paths
from lib.checks import DataError
from lib.data.files import read_lines, read_table

FOLDER = paths.root() / "lib" / "assets" / "redundancy"


def load_words(file: str = "") -> tuple[str, ...]:
    """The frequent words of a table word,count; empty: the shipped 300. DataError: missing, empty, another header."""
    path = Path(file).expanduser() if file else FOLDER / "words.csv"
    _, rows = read_table(path, ["word", "count"])
    if not rows:
        raise DataError(f"{path} holds no word.")
    return tuple(word.strip() for word, _ in rows)


def load_pool(file: str = "") -> tuple[str, ...]:
    """The sentences of a pool, one a line; empty: the shipped 64. DataError: missing, or empty."""
    path = Path(file).expanduser() if file else FOLDER / "pool.txt"
    return tuple(filter(None, map(str.strip, read_lines(path))))
