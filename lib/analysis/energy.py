"""E_CLS of single encoders beside their scores (JTCSE, Figure 10): over all of them, and within a stage of training."""

from __future__ import annotations

import numpy as np
import pandas as pd

# An encoder, or the first word of its name, -> its stage; all others are of stage 2.
STAGES = {"untuned": "untuned", "SimCSE": "stage 1", "JTCSE D": "student"}
COLUMNS = [
    "backbone",
    "encoder",
    "seed",
    "reading",
    "layer",
    "value",
    "run_id",
]  # published; layers from 1, value x 100


def beside_scores(energy: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Every encoder of every seed that has both.

    Args:
        energy: COLUMNS, see `attention.cls_energies`. scores: backbone, encoder, seed, score.

    Returns:
        backbone, reading, stage, encoder, seed, energy (mean over the layers), score.
    """
    keys = ["backbone", "reading", "encoder", "seed"]
    energy = energy.astype({"seed": str}).groupby(keys, sort=False).value.mean().div(100).rename("energy").reset_index()
    both = energy.merge(scores.astype({"seed": str}), on=["backbone", "encoder", "seed"])
    stages = [STAGES.get(name) or STAGES.get(name.split(" ")[0], "stage 2") for name in both.encoder]
    return both.assign(stage=stages)[["backbone", "reading", "stage", "encoder", "seed", "energy", "score"]]


def centred(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The frame with each seed's mean taken out of these columns."""
    return frame.assign(**frame[columns] - frame.groupby("seed")[columns].transform("mean"))


def seed_correlation(frame: pd.DataFrame, x: str, y: str, *, draws: int = 2000, seed: int = 0) -> dict[str, float]:
    """Spearman's correlation of two columns with each seed's mean taken out of both, so that seeds which are good
    throughout do not count as agreement.

    frame: seed and the columns; several rows per seed. Returns: correlation, and low and high of its 95 % interval, for
    which whole seeds are drawn again with replacement (percentile method; NaN for one seed).
    """
    by_seed = [rows[[x, y]] for _, rows in centred(frame, [x, y]).groupby("seed")]

    def correlation(which: np.ndarray) -> float:
        rows = pd.concat([by_seed[i] for i in which])
        return rows[x].corr(rows[y], method="spearman")

    low = high = float("nan")
    if len(by_seed) > 1:
        drawn = np.sort(np.random.default_rng(seed).integers(len(by_seed), size=(draws, len(by_seed))), axis=1)
        distinct, times = np.unique(drawn, axis=0, return_counts=True)  # three seeds have ten ways only
        low, high = np.nanpercentile(np.repeat([correlation(which) for which in distinct], times), [2.5, 97.5])
    return {"correlation": correlation(np.arange(len(by_seed))), "low": float(low), "high": float(high)}


def correlations(rows: pd.DataFrame) -> pd.DataFrame:
    """Of the trained encoders of each backbone and reading: over all stages, and within each that has several encoders.

    rows: what `beside_scores` gives. Returns: encoders (with their seeds), rank correlation as it is, and what
    `seed_correlation` gives.
    """
    found = {}
    for key, trained in rows[rows.stage != "untuned"].groupby(["backbone", "reading"], sort=False):
        stages = {stage: part for stage, part in trained.groupby("stage") if part.encoder.nunique() > 1}
        for stage, part in ({"all trained": trained} | stages).items():
            raw = {"encoders": len(part), "as it is": part.energy.corr(part.score, method="spearman")}
            found[(*key, stage)] = raw | seed_correlation(part, "energy", "score")
    table = pd.DataFrame(found).T.rename(columns={"correlation": "seeds' means taken out"})
    return table.rename_axis(["backbone", "reading", "stage"]).astype({"encoders": int})


def panels(rows: pd.DataFrame) -> pd.DataFrame:
    """For `figures.energy_scatter`: all encoders as they are, and again each stage that has several, with each seed's
    mean taken out. rows: of one reading; the result has a column panel."""
    parts = [rows.assign(panel="all encoders")]
    for stage, part in rows.groupby("stage"):
        if part.encoder.nunique() > 1 and stage != "untuned":
            parts += [centred(one, ["energy", "score"]).assign(panel=stage) for _, one in part.groupby("backbone")]
    return pd.concat(parts, ignore_index=True)
