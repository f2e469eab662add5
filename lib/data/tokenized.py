"""A corpus tokenised once into a flat array on disk, keyed by content, tokenizer and length."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lib import paths
from lib.checks import DataError, remark
from lib.data.corpus import Corpus
from lib.progress import progress

FORMAT = 2
CHUNK = 20_000
SOME_UNKNOWN, MOST_UNKNOWN = 0.05, 0.8  # shares of the tokens


@dataclass(frozen=True, eq=False)
class Batch:
    """N rows of a corpus with S roles, padded to the longest sentence: ids and mask int64 [N, S, L]; extra: [N, ...]."""

    input_ids: Tensor
    attention_mask: Tensor
    roles: tuple[str, ...]
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.input_ids)

    def column(self, role: str) -> tuple[Tensor, Tensor]:
        """input_ids and attention_mask of one role, each [N, L]; ValueError when the batch has no such role."""
        column = self.roles.index(role)
        return self.input_ids[:, column], self.attention_mask[:, column]

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        extra = {name: values.to(device) for name, values in self.extra.items()}
        return Batch(self.input_ids.to(device), self.attention_mask.to(device), self.roles, extra)


@dataclass(frozen=True)
class TokenizedCorpus:
    """Token ids of n rows with S columns.

    ids: int32 [total], all rows one after the other, column by column inside a row. offsets: int64 [n * S + 1], where
    each sentence starts. extra: further columns [n, ...] that batches carry along.
    """

    ids: np.ndarray
    offsets: np.ndarray
    roles: tuple[str, ...]
    pad_id: int
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // len(self.roles)

    def lengths(self) -> np.ndarray:
        """Tokens per sentence, int64 [n, S]."""
        return np.diff(self.offsets).reshape(-1, len(self.roles))

    def batch(self, rows: np.ndarray) -> Batch:
        """The rows of these N numbers, on the CPU, padded to the longest of them."""
        columns = len(self.roles)
        sentences = (np.asarray(rows)[:, None] * columns + np.arange(columns)).ravel()
        starts, ends = self.offsets[sentences], self.offsets[sentences + 1]
        places = starts[:, None] + np.arange((ends - starts).max())
        mask = places < ends[:, None]
        input_ids = np.where(mask, self.ids[np.where(mask, places, 0)], self.pad_id)
        input_ids, mask = (torch.from_numpy(x.astype(np.int64)).view(len(rows), columns, -1) for x in (input_ids, mask))
        extra = {name: torch.from_numpy(np.asarray(values[rows])) for name, values in self.extra.items()}
        return Batch(input_ids, mask, self.roles, extra)


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """SHA-256 of a fast tokenizer's rules and vocabulary, its padding and truncation state left out."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    rules = {name: value for name, value in state.items() if name not in ("truncation", "padding")}
    return paths.digest(rules)


def check_words(encoder: Any, ids: Sequence[Sequence[int]], texts: int, what: str) -> None:
    """Look at how many words the tokenizer does not know, which all are one and the same to the encoder: remark on more than
    SOME_UNKNOWN of them.

    ids: the tokens of that many texts, one or many in a part, special tokens included. what: whose texts they are.

    Raises:
        DataError: more than MOST_UNKNOWN.
    """
    unknown = sum(np.count_nonzero(np.asarray(part) == encoder.tokenizer.unk_token_id) for part in ids)
    special = texts * len(encoder.tokenize([""])[0])  # [CLS], [SEP] and a prompt
    share = unknown and unknown / max(1, sum(map(len, ids)) - special)
    advice = "take a backbone made for this language or script"
    if share > MOST_UNKNOWN:
        raise DataError(f"{what}: {share:.0%} of the tokens are unknown to the tokenizer of the backbone; {advice}.")
    if share > SOME_UNKNOWN:
        remark(
            f"{what}: {share:.0%} of the tokens are unknown to the tokenizer, which reads all of them as one; {advice}."
        )


def tokenize_corpus(corpus: Corpus, encoder: Any, *, max_length: int, split: bool = False) -> TokenizedCorpus:
    """Tokenise with `encoder.tokenize`, or take the array that an earlier run left in the cache.

    Args:
        max_length: longest input in tokens, special tokens included.
        split: the rest of a longer text goes on in further rows instead of being cut off; for plain sentences only.

    Raises:
        DataError: the cache cannot be written, `split` is asked for with more than plain sentences, or most of the text
            is unknown to the tokenizer.
    """
    if split and corpus.kind != "sentences":
        raise DataError(f"only plain sentences can be split into further rows; {corpus.name!r} holds {corpus.kind}.")
    prompted = encoder.pooling == "mask_prompt"  # with a template, whose texts end where the backbone's positions do
    prompted = prompted and len(encoder.tokenize(["a " * max_length], max_length)[0])
    content = [FORMAT, corpus.fingerprint(), tokenizer_fingerprint(encoder.tokenizer), max_length, prompted, split]
    key = paths.digest(content)[:24]

    def write(folder: Path) -> None:
        parts, lengths = [], []
        with progress(total=len(corpus), label="tokenise") as bar:
            for start in range(0, len(corpus), CHUNK):
                chunk = [column[start : start + CHUNK] for column in corpus.columns]
                sentences = [sentence for row in zip(*chunk, strict=True) for sentence in row]
                tokens = encoder.tokenize(sentences, max_length, split=split)
                lengths += map(len, tokens)
                parts.append(np.fromiter(itertools.chain.from_iterable(tokens), dtype=np.int32))
                bar.update(len(chunk[0]))
        _save(folder / "ids.npy", np.concatenate(parts))
        _save(folder / "offsets.npy", np.cumsum([0, *lengths]))

    folder = paths.made_once(paths.cache() / "tokens" / key, write, folder=True)
    ids = np.load(folder / "ids.npy", mmap_mode="r", allow_pickle=False)
    offsets = np.load(folder / "offsets.npy", allow_pickle=False)
    check_words(encoder, [ids], len(offsets) - 1, f"corpus {corpus.name!r}")
    return TokenizedCorpus(ids, offsets, corpus.roles, encoder.tokenizer.pad_token_id)


def _save(path: Path, array: np.ndarray) -> None:
    """As np.save, through Python: NumPy by itself does not notice that a disk was full at the end."""
    with path.open("wb") as file:
        np.save(SimpleNamespace(write=file.write), array)


def token_batches(lengths: np.ndarray, batch_tokens: int) -> Iterator[np.ndarray]:
    """Row numbers in batches of similar length, the longest rows first (too little memory shows at once), at most
    batch_tokens tokens in each, padding included, or one row. lengths: [n] tokens."""
    order, start = np.argsort(-lengths, kind="stable"), 0
    while start < len(order):
        end = start + max(1, batch_tokens // lengths[order[start]])
        yield order[start:end]
        start = end


def pad(ids: Sequence[Sequence[int]], pad_id: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Lists of token ids -> input_ids, attention_mask [N, longest]."""
    lengths = np.array([len(row) for row in ids])
    mask = np.arange(lengths.max()) < lengths[:, None]
    input_ids = np.full(mask.shape, pad_id, dtype=np.int64)
    input_ids[mask] = np.concatenate(ids)
    return torch.from_numpy(input_ids).to(device), torch.from_numpy(mask.astype(np.int64)).to(device)
