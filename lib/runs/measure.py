"""What a plan measures encoders by, beside its runs: tasks read once, scores kept by content, encoders by their names."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from lib import paths
from lib.analysis.maps import LAYOUTS
from lib.checks import ConfigError, check_choice, check_range
from lib.config import RunConfig
from lib.data import load_sts, transfer
from lib.data.labelled import load_labelled
from lib.data.retrieval import load_retrieval
from lib.data.sts import OWN, PROTOCOLS, STS_TASKS, STSTask, is_file_of_pairs
from lib.data.tokenized import check_words
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.heads import TRAINING_HEAD, load_training_head
from lib.encoders.pooling import POOLINGS
from lib.encoders.whitening import Whitened
from lib.evaluation import RESULT_COLUMNS, evaluate_sts, evaluate_transfer, in_domain_retrieval
from lib.evaluation.clustering import evaluate_clustering
from lib.evaluation.interface import Encode
from lib.evaluation.mteb_tasks import evaluate_mteb, load_mteb
from lib.evaluation.retrieval import evaluate_retrieval
from lib.evaluation.sts import evaluate_pair
from lib.runs.prepare import FORMAT, encoder_name
from lib.runs.store import Run, find_run, kept_rows

Encoder = SentenceEncoder | ensemble.EncoderSum | Whitened
SAMPLE = 1_000  # texts of a task that are looked at before anything is trained


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
        ConfigError: a name that is given twice, or that mteb does not know; STS tasks without the average that tables quote.
        DataError: another unknown name; data that are missing or truncated, or cannot be fetched.
    """
    check_choice("the kind of tasks", kind, KINDS)
    twice = ConfigError(f"{kind} tasks {list(names)}: name each of them once, and files by different names.")
    if len(set(names)) < len(names):
        raise twice
    found = KINDS[kind](names, data_dir, **how)
    if len({one.name for one in found}) < len(found):
        raise twice
    return found


def _sts(names: Sequence[str], data_dir: Path) -> list[Evaluation]:
    if len(names) != 1 and set(STS_TASKS) != set(names):  # what is averaged
        raise ConfigError(f"sts tasks {list(names)}: give one task, or all of {', '.join(STS_TASKS)} alone.")
    tasks = [load_sts(data_dir, name) for name in names]
    return [Evaluation("sts", [_key(task) for task in tasks], partial(evaluate_sts, tasks=tasks))]


def _key(task: STSTask) -> Any:
    """Of scores that are kept: the content; of one's own file its name too, which may change."""
    return [task.fingerprint(), task.name] if is_file_of_pairs(task.name) else task.fingerprint()


def _transfer(names: Sequence[str], data_dir: Path) -> list[Evaluation]:
    tasks = {name: transfer.load_transfer(data_dir, name) for name in names}
    return [
        Evaluation(
            f"transfer-{name}", transfer.fingerprint(splits), partial(evaluate_transfer, name=name, splits=splits)
        )
        for name, splits in tasks.items()
    ]


def _retrieval(names: Sequence[str], data_dir: Path) -> list[Evaluation]:
    tasks = [load_retrieval(data_dir, name) for name in names]
    return [Evaluation(f"retrieval-{t.name}", t.fingerprint(), partial(evaluate_retrieval, task=t)) for t in tasks]


def _mteb(names: Sequence[str], data_dir: Path, *, prefix: str) -> list[Evaluation]:
    tasks = load_mteb(names, data_dir).items()
    return [Evaluation(f"{prefix}-{n}", key, partial(evaluate_mteb, name=n, task=task)) for n, (task, key) in tasks]


def _partners(names: Sequence[str], data_dir: Path) -> list[Evaluation]:
    """The partner of a sentence among all test pairs of an STS task, with both kinds of queries."""
    return [
        Evaluation(f"in-domain-retrieval-{q}", _key(t), partial(in_domain_retrieval, task=t, queries=q))
        for t in [load_sts(data_dir, name) for name in names]
        for q in ("first", "both")
    ]


def _clusters(
    names: Sequence[str], data_dir: Path, *, clusters: Sequence[int] = (0,), layouts: Sequence[str] = ()
) -> list[Evaluation]:
    """clusters: k of K-Means; 0 is the number of labels. layouts: kinds of maps that will be made of the first task."""
    tasks = [load_labelled(data_dir, name) for name in names]
    for kind in layouts if tasks else ():
        check_choice("the kind of a map", kind, LAYOUTS)
        check_range(f"texts of {tasks[0].name} for a map", len(tasks[0]), 22)
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


class _Enough(Exception):
    """The texts of an evaluation were seen: nothing has to be encoded."""


def check_task(evaluation: Evaluation, encoder: Encoder, what: str) -> None:
    """Look at the texts that it encodes first, every n-th, SAMPLE at most. Raises DataError where most of their words are
    unknown to the tokenizer, see `check_words`."""

    def encode(texts: list[str]) -> Any:
        ids = encoder.tokenize(texts[:: len(texts) // SAMPLE + 1])
        check_words(encoder, ids, len(ids), f"{what}, texts such as {texts[0][:40]!r}")
        raise _Enough

    with suppress(_Enough):
        evaluation.rows(encode)


def dev_pairs(config: RunConfig) -> list[Evaluation]:
    """The score of an encoder on the dev pairs of a run, if it has any."""
    tasks = [] if config.dev_task == "none" else [config.dev_pairs()]
    return [Evaluation("dev", _key(dev), partial(evaluate_sts, tasks=[dev])) for dev in tasks]


def dev_row(run: Run) -> pd.DataFrame:
    """RESULT_COLUMNS of the dev score of a run's checkpoint; no row where it has no dev pairs."""
    task = run.config.dev_task
    protocol = OWN if is_file_of_pairs(task) else PROTOCOLS.get(task, "SentEval")
    row = (Path(task).name, "dev", protocol, "all", "spearman", run.metrics["dev"])
    return pd.DataFrame([row] if task != "none" else [], columns=RESULT_COLUMNS)


PROJECTED = "dev-projected"  # name of the rows that a run keeps of it


def projected_dev(run: Run) -> pd.DataFrame:
    """For `Plan.measure`: as `dev_row`, but of the vectors behind the projection that only training uses; no row where the run
    has none."""
    folder = run.folder / "encoder"
    if run.config.dev_task == "none" or not (folder / TRAINING_HEAD).is_file():
        return dev_row(run)[:0]
    (dev,) = dev_pairs(run.config)

    def measured() -> pd.DataFrame:
        return dev.rows(run.encoder(projection=load_training_head(folder)).encode)

    rows = run.results(PROJECTED, measured, key=dev.key)
    return rows[rows.aggregation == "all"]


# --- Encoders ---


def scores(of: Run | Encoder, evaluations: Sequence[Evaluation]) -> pd.DataFrame:
    """RESULT_COLUMNS of several evaluations, each computed once: those of a run are kept in its folder, those of another
    encoder by its content, in <runs>/scores. A run is loaded only to measure what is not kept."""
    encoder = cache(of.encoder) if isinstance(of, Run) else lambda: of
    fingerprint = "" if isinstance(of, Run) or not evaluations else of.fingerprint()
    frames = [pd.DataFrame(columns=RESULT_COLUMNS)] if not evaluations else []
    for one in evaluations:
        compute = partial(lambda rows: rows(encoder().encode), one.rows)
        if isinstance(of, Run):
            frames.append(of.results(one.name, compute, key=one.key))
        else:
            digest = paths.digest([FORMAT, fingerprint, one.name, one.key])[:16]
            frames.append(kept_rows(paths.runs() / "scores" / f"{digest}.csv", compute))
    return pd.concat(frames)


def pooling_of(encoder: Encoder) -> str:
    """How the vectors of an encoder, or of those of a sum, are read."""
    if isinstance(encoder, Whitened):
        return f"{pooling_of(encoder.encoder)}, whitened"
    return ", ".join(dict.fromkeys(part.pooling for part in ensemble.parts(encoder)))


def with_encoders(done: pd.DataFrame, sums: Mapping[str, Sequence[str]] | None = None) -> pd.DataFrame:
    """The encoders of runs, loaded into the column `encoder`: those of a sum (`JTCSE I`, `JTCSE II`) stand before it. They
    are all in memory: give the runs of a few seeds at a time where encoders are large.

    Args:
        done: what `Plan.runs` gives.
        sums: name of a further sum -> the methods of one seed whose encoders are added, under the conditions of the first.
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
            last = max(places[method] for method in methods)
            rows.insert(last + 1, added[0] | {"method": name, "encoder": both})
    return pd.DataFrame(rows, columns=[*done, "encoder"])


def open_encoders(names: Sequence[str]) -> dict[str, Encoder]:
    """What tables call them -> encoders, in evaluation mode; of two with one name the second has what was given behind it.

    names: folder of an encoder or of an ensemble, folder or id of a run, hub name, or `demo`; `:mean` behind it chooses one
    of POOLINGS, else it is what the encoder was saved with, else `cls`.

    Raises:
        ConfigError: no name, or one twice; or a run that was not finished.
        EncoderError: no such encoder, or it cannot be loaded.
    """
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"encoders {list(names)}: name at least one, and each of them once.")
    opened = {}
    for name in names:
        place, _, last = name.rpartition(":")
        place, how = (place, last) if place and last in POOLINGS else (name, None)
        run = find_run(place)
        encoder = run.encoder(pooling=how) if run else ensemble.load(place, pooling=how)
        about = "{method}, {backbone}, seed {seed}".format(**run.labels) if run else encoder_name(place)
        called = f"{about} ({pooling_of(encoder)})"
        opened[f"{called}, {name}" if called in opened else called] = encoder.eval()
    return opened
