"""Many fits at once against one fit at a time with torch's own layer, loss and optimiser."""

import numpy as np
import pytest
import torch

from lib.evaluation import logistic_regression
from lib.evaluation.logistic_regression import Setting, fit_classifiers, initial_weights

SMALL = Setting(3e-2, batch_size=8, tenacity=1, passes_per_evaluation=2)


def slow_fit(
    features: torch.Tensor, labels: torch.Tensor, train: torch.Tensor, held_out: torch.Tensor, penalty: float, seed: int
) -> tuple[torch.Tensor, float]:
    """One fit of the protocol, one minibatch after the other, with torch's own layer, loss and optimiser."""
    classes = int(labels.max()) + 1
    generator = torch.Generator().manual_seed(seed)
    start = initial_weights(features.shape[1], classes, generator)
    layer = torch.nn.Linear(features.shape[1], classes)
    with torch.no_grad():
        layer.weight.copy_(start[:, :-1])
        layer.bias.copy_(start[:, -1])
    optimiser = torch.optim.Adam(layer.parameters(), lr=SMALL.learning_rate, weight_decay=penalty)
    best, best_weights, failures, passes = -1.0, torch.empty(0), 0, 0
    while passes < 200:
        for _ in range(SMALL.passes_per_evaluation):
            rows = [row for row in torch.randperm(len(features), generator=generator).tolist() if train[row]]
            for low in range(0, len(rows), SMALL.batch_size):
                batch = rows[low : low + SMALL.batch_size]
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(layer(features[batch]), labels[batch]).backward()
                optimiser.step()
            passes += 1
        right = layer(features[held_out]).argmax(1) == labels[held_out]
        accuracy = 100 * right.double().mean().item()
        if accuracy > best:
            best = accuracy
            best_weights = torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().clone()
        else:
            failures += 1
            if failures > SMALL.tenacity:
                break
    return best_weights, best


def problem(classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """90 noisy points and six fits, whose training sets end in different minibatches of 8."""
    generator = torch.Generator().manual_seed(classes)
    labels = torch.randint(classes, (90,), generator=generator)
    features = torch.randn(90, 5, generator=generator)
    features[:, :classes] += 1.5 * torch.nn.functional.one_hot(labels, classes)
    train, held_out = torch.zeros(6, 90, dtype=torch.bool), torch.zeros(6, 90, dtype=torch.bool)
    for fit, size in enumerate((23, 24, 25, 56, 57, 64)):
        rows = torch.randperm(90, generator=generator)
        train[fit, rows[:size]] = True
        held_out[fit, rows[size : size + 20]] = True
    return features, labels, train, held_out, torch.tensor([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e-2])


@pytest.mark.parametrize("classes", [2, 3])
def test_simultaneous_fits_equal_slow_fits(classes: int) -> None:
    features, labels, train, held_out, penalties = problem(classes)
    together = fit_classifiers(features, labels, train, held_out, penalties, setting=SMALL, seed=7)
    for fit, penalty in enumerate(penalties.tolist()):
        weights, accuracy = slow_fit(features, labels, train[fit], held_out[fit], penalty, seed=7)
        torch.testing.assert_close(together.weights[:, fit], weights, atol=1e-5, rtol=0)
        assert together.held_out_accuracy[fit] == pytest.approx(accuracy)
    np.testing.assert_allclose(together.accuracy(features, labels, held_out), together.held_out_accuracy)


def test_a_fit_does_not_depend_on_the_fits_beside_it() -> None:
    features, labels, train, held_out, penalties = problem(2)
    together = fit_classifiers(features, labels, train, held_out, penalties, setting=SMALL, seed=0)
    alone = fit_classifiers(features, labels, train[2:3], held_out[2:3], penalties[2:3], setting=SMALL, seed=0)
    torch.testing.assert_close(together.weights[:, 2], alone.weights[:, 0], atol=1e-5, rtol=0)


def test_minibatches_cover_each_training_set_once_in_order() -> None:
    _, _, train, _, _ = problem(2)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(1))
    batches_of_fits: list[list[list[int]]] = [[] for _ in train]
    for rows, share, active in logistic_regression._minibatches(train, order, 8):
        for fit, shares in enumerate(share.T):
            batch = rows[shares > 0].tolist()
            assert shares.sum().item() == pytest.approx(1 if batch else 0)
            assert active is None or active[fit].item() == bool(batch)
            batches_of_fits[fit] += [batch] if batch else []
    for fit, batches in enumerate(batches_of_fits):
        expected = [row for row in order.tolist() if train[fit, row]]
        assert batches == [expected[low : low + 8] for low in range(0, len(expected), 8)]


def test_a_separable_problem_is_solved() -> None:
    labels = torch.arange(60) % 3
    features = 3 * torch.nn.functional.one_hot(labels, 3).float()
    train = torch.arange(60)[None] < 40
    fitted = fit_classifiers(features, labels, train, ~train, torch.tensor([1e-5]), setting=SMALL, seed=0)
    assert fitted.held_out_accuracy.tolist() == [100.0]
