"""What sits on a backbone: the projection of contrastive training, the MLM head, and Condenser's late layers."""

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM

from lib import paths
from lib.checks import ConfigError, reason
from lib.encoders.dropout import replace_dropout
from lib.encoders.kinds import check_packed
from lib.encoders.weights import fault, save_weights

MODEL_FILES = "model*.safetensors"  # hold the MLM head and the pooler, if the backbone was saved with them
TRAINING_HEAD = "training_head.safetensors"  # beside a trained encoder, which is read without it
LATE_LAYERS = "condenser_head.safetensors"  # beside the model's own files
LATE_LAYER_STARTS = ("pretrained", "top_layers", "random")  # see `late_layers`
MLM_HEAD_STARTS = ("pretrained", "fresh")
WEIGHT_STD = 0.02  # of new linear layers


def projection_head(dimension: int) -> nn.Sequential:
    """SimCSE's training head z = tanh(W h + b): one square layer, weights normal(0, 0.02), zero bias."""
    linear = nn.Linear(dimension, dimension)
    nn.init.normal_(linear.weight, std=WEIGHT_STD)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


class BatchNormMLP(nn.Sequential):
    """DiffCSE's training head, which InfoCSE's code takes over and its paper does not mention: two linear layers without bias, batch
    norm after each, ReLU between them, no scale or shift at the end. [.., D] -> [.., D]; statistics over all rows."""

    def __init__(self, dimension: int) -> None:
        wide, back = nn.Linear(dimension, 2 * dimension, bias=False), nn.Linear(2 * dimension, dimension, bias=False)
        for linear in (wide, back):
            nn.init.normal_(linear.weight, std=WEIGHT_STD)
        norms = nn.BatchNorm1d(2 * dimension), nn.BatchNorm1d(dimension, affine=False)
        super().__init__(wide, norms[0], nn.ReLU(), back, norms[1])

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(h.flatten(0, -2)).view(h.shape)


def load_training_head(folder: Path) -> nn.Module:
    """The projection that an encoder was trained with, in evaluation mode: batch norm with its running statistics."""
    weights = load_file(folder / TRAINING_HEAD)
    if "weight" in weights:
        head: nn.Module = nn.Linear(weights["weight"].size(1), len(weights["weight"]))
    else:
        kind = BatchNormMLP if "3.weight" in weights else projection_head
        head = kind(weights["0.weight"].size(1))
    head.load_state_dict(weights)
    return head.eval()


def mlm_head(backbone: nn.Module, *, tied: bool, start: str = "pretrained") -> nn.Module:
    """An MLM head [.., H] -> [.., V], in float32. Raises ConfigError where none was saved, EncoderError for others than BERT.

    Args:
        tied: its decoder shares the word embeddings of `backbone`; otherwise it is a copy, of what was saved or of them.
        start: `pretrained`, the head that was saved with the backbone; `fresh`, a new one (`fresh_mlm_head`).
    """
    check_packed(backbone.config, "an MLM head (mlm_weight, lm_head)")
    if start == "fresh":
        head = fresh_mlm_head(backbone)
    else:
        model = masked_lm_model(backbone.config._name_or_path, "backbone")
        head = getattr(model, _head_name(model))
    decoder = getattr(head, "predictions", head).decoder
    decoder.weight = backbone.get_input_embeddings().weight if tied else nn.Parameter(decoder.weight.detach().clone())
    return head


def masked_lm_model(source: str, what: str) -> Any:
    """The masked-language model of a folder, in float32. Raises ConfigError where it cannot be read or was saved without an
    MLM head; what: for errors."""
    form = {"output_loading_info": True, "dtype": torch.float32}
    form["ignore_mismatched_sizes"] = True  # reported by `fault`
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(
            source, trust_remote_code=False, use_safetensors=True, **form
        )
    except Exception as error:  # the library raises a dozen kinds; all mean the same to the user
        raise ConfigError(f"{what} {source!r} cannot be read with an MLM head: {reason(error)}.") from error
    if any(not key.startswith(f"{model.base_model_prefix}.") for key in report["missing_keys"]):
        raise ConfigError(
            f"{what} {source!r} was saved without an MLM head: take one that has it, or, for a backbone, set lm_head to "
            "fresh, or the weight of its term to 0."
        )
    if problem := fault(model, report, Path(source)):
        raise ConfigError(f"{what} {source!r}: {problem}.")
    return model


def fresh_mlm_head(backbone: nn.Module) -> nn.Module:
    """A new MLM head [.., H] -> [.., V] of the backbone's family, in float32.

    Its dense layer starts as the identity plus normal(0, 0.02), its LayerNorm with weights 1, all biases with 0;
    its decoder shares the word embeddings of `backbone`. The activation is `hidden_act` in the BERT family, and GELU in
    the RoBERTa family, as in transformers.
    """
    config = copy.deepcopy(backbone.config)
    config.num_hidden_layers, config.tie_word_embeddings = 0, True  # of this model only the head is kept
    model = AutoModelForMaskedLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    head, words = getattr(model, _head_name(model)), backbone.get_input_embeddings().weight
    predictions = getattr(head, "predictions", head)
    dense = getattr(predictions, "transform", predictions).dense
    with torch.no_grad():
        dense.weight.normal_(std=WEIGHT_STD).diagonal().add_(1)
    head.to(words.device)  # drawn on the CPU: the same head for the same seed on every device
    predictions.decoder.weight = words
    return head


def save_mlm_head(folder: Path, backbone: nn.Module, head: nn.Module, late: nn.ModuleList | None) -> None:
    """Write a tied MLM head into the folder of a saved encoder, and the late layers beside it."""
    config = paths.read_json(folder / "config.json")
    model = AutoModelForMaskedLM.from_config(backbone.config)
    setattr(model, model.base_model_prefix, backbone)
    setattr(model, _head_name(model), head)
    model.config.tie_word_embeddings = True
    model.save_pretrained(folder)
    config |= paths.read_json(folder / "config.json")
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf8")
    if late is not None:
        save_weights(late.state_dict(), folder / LATE_LAYERS)


def _head_name(model: Any) -> str:
    return "cls" if hasattr(model, "cls") else "lm_head"  # BERT, RoBERTa


def count_early_layers(backbone: nn.Module, wanted: int) -> int:
    """After how many layers a late head reads the tokens; wanted 0: half of the backbone's. Raises ConfigError when that
    is not below the last layer."""
    depth = backbone.config.num_hidden_layers
    early = wanted or depth // 2
    if not 0 < early < depth:
        raise ConfigError(f"early_layers must lie between 1 and {depth - 1}, below the last layer; got {early}.")
    return early


def late_layers(backbone: nn.Module, count: int, start: str) -> nn.ModuleList:
    """Condenser's late layers: `count` layers like the backbone's. Raises ConfigError where it has fewer, or none were saved.

    start: `pretrained`, those saved beside the backbone; `top_layers`, copies of its last layers; `random`, new layers, which
    hand on a mixture of what they read (`average_layers`).
    """
    layers, source = backbone.encoder.layer, backbone.config._name_or_path
    if start == "top_layers":
        if count > len(layers):
            raise ConfigError(f"late_layers {count} is more than the {len(layers)} layers of backbone {source!r}.")
        return copy.deepcopy(layers[len(layers) - count :])
    late = nn.ModuleList(type(layers[0])(backbone.config, layer_idx=i) for i in range(count))
    replace_dropout(late)
    if start == "pretrained":
        saved = Path(source) / LATE_LAYERS
        if not saved.is_file():
            raise ConfigError(
                f"head 'pretrained' asks for {LATE_LAYERS} beside backbone {source!r}, and there is none: choose head "
                "'top_layers' or 'random', or a backbone that method mlm trained with a condenser_weight."
            )
        try:
            late.load_state_dict(load_file(saved))
        except (RuntimeError, SafetensorError) as error:
            raise ConfigError(f"{saved} does not hold {count} layers of this shape.") from error
        return late.float()
    for module in late.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=backbone.config.initializer_range)
            nn.init.zeros_(module.bias)
    average_layers(late)
    return late


def average_layers(layers: Iterable[nn.Module]) -> None:
    """Make BERT layers hand on averages: value and attention-output projections are the identity, the feed-forward
    output is scaled by 0.3."""
    for layer in layers:
        nn.init.eye_(layer.attention.self.value.weight)
        nn.init.eye_(layer.attention.output.dense.weight)
        with torch.no_grad():
            layer.output.dense.weight.mul_(0.3)
