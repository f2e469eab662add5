"""Ranks of methods over several tasks, in place of one average: who is told apart from whom (Demsar 2006, JMLR 7)."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats


def average_ranks(scores: pd.DataFrame) -> pd.Series:
    """Mean rank of every method over the tasks, best first; 1 is the best, equal scores share their ranks.

    scores: tasks in rows, methods in columns, higher is better; tasks that a method lacks are left out.
    """
    return scores.dropna().rank(axis=1, ascending=False).mean().sort_values(kind="stable")


def friedman(scores: pd.DataFrame) -> float:
    """p-value of Friedman's test that all methods rank alike (NaN for fewer than three methods or two tasks)."""
    complete = scores.dropna()
    if complete.shape[1] < 3 or len(complete) < 2 or (complete.nunique(axis=1) == 1).all():
        return float("nan")
    return float(stats.friedmanchisquare(*complete.to_numpy().T).pvalue)


def critical_difference(methods: int, tasks: int, *, alpha: float = 0.05) -> float:
    """By how much two mean ranks have to differ before Nemenyi's test tells the methods apart.

    The studentised range with infinite degrees of freedom, over the square root of two, times
    sqrt(k (k + 1) / (6 N)) for k methods and N tasks (Demsar 2006, section 3.2.2).

    Raises:
        ValueError: fewer than two methods, or no task.
    """
    if methods < 2 or tasks < 1:
        raise ValueError(f"{methods} methods on {tasks} tasks cannot be compared.")
    quantile = stats.studentized_range.ppf(1 - alpha, methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * tasks)))
