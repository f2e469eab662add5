"""SentenceEncoder: a backbone, a pooling, perhaps a projection; `encode()` is all that evaluation ever sees."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from lib.checks import DataError, EncoderError
from lib.data.tokenized import check_words, pad, token_batches, tokenizer_fingerprint
from lib.distributed import processes
from lib.encoders import kinds, packed
from lib.encoders.pooling import POOLINGS, PROMPT, pooled
from lib.encoders.precision import autocast
from lib.encoders.saved import load_backbone, save_whole, write_encoder
from lib.encoders.template import template, template_vectors
from lib.encoders.weights import architecture, check_vectors, hash_weights
from lib.progress import progress
from lib.session import give_back_memory


class SentenceEncoder(nn.Module):
    """Transformer backbone + pooling (+ projection) -> one vector per sentence.

    Args:
        backbone: a Hugging Face model of one of the kinds in `lib.encoders.kinds`.
        tokenizer: its fast tokenizer.
        pooling: `cls` last layer at position 0; `mean` masked mean of the last layer; `first_last_mean` masked
            mean of (layer 1 + last layer) / 2; `embeddings_last_mean` the same with the static embedding output
            instead of layer 1 (the published "first-last avg." rows of BERT, SimCSE issue 285); `mask_prompt`
            last layer at the mask token of `PROMPT`; `pooler` the backbone's own pre-trained pooler; `last` last layer
            at the last token, what decoders are read by.
        projection: module [N, D] -> [N, D'] that belongs to the embedding (supervised SimCSE); None otherwise.
        max_length: longest sentence in tokens, special tokens included; longer ones are truncated by `encode`. None takes
            what the tokenizer names; either way it is at most what the backbone takes.
        normalise: `encode` gives vectors of length 1, where a folder of sentence-transformers asks for it; training and
            analysis read them as they are before.
        denoised: with `mask_prompt`, the vector of the template by itself is subtracted (see `lib.encoders.template`).

    Raises:
        EncoderError: an unknown pooling, or one that reads nothing of a decoder's text.
    """

    def __init__(
        self,
        backbone: nn.Module,
        tokenizer: Any,
        *,
        pooling: str = "cls",
        projection: nn.Module | None = None,
        max_length: int | None = None,
        normalise: bool = False,
        denoised: bool = False,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise EncoderError(f"pooling {pooling!r} is unknown: choose one of {', '.join(POOLINGS)}.")
        if pooling in ("cls", "mask_prompt"):
            kinds.check_no_decoder(backbone.config)
        self.backbone, self.tokenizer = backbone, tokenizer
        self.pooling, self.projection, self.normalise, self.denoised = pooling, projection, normalise, denoised
        self.max_length = min(max_length or tokenizer.model_max_length, kinds.longest_input(backbone))
        self.training_dtype: torch.dtype | None = None  # bfloat16, float16: autocast while training, never in encode()

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | os.PathLike,
        *,
        pooling: str | None = None,
        projection: nn.Module | None = None,
        dropout: float | None = None,
        device: str | torch.device | None = None,
        what: str = "backbone",
    ) -> SentenceEncoder:
        """Load a local folder (Hugging Face or sentence-transformers layout) or a hub name.

        Code that a model brings along is not run, and weights are read from safetensors only.

        Args:
            pooling: None takes what the folder was saved with, `denoised` included, else `cls`, or `last` for a decoder.
            dropout: replaces all rates of the backbone's dropout; None keeps them.
            device: None takes that of `lib.distributed.processes`: the GPU (cuda or mps) when there is one.
            what: the parameter that names it, for errors.

        Raises:
            EncoderError: no such folder, no such hub name or no network, not an encoder, or one that gives no vectors.
        """
        backbone, tokenizer, saved = load_backbone(path_or_id, pooling=pooling, dropout=dropout, what=what)
        how = {name: saved[name] for name in ("max_length", "normalise") if name in saved}
        how["denoised"] = not pooling and saved.get("denoised", False)
        pooling, projection = pooling or saved.get("pooling", "cls"), projection or saved.get("projection")
        encoder = cls(backbone, tokenizer, pooling=pooling, projection=projection, **how)
        check_vectors(encoder, f"{what} {str(path_or_id)!r}")
        return encoder.to(device or processes().device)

    def fingerprint(self, files: Sequence[str] = ()) -> str:
        """SHA-256 of all that an embedding depends on: weights, architecture, tokenizer, pooling and max_length; and of the
        files of the backbone's folder that have these patterns, for example a saved MLM head."""
        digest = hashlib.sha256(tokenizer_fingerprint(self.tokenizer).encode())
        parts = [architecture(self.backbone.config), self.pooling, self.max_length]
        if self.pooling == "mask_prompt":
            parts += [PROMPT, "beside max_length", *(["denoised"] if self.denoised else [])]
        parts += ["normalised"] if self.normalise else []
        layers = [] if self.projection is None else [*self.projection.children()]
        parts += ["a projection without tanh"] if len(layers) == 1 else []
        digest.update(json.dumps(parts, sort_keys=True, default=str).encode())
        hash_weights(digest, self)
        folder = Path(self.backbone.config._name_or_path)
        for pattern in files:
            digest.update(b"".join(path.read_bytes() for path in sorted(folder.glob(pattern))) or b"none")
        return digest.hexdigest()

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        if self.projection is not None:
            return [m for m in self.projection.modules() if isinstance(m, nn.Linear)][-1].out_features
        return self.backbone.config.hidden_size

    def precision(self, device: torch.device) -> AbstractContextManager[None]:
        """The training precision while training, nothing otherwise."""
        return autocast(device, self.training_dtype if self.training else None)

    def run_backbone(self, input_ids: Tensor, attention_mask: Tensor, **options: Any) -> Any:
        """The backbone's own output, in the training precision while training. input_ids, attention_mask: [N, L]."""
        if self.backbone.config.model_type in kinds.DECODERS:  # gpt2 counts padding on the left as places otherwise
            options |= {"position_ids": (attention_mask.cumsum(1) - 1).clamp(min=0), "use_cache": False}
        with self.precision(input_ids.device):
            return self.backbone(input_ids=input_ids, attention_mask=attention_mask, **options)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        *,
        maps: packed.AttentionMaps | None = None,
        inputs: packed.AttentionInputs | None = None,
    ) -> Tensor:
        """input_ids, attention_mask [N, L] -> embeddings [N, D], always float32; `maps` and `inputs` are filled, or
        EncoderError is raised (`kinds.check_attention`)."""
        for capture in filter(None, (maps, inputs)):
            kinds.check_attention(self, capture.layers)
        readings = self.readings(input_ids, attention_mask, (self.pooling,), maps=maps, inputs=inputs)
        h = readings[self.pooling]
        if self.denoised and self.pooling == "mask_prompt":
            h = h - template_vectors(self, input_ids, attention_mask)
        return h if self.projection is None else self.projection(h)

    def finished(self, vectors: Tensor) -> Tensor:
        """What `forward` gives as `encode` gives it: [N, D] -> [N, D]."""
        return F.normalize(vectors, dim=-1) if self.normalise else vectors

    def readings(
        self, input_ids: Tensor, attention_mask: Tensor, poolings: Sequence[str], **captures: Any
    ) -> dict[str, Tensor]:
        """Pooling -> [N, H] in float32: one pass read in several ways, without any projection; captures as in `forward`."""
        layers = {POOLINGS[name].layers for name in poolings}
        if layers == {"last"} and self.backbone.config.model_type in packed.MODEL_TYPES:
            first_only = set(poolings) == {"cls"}
            with self.precision(input_ids.device):
                last = packed.last_hidden(self.backbone, input_ids, attention_mask, first_only=first_only, **captures)
            output = BaseModelOutput(last_hidden_state=last)
        else:
            output = self.run_backbone(input_ids, attention_mask, output_hidden_states="all" in layers)
        inputs = input_ids, attention_mask, self.tokenizer.mask_token_id
        return {name: pooled(name, output, *inputs) for name in poolings}

    def tokenize(
        self, sentences: Sequence[str], max_length: int | None = None, *, split: bool = False
    ) -> list[list[int]]:
        """Sentences -> token ids with special tokens, truncated to max_length, not padded.

        With `mask_prompt` the template stands in the place of the special tokens, on top of the sentence's max_length - 2
        (PromptBERT's code takes 32: max_length 34); together they are at most as long as the backbone takes. With `split`
        nothing is cut off: what is left of a long text follows as further lists, each with its own special tokens
        (EncoderError with `mask_prompt`).
        """
        limit = max_length or self.max_length
        if self.pooling != "mask_prompt":
            rows = {"truncation": True, "max_length": limit, "return_overflowing_tokens": split}
            unread = {"return_attention_mask": False, "return_token_type_ids": False}
            return self.tokenizer(list(sentences), **rows, **unread)["input_ids"]
        if split:
            raise EncoderError("texts cannot be split into rows with pooling 'mask_prompt': choose another pooling.")
        before, after = template(self.tokenizer)
        room = min(limit - 2, kinds.longest_input(self.backbone) - len(before) - len(after))
        plain = self.tokenizer(list(sentences), add_special_tokens=False)["input_ids"]
        return [[*before, *ids[:room], *after] for ids in plain]

    @torch.no_grad()
    def encode(
        self,
        sentences: Sequence[str],
        *,
        batch_tokens: int | None = None,
        show_progress: bool = False,
        any_words: bool = False,
    ) -> np.ndarray:
        """Embed sentences: n strings, in a list or another iterable -> float32 array [n, D], in the given order.

        Repeated sentences are embedded once; batches hold sentences of similar length and at most `batch_tokens`
        tokens, padding included; evaluation mode, no gradient. The batching does not change a vector beyond
        floating-point noise (about 1e-6).

        Args:
            batch_tokens: None takes 4,096 on an accelerator, and 1,024 on a CPU, where more are hardly faster and need
                hundreds of MiB (`benchmarks/README.md`).
            any_words: also those that the tokenizer does not know; the vectors then say little.

        Raises:
            DataError: most of the words are unknown to the tokenizer, see `lib.data.tokenized.check_words`; or an empty
                text has no token.
            TypeError: something else than several strings was given.
        """
        sentences = listed(sentences)
        row_of: dict[str, int] = {}
        rows = np.fromiter((row_of.setdefault(s, len(row_of)) for s in sentences), dtype=np.int64)
        distinct = list(row_of)
        vectors = np.zeros((len(distinct), self.dimension), dtype=np.float32)
        ids: list[np.ndarray] = []  # as arrays, chunk by chunk: lists of a million sentences would fill the memory
        for start in range(0, len(distinct), 1_000):
            ids += [np.array(x, dtype=np.int32) for x in self.tokenize(distinct[start : start + 1_000])]
        if not any_words:
            check_words(self, ids, len(ids), "the texts")
        with in_mode(self, training=False):
            bar = progress(total=len(distinct), label="encode", enabled=show_progress and bool(distinct))
            for batch, *inputs in self.batches(ids, batch_tokens):
                vectors[batch] = self.finished(self(*inputs)).cpu().numpy()
                bar.update(len(batch))
            bar.close()
        return vectors if len(distinct) == len(rows) else vectors[rows]

    def batches(
        self, ids: Sequence[Sequence[int]], batch_tokens: int | None = None
    ) -> Iterator[tuple[np.ndarray, Tensor, Tensor]]:
        """Tokenised sentences as `encode` passes them on: row numbers [N], input_ids and attention_mask [N, L]."""
        on_cpu = self.device.type == "cpu"
        lengths = np.array([len(row) for row in ids], dtype=np.int64)
        if not lengths.all():
            raise DataError("an empty text has no token for this tokenizer, and so no vector: leave it out.")
        for at, batch in enumerate(token_batches(lengths, batch_tokens or (1024 if on_cpu else 4096))):
            if at and on_cpu:
                give_back_memory()  # batches of ever new shapes leave some 120 MiB of holes in the heap otherwise
            yield batch, *pad([ids[row] for row in batch], self.tokenizer.pad_token_id, device=self.device)

    def save(self, folder: str | os.PathLike) -> None:
        """Write the encoder so that `from_pretrained(folder)` and `SentenceTransformer(folder)` give its vectors; what that
        package has no module for is opened by `lib.encoders.export`. The folder appears whole or not at all.

        Raises:
            EncoderError: the folder exists, or the projection is not SimCSE's.
            DataError: the folder cannot be written.
        """
        save_whole(self.write_files, folder)

    def write_files(self, folder: Path) -> None:
        """The files of `save`, into a folder that is there."""
        write_encoder(self, folder)


def listed(sentences: Iterable[str]) -> list[str]:
    """The sentences as a list. Raises TypeError for anything else than several strings."""
    texts = [None] if isinstance(sentences, str | bytes) else list(sentences)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("encode() takes a list of strings.")
    return texts


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Training or evaluation mode in the block; the mode that each part of the module was in comes back."""
    before = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, was_training in before.items():
            part.training = was_training


def random_kept(device: torch.device, *, enabled: bool = True) -> AbstractContextManager[None]:
    """The random states of the CPU and of this device (cuda or mps) come back after the block."""
    devices = [] if device.type == "cpu" else [device]
    return torch.random.fork_rng(devices, enabled, device_type=device.type if devices else None)
