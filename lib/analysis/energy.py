"""E_CLS of single encoders beside their scores (JTCSE, Figure 10): over all of them, and within a stage of training."""

from __future__ import annotations

import numpy as np
import pandas as pd

# An encoder, or the first word of its name, -> its stage; all others are of stage 2.
STAGES = {"SimCSE": "stage 1", "JTCSE D": "student"}


def beside_scores(energy: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Every trained encoder of every seed that has both: rows of `attention.cls_energies`, and one score.

    Returns:
        source, backbone, reading, panel, stage, method, seed, energy (mean over the layers), score. In the panel "all
        trained" stands each encoder as it is; once more, with each seed's mean taken out, in that of its stage where this
        has several encoders.
    """
    keys = ["source", "backbone", "method", "seed"]
    means = energy[energy.method != "untuned"].groupby([*keys, "group"], sort=False).value.mean().rename("energy")
    both = means.reset_index().merge(scores[[*keys, "value"]], on=keys)
    both = both.rename(columns={"group": "reading", "value": "score"})
    both["stage"] = [STAGES.get(name) or STAGES.get(name.split(" ")[0], "stage 2") for name in both.method]
    parts = [both.assign(panel="all trained")]
    for (stage, *_), part in both.groupby(["stage", "source", "backbone", "reading"]):
        if part.method.nunique() > 1:
            parts.append(_centred(part).assign(panel=stage))
    order = ["source", "backbone", "reading", "panel", "stage", "method", "seed", "energy", "score"]
    return pd.concat(parts, ignore_index=True)[order]


def _centred(frame: pd.DataFrame) -> pd.DataFrame:
    columns = ["energy", "score"]
    return frame.assign(**frame[columns] - frame.groupby("seed")[columns].transform("mean"))


def seed_correlation(frame: pd.DataFrame) -> dict[str, float]:
    """Spearman's correlation of energy and score with each seed's mean taken out of both, so that seeds which are good
    throughout do not count as agreement; and low and high of its 95 % interval, for which whole seeds are drawn again with
    replacement (percentile method; NaN for one seed).
    """
    by_seed = [rows[["energy", "score"]] for _, rows in _centred(frame).groupby("seed")]

    def correlation(which: np.ndarray) -> float:
        rows = pd.concat([by_seed[i] for i in which])
        return rows.energy.corr(rows.score, method="spearman")

    low = high = float("nan")
    if len(by_seed) > 1:
        drawn = np.sort(np.random.default_rng(0).integers(len(by_seed), size=(2000, len(by_seed))), axis=1)
        distinct, times = np.unique(drawn, axis=0, return_counts=True)  # three seeds have ten ways only
        low, high = np.nanpercentile(np.repeat([correlation(which) for which in distinct], times), [2.5, 97.5])
    return {"correlation": correlation(np.arange(len(by_seed))), "low": float(low), "high": float(high)}


def correlations(rows: pd.DataFrame) -> pd.DataFrame:
    """Rank correlation in the rows of `beside_scores`: over all trained encoders of each backbone and reading, and within each
    stage that has several encoders; their number (with seeds), as it is, and what `seed_correlation` gives.
    """
    found = {}
    for key, trained in rows[rows.panel == "all trained"].groupby(["source", "backbone", "reading"], sort=False):
        stages = {stage: part for stage, part in trained.groupby("stage") if part.method.nunique() > 1}
        for stage, part in ({"all trained": trained} | stages).items():
            raw = {"encoders": len(part), "as it is": part.energy.corr(part.score, method="spearman")}
            found[(*key, stage)] = raw | seed_correlation(part)
    table = pd.DataFrame(found).T.rename(columns={"correlation": "seeds' means taken out"})
    return table.rename_axis(["source", "backbone", "reading", "stage"]).astype({"encoders": int})
