"""What a plan measures encoders by, beside its runs: tasks read once, scores kept by content, vectors held for sums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib import paths
from lib.checks import ConfigError, check_choice, check_range
from lib.config import RunConfig
from lib.data import STSTask, load_sts
from lib.data.labelled import load_labelled
from lib.data.retrieval import load_retrieval
from lib.data.sts import STS_TASKS, protocol
from lib.data.transfer import TRANSFER_TASKS, load_transfer
from lib.encoders import SentenceEncoder, ensemble
from lib.evaluation import RESULT_COLUMNS, evaluate_sts, evaluate_transfer, in_domain_retrieval
from lib.evaluation.clustering import evaluate_clustering
from lib.evaluation.interface import Encode
from lib.evaluation.mteb_tasks import evaluate_mteb, load_mteb
from lib.evaluation.retrieval import evaluate_retrieval
from lib.evaluation.sts import evaluate_pair
from lib.runs.prepare import FORMAT
from lib.runs.store import Run, kept_rows

Encoder = SentenceEncoder | ensemble.EncoderSum

HELD = 3  # encoders whose vectors of the same sentences are held: a sum follows its encoders
LONGEST_HELD = 50_000  # sentences, more than the seven STS tasks have: 150 MB at 768 dimensions


@dataclass(frozen=True)
class Evaluation:
    """name: of the file that keeps its rows. key: what the rows depend on beside the encoder. rows: gives RESULT_COLUMNS."""

    name: str
    key: Any
    rows: Callable[[Encode], pd.DataFrame]


# --- Kinds of tasks ---


def load_tasks(kind: str, names: Sequence[str], data_dir: Path, **how: Any) -> list[Evaluation]:
    """The evaluations of a kind (one of KINDS), with everything they read, read now.

    Raises:
        ConfigError: a name that is unknown, or given twice; STS tasks without the average that tables quote.
        DataError: data that are missing or truncated, or cannot be fetched.
    """
    check_choice("the kind of tasks", kind, KINDS)
    _check_once(f"{kind} tasks", names)
    return KINDS[kind](names, data_dir, **how)


def _check_once(what: str, names: Sequence[Any]) -> None:
    if len(set(names)) < len(names):
        raise ConfigError(f"{what} {list(names)}: name each of them once.")


def _sts(names: Sequence[str], data_dir: Path) -> list[Evaluation]:
    if len(names) != 1 and not set(STS_TASKS) <= set(names):
        raise ConfigError(f"sts tasks {list(names)}: give one task, or all of {', '.join(STS_TASKS)}.")
    tasks = [load_sts(data_dir, name) for name in names]
    return [Evaluation("sts", [task.fingerprint() for task in tasks], partial(evaluate_sts, tasks=tasks))]


def _transfer(names: Sequence[str], data_dir: Path) -> list[Evaluation]:
    for name in names:
        check_choice("transfer task", name, TRANSFER_TASKS)
        load_transfer(data_dir, name)
    ask = partial(evaluate_transfer, data_dir=data_dir)
    return [Evaluation(f"transfer-{name}", name, partial(ask, tasks=(name,))) for name in names]


def _retrieval(names: Sequence[str], data_dir: Path) -> list[Evaluation]:
    tasks = [load_retrieval(data_dir, name) for name in names]
    return [Evaluation(f"retrieval-{t.name}", t.fingerprint(), partial(evaluate_retrieval, task=t)) for t in tasks]


def _mteb(names: Sequence[str], data_dir: Path, *, prefix: str) -> list[Evaluation]:
    tasks = load_mteb(names, data_dir)
    return [
        Evaluation(f"{prefix}-{name}", key, partial(evaluate_mteb, name=name, task=task))
        for name, (task, key) in tasks.items()
    ]


def _partners(names: Sequence[str], data_dir: Path) -> list[Evaluation]:
    """The partner of a sentence among all test pairs of an STS task, with both kinds of queries."""

    def ask(encode: Encode, task: STSTask, queries: str) -> pd.DataFrame:
        rows = in_domain_retrieval(encode, task.sentences1, task.sentences2, task.gold, queries=queries)
        return rows.assign(task=f"{task.name} retrieval")

    return [
        Evaluation(f"in-domain-retrieval-{queries}", task.fingerprint(), partial(ask, task=task, queries=queries))
        for task in [load_sts(data_dir, name) for name in names]
        for queries in ("first", "both")
    ]


def _clusters(names: Sequence[str], data_dir: Path, *, clusters: Sequence[int] = (0,)) -> list[Evaluation]:
    """clusters: k of K-Means; 0 is the number of labels."""
    _check_once("clusters", clusters)
    check_range("the number of clusters", len(clusters), 1)
    tasks = [load_labelled(data_dir, name) for name in names]
    for task in tasks:
        for k in filter(None, clusters):
            check_range(f"clusters of {task.name}", k, 2, len(task))
    ask = partial(evaluate_clustering, clusters=tuple(clusters))
    return [Evaluation(f"clustering-{t.name}", [t.fingerprint(), *clusters], partial(ask, task=t)) for t in tasks]


def _pair(names: Sequence[str], data_dir: Path, *, subset: str, line: int) -> list[Evaluation]:
    """One test pair of an STS task. line: of the subset's scored pairs, from 1."""
    found = []
    for task in [load_sts(data_dir, name) for name in names]:
        check_choice(f"subset of {task.name}", subset, task.subsets)
        check_range(f"line of {task.name}, {subset}", line, 1, len(task.subsets[subset]))
        ask = partial(evaluate_pair, task=task, subset=subset, line=line)
        found.append(Evaluation(f"pair-{task.name}-{subset}-{line}", task.fingerprint(), ask))
    return found


KINDS: dict[str, Callable[..., list[Evaluation]]] = {
    "sts": _sts,
    "transfer": _transfer,
    "retrieval": _retrieval,
    "beir": partial(_mteb, prefix="BEIR"),
    "in-domain retrieval": _partners,
    "clusters": _clusters,
    "mteb": partial(_mteb, prefix="MTEB"),
    "pair": _pair,
}


def dev_pairs(config: RunConfig) -> Evaluation:
    """The score of an encoder on the dev pairs of a run. Raises ConfigError where it has none."""
    dev = config.dev_pairs()
    return Evaluation("dev", dev.fingerprint(), partial(evaluate_sts, tasks=[dev]))


def dev_row(run: Run) -> pd.DataFrame:
    """RESULT_COLUMNS of the dev score of a run's checkpoint."""
    task = run.config.dev_task
    row = (task, "dev", protocol(task, "dev"), "all", "spearman", run.metrics["dev"])
    return pd.DataFrame([row], columns=RESULT_COLUMNS)


def projected_dev(run: Run) -> pd.DataFrame:
    """For `Plan.measure`: as `dev_row`, but of the vectors behind the projection that only training uses.

    Raises:
        EncoderError: the run has no such projection.
    """
    dev = dev_pairs(run.config)
    rows = run.results("dev-projected", lambda: dev.rows(run.encoder(training_head=True).encode), key=dev.key)
    return rows[rows.aggregation == "all"]


# --- Encoders ---


class Subject:
    """A run, or an encoder in memory, that is measured: loaded, and its content read, once and only when needed.

    held: vectors by content of the encoder and of the sentences, the newest last; several subjects share it.
    """

    def __init__(self, of: Run | Encoder, held: dict[tuple[str, str], np.ndarray]) -> None:
        self.of, self._held = of, held

    @cached_property
    def encoder(self) -> Encoder:
        return self.of.encoder() if isinstance(self.of, Run) else self.of

    @cached_property
    def _fingerprint(self) -> str:
        return self.encoder.fingerprint()

    @cached_property
    def _parts(self) -> list[tuple[str, SentenceEncoder]]:
        return [(part.fingerprint(), part) for part in ensemble.parts(self.encoder)]

    def scores(self, evaluation: Evaluation) -> pd.DataFrame:
        """RESULT_COLUMNS: those of a run are kept in its folder, others in <runs>/scores."""

        def compute() -> pd.DataFrame:
            return evaluation.rows(self.encode)

        name, key = evaluation.name, evaluation.key
        if isinstance(self.of, Run):
            return self.of.results(name, compute, key=key)
        digest = hashlib.sha256(json.dumps([FORMAT, self._fingerprint, name, key]).encode()).hexdigest()[:16]
        return kept_rows(paths.runs() / "scores" / f"{digest}.csv", compute)

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """As the encoder's own: a sum takes the vectors of its encoders that are held."""
        sentences, total = list(sentences), 0.0
        digest = hashlib.sha256(json.dumps(sentences).encode()).hexdigest()
        weights = getattr(self.encoder, "weights", [1.0])
        for weight, (fingerprint, part) in zip(weights, self._parts, strict=True):
            place = fingerprint, digest
            vectors = self._held.pop(place) if place in self._held else part.encode(sentences)
            if len(sentences) <= LONGEST_HELD:
                self._held[place] = vectors
            total = total + weight * vectors
        while len(self._held) > HELD:
            del self._held[next(iter(self._held))]
        return total


def pooling_of(encoder: Encoder) -> str:
    """How the vectors of an encoder, or of those of a sum, are read."""
    return ", ".join(dict.fromkeys(part.pooling for part in ensemble.parts(encoder)))


def parts(done: pd.DataFrame, sums: Mapping[str, Sequence[str]] | None = None) -> pd.DataFrame:
    """The encoders of runs, loaded into the column `encoder`: those of a sum (`JTCSE I`, `JTCSE II`) stand before it. They
    are all in memory: give the runs of a few seeds at a time where encoders are large.

    Args:
        done: what `Plan.runs` gives. sums: name of a further sum -> the methods of one seed whose encoders are added; it
            has the conditions of the first.
    """
    rows = []
    for row in done.to_dict("records"):
        encoder = row["run"].encoder()
        if isinstance(encoder, ensemble.EncoderSum):
            for number, part in zip(("I", "II"), encoder.encoders, strict=True):
                rows.append(row | {"method": f"{row['method']} {number}", "encoder": part})
        rows.append(row | {"encoder": encoder})
    for name, methods in (sums or {}).items():
        for seed in done.seed.unique():
            places = {row["method"]: place for place, row in enumerate(rows) if row["seed"] == seed}
            added = [rows[places[method]] for method in methods]
            both = ensemble.EncoderSum([row["encoder"] for row in added])
            last = max(places[method] for method in methods)  # their vectors are still held when the sum is measured
            rows.insert(last + 1, added[0] | {"method": name, "encoder": both})
    return pd.DataFrame(rows, columns=[*done, "encoder"])
