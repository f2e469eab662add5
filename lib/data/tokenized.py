"""A corpus tokenised once into a flat array on disk, keyed by content, tokenizer and length."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib import paths
from lib.data.corpus import Corpus
from lib.data.errors import DataError
from lib.progress import progress

FORMAT = 1
CHUNK = 20_000


@dataclass(frozen=True)
class TokenizedCorpus:
    """Token ids of n rows x S columns.

    ids: int32 [total], all rows one after the other, column by column inside a row.
    offsets: int64 [n * S + 1], where each sentence starts.
    extra: further columns [n, ...] that batches carry along.
    """

    ids: np.ndarray
    offsets: np.ndarray
    columns: int
    pad_id: int
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // self.columns

    def lengths(self) -> np.ndarray:
        """Tokens per sentence, int64 [n, S]."""
        return np.diff(self.offsets).reshape(-1, self.columns)

    def batch(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Rows -> input_ids, attention_mask, each int64 [N, S, L], padded to the longest of the batch, and `extra`."""
        sentences = (np.asarray(rows)[:, None] * self.columns + np.arange(self.columns)).ravel()
        starts, ends = self.offsets[sentences], self.offsets[sentences + 1]
        lengths = ends - starts
        position = np.arange(lengths.max())
        mask = position < lengths[:, None]
        flat = np.where(mask, starts[:, None] + position, 0)
        input_ids = np.where(mask, self.ids[flat], self.pad_id).astype(np.int64)
        shape = (len(rows), self.columns, -1)
        return {
            "input_ids": torch.from_numpy(input_ids).view(shape),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)).view(shape),
        } | {name: torch.from_numpy(np.asarray(values[rows])) for name, values in self.extra.items()}


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """SHA-256 of a fast tokenizer's rules and vocabulary, its padding and truncation state left out."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state.pop("truncation", None)
    state.pop("padding", None)
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def tokenize_corpus(
    corpus: Corpus, encoder: Any, *, max_length: int, split: bool = False, show_progress: bool = False
) -> TokenizedCorpus:
    """Tokenise with `encoder.tokenize`, or take the array that an earlier run left in the cache.

    Args:
        encoder: a SentenceEncoder (its tokenizer, and its prompt if its pooling has one).
        max_length: longest input in tokens, special tokens included.
        split: the rest of a longer text goes on in further rows (plain sentences only) instead of being cut off.

    Raises:
        DataError: the cache cannot be written.
    """
    key = hashlib.sha256(
        json.dumps(
            [FORMAT, corpus.fingerprint(), tokenizer_fingerprint(encoder.tokenizer), max_length]
            + ([encoder.pooling] if encoder.pooling == "mask_prompt" else [])
            + (["split"] if split else [])
        ).encode()
    ).hexdigest()[:24]
    folder = paths.cache() / "tokens" / key
    if not folder.is_dir():
        _write(folder, corpus, encoder, max_length, split, show_progress)
    ids = np.load(folder / "ids.npy", mmap_mode="r", allow_pickle=False)
    offsets = np.load(folder / "offsets.npy", allow_pickle=False)
    expected = len(corpus) * len(corpus.columns) + 1
    if (len(offsets) < expected if split else len(offsets) != expected) or offsets[-1] != len(ids):
        raise DataError(f"{folder} is damaged: delete it, it will be made again.")
    return TokenizedCorpus(ids, offsets, len(corpus.columns), encoder.tokenizer.pad_token_id)


def _write(folder: Path, corpus: Corpus, encoder: Any, max_length: int, split: bool, show_progress: bool) -> None:
    parts, lengths = [], []
    bar = progress(total=len(corpus), label="tokenise", enabled=show_progress)
    for start in range(0, len(corpus), CHUNK):
        chunk = [column[start : start + CHUNK] for column in corpus.columns]
        rows = [sentence for row in zip(*chunk, strict=True) for sentence in row]
        tokens = encoder.tokenize(rows, max_length, split=split)
        lengths.append(np.fromiter((len(x) for x in tokens), dtype=np.int64, count=len(tokens)))
        parts.append(np.fromiter((i for x in tokens for i in x), dtype=np.int32, count=int(lengths[-1].sum())))
        bar.update(len(chunk[0]))
    bar.close()
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".partial-"))
        np.save(temporary / "ids.npy", np.concatenate(parts))
        np.save(temporary / "offsets.npy", offsets)
        try:
            os.replace(temporary, folder)
        except OSError:  # another process was first; its array is the same
            shutil.rmtree(temporary, ignore_errors=True)
            if not folder.is_dir():
                raise
    except OSError as error:
        raise DataError(f"the token cache {folder.parent} cannot be written ({error}): set CSE_CACHE.") from error
