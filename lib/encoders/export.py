"""Encoders in sentence-transformers: what that package has no module of its own for is one module there.

An encoder that is read by its [CLS] token or by a mean is saved as modules of that package, and needs nothing from here.
Sums of encoders, encoders read at the mask token of a prompt or by the backbone's pooler, and those without their last
LayerNorms name `EncoderModule`.
The folder brings no code: where this project is installed (`pip install -e .`), `sentence_transformer(folder)` opens any
saved encoder. By itself the package imports no class of another one.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from torch import Tensor

from lib.data.tokenized import pad
from lib.encoders import SentenceEncoder, ensemble


class EncoderModule(InputModule):
    """An encoder, or a sum of encoders, as the only module of a SentenceTransformer.

    Each encoder reads the text with its own tokenizer: the features are input_ids_0 and attention_mask_0 [N, L] of the
    first one, input_ids_1 and attention_mask_1 of the second, and so on; sentence_embedding [N, D] is added.
    """

    def __init__(self, encoder: SentenceEncoder | ensemble.EncoderSum) -> None:
        super().__init__()
        self.encoder, self.parts = encoder, ensemble.parts(encoder)
        self.tokenizer = self.parts[0].tokenizer

    @property
    def max_seq_length(self) -> int:
        return max(part.max_length for part in self.parts)

    def get_embedding_dimension(self) -> int:
        return self.encoder.dimension

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **_: Any) -> dict[str, Tensor]:
        """Texts -> the features of all encoders. prompt: text before each of them."""
        texts, features = [(prompt or "") + text for text in inputs], {}
        for i, part in enumerate(self.parts):
            ids, mask = pad(part.tokenize(texts), part.tokenizer.pad_token_id)
            features |= {f"input_ids_{i}": ids, f"attention_mask_{i}": mask}
        return features

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        vectors, weights = [], getattr(self.encoder, "weights", [1.0])
        for i, (weight, part) in enumerate(zip(weights, self.parts, strict=True)):
            vector = part(features[f"input_ids_{i}"], features[f"attention_mask_{i}"])
            vectors.append(weight * part.finished(vector))
        return features | {"sentence_embedding": torch.stack(vectors).sum(0)}

    def save(self, output_path: str | os.PathLike, *_: Any, **__: Any) -> None:
        """The encoder's files, beside those that sentence-transformers writes."""
        self.encoder.write_files(Path(output_path))


def sentence_transformer(path_or_id: str | os.PathLike, **options: Any) -> SentenceTransformer:
    """A saved encoder or sum of encoders as a SentenceTransformer with the same vectors; raises as `ensemble.load`. options: of
    SentenceTransformer, for example device."""
    module = EncoderModule(ensemble.load(path_or_id, device="cpu"))
    return SentenceTransformer(modules=[module], similarity_fn_name="cosine", **options)
