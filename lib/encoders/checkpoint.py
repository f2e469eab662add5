"""Checkpoints as SimCSE's authors' script writes them: the backbone below `bert.` or `roberta.`, a trained layer `mlp.dense`."""

import hashlib
import os
import pickle
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from lib import paths
from lib.checks import EncoderError
from lib.encoders.saved import find_folder, write_json
from lib.encoders.weights import save_weights

PREFIXES = ("bert.", "roberta.")
LAYER = "mlp.dense."
TEXT = ("*.json", "*.txt", "*.model", "1_Pooling/config.json")  # configuration and tokenizer


def readable(path_or_id: str | os.PathLike) -> str | os.PathLike:
    """What `SentenceEncoder.from_pretrained` reads: this folder or hub name, or a copy of such a checkpoint in the cache, with
    the trained layer as the encoder's projection. Heads of the training (`lm_head`, `cls`) are left out.

    `pytorch_model.bin` is read by `torch.load(weights_only=True)`: tensors alone, no other object is unpickled.

    Raises:
        EncoderError: the .bin file holds more than tensors, or is damaged.
        DataError: the cache cannot be written.
    """
    folder = find_folder(path_or_id)
    if folder is None:
        return path_or_id
    pickled, safe = folder / "pytorch_model.bin", folder / "model.safetensors"
    path = safe if safe.is_file() else pickled
    if not path.is_file():
        return folder
    if path == safe:
        with safe_open(path, "pt") as file:
            if not any(name.startswith(LAYER) for name in file.keys()):  # noqa: SIM118 -- no mapping
                return folder
    state = load_file(path) if path == safe else _tensors(path)
    digest = hashlib.sha256(path.read_bytes())
    for text in _texts(folder):
        digest.update(text.read_bytes())
    name = f"{folder.resolve().name}-{digest.hexdigest()[:12]}"
    return paths.made_once(paths.cache() / "checkpoints" / name, lambda new: _write(state, folder, new), folder=True)


def _texts(folder: Path) -> list[Path]:
    return sorted(path for pattern in TEXT for path in folder.glob(pattern))


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise EncoderError(
            f"{path} is damaged or holds more than tensors, which is not read: it could run code."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise EncoderError(f"{path} holds something else than weights by name.")
    return state


def _write(state: dict[str, Tensor], folder: Path, new: Path) -> None:
    for text in _texts(folder):
        target = new / text.relative_to(folder)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(text, target)
    prefix = next((one for one in PREFIXES if any(name.startswith(one) for name in state)), "")
    backbone = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    heads = ("mlp.", "lm_head.", "cls.")
    backbone = {name: value.clone() for name, value in backbone.items() if not name.startswith(heads)}
    save_weights(backbone, new / "model.safetensors")
    if f"{LAYER}weight" in state:
        weight, bias = state[f"{LAYER}weight"], state[f"{LAYER}bias"]
        shape = {"in_features": weight.shape[1], "out_features": weight.shape[0], "bias": True}
        write_json(new / "2_Dense" / "config.json", shape | {"activation_function": "torch.nn.modules.activation.Tanh"})
        save_weights({"linear.weight": weight, "linear.bias": bias}, new / "2_Dense" / "model.safetensors")
