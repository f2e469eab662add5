"""What an auxiliary network does to an encoder (InfoCSE): whether it reads the sentence's vector, and what it sends
back through it."""

from typing import Any

import pandas as pd
import torch

from lib.encoders.kinds import longest_input
from lib.losses import IGNORED


def signals(run: Any) -> pd.DataFrame:
    """The steps of a run of InfoCSE at which the vectors were swapped (swap_every above 0, contrastive_weight 1), from its
    history, as curves.

    Returns:
        settings (λ), step, metric, value: `loss ratio`, L_aux / L_cl without the weight; `gradient ratio`, that of the
        gradients at the [CLS] vectors, weight included; `own vector` and `other vector`, L_aux with the sentence's own and
        with another sentence's vector, in nats.
    """
    if "own_vector" not in run.history:  # swap_every: 0
        return pd.DataFrame(columns=["settings", "step", "metric", "value"])
    looked = run.history.dropna(subset="own_vector")
    weight = run.config.method_arguments["auxiliary_weight"]
    values = {
        "loss ratio": looked.auxiliary / weight / looked.info_nce,
        "gradient ratio": looked.auxiliary_gradient / looked.contrastive_gradient,
        "own vector": looked.own_vector,
        "other vector": looked.other_vector,
    }
    frame = pd.DataFrame({"settings": f"λ = {weight:g}", "step": looked.step.astype(int)} | values)
    return frame.melt(["settings", "step"], var_name="metric")


def with_swap(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of `signals`, and `swap` in place of the two vectors: by how many nats L_aux grows with another sentence's vector."""
    if rows.empty:
        return rows
    keys = [name for name in rows if name not in ("metric", "value")]
    wide = rows.groupby([*keys, "metric"], sort=False, dropna=False).value.first().unstack("metric", sort=False)
    wide = wide.assign(swap=wide["other vector"] - wide["own vector"]).reset_index()
    return wide.melt(keys, ["loss ratio", "gradient ratio", "swap"], var_name="metric").dropna(subset="value")


@torch.no_grad()
def guesses(method: Any, sentence: str, other: str) -> pd.DataFrame:
    """What the auxiliary network of InfoCSE makes of every word piece of a sentence, hidden by itself: a row per piece (none for
    an empty sentence), `hidden`; with its own vector, and with that of the other sentence, the probability (%) of the right
    piece and the likeliest one. The frozen layers read the sentence with one [MASK]."""
    encoder, auxiliary, masking = method.eval().encoder, method.auxiliary, method.token_masking
    pieces = encoder.tokenizer.convert_ids_to_tokens
    longest = min(128, longest_input(encoder.backbone))
    own, others = (torch.tensor(encoder.tokenize([text], longest), device=encoder.device) for text in (sentence, other))
    places = (~masking.special[own[0]]).nonzero()
    if not len(places):
        return pd.DataFrame({"hidden": []})
    rows = own.repeat(len(places), 1)
    hidden = torch.zeros_like(rows, dtype=torch.bool).scatter(1, places, True)
    masked, labels = rows.masked_fill(hidden, masking.mask_id), rows.masked_fill(~hidden, IGNORED)
    text = auxiliary.read(masked, torch.ones_like(rows), labels)
    frame = {"hidden": pieces(rows[hidden].tolist())}
    for name, ids in {"own vector": own, "other vector": others}.items():
        h = encoder(ids, torch.ones_like(ids)).expand(len(places), -1)
        probabilities = auxiliary(h, text).softmax(-1)
        right = probabilities.gather(1, text.labels.unsqueeze(1)).squeeze(1)
        likeliest = pieces(probabilities.argmax(-1).tolist())
        frame |= {f"{name}, right, %": (100 * right).tolist(), f"{name}, guess": likeliest}
    return pd.DataFrame(frame)
