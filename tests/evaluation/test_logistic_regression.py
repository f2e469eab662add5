"""Many fits at once against one fit at a time with torch's own layer, loss and optimiser."""

import numpy as np
import pytest
import torch

from lib.evaluation.logistic_regression import Setting, fit_classifiers, initial_weights

SMALL = Setting(3e-2, batch_size=8, tenacity=1, passes_per_evaluation=2)


def slow_fit(features, labels, train, held_out, penalty, seed):
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


def problem(classes):
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
def test_simultaneous_fits_equal_slow_fits(classes):
    features, labels, train, held_out, penalties = problem(classes)
    together = fit_classifiers(features, labels, train, held_out, penalties, setting=SMALL, seed=7)
    for fit, penalty in enumerate(penalties.tolist()):
        weights, accuracy = slow_fit(features, labels, train[fit], held_out[fit], penalty, seed=7)
        torch.testing.assert_close(together.weights[:, fit], weights, atol=1e-5, rtol=0)
        assert together.held_out_accuracy[fit] == pytest.approx(accuracy)
    np.testing.assert_allclose(together.accuracy(features, labels, held_out), together.held_out_accuracy)
