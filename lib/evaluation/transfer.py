"""The SentEval transfer protocol: logistic regression on frozen embeddings, hundreds of fits at once.

Protocol: Conneau and Kiela, 2018 (arXiv:1803.05449), as used for the transfer tables of SimCSE and its
successors. One linear layer with softmax cross-entropy; the L2 penalty is chosen by cross-validation (MR, CR,
SUBJ, MPQA: inside every fold of an outer cross-validation; TREC, MRPC: on the training set; SST2: on the dev
set). The classifier trains some passes, is scored on held-out data, keeps its best weights, and stops when
the evaluations that did not improve (counted over the whole fit, never reset) outnumber the tenacity, or
after 200 passes. In full mode that is 10 x (4 x 10 + 1) fits for one cross-validated task. In the search
the held-out data of a fit is the fold it is scored on; in the refit, a random 5% of the training set.

What makes it fast: fits differ only in which rows they train on and in their penalty. One random order of all
rows is drawn per pass and every fit takes its own training rows in that order, 64 at a time. The n-th
minibatches of all fits then lie in one short window of the order, so that one matrix product serves all of
them, without gathering rows per fit; rows outside a fit's own minibatch get weight zero. A fit's result does
not depend on the fits beside it, except through floating-point rounding.

Where this differs from SentEval (nothing else is known to):
- other random numbers for the initial weights, the order of rows and the 5% held out for the refit; as there,
  every fit restarts from the same seed;
- fits with unequal training sets share one order of rows (each restricted to its own), instead of each
  permuting the positions of its own list;
- rows are split into folds in file order, so the members of a fold may differ;
- SST2: the refit with the chosen penalty would repeat the fit that chose it, so that one is kept;
- every distinct sentence is encoded once per task, and the device is the caller's choice.
Everything is deterministic for a seed and a device. On a CPU the fits run on one thread: the products are
small, a second thread gains nothing on a quiet machine (MiniLM, TREC: 9.1 s instead of 7.5 s) and costs
twentyfold or more on a busy one, and the numbers do not depend on the number of cores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from lib.data.transfer import TRANSFER_TASKS, Split, TransferTask, load_transfer

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
MAX_PASSES = 200
HELD_OUT_SHARE = 0.05


@dataclass(frozen=True)
class Setting:
    """One mode of the protocol: folds (outer and inner), optimiser, minibatch, early stopping."""

    folds: int
    optimiser: Literal["adam", "rmsprop"]
    learning_rate: float
    batch_size: int
    tenacity: int
    passes_per_evaluation: int


SETTINGS = {
    "full": Setting(10, "adam", 1e-3, batch_size=64, tenacity=5, passes_per_evaluation=4),
    "fast": Setting(5, "rmsprop", 1e-2, batch_size=128, tenacity=3, passes_per_evaluation=2),
}


def evaluate_transfer(
    encode: Callable[[list[str]], np.ndarray],
    data_dir: Path | str,
    *,
    tasks: tuple[str, ...] = TRANSFER_TASKS,
    mode: Literal["full", "fast"] = "full",
    seed: int = 1111,
    device: torch.device | str = "cpu",
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Accuracy of a linear classifier on each transfer task, by SentEval's protocol.

    Args:
        encode: n texts -> embeddings [n, D]; called once per task, with the task's distinct texts.
        data_dir: holds `senteval/downstream`.
        mode: `full` for the papers' tables, `fast` for SentEval's development setting (RMSprop, 5 folds).
        seed: of the folds, the initial weights and the order of rows; SentEval uses 1111 throughout.
        progress: called with one line of text after each task, for example `print`.

    Returns:
        Two rows per task: split `test` and split `dev` (the score that chose the penalty, averaged over outer
        folds); columns task, split, protocol, aggregation, metric, value (accuracy x 100, two decimals).

    Raises:
        lib.data.DataError: a file of a task is missing, truncated or malformed.
        ValueError: unknown task or mode, or `encode` gave a wrong shape or non-finite numbers.
    """
    if mode not in SETTINGS:
        raise ValueError(f"{mode!r} is not a transfer mode: choose from {', '.join(SETTINGS)}.")
    rows = []
    for name in tasks:
        started = time.perf_counter()
        task = load_transfer(data_dir, name)
        features, labels, parts = _encode_task(encode, task)
        scores = _score_task(task.kind, features.to(device), labels.to(device), parts, SETTINGS[mode], seed)
        for split, value in scores.items():
            rows.append((name, split, f"SentEval, logistic regression, {mode}", "-", "accuracy", value))
        if progress is not None:
            seconds = time.perf_counter() - started
            progress(f"{name:5} test {scores['test']:6.2f}  dev {scores['dev']:6.2f}  {seconds:.0f} s")
    return pd.DataFrame(rows, columns=["task", "split", "protocol", "aggregation", "metric", "value"])


def pair_features(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Features of a sentence pair, |u - v| beside u * v: two [n, D] -> [n, 2 D]."""
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def _encode_task(
    encode: Callable[[list[str]], np.ndarray], task: TransferTask
) -> tuple[Tensor, Tensor, dict[str, np.ndarray]]:
    """Features [n, D] and classes [n] of all splits, one below the other, and each split's row numbers."""
    splits = {"train": task.train, "dev": task.dev, "test": task.test}
    present: dict[str, Split] = {name: split for name, split in splits.items() if split is not None}
    first = [text for split in present.values() for text in split.sentences1]
    second = [text for split in present.values() for text in split.sentences2 or []]
    distinct = {text: row for row, text in enumerate(dict.fromkeys(first + second))}
    vectors = np.asarray(encode(list(distinct)), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(distinct):
        raise ValueError(f"encode gave an array of shape {vectors.shape} for {len(distinct)} texts.")
    if not np.isfinite(vectors).all():
        raise ValueError(f"encode gave non-finite numbers on {task.name}.")
    features = vectors[[distinct[text] for text in first]]
    if task.pairs:
        features = pair_features(features, vectors[[distinct[text] for text in second]])
    ends = np.cumsum([len(split) for split in present.values()])
    parts = {name: np.arange(end - len(split), end) for (name, split), end in zip(present.items(), ends, strict=True)}
    labels = np.concatenate([split.labels for split in present.values()])
    return torch.from_numpy(features), torch.from_numpy(labels), parts


def _score_task(
    kind: str, features: Tensor, labels: Tensor, parts: dict[str, np.ndarray], setting: Setting, seed: int
) -> dict[str, float]:
    """Test and dev accuracy x 100 of one task."""
    if kind == "train_dev_test":
        return _choose_on_dev(features, labels, parts, setting, seed)
    if kind == "train_test":
        return _choose_by_folds(features, labels, [parts["train"]], [parts["test"]], setting, seed)
    outer = _folds(labels, parts["train"], setting.folds, seed)
    trains, tests = (list(side) for side in zip(*outer, strict=True))
    return _choose_by_folds(features, labels, trains, tests, setting, seed)


def _choose_by_folds(
    features: Tensor,
    labels: Tensor,
    trains: list[np.ndarray],
    tests: list[np.ndarray],
    setting: Setting,
    seed: int,
) -> dict[str, float]:
    """Per training set: choose the penalty by folds inside it, refit with 5% held out, score its test set."""
    n = len(labels)
    inner = [fold for train in trains for fold in _folds(labels, train, setting.folds, seed)]
    every = [(rows, held_out, penalty) for rows, held_out in inner for penalty in PENALTIES]
    search = fit_classifiers(features, labels, *_fits(every, n), setting=setting, seed=seed)
    by_penalty = search.held_out_accuracy.reshape(len(trains), setting.folds, len(PENALTIES)).mean(axis=1).round(2)

    refits = []
    for train, penalty in zip(trains, by_penalty.argmax(axis=1), strict=True):
        shuffled = np.random.default_rng(seed).permutation(train)
        held_out = max(1, int(HELD_OUT_SHARE * len(train)))
        refits.append((shuffled[held_out:], shuffled[:held_out], PENALTIES[penalty]))
    refit = fit_classifiers(features, labels, *_fits(refits, n), setting=setting, seed=seed)
    accuracy = refit.accuracy(features, labels, _masks(tests, n)).round(2)
    return {"test": round(float(accuracy.mean()), 2), "dev": round(float(by_penalty.max(axis=1).mean()), 2)}


def _choose_on_dev(
    features: Tensor, labels: Tensor, parts: dict[str, np.ndarray], setting: Setting, seed: int
) -> dict[str, float]:
    """Fit every penalty with the dev set held out; score the one that is best on dev on the test set."""
    every = [(parts["train"], parts["dev"], penalty) for penalty in PENALTIES]
    fitted = fit_classifiers(features, labels, *_fits(every, len(labels)), setting=setting, seed=seed)
    accuracy = fitted.accuracy(features, labels, _masks([parts["test"]] * len(PENALTIES), len(labels)))
    dev = fitted.held_out_accuracy.round(2)
    return {"test": round(float(accuracy[dev.argmax()]), 2), "dev": float(dev.max())}


def _folds(labels: Tensor, rows: np.ndarray, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Stratified shuffled folds of `rows`: (training rows, held-out rows) of each."""
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    splits = splitter.split(np.zeros(len(rows)), labels.cpu().numpy()[rows])
    return [(rows[train], rows[held_out]) for train, held_out in splits]


def _masks(rows: list[np.ndarray], n: int) -> Tensor:
    """Row numbers of each fit -> bool [fits, n]."""
    masks = torch.zeros(len(rows), n, dtype=torch.bool)
    for mask, members in zip(masks, rows, strict=True):
        mask[torch.from_numpy(members)] = True
    return masks


def _fits(fits: list[tuple[np.ndarray, np.ndarray, float]], n: int) -> tuple[Tensor, Tensor, Tensor]:
    """(training rows, held-out rows, penalty) of each fit -> the arguments of fit_classifiers."""
    train, held_out, penalties = zip(*fits, strict=True)
    return _masks(list(train), n), _masks(list(held_out), n), torch.tensor(penalties)


@dataclass(frozen=True)
class Classifiers:
    """Fitted classifiers: weights [C, fits, D + 1], the bias last; held-out accuracy x 100, float64
    [fits]."""

    weights: Tensor
    held_out_accuracy: np.ndarray

    def accuracy(self, features: Tensor, labels: Tensor, rows: Tensor) -> np.ndarray:
        """Accuracy x 100 of each classifier on its own rows: rows bool [fits, n] -> float64 [fits]."""
        correct = _correct(self.weights, _with_bias(features), labels, rows.to(features.device))
        return 100 * correct.cpu().double().numpy() / rows.sum(1).cpu().double().numpy()


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
@_one_thread()
def fit_classifiers(
    features: Tensor,
    labels: Tensor,
    train: Tensor,
    held_out: Tensor,
    penalties: Tensor,
    *,
    setting: Setting,
    seed: int = 1111,
) -> Classifiers:
    """Train many logistic regressions on rows of one feature matrix simultaneously, each stopped early by
    itself.

    Every fit starts from the weights of `initial_weights` and trains on its own rows in the order of one
    random permutation of all rows per pass. The penalty is weight decay of the optimiser: added to the
    gradient, bias included.

    Args:
        features: float32 [n, D]; its device is where everything runs.
        labels: int64 [n], classes from 0.
        train: bool [fits, n], the training rows of each fit; the sets may differ in size.
        held_out: bool [fits, n], the rows whose accuracy selects the weights and stops the fit.
        penalties: float [fits], weight decay.

    Raises:
        ValueError: a fit has no training row or no held-out row.
    """
    if not (train.any(1).all() and held_out.any(1).all()):
        raise ValueError("Every fit needs a training row and a held-out row.")
    device, fits = features.device, len(penalties)
    inputs, train, held_out = _with_bias(features), train.to(device), held_out.to(device)
    classes = int(labels.max()) + 1
    targets = torch.nn.functional.one_hot(labels, classes).to(inputs.dtype)  # [n, C]

    generator = torch.Generator().manual_seed(seed)
    start = initial_weights(features.shape[1], classes, generator).to(device)
    optimiser = _Optimiser(start.unsqueeze(1).repeat(1, fits, 1), penalties.to(device), setting)
    best = optimiser.weights.clone()
    best_correct = torch.full((fits,), -1, device=device)
    failures = torch.zeros(fits, dtype=torch.long, device=device)
    running = torch.arange(fits, device=device)
    for _ in range(MAX_PASSES // setting.passes_per_evaluation):
        for _ in range(setting.passes_per_evaluation):
            order = torch.randperm(len(inputs), generator=generator).to(device)
            for rows, share, active in _minibatches(train[running], order, setting.batch_size):
                optimiser.step(_gradient(optimiser.weights, inputs[rows], targets[rows], share), active)
        correct = _correct(optimiser.weights, inputs, labels, held_out[running])
        improved = correct > best_correct[running]
        best[:, running[improved]] = optimiser.weights[:, improved]
        best_correct[running] = torch.maximum(correct, best_correct[running])
        failures[running] += ~improved
        keep = failures[running] <= setting.tenacity
        if not keep.any():
            break
        if not keep.all():
            running = running[keep]
            optimiser.keep(keep)
    accuracy = 100 * best_correct.cpu().double().numpy() / held_out.sum(1).cpu().double().numpy()
    return Classifiers(best, accuracy)


def initial_weights(dimensions: int, classes: int, generator: torch.Generator) -> Tensor:
    """torch's default start of a linear layer, weights and bias uniform in +-1/sqrt(D): [C, D + 1]."""
    return (2 * torch.rand(classes, dimensions + 1, generator=generator) - 1) / dimensions**0.5


def _with_bias(features: Tensor) -> Tensor:
    """The bias is the weight of a constant feature: [n, D] -> [n, D + 1]."""
    return torch.cat([features, features.new_ones(len(features), 1)], dim=1)


def _minibatches(train: Tensor, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """The minibatches of one pass for all fits: fit f takes its rows train[f] in `order`, batch_size at a
    time.

    Yields:
        rows [R]: the window of `order` that holds the current minibatch of every fit;
        share [R, fits]: 1 / (size of the minibatch) for rows in it, else 0;
        active: bool [fits] when some fit has no rows left (training sets of unequal size), else None.
    """
    members = train[:, order]
    taken = members.cumsum(1, dtype=torch.int32)  # [fits, n], rows taken up to and including this one
    sizes = taken[:, -1]
    smallest, largest = int(sizes.min()), int(sizes.max())
    starts = torch.arange(0, largest, batch_size, dtype=torch.int32, device=train.device)
    first = torch.searchsorted(taken, (starts + 1).repeat(len(train), 1)).amin(0).tolist()
    last = torch.searchsorted(taken, torch.minimum(starts + batch_size, sizes[:, None])).amax(0).tolist()
    batch = torch.where(members, (taken - 1) // batch_size, -1).T.contiguous()  # [n, fits]
    size = (sizes - starts[:, None]).clamp(1, batch_size)  # [batches, fits]
    for number, (low, high) in enumerate(zip(first, last, strict=True)):
        share = (batch[low : high + 1] == number) / size[number]
        active = sizes > number * batch_size if number * batch_size >= smallest else None
        yield order[low : high + 1], share, active


def _gradient(weights: Tensor, inputs: Tensor, targets: Tensor, share: Tensor) -> Tensor:
    """Gradient of every fit's mean cross-entropy on its minibatch.

    Only differences between logits matter, so class 0 is the reference: its logit is 0 and its gradient is
    minus the sum of the others. With two classes that halves the two products.

    weights [C, fits, D + 1], inputs [R, D + 1], targets one-hot [R, C], share [R, fits] -> [C, fits, D + 1]
    """
    relative = weights[1:] - weights[:1]  # [C - 1, fits, D + 1]
    logits = (inputs @ relative.flatten(0, 1).T).view(len(inputs), *relative.shape[:2])
    probabilities = torch.nn.functional.pad(logits, (0, 0, 1, 0)).softmax(1)[:, 1:]
    error = (probabilities - targets[:, 1:, None]) * share[:, None]  # [R, C - 1, fits]
    gradient = torch.empty_like(weights)
    torch.mm(error.flatten(1).T, inputs, out=gradient[1:].view(-1, inputs.shape[1]))
    torch.sum(gradient[1:], 0, out=gradient[0]).neg_()
    return gradient


def _correct(weights: Tensor, inputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """Number of rows that each classifier gets right among its own: rows bool [fits, n] -> int64 [fits]."""
    classes, fits, _ = weights.shape
    correct = torch.zeros(fits, dtype=torch.long, device=weights.device)
    for chunk in rows.any(0).nonzero().squeeze(1).split(2048):
        logits = (inputs[chunk] @ weights.flatten(0, 1).T).view(-1, classes, fits)
        right = logits.argmax(1) == labels[chunk].unsqueeze(1)  # [R, fits]
        correct += (right & rows[:, chunk].T).sum(0)
    return correct


class _Optimiser:
    """Adam or RMSprop, as defined in torch.optim, for weights [C, fits, D + 1] with one weight decay per
    fit."""

    def __init__(self, weights: Tensor, weight_decay: Tensor, setting: Setting) -> None:
        self.weights = weights
        self.setting = setting
        self.weight_decay = weight_decay.view(1, -1, 1)
        self.steps = torch.zeros_like(self.weight_decay)
        self.mean = torch.zeros_like(weights)
        self.square = torch.zeros_like(weights)

    def step(self, gradient: Tensor, active: Tensor | None = None) -> None:
        """One update of all fits, or of the active ones (bool [fits]). Overwrites `gradient`."""
        state = (self.weights, self.mean, self.square, self.steps)
        before = None if active is None else [tensor.clone() for tensor in state]
        gradient.addcmul_(self.weights, self.weight_decay)
        self.steps += 1
        if self.setting.optimiser == "adam":
            self._adam(gradient)
        else:
            self._rmsprop(gradient)
        if before is not None:
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(torch.where(active.view(1, -1, 1), tensor, old))

    def _adam(self, gradient: Tensor, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        self.mean.lerp_(gradient, 1 - beta1)
        self.square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # lr * (mean / correction1) / (sqrt(square / correction2) + epsilon), with the factors moved to the
        # divisor
        factor = (1 - beta1**self.steps) / self.setting.learning_rate
        divisor = torch.addcmul(epsilon * factor, self.square.sqrt(), factor / (1 - beta2**self.steps).sqrt())
        self.weights.addcdiv_(self.mean, divisor, value=-1)

    def _rmsprop(self, gradient: Tensor, alpha: float = 0.99, epsilon: float = 1e-8) -> None:
        self.square.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        self.weights.addcdiv_(gradient, self.square.sqrt().add_(epsilon), value=-self.setting.learning_rate)

    def keep(self, fits: Tensor) -> None:
        """Drop the other fits: fits is bool [fits]."""
        for name in ("weights", "mean", "square", "steps", "weight_decay"):
            setattr(self, name, getattr(self, name)[:, fits])
