"""What can be wrong with a model that was loaded, or that could not be, said in one sentence; what it is, for a hash."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lib.checks import EncoderError


def fault(model: nn.Module, report: dict[str, Any], folder: Path) -> str:
    """What is wrong with weights that were loaded from folder, from them and the library's report; empty: nothing."""
    missing = sorted({*report["missing_keys"]} & {*model.state_dict()})
    if any("pooler" in key for key in missing):
        return "it was saved without a pooler; choose another pooling or backbone"
    if missing:
        return f"it lacks {len(missing)} of its weights, the first is {missing[0]}; the file is incomplete"
    for name, saved, configured in sorted(report["mismatched_keys"]):
        return (
            f"its config.json and its weights do not belong together: {name} has the shape {list(saved)} in the file and "
            f"{list(configured)} by the configuration"
        )
    is_surplus = re.compile(r"(^|\.)layers?\.\d+\.(?!.*inv_freq$)").search
    if surplus := sorted(filter(is_surplus, report["unexpected_keys"])):
        return (
            f"its file has weights that its layers do not have ({surplus[0]}): further layers, or an adapter that was not "
            "merged"
        )
    broken = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    if broken:
        return f"{min(broken)} holds NaN or infinite weights; the file is damaged"
    stored = _other_type(folder)
    return f"its weights are stored as {stored}; save them as float32, float16 or bfloat16" if stored else ""


def _other_type(folder: Path) -> str:
    """What weights (not counters such as position_ids) are stored as, where that is no usual float: they would be read
    without the scales that belong to them, and give vectors that look sound."""
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.endswith((".weight", ".bias"))]  # noqa: SIM118 -- no mapping
            if other := {file.get_slice(name).get_dtype() for name in names} - {"F64", "F32", "F16", "BF16"}:
                return min(other)
    return ""


def check_vectors(encoder: Any, name: str) -> None:
    """Embed two texts: EncoderError where the vectors are not finite, or the same (all zero, too); name: whose they are."""
    one, other = encoder.encode(["a", "two different texts"], any_words=True)
    if not np.isfinite([one, other]).all() or (one == other).all():
        raise EncoderError(
            f"{name}: its vectors are not finite, or the same for different texts; its weights or its configuration are "
            "damaged."
        )


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors of any device and layout into a safetensors file; its folder is made if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, path)


def architecture(config: Any) -> dict[str, Any]:
    """A model's configuration without where it lies and which version wrote it."""
    return {k: v for k, v in config.to_dict().items() if k[0] != "_" and k != "transformers_version"}


def hash_weights(digest: Any, model: nn.Module) -> None:
    """Add the names and weights of a model to a hash of hashlib."""
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
