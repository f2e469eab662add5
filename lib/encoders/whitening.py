"""BERT-whitening (Su et al. 2021, arXiv 2103.15316): a reading of any encoder in which all directions vary alike."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from lib.checks import EncoderError
from lib.encoders.ensemble import EncoderSum
from lib.encoders.sentence_encoder import SentenceEncoder


class Whitened:
    """y(x) = (e(x) - mu) U s^{-1/2}, its first k columns: mu [D] and U diag(s) U^T are mean and covariance of the vectors of
    `sentences`, s falling. Directions in which these do not vary are left out, as with fewer sentences than dimensions.

    sentences: give those of training; fitted on what is scored, it has seen the test. dimensions: k; 0 keeps all.
    Raises EncoderError where the vectors vary in fewer than k directions, or in none.
    """

    def __init__(self, encoder: SentenceEncoder | EncoderSum, sentences: Sequence[str], dimensions: int = 0) -> None:
        vectors = encoder.encode(sentences).astype(np.float64)
        self.encoder, self.mean = encoder, vectors.mean(axis=0)
        variances, directions = np.linalg.eigh(np.cov(vectors.T, bias=True))  # rising
        rank = int((variances > 1e-9 * np.square(vectors).sum(axis=1).mean()).sum())
        if not 0 < (dimensions or rank) <= rank:
            raise EncoderError(
                f"the vectors of {len(vectors)} sentences vary in {rank} directions, not {dimensions or 1}."
            )
        kept = np.arange(1, 1 + (dimensions or rank))
        self.matrix = directions[:, -kept] / np.sqrt(variances[-kept])  # [D, k]

    def encode(self, sentences: Sequence[str], **options: Any) -> np.ndarray:
        """As SentenceEncoder.encode: n strings -> float32 [n, k]."""
        return ((self.encoder.encode(sentences, **options) - self.mean) @ self.matrix).astype(np.float32)

    def fingerprint(self, files: Sequence[str] = ()) -> str:
        """As SentenceEncoder.fingerprint, of the encoder and what was fitted."""
        fitted = self.mean.tobytes() + self.matrix.tobytes()
        return hashlib.sha256(self.encoder.fingerprint(files).encode() + fitted).hexdigest()
