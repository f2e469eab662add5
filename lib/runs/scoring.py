"""Scores of runs and encoders: found, or computed once and kept."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import paths
from lib.data import STSTask, load_sts
from lib.encoders import SentenceEncoder, ensemble
from lib.evaluation import evaluate_sts
from lib.evaluation.interface import Encode
from lib.runs import store, times
from lib.runs.prepare import FORMAT
from lib.runs.store import Run

Encoder = SentenceEncoder | ensemble.EncoderSum

HELD = 3  # encoders whose vectors of all sentences are held: a sum follows its encoders (40 MB each at 384 dimensions)


class Scores:
    """The scores of encoders on some STS tasks, and in further evaluations.

    An encoder in memory is known by its content: the same one is never scored twice, and the vectors of the last ones
    are held for a sum of them.

    tasks: of STS. evaluations: kind (`transfer`) -> evaluation -> (what its rows depend on beside the encoder, what
    gives the rows).
    """

    def __init__(self, tasks: Sequence[STSTask]) -> None:
        self.tasks = list(tasks)
        self.evaluations: dict[str, dict[str, tuple[Any, Callable[[Encode], pd.DataFrame]]]] = {}
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

        def compute() -> pd.DataFrame:
            return self._evaluate(encoder.encoder() if isinstance(encoder, Run) else encoder, on_share)

        return self._rows(encoder, known, "sts", self._sts_key(), compute, labels)

    def of_kind(self, kind: str, encoder: Run | Encoder, known: Mapping[str, Any], **labels: Any) -> pd.DataFrame:
        """As `of`, of all evaluations of a kind; each is kept by itself."""

        @cache
        def encode() -> Encode:
            return (encoder.encoder() if isinstance(encoder, Run) else encoder).encode

        rows = [
            self._rows(encoder, known, name, key, lambda evaluate=evaluate: evaluate(encode()), labels)
            for name, (key, evaluate) in self.evaluations.get(kind, {}).items()
        ]
        return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=store.ROW_COLUMNS)

    def _rows(
        self,
        encoder: Run | Encoder,
        known: Mapping[str, Any],
        name: str,
        key: Any,
        compute: Callable[[], pd.DataFrame],
        labels: Mapping[str, Any],
    ) -> pd.DataFrame:
        if isinstance(encoder, Run):
            return encoder.results(name, compute, key=key, **labels)
        path = paths.made_once(_kept(encoder, name, key), lambda new: compute().to_csv(new, index=False))
        return store.label_rows(store.read_rows(path), known | {"seed": ""}, **labels)

    def to_read(self, encoder: Run | Encoder) -> list[SentenceEncoder]:
        """The encoders, alone or of a sum, that would have to read all sentences: none where the scores are kept."""
        if _kept(encoder, "sts", self._sts_key()).is_file():
            return []
        return self._not_held(encoder.encoder() if isinstance(encoder, Run) else encoder)

    def _not_held(self, encoder: Encoder) -> list[SentenceEncoder]:
        parts = {part.fingerprint(): part for part in ensemble.parts(encoder)}
        return [part for name, part in parts.items() if name not in self._vectors]

    def _sts_key(self) -> list[str]:
        return [task.fingerprint() for task in self.tasks]

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


def projected_dev_rows(done: pd.DataFrame, data_dir: Path, **labels: Any) -> pd.DataFrame:
    """As `store.dev_rows`, but of the vectors behind the projection that only training uses.

    Raises:
        EncoderError: a run has no such projection.
    """
    rows = []
    for one in done.itertuples():
        dev = load_sts(data_dir, one.run.config.dev_task, "dev")

        def compute(run: Run = one.run, dev: STSTask = dev) -> pd.DataFrame:
            return evaluate_sts(run.encoder(training_head=True).encode, [dev])

        scores = one.run.results("dev-projected", compute, key=dev.fingerprint(), method=one.method, **labels)
        rows.append(scores[scores.aggregation == "all"])
    return pd.concat(rows, ignore_index=True)


def _kept(encoder: Run | Encoder, name: str, key: Any) -> Path:
    """The file of an encoder's rows in an evaluation."""
    if isinstance(encoder, Run):
        return encoder.results_file(name, key)
    digest = hashlib.sha256(json.dumps([FORMAT, encoder.fingerprint(), name, key]).encode()).hexdigest()[:16]
    return paths.runs() / "scores" / f"{digest}.csv"
