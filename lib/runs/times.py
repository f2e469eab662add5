"""What work takes on this machine: seconds per unit of each kind, remembered in the store; what was never done here is
timed in a small piece."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from lib import paths, session
from lib.checks import DataError
from lib.config import RunConfig
from lib.data import STSTask, augment, load_corpus, tokenize_corpus
from lib.encoders import SentenceEncoder
from lib.encoders.saved import write_json
from lib.runs.prepare import Shared, load
from lib.training import train

SPENT = "spent"  # all seconds that were ever remembered: what a notebook took beside them is the rest of its time

TRIAL_STEPS, TRIAL_TEXTS = 3, 256  # of the small piece

_unwritten: dict[tuple[Path, str], float] = {}  # what this process measured and the store could not take


def _file() -> Path:
    return paths.runs() / "times.json"


def read() -> dict[str, float]:
    """kind -> seconds per unit, as the last work of that kind took; empty where the file is missing or damaged."""
    try:
        known = {kind: float(seconds) for kind, seconds in paths.read_json(_file()).items()}
    except (DataError, ValueError, TypeError, OverflowError):  # only an estimate depends on it
        known = {}
    known |= {kind: seconds for (file, kind), seconds in _unwritten.items() if file == _file()}
    return {kind: seconds for kind, seconds in known.items() if math.isfinite(seconds) and seconds >= 0}


@contextmanager
def _changed() -> Iterator[dict[str, float]]:
    with paths.locked(_file()):
        known = read()
        yield known
        with paths.whole_file(_file()) as new:
            write_json(new, known)


def remember(kind: str, seconds: float, units: float = 1, *, spent: bool = True) -> None:
    """`units` of this kind took `seconds`. Where the store cannot be written it is known to this process alone.

    Args:
        spent: count the seconds as work of a notebook (not so for a calibration).
    """
    if units <= 0:
        return
    per_unit = float(f"{seconds / units:.4g}")
    try:
        with _changed() as known:
            known[kind] = per_unit
            known[SPENT] = round(known.get(SPENT, 0.0) + seconds * spent, 3)
    except (DataError, OSError):
        _unwritten[_file(), kind] = per_unit


def _shape(encoder: SentenceEncoder) -> str:
    size = encoder.backbone.config
    return f"{size.num_hidden_layers} layers of {size.hidden_size}, {session.device_name()}"


def kind_of_training(config: RunConfig, encoder: SentenceEncoder) -> str:
    """What the time of a training step depends on, roughly."""
    rows = f"{config.batch_size} rows of {config.max_length} of {config.corpus}"
    return f"step of {config.method}, {config.needs.passes} passes: {rows}, {config.precision}, {_shape(encoder)}"


def kind_of_dev(config: RunConfig, encoder: SentenceEncoder) -> str:
    """What the time of a dev evaluation depends on."""
    return f"dev {config.dev_task} of {config.method}: {_shape(encoder)}"


def kind_of_score(tasks: Sequence[STSTask], encoder: SentenceEncoder) -> str:
    """What the time of an evaluation depends on."""
    return f"{', '.join(task.name for task in tasks)}: {_shape(encoder)}"


def steps(config: RunConfig) -> int:
    """Steps of a run. Where long rows are split (mlm) without max_steps it is the least number."""
    if config.corpus_size and "+" not in config.corpus:
        rows = config.corpus_size
    else:
        draw = {"size": config.corpus_size, "seed": config.corpus_seed}
        rows = len(load_corpus(config.corpus, config.data_folder(), **draw))
    return min(config.epochs * -(-rows // config.batch_size), config.max_steps or sys.maxsize)


def of_training(config: RunConfig, shared: Shared) -> float:
    """Seconds that a run is expected to take."""
    _, encoder, dev = load(config, shared)
    count, step = steps(config), _known(kind_of_training(config, encoder), lambda: _time_steps(config))
    if dev is None:
        return count * step
    evaluation = _known(kind_of_dev(config, encoder), lambda: _time_encoding([dev], encoder))
    return count * step + (count // config.eval_every + 1) * evaluation


def of_score(tasks: Sequence[STSTask], config: RunConfig, shared: Shared) -> float:
    """Seconds that scoring one encoder, as this run trains it, is expected to take."""
    _, encoder, _ = load(config, shared)
    return _known(kind_of_score(tasks, encoder), lambda: _time_encoding(tasks, encoder))


def translates(config: RunConfig) -> bool:
    """Whether making the corpus is long work by itself."""
    return config.augmentation.startswith("round_trip")


def _known(kind: str, measure: Callable[[], float]) -> float:
    """Seconds of a unit of this kind on this machine: remembered, else measured now."""
    if kind not in read():
        remember(kind, measure(), spent=False)
    return read()[kind]


def _time_steps(config: RunConfig) -> float:
    """A training step, from a few of them."""
    corpus, encoder, _ = load(config)  # not a shared encoder: its weights change
    few = corpus.sample(min(len(corpus), TRIAL_STEPS * config.batch_size), 0)
    few = augment.augment_corpus(few, "none" if translates(config) else config.augmentation, 0)
    tokens = tokenize_corpus(few, encoder, max_length=config.max_length, split=config.needs.splits_long_rows)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        method = config.spec.build(encoder, config.method_arguments)
        tokens = replace(tokens, extra=method.row_data(few, config.max_length))
        for count in (1, TRIAL_STEPS):  # the first step allocates memory and is slow
            trial = config.replace(max_steps=count, epochs=count, dev_task="none")
            trained = train(method, tokens, trial, dev=None)
    return trained.progress.seconds / TRIAL_STEPS


def _time_encoding(tasks: Sequence[STSTask], encoder: SentenceEncoder) -> float:
    """Encoding the texts of these tasks, from a few of them."""
    texts = list(dict.fromkeys(itertools.chain.from_iterable((*t.sentences1, *t.sentences2) for t in tasks)))
    few = texts[:: max(1, len(texts) // TRIAL_TEXTS)]
    encoder.encode(few[:8])
    start = time.monotonic()
    encoder.encode(few)
    return (time.monotonic() - start) * len(texts) / len(few)
