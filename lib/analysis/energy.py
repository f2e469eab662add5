"""E_CLS of single encoders beside their scores (JTCSE, Figure 10): over all of them, and within a stage of training."""

from __future__ import annotations

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
            columns = ["energy", "score"]
            centred = part[columns] - part.groupby("seed")[columns].transform("mean")
            parts.append(part.assign(**centred, panel=stage))
    order = ["source", "backbone", "reading", "panel", "stage", "method", "seed", "energy", "score"]
    return pd.concat(parts, ignore_index=True)[order]
