"""Encoders whose vectors are added: the twin encoders of TNCSE and JTCSE, and their merges with a third one."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from lib import paths
from lib.checks import EncoderError
from lib.encoders.saved import OUR_MODULE, locate, save_whole, write_json
from lib.encoders.sentence_encoder import SentenceEncoder, listed
from lib.encoders.weights import check_vectors

LIST = "ensemble.json"


class EncoderSum(nn.Module):
    """e(x) = sum of weight_i times e_i(x); each encoder reads the text with its own tokenizer. Raises EncoderError for vectors
    of different length."""

    def __init__(self, encoders: Sequence[SentenceEncoder], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        if len(sizes := {encoder.dimension for encoder in encoders}) > 1:
            raise EncoderError(f"vectors of different length cannot be added: {sorted(sizes)}.")
        self.encoders, self.dimension = nn.ModuleList(encoders), encoders[0].dimension
        self.weights = [1.0] * len(encoders) if weights is None else [float(w) for w in weights]

    def encode(self, sentences: Sequence[str], **options: Any) -> np.ndarray:
        """As SentenceEncoder.encode: n strings -> float32 [n, D]."""
        sentences = listed(sentences)
        total = np.zeros((len(sentences), self.dimension), dtype=np.float32)
        for weight, encoder in zip(self.weights, self.encoders, strict=True):
            total += weight * encoder.encode(sentences, **options)
        return total

    def fingerprint(self, files: Sequence[str] = ()) -> str:
        """As SentenceEncoder.fingerprint, of all encoders and their weights."""
        members = [encoder.fingerprint(files) for encoder in self.encoders]
        return paths.digest([members, self.weights])

    def save(self, folder: str | os.PathLike) -> None:
        """Write every encoder into a folder of its own, and their weights; `load` reads it. Errors as SentenceEncoder.save.
        For sentence-transformers, which knows no sum of models, see `lib.encoders.export`."""
        save_whole(self.write_files, folder)

    def write_files(self, folder: Path) -> None:
        """The files of `save`, into a folder that is there."""
        names = [f"encoder_{i + 1}" for i in range(len(self.encoders))]
        for name, encoder in zip(names, self.encoders, strict=True):
            encoder.save(folder / name)
        write_json(folder / LIST, {"encoders": names, "weights": self.weights})
        write_json(folder / "modules.json", [OUR_MODULE])
        write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})


def parts(encoder: SentenceEncoder | EncoderSum) -> list[SentenceEncoder]:
    """The encoders that a sum consists of; a single encoder alone."""
    return list(encoder.encoders) if isinstance(encoder, EncoderSum) else [encoder]


def merge(encoders: Sequence[SentenceEncoder | EncoderSum], weights: Sequence[float]) -> EncoderSum:
    """Weighted sum of encoders and sums: 0.3 (e_I + e_II) + 0.7 e_III is merge([twins, third], [0.3, 0.7]) (UC)."""
    members, factors = [], []
    for encoder, weight in zip(encoders, weights, strict=True):
        members += parts(encoder)
        factors += [weight * factor for factor in getattr(encoder, "weights", [1.0])]
    return EncoderSum(members, factors)


def load(path_or_id: str | os.PathLike, **options: Any) -> SentenceEncoder | EncoderSum:
    """A saved ensemble, or what SentenceEncoder.from_pretrained loads; options as there. Raises DataError where its list
    cannot be read, and EncoderError where a listed encoder cannot be loaded or the sum gives no vectors."""
    folder = Path(locate(path_or_id, options.get("what", "encoder"))[0])
    if not (folder / LIST).is_file():
        return SentenceEncoder.from_pretrained(path_or_id, **options)
    listed = paths.read_json(folder / LIST)
    members = [SentenceEncoder.from_pretrained(folder.resolve() / name, **options) for name in listed["encoders"]]
    total = EncoderSum(members, listed["weights"])
    check_vectors(total, f"ensemble {str(path_or_id)!r}")
    return total
