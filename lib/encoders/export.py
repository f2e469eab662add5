"""Encoders in sentence-transformers: what that package has no module of its own for is one module there.

An encoder that is read by its [CLS] token or by a mean is saved as modules of that package, and needs nothing from here.
Sums of encoders, encoders read at the mask token of a prompt or by the backbone's pooler, and those without their last
LayerNorms name `EncoderModule`.
The folder brings no code: the class comes from this project, which has to be installed (`pip install -e .`), and
`sentence_transformer(folder)` opens any saved encoder. By itself the package imports no class of another one unasked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from torch import Tensor

from lib.checks import EncoderError
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.sentence_encoder import pad


class EncoderModule(InputModule):
    """An encoder, or a sum of encoders, as the only module of a SentenceTransformer.

    Each encoder reads the text with its own tokenizer: the features are input_ids and attention_mask [N, L] of the first
    one, input_ids_2 and attention_mask_2 of the second, and so on; sentence_embedding [N, D] is added.
    """

    save_in_root = True

    def __init__(self, encoder: SentenceEncoder | ensemble.EncoderSum) -> None:
        super().__init__()
        self.encoder, self.parts = encoder, ensemble.parts(encoder)
        self.endings = ["", *(f"_{number}" for number in range(2, len(self.parts) + 1))]  # of the names of features

    @property
    def tokenizer(self) -> Any:
        """Of the first encoder."""
        return self.parts[0].tokenizer

    @property
    def max_seq_length(self) -> int:
        return max(part.max_length for part in self.parts)

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        for part in self.parts:
            part.max_length = value

    def get_embedding_dimension(self) -> int:
        return self.encoder.dimension

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **_: Any) -> dict[str, Tensor]:
        """Texts -> the features of all encoders. prompt: text before each of them."""
        texts = [(prompt or "") + text for text in inputs]
        features = {}
        for ending, part in zip(self.endings, self.parts, strict=True):
            ids, mask = pad(part.tokenize(texts), part.tokenizer.pad_token_id)
            features |= {f"input_ids{ending}": ids, f"attention_mask{ending}": mask}
        return features

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        weights = getattr(self.encoder, "weights", [1.0])
        vectors = [
            weight * part(features[f"input_ids{ending}"], features[f"attention_mask{ending}"])
            for weight, ending, part in zip(weights, self.endings, self.parts, strict=True)
        ]
        features["sentence_embedding"] = torch.stack(vectors).sum(0)
        return features

    def save(self, output_path: str | os.PathLike, *_: Any, **__: Any) -> None:
        """The encoder's files, beside those that sentence-transformers writes."""
        self.encoder.write_files(Path(output_path))

    @classmethod
    def load(cls, model_name_or_path: str, **_: Any) -> EncoderModule:
        """From a folder; a model of the hub is fetched first, with huggingface_hub's `snapshot_download`.

        Raises:
            EncoderError: it is no folder: options such as a revision would be lost.
        """
        if not Path(model_name_or_path).is_dir():
            raise EncoderError(
                f"{model_name_or_path} is no folder: fetch it first, with huggingface_hub's snapshot_download."
            )
        return cls(ensemble.load(model_name_or_path, device="cpu"))


def sentence_transformer(path_or_id: str | os.PathLike, **options: Any) -> SentenceTransformer:
    """A saved encoder or sum of encoders as a SentenceTransformer with the same vectors.

    Args:
        path_or_id: see `ensemble.load`. options: of SentenceTransformer, for example device.

    Raises:
        EncoderError: see `ensemble.load`.
    """
    module = EncoderModule(ensemble.load(path_or_id, device="cpu"))
    return SentenceTransformer(modules=[module], similarity_fn_name="cosine", **options)
