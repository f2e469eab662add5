"""E_CLS of single encoders beside their scores (JTCSE, Figure 10), within a stage of training."""

import pandas as pd

# An encoder, or the first word of its name, -> its stage; all others are of stage 2.
STAGES = {"SimCSE": "stage 1", "JTCSE D": "student"}


def beside_scores(energy: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Every trained encoder of every seed that has both: rows of `attention.cls_energies`, and one score. A stage that has one
    encoder is left out.

    Returns:
        source, backbone, reading, panel and stage (equal), method, seed; energy (mean over the layers) and score, both
        without the mean of their seed in their stage.
    """
    keys, values = ["source", "backbone", "method", "seed"], ["energy", "score"]
    means = energy[energy.method != "untuned"].groupby([*keys, "group"], sort=False).value.mean().rename("energy")
    both = means.reset_index().merge(scores[[*keys, "value"]], on=keys)
    both = both.rename(columns={"group": "reading", "value": "score"})
    both["stage"] = [STAGES.get(name) or STAGES.get(name.split(" ")[0], "stage 2") for name in both.method]
    part = ["stage", "source", "backbone", "reading"]
    both = both[both.groupby(part).method.transform("nunique") > 1].sort_values(part, kind="stable")
    both[values] -= both.groupby([*part, "seed"])[values].transform("mean")
    return both.assign(panel=both.stage)[["source", "backbone", "reading", "panel", "stage", "method", "seed", *values]]
