"""The SentEval transfer protocol: accuracy of a logistic regression on frozen embeddings.

Conneau and Kiela, 2018 (arXiv:1803.05449), as used for the transfer tables of SimCSE and its successors. The L2
penalty is chosen by cross-validation (MR, CR, SUBJ, MPQA: inside every fold of an outer cross-validation; TREC, MRPC:
on the training set; SST2: on the dev set). That is 10 x (4 x 10 + 1) fits for one cross-validated task.
While the penalty is searched, the held-out data of a fit is the fold it is scored on; the refit with the chosen
penalty holds out a random 5% of the training set.

Everything is deterministic for a seed. Known differences from SentEval:
- initial weights, row order and the held-out 5% are drawn otherwise; as in SentEval, every fit restarts from one seed;
- fits share one order of all rows, each restricted to its own rows, where SentEval permutes the rows of each fit;
- rows are split into folds in file order, so the members of a fold may differ;
- SST2: the refit with the chosen penalty would repeat the fit that chose it, so that fit is kept.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from lib.data.transfer import Split
from lib.evaluation.interface import RESULT_COLUMNS, Encode, encode_distinct
from lib.evaluation.logistic_regression import Classifiers, Setting, fit_classifiers

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
HELD_OUT_SHARE = 0.05
FOLDS = 10  # outer and inner
SEED = 1111  # of the folds, the initial weights and the order of rows, as in SentEval
SETTING = Setting(learning_rate=1e-3, batch_size=64, tenacity=5, passes_per_evaluation=4)


def evaluate_transfer(encode: Encode, name: str, splits: Mapping[str, Split]) -> pd.DataFrame:
    """Accuracy of a linear classifier on a transfer task (its name, and what `load_transfer` gives), by SentEval's protocol.

    Returns:
        Two rows: split `test`, and split `dev` (the score that chose the penalty, mean over outer folds); columns task,
        split, protocol, aggregation, metric, value (accuracy x100, two decimals).
    """
    scores, protocol = _score_task(*_encode_task(encode, splits)), "SentEval, logistic regression, full"
    rows = [(name, split, protocol, "-", "accuracy", value) for split, value in scores.items()]
    return pd.DataFrame(rows, columns=RESULT_COLUMNS)


def pair_features(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Features of a sentence pair, |u - v| beside u * v: two [n, D] -> [n, 2 D]."""
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def _encode_task(encode: Encode, splits: Mapping[str, Split]) -> tuple[Tensor, Tensor, dict[str, np.ndarray]]:
    """Features [n, D] and classes [n] of all splits, one below the other, and each split's row numbers."""
    first = [text for split in splits.values() for text in split.sentences1]
    second = [text for split in splits.values() for text in split.sentences2 or []]
    vectors, row_of = encode_distinct(encode, first + second, np.float32)
    features = vectors[[row_of[text] for text in first]]
    if second:
        features = pair_features(features, vectors[[row_of[text] for text in second]])
    labels = np.concatenate([split.labels for split in splits.values()])
    split_of_row = np.repeat(list(splits), [len(split) for split in splits.values()])
    split_rows = {name: np.flatnonzero(split_of_row == name) for name in splits}
    return torch.from_numpy(features), torch.from_numpy(labels), split_rows


def _score_task(features: Tensor, labels: Tensor, split_rows: dict[str, np.ndarray]) -> dict[str, float]:
    """Test and dev accuracy x100 of one task; every outer (training rows, test rows) chooses its own penalty."""
    train, dev, test = (split_rows.get(name) for name in ("train", "dev", "test"))
    n = len(labels)

    def folds(rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Stratified shuffled folds: (training rows, held-out rows) of each."""
        splits = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(rows, labels.cpu().numpy()[rows])
        return [(rows[kept], rows[held_out]) for kept, held_out in splits]

    def fit(fits: list[tuple[np.ndarray, np.ndarray, float]]) -> Classifiers:
        """Classifiers from the training rows, held-out rows and penalty of each fit."""
        training, held_out, penalties = zip(*fits, strict=True)
        arguments = _masks(training, n), _masks(held_out, n), torch.tensor(penalties, device="cpu")
        return fit_classifiers(features, labels, *arguments, setting=SETTING, seed=SEED)

    outer = folds(train) if test is None else [(train, test)]
    inner = [(train, dev)] if dev is not None else [fold for rows, _ in outer for fold in folds(rows)]
    search = fit([(*fold, penalty) for fold in inner for penalty in PENALTIES])
    by_penalty = search.held_out_accuracy.reshape(len(outer), -1, len(PENALTIES)).mean(axis=1).round(2)
    best, tests = by_penalty.argmax(axis=1), _masks([rows for _, rows in outer], n)
    if dev is not None:  # a refit would repeat the fit that chose the penalty
        accuracy = search.accuracy(features, labels, tests.expand(len(PENALTIES), n))[best]
    else:
        refits = []
        for (rows, _), penalty in zip(outer, best, strict=True):
            shuffled = np.random.default_rng(SEED).permutation(rows)
            held_out = max(1, int(HELD_OUT_SHARE * len(rows)))
            refits.append((shuffled[held_out:], shuffled[:held_out], PENALTIES[penalty]))
        accuracy = fit(refits).accuracy(features, labels, tests).round(2)
    return {"test": round(float(accuracy.mean()), 2), "dev": round(float(by_penalty.max(axis=1).mean()), 2)}


def _masks(rows: Sequence[np.ndarray], n: int) -> Tensor:
    """Row numbers of each fit -> bool [fits, n]."""
    return torch.from_numpy(np.stack([np.isin(np.arange(n), members) for members in rows]))
