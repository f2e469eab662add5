"""What sits on a backbone: the projection of contrastive training, the MLM head, and Condenser's late layers."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForMaskedLM
from transformers.utils import cached_file

from lib.checks import ConfigError
from lib.encoders.dropout import replace_dropout

MODEL_FILES = "model*.safetensors"  # hold the MLM head and the pooler, if the backbone was saved with them
LATE_LAYERS = "condenser_head.safetensors"  # beside the model's own files
LATE_LAYER_STARTS = ("pretrained", "top_layers", "random")
MLM_HEAD_STARTS = ("pretrained", "fresh")


def projection_head(dimension: int, weight_std: float = 0.02) -> nn.Sequential:
    """SimCSE's training head z = tanh(W h + b): one square layer, weights normal(0, 0.02), zero bias."""
    linear = nn.Linear(dimension, dimension)
    nn.init.normal_(linear.weight, std=weight_std)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


def mlm_head(
    backbone: nn.Module, *, tied: bool, advice: str = "take a backbone that has one, or set mlm_weight to 0"
) -> nn.Module:
    """The MLM head [.., H] -> [.., V] that was saved with the backbone, in float32.

    Args:
        tied: its decoder shares the word embeddings of `backbone`; otherwise it keeps a copy of what was saved.
        advice: what the user can do where none was saved; ends the sentence of the error.

    Raises:
        ConfigError: the backbone was saved without one.
    """
    source = backbone.config._name_or_path
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(
            source, output_loading_info=True, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"backbone {source!r} cannot be read with an MLM head: {error}") from error
    head = getattr(model, _head_name(model))
    if any(not key.startswith(f"{model.base_model_prefix}.") for key in report["missing_keys"]):
        raise ConfigError(f"backbone {source!r} was saved without an MLM head: {advice}.")
    decoder = getattr(head, "predictions", head).decoder
    decoder.weight = backbone.get_input_embeddings().weight if tied else nn.Parameter(decoder.weight.detach().clone())
    return head


def fresh_mlm_head(backbone: nn.Module, weight_std: float = 0.02) -> nn.Module:
    """A new MLM head [.., H] -> [.., V] of the backbone's family, in float32; nothing that was saved is read.

    Its dense layer starts as the identity plus normal(0, weight_std), its LayerNorm with weights 1, all biases with 0;
    its decoder shares the word embeddings of `backbone`. The activation is the one of transformers' own head:
    `hidden_act` in the BERT family, always GELU in the RoBERTa family.
    """
    config = copy.deepcopy(backbone.config)
    config.num_hidden_layers, config.tie_word_embeddings = 0, True  # of this model only the head is kept
    model = AutoModelForMaskedLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    head, words = getattr(model, _head_name(model)), backbone.get_input_embeddings().weight
    predictions = getattr(head, "predictions", head)
    dense = getattr(predictions, "transform", predictions).dense
    with torch.no_grad():
        dense.weight.normal_(std=weight_std).diagonal().add_(1)
    head.to(words.device)  # drawn on the CPU: the same head for the same seed on every device
    predictions.decoder.weight = words
    return head


def save_mlm_head(folder: Path, backbone: nn.Module, head: nn.Module, late: nn.ModuleList | None) -> None:
    """Write a tied MLM head into the folder of a saved encoder, and the late layers beside it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf8"))
    model = AutoModelForMaskedLM.from_config(backbone.config)
    setattr(model, model.base_model_prefix, backbone)
    setattr(model, _head_name(model), head)
    model.config.tie_word_embeddings = True
    model.save_pretrained(folder)
    config |= json.loads((folder / "config.json").read_text(encoding="utf8"))
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf8")
    if late is not None:
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in late.state_dict().items()}
        save_file(weights, folder / LATE_LAYERS)


def _head_name(model: Any) -> str:
    return "cls" if hasattr(model, "cls") else "lm_head"


def late_layers(backbone: nn.Module, count: int, start: str) -> nn.ModuleList:
    """Condenser's late layers: `count` layers like the backbone's.

    Args:
        start: `pretrained`, those saved beside the backbone; `top_layers`, copies of its last layers; `random`, new
            layers, which hand on a mixture of what they read (`average_layers`).

    Raises:
        ConfigError: none were saved, or another number; the backbone has fewer layers.
    """
    layers, source = backbone.encoder.layer, backbone.config._name_or_path
    if start == "top_layers":
        if count > len(layers):
            raise ConfigError(f"late_layers {count} is more than the {len(layers)} layers of backbone {source!r}.")
        return copy.deepcopy(layers[len(layers) - count :])
    late = nn.ModuleList(type(layers[0])(backbone.config, layer_idx=i) for i in range(count))
    replace_dropout(late)
    if start == "pretrained":
        saved = cached_file(source, LATE_LAYERS, _raise_exceptions_for_missing_entries=False)
        if saved is None:
            raise ConfigError(
                f"head 'pretrained' asks for {LATE_LAYERS} beside backbone {source!r}, and there is none: choose head "
                "'top_layers' or 'random', or a backbone that method mlm trained with a condenser_weight."
            )
        try:
            late.load_state_dict(load_file(saved))
        except (RuntimeError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"{saved} does not hold {count} layers of this shape: {reason}") from error
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
