"""STS scores of runs and encoders: found, or computed once and kept."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import paths
from lib.data import STSTask
from lib.encoders import SentenceEncoder, ensemble
from lib.evaluation import evaluate_sts
from lib.runs import store, times
from lib.runs.prepare import FORMAT
from lib.runs.store import Run

Encoder = SentenceEncoder | ensemble.EncoderSum

HELD = 3  # encoders whose vectors of all sentences are held: a sum follows its encoders (40 MB each at 384 dimensions)


class Scores:
    """The scores of encoders on some STS tasks.

    An encoder in memory is known by its content: the same one is never scored twice, and the vectors of the last ones
    are held for a sum of them.
    """

    def __init__(self, tasks: Sequence[STSTask]) -> None:
        self.tasks = list(tasks)
        self._vectors: dict[str, np.ndarray] = {}  # fingerprint of an encoder -> [n, D]

    def of(
        self,
        encoder: Run | Encoder,
        known: Mapping[str, Any],
        *,
        on_share: Callable[[float], None] | None = None,
        **labels: Any,
    ) -> pd.DataFrame:
        """Result rows (ROW_COLUMNS); those of a run are kept in its folder, others in <runs>/scores.

        Args:
            known: labels (see `store.config_labels`) for an encoder that is no run.
            on_share: called with the share of one encoder's sentences that were embedded since the last call.
            labels: values of columns where they differ from the run's, or from `known`.
        """
        if isinstance(encoder, Run):
            tasks = [task.fingerprint() for task in self.tasks]
            return encoder.results("sts", lambda: self._evaluate(encoder.encoder(), on_share), key=tasks, **labels)
        path = paths.made_once(
            self._kept(encoder), lambda new: self._evaluate(encoder, on_share).to_csv(new, index=False)
        )
        return store.label_rows(pd.read_csv(path), known | {"seed": ""}, **labels)

    def to_read(self, encoder: Run | Encoder) -> list[SentenceEncoder]:
        """The encoders, alone or of a sum, that would have to read all sentences: none where the scores are kept."""
        if self._kept(encoder).is_file():
            return []
        return self._not_held(encoder.encoder() if isinstance(encoder, Run) else encoder)

    def _not_held(self, encoder: Encoder) -> list[SentenceEncoder]:
        parts = {part.fingerprint(): part for part in ensemble.parts(encoder)}
        return [part for name, part in parts.items() if name not in self._vectors]

    def _kept(self, encoder: Run | Encoder) -> Path:
        """The file of an encoder's scores."""
        tasks = [task.fingerprint() for task in self.tasks]
        if isinstance(encoder, Run):
            return encoder.results_file("sts", tasks)
        name = hashlib.sha256(json.dumps([FORMAT, encoder.fingerprint(), tasks]).encode()).hexdigest()[:16]
        return paths.runs() / "scores" / f"{name}.csv"

    def _evaluate(self, encoder: Encoder, on_share: Callable[[float], None] | None) -> pd.DataFrame:
        start, reading = time.monotonic(), self._not_held(encoder)
        rows = evaluate_sts(lambda sentences: self._encode(encoder, sentences, on_share), self.tasks)
        if reading:
            times.remember(times.kind_of_score(self.tasks, reading[0]), time.monotonic() - start, len(reading))
        return rows

    def _encode(
        self, encoder: Encoder, sentences: Sequence[str], on_share: Callable[[float], None] | None
    ) -> np.ndarray:
        """As encoder.encode, from the vectors that are held."""
        total = 0.0
        for weight, part in zip(getattr(encoder, "weights", [1.0]), ensemble.parts(encoder), strict=True):
            name = part.fingerprint()
            held = self._vectors.pop(name, None)
            if held is None:
                held = part.encode(sentences, on_share=on_share)
            self._vectors[name] = held  # the newest is the last one
            total = total + weight * self._vectors[name]
        while len(self._vectors) > HELD:
            del self._vectors[next(iter(self._vectors))]
        return total
