"""Vectors of a text file: one text a line in, one row a line out, with constant memory.

    python -m lib.encode texts.txt out.npy --model runs/small/simcse-0123456789ab
    python -m lib.encode texts.txt.gz out.parquet --model sentence-transformers/all-MiniLM-L6-v2 --max-length 128

NAME is the folder or the id of a run, the folder of an encoder or of a sum of encoders, or a model of the hub. The output is
float32 [lines, dimensions] (.npy), or a table with the columns text and embedding (.parquet).

A killed command goes on where it stopped when it is started again, and ends with the same file: blocks of lines are written
one by one, and a journal beside the output says which of them are there, and of which texts and which encoder. Another
text or another encoder starts anew. A file that this command did not write is never replaced.

Exit codes: 0 done, 2 something is wrong with what was given, 130 interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import Timeout

from lib import paths
from lib.checks import ConfigError, DataError, check_range
from lib.command import DONE, ended, say
from lib.data.files import is_text, stream_lines
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.pooling import POOLINGS
from lib.encoders.saved import write_json
from lib.progress import progress
from lib.runs import open_encoder

BLOCK = 2048  # lines that are embedded, written and noted in the journal at a time
FORMAT = 1  # part of what the journal says: raise it when the same texts give other rows
SUFFIXES = (".npy", ".parquet")
Encoder = SentenceEncoder | ensemble.EncoderSum


def scan(texts: Path) -> tuple[int, str]:
    """Number of lines, and SHA-256 of what they say (the same for the .gz form). Raises DataError as `stream_lines` does,
    or when there is no line, or one without a visible character."""
    digest, count = hashlib.sha256(), 0
    for count, line in enumerate(stream_lines(texts), start=1):
        if not is_text(line):
            raise DataError(f"{texts}, line {count} has no text: take it out, every line gets a vector.")
        digest.update(line.encode() + b"\n")
    if not count:
        raise DataError(f"{texts} is empty: write one text a line.")
    return count, digest.hexdigest()


class _Output:
    """The output, what is written of it so far, and the journal."""

    def __init__(self, path: Path) -> None:
        self.suffix = path.suffix  # that of a link says the form, not that of the place it leads to
        self.path = path = Path(os.path.realpath(path)) if path.is_symlink() else path
        self.partial = path.with_name(f".{path.name}.partial")  # rows in .npy form, whatever the output's form
        self.journal = path.with_name(f".{path.name}.journal")
        self.noted = self._noted()

    def _noted(self) -> dict[str, Any]:
        """What the journal says: `content`, what the rows are made from; `rows` that are written; `ours`, SHA-256 of an
        output that this command wrote -> its content."""
        if not self.journal.is_file():
            return {"content": {}, "rows": 0, "ours": {}}
        try:
            noted = json.loads(self.journal.read_text(encoding="utf8"))
            ours = {name: dict(content) for name, content in noted["ours"].items()}
            return {"content": dict(noted["content"]), "rows": int(noted["rows"]), "ours": ours}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise DataError(
                f"{self.journal} is damaged: delete it and {self.partial.name}, then start again."
            ) from error

    def note(self, **changes: Any) -> None:
        """The journal with these changes, whole or not at all."""
        self.noted |= changes
        with paths.whole_file(self.journal) as new:
            write_json(new, self.noted)

    def present(self) -> dict[str, Any]:
        """What the output that is there already was made from; {} where there is none.

        Raises:
            DataError: something is there that this command did not write.
        """
        if self.path.is_dir():
            raise DataError(f"{self.path} is a folder: give a file for the vectors.")
        content = self.noted["ours"].get(paths.sha256(self.path)) if self.path.exists() else {}
        if content is None:
            raise DataError(
                f"{self.path} is there and is not what this command wrote: move it away or choose another name."
            )
        return content

    def begin(self, content: dict[str, Any]) -> int:
        """Room for all rows; how many of them are there from an earlier start."""
        shape = (content["lines"], content["dimensions"])
        is_same = self.noted["content"] == content and self.partial.is_file() and self._shape() == shape
        if is_same and 0 <= self.noted["rows"] <= shape[0]:
            return self.noted["rows"]
        self.note(content=content, rows=0)
        np.lib.format.open_memmap(self.partial, mode="w+", dtype=np.float32, shape=shape).flush()
        if hasattr(os, "posix_fallocate"):  # a full disk is an error now, and no crash of a mapped file later
            try:
                with open(self.partial, "r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, os.path.getsize(self.partial))
            except OSError as error:
                self.partial.unlink()
                raise DataError(f"{self.partial.parent} has no room for the vectors ({error.strerror}).") from error
        return 0

    def _shape(self) -> tuple[int, ...]:
        try:
            return np.lib.format.open_memmap(self.partial, mode="r").shape
        except ValueError:  # cut off in its first line
            return ()

    def write(self, start: int, vectors: np.ndarray) -> None:
        """Rows from `start` on: on the disk first, then in the journal. Mapped for this block alone, so that memory does
        not grow with what was written."""
        rows = np.lib.format.open_memmap(self.partial, mode="r+")
        rows[start : start + len(vectors)] = vectors
        rows.flush()
        del rows
        self.note(rows=start + len(vectors))

    def finish(self, texts: Path) -> None:
        """The rows in the form that the output's name asks for, in its place."""
        self.present()
        if self.suffix == ".npy":
            self._replace(self.partial)
        else:
            with paths.whole_file(self.path.with_name(f".{self.path.name}.whole")) as new:
                _write_parquet(new, texts, self.partial)
            self._replace(self.path.with_name(f".{self.path.name}.whole"))
            self.partial.unlink()
        self.note(
            ours={name: content for name, content in self.noted["ours"].items() if content == self.noted["content"]}
        )

    def _replace(self, whole: Path) -> None:
        """Give a file the output's name; the journal knows it before, so that a kill in between leaves it our own."""
        self.note(ours=self.noted["ours"] | {paths.sha256(whole): self.noted["content"]})
        os.replace(whole, self.path)


def _write_parquet(target: Path, texts: Path, rows: Path) -> None:
    dimensions = np.lib.format.open_memmap(rows, mode="r").shape[1]
    kind = pa.list_(pa.float32(), dimensions)
    schema = pa.schema([("text", pa.string()), ("embedding", kind)])
    with open(target, "wb") as file, pq.ParquetWriter(file, schema) as writer:  # a name need not be text
        for start, lines in _blocks(texts):
            vectors = np.lib.format.open_memmap(rows, mode="r")[start : start + len(lines)]
            embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=kind)
            writer.write_table(pa.table([pa.array(lines), embedding], schema=schema))


def _blocks(texts: Path, start: int = 0) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line from 0, lines) of the blocks from the line `start` on."""
    lines = islice(stream_lines(texts), start, None)
    while block := list(islice(lines, BLOCK)):
        yield start, block
        start += len(block)


@contextmanager
def _alone(output: _Output) -> Iterator[None]:
    """Nobody else writes this output. Raises DataError when somebody does."""
    try:
        with paths.locked(output.path, timeout=0):
            yield
    except Timeout:
        raise DataError(f"another process is writing {output.path}: wait for it, or choose another name.") from None


def encode_file(
    texts: Path,
    target: Path,
    encoder: Encoder,
    *,
    batch_tokens: int | None = None,
    counted: tuple[int, str] | None = None,
) -> int:
    """Write the vectors of a text file to `target`; how many rows were computed now.

    Args:
        batch_tokens: as in SentenceEncoder.encode; a start that goes on may have another one, vectors then differ by
            floating-point noise (about 1e-6) from those of one start.
        counted: what `scan` gave.

    Raises:
        DataError: a text is empty or unreadable, the target is somebody else's file, or the texts change meanwhile.
    """
    output = _Output(target)
    with _alone(output):
        present = output.present()
        lines, digest = counted or scan(texts)
        content = {"lines": lines, "dimensions": encoder.dimension, "texts": digest, "encoder": encoder.fingerprint()}
        content["format"] = FORMAT
        if present == content:
            return 0
        if (before := output.noted["content"] or present) and before != content:
            others = {"texts": "other texts", "encoder": "another encoder"}
            changed = [said for name, said in others.items() if before.get(name) != content[name]] or ["an older form"]
            say(f"{target} was written from {' and '.join(changed)}: starting anew.")
        done = output.begin(content)
        if done:
            say(f"{target}: {done:,} of {lines:,} lines are there, going on.")
        _encode_rest(texts, output, encoder, done, lines, batch_tokens)
        if scan(texts) != (lines, digest):
            raise DataError(f"{texts} changed while it was read: start again.")
        output.finish(texts)
        return lines - done


def _encode_rest(
    texts: Path, output: _Output, encoder: Encoder, done: int, lines: int, batch_tokens: int | None
) -> None:
    start, members = time.monotonic(), len(ensemble.parts(encoder))
    bar = progress(total=lines, label="encode", initial=done)
    for first, block in _blocks(texts, done):
        share = 0.0

        def advance(part: float, first: int = first, size: int = len(block)) -> None:
            nonlocal share
            share += part / members
            reached = min(first + int(share * size), first + size)
            if reached > bar.n:
                bar.update(reached - bar.n, **{"lines/s": (reached - done) / (time.monotonic() - start)})

        vectors = encoder.encode(block, batch_tokens=batch_tokens, on_share=advance)
        output.write(first, vectors)
    bar.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m lib.encode", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("texts", type=Path, help="UTF-8, one text a line; also as .gz")
    parser.add_argument("output", type=Path, help="a file that ends with .npy or .parquet")
    parser.add_argument("--model", required=True, metavar="NAME", help="run, folder, ensemble, hub name, or demo")
    parser.add_argument(
        "--pooling", choices=POOLINGS, help="default: the one that the encoder was saved with, else cls"
    )
    parser.add_argument("--max-length", type=int, help="tokens; longer texts are cut; default: the encoder's")
    parser.add_argument("--batch-tokens", type=int, help="tokens of a batch, with padding; default: by device")
    return parser


def _run(args: argparse.Namespace) -> int:
    texts, target = paths.expanded(args.texts), paths.expanded(args.output)
    if target.suffix not in SUFFIXES:
        raise ConfigError(f"{target} ends with {target.suffix or 'nothing'}: choose {' or '.join(SUFFIXES)}.")
    if not texts.is_file():
        raise DataError(f"{texts} is no file: give a text file with one text a line.")
    place = _Output(paths.check_no_run_around(target)).path.parent
    if not place.is_dir():
        raise DataError(f"{place} is no folder: make it first, or choose another place for {target.name}.")
    if not os.access(place, os.W_OK):
        raise DataError(f"{place} cannot be written: choose another place for {target.name}.")
    if args.batch_tokens is not None:
        check_range("--batch-tokens", args.batch_tokens, 1)
    if args.max_length is not None:
        check_range("--max-length", args.max_length, 3)  # the special tokens, and one of the text
    _Output(target).present()
    counted = scan(texts)
    called, encoder = open_encoder(args.model, pooling=args.pooling, max_length=args.max_length)
    start = time.monotonic()
    computed = encode_file(texts, target, encoder, batch_tokens=args.batch_tokens, counted=counted)
    shape = f"{counted[0]:,} lines of {encoder.dimension} dimensions by {called}"
    pace = f"{computed / max(time.monotonic() - start, 1e-9):,.0f} lines/s" if computed else "nothing was left to do"
    print(f"{target}: {shape}; {pace}.")
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    args = _parser().parse_args(argv)
    return ended(lambda: _run(args))


if __name__ == "__main__":
    sys.exit(main())
