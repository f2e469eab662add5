"""Hundreds of logistic regressions on one feature matrix, fitted at once, each as SentEval fits its classifier.

One linear layer with softmax cross-entropy (Conneau and Kiela, 2018, arXiv:1803.05449). It trains some passes, is
scored on held-out data and keeps its best weights. It stops after 200 passes, or when the evaluations without
improvement outnumber the tenacity; they are counted over the whole fit and never reset.

Fits differ only in their training rows and their penalty. One random order of all rows is drawn per pass, and every
fit takes its own training rows in that order, a minibatch at a time. The n-th minibatches of all fits lie in one short
window of the order, so one matrix product serves all of them; rows outside a fit's own minibatch get weight zero. A
fit depends on the fits beside it only through floating-point rounding.

On a CPU the fits run on one thread: the products are small, so a second one gains nothing (MiniLM, TREC: 9.1 s instead
of 7.5 s) and costs twentyfold or more on a busy machine. The numbers do not depend on the number of cores.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

MAX_PASSES = 200


@dataclass(frozen=True)
class Setting:
    """Of Adam, the minibatch and early stopping."""

    learning_rate: float
    batch_size: int
    tenacity: int
    passes_per_evaluation: int


@dataclass(frozen=True)
class Classifiers:
    """Fitted classifiers: weights [C, fits, D + 1], the bias last; held-out accuracy x100, float64 [fits]."""

    weights: Tensor
    held_out_accuracy: np.ndarray

    def accuracy(self, features: Tensor, labels: Tensor, rows: Tensor) -> np.ndarray:
        """Accuracy x100 of each classifier on its own rows: rows bool [fits, n] -> float64 [fits]."""
        correct = _correct(self.weights, F.pad(features, (0, 1), value=1), labels, rows.to(features.device))
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
    features: Tensor, labels: Tensor, train: Tensor, held_out: Tensor, penalties: Tensor, *, setting: Setting, seed: int
) -> Classifiers:
    """Fit all classifiers at once, all from the same `initial_weights`; each stops by itself.

    Args:
        features: float32 [n, D]; its device is where everything runs.
        labels: int64 [n], classes from 0.
        train: bool [fits, n], the training rows of each fit; the sets may differ in size.
        held_out: bool [fits, n], the rows whose accuracy selects the weights and stops the fit.
        penalties: float [fits], weight decay: added to the gradient, bias included.
    """
    device, fits = features.device, len(penalties)
    train, held_out = train.to(device), held_out.to(device)
    inputs = F.pad(features, (0, 1), value=1)  # the bias is the weight of a constant feature: [n, D + 1]
    targets = F.one_hot(labels).to(inputs.dtype)  # [n, C]

    generator = torch.Generator("cpu").manual_seed(seed)
    start = initial_weights(features.shape[1], targets.shape[1], generator).to(device)
    optimiser = _Optimiser(start.unsqueeze(1).repeat(1, fits, 1), penalties.to(device), setting.learning_rate)
    best = optimiser.weights.clone()
    best_correct = torch.full((fits,), -1, device=device)
    failures = torch.zeros(fits, dtype=torch.long, device=device)
    running = torch.arange(fits, device=device)
    for _ in range(MAX_PASSES // setting.passes_per_evaluation):
        for _ in range(setting.passes_per_evaluation):
            order = torch.randperm(len(inputs), generator=generator, device="cpu").to(device)
            for rows, share, active in _minibatches(train[running], order, setting.batch_size):
                optimiser.step(_gradient(optimiser.weights, inputs[rows], targets[rows], share), active)
        correct = _correct(optimiser.weights, inputs, labels, held_out[running])
        improved = correct > best_correct[running]
        best[:, running[improved]] = optimiser.weights[:, improved]
        best_correct[running] = torch.maximum(correct, best_correct[running])
        failures[running] += ~improved
        keep = failures[running] <= setting.tenacity
        running = running[keep]
        if not len(running):
            break
        optimiser.keep(keep)
    accuracy = 100 * best_correct.cpu().double().numpy() / held_out.sum(1).cpu().double().numpy()
    return Classifiers(best, accuracy)


def initial_weights(dimensions: int, classes: int, generator: torch.Generator) -> Tensor:
    """torch's default start of a linear layer, uniform in +-1/sqrt(D): [C, D + 1], on the CPU."""
    return (2 * torch.rand(classes, dimensions + 1, generator=generator, device="cpu") - 1) / dimensions**0.5


def _minibatches(train: Tensor, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """The minibatches of one pass for all fits: fit f takes its rows train[f] in `order`, batch_size at a time.

    Yields rows [R], the window of `order` that holds the current minibatch of every fit; share [R, fits], which is
    1 / (size of the minibatch) for rows in it, else 0; active, bool [fits] when some fit has no rows left, else None.
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
    """Gradient [C, fits, D + 1] of each fit's mean cross-entropy; inputs [R, D + 1], one-hot targets [R, C]."""
    # Only differences between logits matter, so class 0 is the reference: its logit is 0 and its gradient is minus the
    # sum of the others. With two classes that halves the two products.
    relative = weights[1:] - weights[:1]  # [C - 1, fits, D + 1]
    logits = (inputs @ relative.flatten(0, 1).T).view(len(inputs), *relative.shape[:2])
    probabilities = F.pad(logits, (0, 0, 1, 0)).softmax(1)[:, 1:]
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
    """Adam with the defaults of torch.optim, for weights [C, fits, D + 1], with one weight decay per fit."""

    def __init__(self, weights: Tensor, weight_decay: Tensor, rate: float) -> None:
        self.weights, self.weight_decay, self.rate = weights, weight_decay.view(1, -1, 1), rate
        self.mean, self.square = torch.zeros_like(weights), torch.zeros_like(weights)
        self.steps = torch.zeros_like(self.weight_decay)

    def step(self, gradient: Tensor, active: Tensor | None = None) -> None:
        """One update of all fits, or of the active ones (bool [fits]). Overwrites `gradient`."""
        state = (self.weights, self.mean, self.square, self.steps)
        before = None if active is None else [tensor.clone() for tensor in state]
        gradient.addcmul_(self.weights, self.weight_decay)
        self.steps += 1
        beta1, beta2, epsilon = 0.9, 0.999, 1e-8
        self.mean.lerp_(gradient, 1 - beta1)
        self.square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # rate * (mean / correction1) / (sqrt(square / correction2) + epsilon), the factors moved to the divisor
        factor = (1 - beta1**self.steps) / self.rate
        divisor = torch.addcmul(epsilon * factor, self.square.sqrt(), factor / (1 - beta2**self.steps).sqrt())
        self.weights.addcdiv_(self.mean, divisor, value=-1)
        if before is not None:
            for tensor, old in zip(state, before, strict=True):
                tensor.copy_(torch.where(active.view(1, -1, 1), tensor, old))

    def keep(self, fits: Tensor) -> None:
        """Drop the other fits: fits is bool [fits]."""
        for name in ("weights", "mean", "square", "steps", "weight_decay"):
            setattr(self, name, getattr(self, name)[:, fits])
