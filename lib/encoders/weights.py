"""What can be wrong with a model that was loaded, or that could not be, said in one sentence."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
from safetensors import safe_open
from torch import nn

from lib import paths
from lib.checks import DataError, EncoderError

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TEXTS = ("a", "two different texts")


def reason(error: Exception, source: str) -> str:
    """Why a model could not be loaded: the file that is at fault where there is one, else what the library says."""
    folder = paths.model_folder(source)
    for file in (folder / name for name in FILES):
        if file.is_file():
            try:
                paths.read_json(file)
            except DataError as damage:
                return str(damage).rstrip(".")
    if shard := paths.foreign_shard(folder):
        return shard
    if closed := [file.name for file in folder.glob("*") if file.is_file() and not os.access(file, os.R_OK)]:
        return f"its file {closed[0]} cannot be read: change its permissions"
    if paths.is_pickled(folder) or "use_safetensors" in str(error):
        return f"it {paths.PICKLED}"
    if isinstance(error, KeyError):
        return f"one of its files asks for {error}, which the library does not know; look into its config.json"
    return " ".join(str(error).split())[:200] or type(error).__name__


def oversized(config: Any, source: str) -> str:
    """Where a configuration asks for more layers or positions than the file of weights has, which would be made before
    anybody notices; empty: nowhere."""
    shapes: dict[str, list[int]] = {}
    for path in paths.weight_files(paths.model_folder(source)):
        with safe_open(path, "pt") as file:
            shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 -- no mapping
    layers = [int(found[1]) for name in shapes if (found := re.search(r"encoder\.layer\.(\d+)\.", name))]

    def most(ending: str, axis: int) -> int:
        return max(
            (shape[axis] for name, shape in shapes.items() if name.endswith(ending) and len(shape) == 2), default=0
        )

    for asked, known, what in (
        (config.num_hidden_layers, max(layers, default=-1) + 1, "layers"),
        (config.max_position_embeddings, most("position_embeddings.weight", 0), "positions"),
        (config.vocab_size, most("word_embeddings.weight", 0), "entries"),
        (config.hidden_size, most("word_embeddings.weight", 1), "dimensions"),
        (config.intermediate_size, most("intermediate.dense.weight", 0), "dimensions inside a layer"),
    ):
        if known and isinstance(asked, int) and asked > 4 * known:
            return (
                f"its config.json asks for {asked:,} {what} and its weights have {known:,}: they do not belong together"
            )
    return ""


def fault(model: nn.Module, report: dict[str, Any], source: str) -> str:
    """What is wrong with weights that were loaded, from them and the library's report; empty: nothing."""
    shapes = sorted(report["mismatched_keys"])  # name, shape in the file, shape of the configuration
    if shapes:
        name, saved, configured = shapes[0]
        return (
            f"its config.json and its weights do not belong together: {name} has the shape {list(saved)} in the file and "
            f"{list(configured)} by the configuration"
        )
    weights = {name: weight for name, weight in model.named_parameters() if weight.numel()}
    if broken := [name for name, weight in weights.items() if not all(end.isfinite() for end in weight.aminmax())]:
        return f"{min(broken)} holds NaN or infinite weights; the file is damaged"
    if not model.get_input_embeddings().weight.any():
        return "all its word vectors are 0; the file is damaged"
    stored = _other_type(source)
    return f"its weights are stored as {stored}; save them as float32, float16 or bfloat16" if stored else ""


def _other_type(source: str) -> str:
    """What weights (not counters such as position_ids) of a saved model are stored as, where that is no usual float."""
    for path in paths.weight_files(paths.model_folder(source)):
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.endswith((".weight", ".bias"))]  # noqa: SIM118 -- no mapping
            for kind in (file.get_slice(name).get_dtype() for name in names):
                if kind not in ("F64", "F32", "F16", "BF16"):
                    return "whole numbers (quantised)" if kind[0] in "IU" else kind
    return ""


def check_vectors(encoder: Any, name: str) -> None:
    """Embed two texts; the encoder, or sum of encoders, stays in the mode that it is in.

    Raises:
        EncoderError: that fails, or the vectors are not finite, zero, or the same; `name` says whose they are.
    """
    modes = {module: module.training for module in encoder.modules()}
    try:
        vectors = encoder.encode(list(TEXTS))
    except EncoderError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        raise EncoderError(f"{name}: its parts do not fit together, no text can be embedded ({why}).") from error
    for module, is_training in modes.items():
        module.training = is_training
    problems = {
        "are not finite": not np.isfinite(vectors).all(),
        "are zero": not vectors.any(axis=1).all(),
        "are the same for different texts": (vectors[0] == vectors[1]).all(),
    }
    if problem := next((text for text, is_so in problems.items() if is_so), ""):
        raise EncoderError(f"{name}: its vectors {problem}; its weights or its configuration are damaged.")
