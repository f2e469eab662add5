"""JTCSE (Zong et al., arXiv 2505.02366): TNCSE, and cross-attention between the twins as a side branch of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import torch
from torch import Tensor

from lib.checks import ConfigError, Count, check_choice, check_range, check_seeds
from lib.data import augment
from lib.encoders import SentenceEncoder, ensemble, packed
from lib.encoders.packed import AttentionInputs
from lib.methods.base import Views
from lib.methods.tncse import TNCSE, TNCSEArguments

TNCSE_TERMS = {"cross_attention_layers": 0, "coin": False}
CONTROLS = {
    "NCE": TNCSE_TERMS | {"icnce_weight": 0.0, "ictm_weight": 0.0},  # nothing between the encoders: each is trained on
    "TNCSE": TNCSE_TERMS,
}
TERMS = ("NCE", "ICNCE", "ICTM")


def variants(parameters: Mapping[str, Any], rows: int) -> dict[str, dict[Any, dict[str, Any]]]:
    """What the notebook compares: table -> method, or (method, settings) -> parameters that differ from its own. A table
    that the parameters leave out is empty.

    rows: of the corpus, without added sentences. "twins": the encoders of stage 1. "Table VIII": settings -> text, of both
    stages. "choice" and "choice, student": the trials of rates.

    Raises:
        ConfigError: a list of the wrong length, an unknown term, or `choice_seed` among the seeds. EncoderError: no such
            third encoder, or one of another size.
    """
    check_seeds(parameters["seeds"], [parameters["choice_seed"]])
    for name in ("views", "substitutes", "first_learning_rates"):
        check_range(f"the number of {name}", len(parameters[name]), 2, 2)
    for term in (term for name in parameters["loss_terms"] for term in name.split("+")):
        check_choice("a term of loss_terms", term, TERMS)
    if parameters["third"]:  # refused where it is missing, or of another size
        ensemble.EncoderSum([SentenceEncoder.from_pretrained(parameters[name]) for name in ("backbone", "third")])
    rate, nce_rate, student_rate = (parameters[f"{name}learning_rate"] for name in ("", "nce_", "student_"))
    first_rates, chooses = parameters["first_learning_rates"], bool(parameters["learning_rates"])
    rates = sorted({rate, *parameters["learning_rates"]} if chooses else {})
    student_rates = sorted({student_rate, *parameters["student_learning_rates"]} if chooses else {})
    simcse = {"method": "simcse", "schedule": "linear"}
    student = simcse | {"method": "distill", "teacher": parameters["backbone"]}
    views = [augment.usable(*both) for both in zip(parameters["views"], parameters["substitutes"], strict=True)]
    twins = {
        name: simcse | {"augmentation": view, "learning_rate": first_rate}
        for name, view, first_rate in zip(("SimCSE I", "SimCSE II"), views, first_rates, strict=True)
    }
    both = {"TNCSE": TNCSE_TERMS, "JTCSE": {}}
    base, task = parameters["corpus"].partition("+")[0], parameters["added_task"]
    more = {"corpus": f"{base}+{task}"}
    steps = parameters["epochs"] * ceil(rows / parameters["batch_size"])
    texts = {
        "given": {"corpus": base},
        f"with {task}, as many steps": more | {"max_steps": steps},
        f"with {task}, one pass": more,
    }
    return {
        "stage 1": {"SimCSE": simcse | {"learning_rate": first_rates[0]}} | twins,
        "twins": twins,
        "stage 2": {"NCE": CONTROLS["NCE"] | {"learning_rate": nce_rate}} | both,
        "student": {"JTCSE D": student | {"learning_rate": student_rate}},
        "both": both,
        "Table VIII": texts if task else {},
        "Table IX": {
            ("JTCSE", f"{n} layers"): {"cross_attention_layers": n} for n in sorted(parameters["layer_counts"])
        },
        "Table X": {
            ("JTCSE", name): {f"{term.lower()}_weight": 0.0 for term in TERMS if term not in name.split("+")}
            for name in parameters["loss_terms"]
        },
        "Figure 8": {
            (name, f"{n} LayerNorms removed"): change
            | {"layer_norms_removed": n, "pooler_from": "" if n else parameters["pooler_from"]}
            for n in parameters["layer_norm_counts"]
            for name, change in both.items()
        },
        "choice": {
            (name, f"rate {one}"): change | {"learning_rate": one}
            for name, change in {"NCE": CONTROLS["NCE"], "JTCSE": {}}.items()
            for one in rates
        },
        "choice, student": {("JTCSE D", f"rate {one}"): student | {"learning_rate": one} for one in student_rates},
    }


@dataclass(frozen=True)
class JTCSEArguments(TNCSEArguments):
    cross_attention_layers: Count = 6  # how many, evenly spaced, the last layer among them (Table IX); 0: none
    branch: Literal["carried", "last"] = "carried"  # through all of these layers, or anew at the last one
    coin: bool = True  # a fair coin per step decides which encoder looks in the other; False: I in II, as TNCSE


class JTCSE(TNCSE):
    """TNCSE's terms; `icnce` also between the [CLS] vectors c of the cross-attention branch, in the coin's direction.

    With cross_attention_layers 0 and coin False it is TNCSE.
    """

    Arguments = JTCSEArguments

    def __init__(self, encoder: SentenceEncoder, arguments: JTCSEArguments) -> None:
        depth, count = encoder.backbone.config.num_hidden_layers, arguments.cross_attention_layers
        if count and depth % count:
            raise ConfigError(f"cross_attention_layers {count} does not divide the {depth} layers of this backbone.")
        super().__init__(encoder, arguments)
        for name, what in (("num_hidden_layers", "layers"), ("num_attention_heads", "heads")):
            first, second = (getattr(twin.backbone.config, name) for twin in self.encoder.encoders)
            if count and first != second:
                raise ConfigError(f"second_backbone has {second} {what}, backbone {first}: cross-attention pairs them.")
        self.layers = tuple(range(depth // count - 1, depth, depth // count)) if count else ()
        for twin in self.encoder.encoders if count else ():
            twin.check_attention(self.layers)
        # drawn while all processes share one random state; the coin then depends on the step alone
        self.register_buffer("coin_seed", torch.randint(2**31, ()))
        self.register_buffer("step", torch.tensor(0))

    @property
    def _has_branch(self) -> bool:
        return bool(self.layers) and self.arguments.icnce_weight > 0

    def names(self) -> tuple[str, ...]:
        return (*super().names(), *(("first_branch", "second_branch") if self._has_branch else ()))

    def attention_inputs(self) -> list[AttentionInputs | None]:
        return [AttentionInputs(self.layers) if self._has_branch else None for _ in range(2)]

    def branch(self, inputs: list[AttentionInputs | None]) -> dict[str, Tensor]:
        if not self._has_branch:
            return {}
        return dict(zip(("first_branch", "second_branch"), self.cross_attention(*inputs), strict=True))

    def pairs(self, h1: Tensor, h2: Tensor, views: Views) -> list[tuple[Tensor, Tensor]]:
        pairs = super().pairs(h1, h2, views)
        if self._has_branch:
            pairs.append((views.rows("first_branch"), views.rows("second_branch")))
        return [(b, a) for a, b in pairs] if self.arguments.coin and self.draw() else pairs

    def draw(self) -> bool:
        """The coin of this step; False is R = 1 of Eq. 12."""
        generator = torch.Generator().manual_seed(int(self.coin_seed) + int(self.step))
        return bool(torch.rand((), generator=generator, device="cpu") < 0.5)

    def after_step(self) -> None:
        self.step += 1

    def cross_attention(self, inputs1: AttentionInputs, inputs2: AttentionInputs) -> tuple[Tensor, Tensor]:
        """c_I and c_II [n, D], n rows of this process: each encoder's [CLS] attends with its own queries and keys to
        the other encoder's values (Eqs. 7 to 10), layer after layer; no parameters of its own.

        Keys and values come from the encoders' own streams, so of the branch only the [CLS] vector is needed.
        """
        layers = self.layers if self.arguments.branch == "carried" else self.layers[-1:]
        vectors = []
        for encoder, here, there in zip(self.encoder.encoders, (inputs1, inputs2), (inputs2, inputs1), strict=True):
            with encoder.precision(encoder.device):
                c = here.captured[layers[0]][0]
                for at in layers:
                    _, query, key, _, keys = here.captured[at]
                    value = there.captured[at][3]
                    c = packed.first_token_layer(encoder.backbone.encoder.layer[at], c, query, key, value, keys)
            vectors.append(c.float())
        return vectors[0], vectors[1]
