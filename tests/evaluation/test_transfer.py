from pathlib import Path

import numpy as np
import pytest
import torch

from lib.data import transfer as data
from lib.evaluation import transfer
from lib.evaluation.transfer import SETTINGS, Setting, evaluate_transfer, fit_classifiers, initial_weights

SMALL = {
    "adam": Setting(3, "adam", 3e-2, batch_size=8, tenacity=1, passes_per_evaluation=2),
    "rmsprop": Setting(3, "rmsprop", 1e-2, batch_size=8, tenacity=1, passes_per_evaluation=1),
}


def slow_fit(
    features: torch.Tensor,
    labels: torch.Tensor,
    train: torch.Tensor,
    held_out: torch.Tensor,
    penalty: float,
    setting: Setting,
    seed: int,
) -> tuple[torch.Tensor, float]:
    """One fit of the protocol, one minibatch after the other, with torch's own layer, loss and optimiser."""
    classes = int(labels.max()) + 1
    generator = torch.Generator().manual_seed(seed)
    start = initial_weights(features.shape[1], classes, generator)
    layer = torch.nn.Linear(features.shape[1], classes)
    with torch.no_grad():
        layer.weight.copy_(start[:, :-1])
        layer.bias.copy_(start[:, -1])
    kind = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[setting.optimiser]
    optimiser = kind(layer.parameters(), lr=setting.learning_rate, weight_decay=penalty)
    best, best_weights, failures, passes = -1.0, torch.empty(0), 0, 0
    while passes < 200:
        for _ in range(setting.passes_per_evaluation):
            rows = [row for row in torch.randperm(len(features), generator=generator).tolist() if train[row]]
            for low in range(0, len(rows), setting.batch_size):
                batch = rows[low : low + setting.batch_size]
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
            if failures > setting.tenacity:
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
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
def test_simultaneous_fits_equal_slow_fits(optimiser: str, classes: int) -> None:
    features, labels, train, held_out, penalties = problem(classes)
    setting = SMALL[optimiser]
    together = fit_classifiers(features, labels, train, held_out, penalties, setting=setting, seed=7)
    for fit, penalty in enumerate(penalties.tolist()):
        weights, accuracy = slow_fit(features, labels, train[fit], held_out[fit], penalty, setting, seed=7)
        torch.testing.assert_close(together.weights[:, fit], weights, atol=1e-5, rtol=0)
        assert together.held_out_accuracy[fit] == pytest.approx(accuracy)
    np.testing.assert_allclose(together.accuracy(features, labels, held_out), together.held_out_accuracy)


def test_a_fit_does_not_depend_on_the_fits_beside_it() -> None:
    features, labels, train, held_out, penalties = problem(2)
    together = fit_classifiers(features, labels, train, held_out, penalties, setting=SMALL["adam"])
    alone = fit_classifiers(features, labels, train[2:3], held_out[2:3], penalties[2:3], setting=SMALL["adam"])
    torch.testing.assert_close(together.weights[:, 2], alone.weights[:, 0], atol=1e-5, rtol=0)


def test_minibatches_cover_each_training_set_once_in_order() -> None:
    _, _, train, _, _ = problem(2)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(1))
    seen: list[list[list[int]]] = [[] for _ in train]
    for rows, share, active in transfer._minibatches(train, order, 8):
        for fit, shares in enumerate(share.T):
            batch = rows[shares > 0].tolist()
            assert shares.sum().item() == pytest.approx(1 if batch else 0)
            assert active is None or active[fit].item() == bool(batch)
            seen[fit] += [batch] if batch else []
    for fit, batches in enumerate(seen):
        expected = [row for row in order.tolist() if train[fit, row]]
        assert batches == [expected[low : low + 8] for low in range(0, len(expected), 8)]


def test_a_separable_problem_is_solved() -> None:
    labels = torch.arange(60) % 3
    features = 3 * torch.nn.functional.one_hot(labels, 3).float()
    train = torch.arange(60)[None] < 40
    fitted = fit_classifiers(features, labels, train, ~train, torch.tensor([1e-5]), setting=SETTINGS["fast"], seed=0)
    assert fitted.held_out_accuracy.tolist() == [100.0]


def test_empty_fit_is_rejected() -> None:
    features, labels, train, held_out, penalties = problem(2)
    with pytest.raises(ValueError, match="training row"):
        fit_classifiers(features, labels, train & False, held_out, penalties, setting=SMALL["adam"])


def test_pair_features() -> None:
    u, v = np.array([[1.0, -2.0]]), np.array([[3.0, 4.0]])
    np.testing.assert_array_equal(transfer.pair_features(u, v), [[2.0, 6.0, 3.0, -8.0]])


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CR, SST2, TREC and MRPC with a few easy lines each: the class word is in the text, among noise."""
    generator = np.random.default_rng(0)

    def text(word: str) -> str:
        return " ".join(["w" + str(n) for n in generator.integers(0, 30, size=3)] + [word])

    trec = [f"{name}:x {text(name.lower())}" for name in data.TREC_CLASSES for _ in range(6)]
    sst = [f"{text(word)} \t{label}" for label, word in enumerate(("bad", "good")) for _ in range(15)]
    mrpc = ["header"]
    for number in range(30):
        one = text("x")
        mrpc.append(f"{number % 2}\t1\t2\t{one}\t{one if number % 2 else text('y')}")
    files = {
        "CR/custrev.pos": [text("good") for _ in range(30)] + [""],
        "CR/custrev.neg": [text("bad") for _ in range(21)],
        "TREC/train_5500.label": trec,
        "TREC/TREC_10.label": trec[::3],
        "MRPC/msr_paraphrase_train.txt": mrpc,
        "MRPC/msr_paraphrase_test.txt": mrpc,
    } | {f"SST/binary/sentiment-{part}": sst for part in ("train", "dev", "test")}
    for name, lines in files.items():
        path = tmp_path / "senteval" / "downstream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        monkeypatch.setitem(data.EXPECTED_LINES, name, len(lines) - name.startswith("MRPC"))
    return tmp_path


class BagOfWords:
    """Every word has its own random direction; counts calls."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.words: dict[str, np.ndarray] = {}

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.calls.append(texts)
        for word in sorted({word for text in texts for word in text.split()}):
            seed = int.from_bytes(word.encode(), "little")
            self.words.setdefault(word, np.random.default_rng(seed).normal(size=24))
        return np.stack([sum((self.words[word] for word in text.split()), np.zeros(24)) for text in texts])


TASKS = ("CR", "SST2", "TREC", "MRPC")


def test_rows_and_determinism(data_dir: Path) -> None:
    encode, lines = BagOfWords(), []
    frame = evaluate_transfer(encode, data_dir, tasks=TASKS, mode="fast", progress=lines.append)
    assert frame.columns.tolist() == ["task", "split", "protocol", "aggregation", "metric", "value"]
    assert frame["task"].tolist() == [task for task in TASKS for _ in range(2)]
    assert frame["split"].tolist() == ["test", "dev"] * 4
    assert set(frame["protocol"]) == {"SentEval, logistic regression, fast"}
    assert frame["value"].between(60, 100).all()
    assert len(encode.calls) == 4 and all(len(set(call)) == len(call) for call in encode.calls)
    assert len(lines) == 4 and lines[0].startswith("CR")
    again = evaluate_transfer(BagOfWords(), data_dir, tasks=TASKS, mode="fast")
    assert again.equals(frame)


def test_full_mode_is_ten_folds_of_adam(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def recorded(*arguments: torch.Tensor, setting: Setting, seed: int) -> transfer.Classifiers:
        calls.append((len(arguments[4]), setting, seed))
        return fit_classifiers(*arguments, setting=SMALL["rmsprop"], seed=seed)

    monkeypatch.setattr(transfer, "fit_classifiers", recorded)
    evaluate_transfer(BagOfWords(), data_dir, tasks=("CR",))
    assert calls == [(400, SETTINGS["full"], 1111), (10, SETTINGS["full"], 1111)]
    assert SETTINGS["full"] == Setting(10, "adam", 1e-3, 64, tenacity=5, passes_per_evaluation=4)
    assert SETTINGS["fast"] == Setting(5, "rmsprop", 1e-2, 128, tenacity=3, passes_per_evaluation=2)


def test_rejects(data_dir: Path) -> None:
    with pytest.raises(ValueError, match="transfer mode"):
        evaluate_transfer(BagOfWords(), data_dir, mode="quick")
    with pytest.raises(ValueError, match="shape"):
        evaluate_transfer(lambda texts: np.ones((3, 2)), data_dir, tasks=("CR",))
    with pytest.raises(ValueError, match="non-finite"):
        evaluate_transfer(lambda texts: np.full((len(texts), 2), np.nan), data_dir, tasks=("CR",))
