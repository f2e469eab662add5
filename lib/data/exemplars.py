"""3R's frequent words and its pool of sentences made of them (Section 3.1 of the paper)."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence

from lib import paths
from lib.checks import DataError
from lib.data.files import is_text, read_lines, read_table

FOLDER = paths.root() / "lib" / "assets" / "redundancy"
PUNCTUATION = string.punctuation + "“”‘’«»–—…"
AT_LEAST, LONGEST = 2, 32  # uses of each word in a pool; words of a sentence


def words_of(sentence: str) -> list[str]:
    """What white space separates, without punctuation at its ends; case counts (York, King)."""
    return [word for word in (part.strip(PUNCTUATION) for part in sentence.split()) if word]


def load_words(file: str = "") -> tuple[str, ...]:
    """The frequent words of a table word,count; empty: the shipped 300.

    Raises:
        DataError: missing, or another header.
    """
    path = paths.expanded(file) if file else FOLDER / "words.csv"
    header, *rows = [row for _, row in read_table(path)] or [[]]
    if header != ["word", "count"] or not rows or not all(len(row) == 2 and row[0].strip() for row in rows):
        raise DataError(f"{path}: expected a table word,count with a header and at least one row.")
    return tuple(word.strip() for word, _ in rows)


def load_pool(file: str = "") -> tuple[str, ...]:
    """The sentences of a pool, one a line; empty: the shipped 64.

    Raises:
        DataError: missing, without a sentence, or with one of more than LONGEST words.
    """
    path = paths.expanded(file) if file else FOLDER / "pool.txt"
    lines = {number: line.strip() for number, line in enumerate(read_lines(path), start=1) if is_text(line)}
    if not lines:
        raise DataError(f"{path} holds no sentence.")
    for number, line in lines.items():
        if (words := len(line.split())) > LONGEST:
            raise DataError(f"{path}, line {number}: {words} words, a pool's sentences have at most {LONGEST}.")
    return tuple(lines.values())


def pool_faults(pool: Sequence[str], words: Sequence[str]) -> list[str]:
    """What keeps sentences from being a pool of these words, a sentence each; none: nothing."""
    uses = Counter(word for sentence in pool for word in words_of(sentence))
    rare = [f"{word} ({uses[word]})" for word in words if uses[word] < AT_LEAST]
    faults = []
    if rare:
        faults.append(f"{len(rare)} of {len(words)} words occur fewer than {AT_LEAST} times: {', '.join(rare[:20])}")
    if doubled := [text for text, count in Counter(pool).items() if count > 1]:
        faults.append(f"{len(doubled)} sentences come twice, the first is {doubled[0]!r}")
    return faults
