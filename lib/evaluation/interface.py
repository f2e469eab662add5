"""What all evaluations share: they take a function `encode` and return rows with the same columns."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lib.checks import EncoderError

Encode = Callable[[list[str]], np.ndarray]
RESULT_COLUMNS = ["task", "split", "protocol", "aggregation", "metric", "value"]


def encode_distinct(encode: Encode, texts: Iterable[str], dtype: Any = None) -> tuple[np.ndarray, dict[str, int]]:
    """Encode every distinct text once, in one call: vectors [n, D] in order of first appearance, row of each text.
    Raises EncoderError where they have another shape, or are not finite."""
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    vectors = np.asarray(encode(list(row_of)), dtype=dtype)
    if vectors.ndim != 2 or len(vectors) != len(row_of):
        raise EncoderError(f"encode gave an array of shape {vectors.shape} for {len(row_of)} texts, not [n, D].")
    if not np.isfinite(vectors).all():
        raise EncoderError("the encoder's vectors are not finite: its weights are damaged, or its training failed.")
    return vectors, row_of
