"""What an auxiliary network does to an encoder (InfoCSE): whether it reads the sentence's vector, and what it sends
back through it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.losses import IGNORED


def signals(done: pd.DataFrame) -> pd.DataFrame:
    """The steps of runs at which the vectors were swapped, from their histories.

    Args:
        done: columns method, seed, run_id and run, as `Plan.runs` gives them; runs of method infocse with swap_every
            and contrastive_weight 1.

    Returns:
        backbone, method, seed, run_id, weight (auxiliary_weight, as text), step, quantity, value: `loss`, log10 of
        L_aux / L_cl without the weight; `gradient`, log10 of the ratio of the gradients at the [CLS] vectors, weight
        included; `own` and `other`, L_aux with the sentence's own and with another sentence's vector, in nats.
    """
    rows = []
    for one in done.itertuples():
        looked = one.run.history.dropna(subset="own_vector")
        weight = one.run.config.method_arguments["auxiliary_weight"]
        labels = {"backbone": one.run.labels["backbone"], "method": one.method, "seed": one.seed, "run_id": one.run_id}
        quantities = {
            "loss": np.log10(looked.auxiliary / weight / looked.info_nce),
            "gradient": np.log10(looked.auxiliary_gradient / looked.contrastive_gradient),
            "own": looked.own_vector,
            "other": looked.other_vector,
        }
        values = pd.DataFrame(labels | {"weight": f"{weight:g}", "step": looked.step.astype(int)} | quantities)
        rows.append(values.melt([*labels, "weight", "step"], var_name="quantity"))
    return pd.concat(rows, ignore_index=True)


def signal_lines(rows: pd.DataFrame) -> pd.DataFrame:
    """What `signals` gives as curves: backbone, method (with its weight), seed, step; `loss` and `gradient`, the ratios
    themselves, and `swap`, by how many nats L_aux grows with another sentence's vector."""
    has_weight = rows.method.str.contains("λ")
    named = rows.assign(method=rows.method.where(has_weight, rows.method + ", λ = " + rows.weight.astype(str)))
    keys = ["backbone", "method", "seed", "step"]
    wide = named.pivot_table(index=keys, columns="quantity", values="value", sort=False).reset_index()
    ratios = {"loss": 10**wide.loss, "gradient": 10**wide.gradient, "swap": wide.other - wide.own}
    return wide[keys].assign(**ratios)


def reached(method: Any, batch: Any) -> dict[str, bool]:
    """Part of an InfoCSE method -> whether any gradient of L_aux arrives there, for one batch in training mode."""
    parts = {
        "late layers and word head": [method.auxiliary.late, method.auxiliary.lm_head],
        "encoder, through h": [method.encoder],
        "frozen layers": [method.auxiliary.early],
    }
    method.zero_grad()
    method.train()(batch.to(method.encoder.device))["auxiliary"].backward()
    gradients = {name: [p.grad for module in part for p in module.parameters()] for name, part in parts.items()}
    method.zero_grad()
    return {name: any(g is not None and bool(g.any()) for g in several) for name, several in gradients.items()}


def term_gradients(method: Any, batch: Any) -> dict[str, float]:
    """Term -> norm of its gradient over all weights of the encoder, for one batch in training mode.

    Exact, one backward pass per term; give every term the weight with which it is to be compared.
    """
    method.train()
    weights = [p for p in method.encoder.parameters() if p.requires_grad]
    norms = {}
    for name, term in method(batch.to(method.encoder.device)).items():
        gradients = torch.autograd.grad(term, weights, retain_graph=True, allow_unused=True)
        norms[name] = float(torch.stack([g.norm() for g in gradients if g is not None]).norm())
    return norms


@torch.no_grad()
def guesses(method: Any, sentence: str, other: str) -> pd.DataFrame:
    """Every word piece of a sentence hidden by itself: what the auxiliary network makes of it.

    Args:
        method: InfoCSE, with its auxiliary network.
        sentence: read by the frozen layers, with one [MASK].
        other: the sentence whose vector is given in the place of the right one.

    Returns:
        One row per piece, none for an empty sentence: `hidden`; with each of the two vectors the probability (%) of the
        right piece and the likeliest one.
    """
    method.eval()
    encoder, auxiliary, masking = method.encoder, method.auxiliary, method.token_masking
    tokenizer = encoder.tokenizer

    def vector(text: str) -> torch.Tensor:
        ids = torch.tensor(encoder.tokenize([text], 128), device=encoder.device)
        return encoder(ids, torch.ones_like(ids))

    ids = torch.tensor(encoder.tokenize([sentence], 128), device=encoder.device)[0]
    places = (~masking.special[ids]).nonzero().squeeze(1)
    if not len(places):
        return pd.DataFrame({"hidden": []})
    rows = ids.repeat(len(places), 1)
    hidden = torch.zeros_like(rows, dtype=torch.bool).scatter(1, places.unsqueeze(1), True)
    masked, labels = rows.masked_fill(hidden, masking.mask_id), rows.masked_fill(~hidden, IGNORED)
    text = auxiliary.read(masked, torch.ones_like(rows), labels)
    frame = {"hidden": tokenizer.convert_ids_to_tokens(ids[places].tolist())}
    for name, h in {"own vector": vector(sentence), "other vector": vector(other)}.items():
        probabilities = auxiliary(h.expand(len(places), -1), text).softmax(-1)
        right = probabilities.gather(1, text.labels.unsqueeze(1)).squeeze(1)
        frame[f"{name}, right, %"] = (100 * right).tolist()
        frame[f"{name}, guess"] = tokenizer.convert_ids_to_tokens(probabilities.argmax(-1).tolist())
    return pd.DataFrame(frame)
