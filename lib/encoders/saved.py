"""Encoders on disk: where they are found, and the layout of sentence-transformers, written without the package."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer

from lib import paths
from lib.checks import DataError, EncoderError
from lib.encoders.dropout import replace_dropout
from lib.encoders.heads import projection_head
from lib.encoders.layer_norms import remove_layer_norms, removed
from lib.encoders.packed import MODEL_TYPES
from lib.encoders.pooling import POOLINGS
from lib.encoders.weights import FILES, fault, oversized, reason
from lib.session import quiet

MINI_BERT = paths.root() / "lib" / "assets" / "mini-bert"  # the backbone of the demo profile
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model")
# The list of modules for sentence-transformers where it has none of its own.
OUR_MODULE = {"idx": 0, "name": "0", "path": "", "type": "lib.encoders.export.EncoderModule"}
# Further names in the folders of encoders, of ours and of other versions.
PART_OF_AN_ENCODER = re.compile(
    r".*\.safetensors(\.index\.json)?|merges\.txt|README\.md|config_sentence_transformers\.json|ensemble\.json|(generation_)?config\.json"
)
LONGEST_HUB_NAME = 96  # characters of a name and of its user, as the hub has it
# The steps that are read, and where; their classes have other packages in other versions.
STEPS = {("Transformer", "."), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")}
WITHOUT_EFFECT = ("Normalize", "Dropout")  # on a cosine
_POOLING_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


def locate(path_or_id: str | os.PathLike, what: str = "backbone") -> tuple[str, bool]:
    """(source, is a local folder); a relative folder is looked up from here, then from the repository. what: for errors.

    Raises:
        EncoderError: neither a folder nor a hub name, a folder whose weights are a pickle, or one that holds something
            else.
    """
    text = str(path_or_id)
    if text == "demo":
        return str(MINI_BERT), True
    for folder in (paths.expanded(text), paths.root() / text) if text else ():
        if os.path.isdir(folder):
            foreign = paths.foreign_shard(folder)
            problems = {
                paths.PICKLED: paths.is_pickled(folder),
                f"cannot be loaded: {foreign}": bool(foreign),
                "is an adapter alone: merge it into its model first (`merge_and_unload` in peft)": (
                    (folder / "adapter_config.json").is_file() and not os.path.lexists(folder / "config.json")
                ),
                "is an ensemble: name one of the encoders in its folder": (folder / "ensemble.json").is_file(),
                "is the folder of a run: name the folder `encoder` in it": (folder / "encoder").is_dir()
                and not (folder / "config.json").exists(),
            }
            if problem := next((text for text, is_so in problems.items() if is_so), ""):
                raise EncoderError(f"{what} {text!r} {problem}.")
            return str(folder), True
    if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", text) and len(text) <= LONGEST_HUB_NAME:
        return text, False
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    raise EncoderError(f"{what} {shown!r} is neither an existing folder nor a hub name like 'user/model'.")


def fetch(path_or_id: str | os.PathLike, files: Sequence[str]) -> None:
    """Fetch further files of a hub name, so that they are there when they are hashed; what is missing shows later."""
    source, local = locate(path_or_id)
    if files and not local:
        with contextlib.suppress(OSError, ValueError):
            snapshot_download(source, allow_patterns=[*files])


def load_backbone(
    path_or_id: str | os.PathLike, *, pooling: str | None, dropout: float | None, attention: str, what: str = "backbone"
) -> tuple[nn.Module, Any, dict[str, Any]]:
    """Backbone, tokenizer, and what `read_modules` says; arguments and errors as in SentenceEncoder.from_pretrained."""
    if sys.flags.optimize > 1:
        raise EncoderError(
            "Python runs without doc strings (PYTHONOPTIMIZE=2 or -OO), and transformers reads its own while it loads a "
            "model: unset PYTHONOPTIMIZE."
        )
    quiet()
    name, (source, local) = str(path_or_id), locate(path_or_id, what)
    options = {"local_files_only": local, "trust_remote_code": False}
    try:
        modules = read_modules(source, local)
        config = AutoConfig.from_pretrained(source, **options)
        if config.model_type not in MODEL_TYPES:
            raise ValueError(f"{config.model_type} models are not supported, only {', '.join(MODEL_TYPES)}")
        if config.add_cross_attention:
            raise ValueError("add_cross_attention is set in its config.json, as in a decoder; set it to false")
        if problem := oversized(config, source):
            raise EncoderError(f"{problem}.")
        if dropout is not None:
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        has_pooler = (pooling or modules.get("pooling")) == "pooler"
        form = {"add_pooling_layer": has_pooler, "attn_implementation": attention, "dtype": torch.float32}
        form |= {"ignore_mismatched_sizes": True}  # reported below
        backbone, report = AutoModel.from_pretrained(
            source, config=config, output_loading_info=True, use_safetensors=True, **form, **options
        )
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        around = tokenizer("", verbose=False)["input_ids"]
        lowers = not modules.pop("lower_case", False) or tokenizer("A")["input_ids"] == tokenizer("a")["input_ids"]
        remove_layer_norms(backbone, removed(config))
    except (EncoderError, DataError) as error:
        raise EncoderError(f"{what} {name!r}: {error}") from error
    except Exception as error:  # the libraries raise a dozen kinds; all mean the same to the user
        where = "in that folder" if local else "on the hub or in its cache"
        raise EncoderError(
            f"{what} {name!r}: no loadable model and tokenizer {where} ({reason(error, source)})."
        ) from error
    missing = sorted({*report["missing_keys"]} & {*backbone.state_dict()})
    entries = 1 + max(tokenizer.get_vocab().values(), default=-1)
    numbers = {key: re.search(r"encoder\.layer\.(\d+)\.", key) for key in report["unexpected_keys"]}
    surplus = sorted(key for key, found in numbers.items() if found)
    deeper = [key for key in surplus if int(numbers[key][1]) >= config.num_hidden_layers]
    problems = {
        "no tokenizer in that folder": local and not any((Path(source) / file).is_file() for file in TOKENIZER_FILES),
        f"its tokenizer has {entries:,} entries and its weights know {config.vocab_size:,}, so that they do not belong "
        "together": entries > config.vocab_size,
        "its tokenizer does not put its [CLS] before a text and its [SEP] behind it; repair the post_processor of its "
        "tokenizer.json": around != [tokenizer.cls_token_id, tokenizer.sep_token_id],
        "do_lower_case is set in its sentence_bert_config.json, and its tokenizer keeps capital letters; make the texts "
        "lower-case yourself and set it to false": not lowers,
        "it was saved without a pooler; choose another pooling or backbone": any("pooler" in key for key in missing),
        f"it lacks {len(missing)} of its weights, the first is {min(missing, default='')}; the file is incomplete or "
        "belongs to another kind of model": bool(missing),
        "is_decoder is set in its config.json, so that every word would see those before it alone; set it to false": (
            config.is_decoder
        ),
        f"its config.json has {config.num_hidden_layers} layers and its weights have more ({min(deeper, default='')})": (
            bool(deeper)
        ),
        f"its file has weights that its layers do not have ({min(surplus, default='')}); an adapter that was not merged is "
        "one reason": bool(surplus),
    }
    if problem := next((text for text, is_so in problems.items() if is_so), "") or fault(backbone, report, source):
        raise EncoderError(f"{what} {name!r}: {problem}.")
    replace_dropout(backbone)
    return backbone, tokenizer, modules


def read_modules(source: str, local: bool) -> dict[str, Any]:
    """What a saved encoder says of its pooling, projection and max_length (ours or sentence-transformers'); {} for a
    plain backbone.

    Raises:
        EncoderError: its pooling or its projection is none of those known here.
        DataError: one of these files is damaged.
    """
    small_files = ["config.json", "sentence_*.json", "modules.json", "config_sentence_transformers.json"]
    small_files += ["*.safetensors.index.json", "1_Pooling/*.json", "2_Dense/*.json", "2_Dense/*.safetensors"]
    folder = Path(source if local else snapshot_download(source, allow_patterns=small_files))
    if not local and (problem := paths.foreign_shard(folder)):
        raise EncoderError(f"{problem}.")
    modules = _read_json(folder / "sentence_encoder.json")
    if not isinstance(modules.get("pooling", "cls"), str) or modules.get("pooling", "cls") not in POOLINGS:
        raise EncoderError(f"{folder / 'sentence_encoder.json'}: pooling {modules['pooling']!r} is unknown.")
    if not modules:
        _check_steps(folder)
    config = _read_json(folder / "1_Pooling/config.json")
    if config and not modules:
        flags = [name for name, value in config.items() if name.startswith("pooling_mode") and value is True]
        mode = _POOLING_FLAGS.get(flags[0]) if len(flags) == 1 else None
        mode = mode or config.get("pooling_mode")  # the newer form of the file: a name
        if mode not in _POOLING_FLAGS.values():
            known = ", ".join(_POOLING_FLAGS.values())
            raise EncoderError(f"{folder}: its pooling {flags or mode} is none of {known}.")
        modules["pooling"] = mode
    if config := next(map(_read_json, sorted(folder.glob("sentence_*_config.json"))), {}):  # bert, roberta, ...
        modules = {"max_length": config.get("max_seq_length"), "lower_case": config.get("do_lower_case")} | modules
    if config := _read_json(folder / "2_Dense/config.json"):
        if not str(config.get("activation_function")).endswith("Tanh"):
            raise EncoderError(f"{folder}: its dense layer is not linear + tanh, which is all that is read here.")
        weights = load_file(folder / "2_Dense/model.safetensors")
        modules["projection"] = projection_head(config["in_features"])
        modules["projection"][0].load_state_dict({k.removeprefix("linear."): v for k, v in weights.items()})
    return modules


def _check_steps(folder: Path) -> None:
    """Raise EncoderError where sentence-transformers would do more to a text than is done here."""
    if (folder / "modules.json").is_file():
        found = []
        for step in paths.read_json(folder / "modules.json", kind=list):
            kind, place = (str(step.get(name)) if isinstance(step, dict) else "" for name in ("type", "path"))
            name, place = kind.rpartition(".")[2], os.path.normpath(place)
            is_known = (name, place) in STEPS or name in WITHOUT_EFFECT
            if not is_known or not kind.startswith("sentence_transformers.") or "Normalize" in found:
                raise EncoderError(
                    f"{folder / 'modules.json'} lists the step {kind!r} in {place!r}, which is not read here: known are a "
                    "transformer in the folder itself, 1_Pooling and 2_Dense, and at the end Normalize."
                )
            if name in ("Pooling", "Dense") and not (folder / place / "config.json").is_file():
                raise EncoderError(
                    f"{folder / place} has no config.json, though modules.json lists it: fetch it whole."
                )
            found.append(name)
        if "Dense" not in found and (folder / "2_Dense").is_dir():
            raise EncoderError(f"{folder / '2_Dense'} is not in the list of modules.json: take it out, or list it.")
    config = _read_json(folder / "config_sentence_transformers.json")
    prompts, default = config.get("prompts"), config.get("default_prompt_name")
    if default is not None and (prompts.get(default) if isinstance(prompts, dict) else True):
        raise EncoderError(
            f"{folder / 'config_sentence_transformers.json'} puts a prompt before each text (default_prompt_name), which is "
            "not done here: set it to null and put the prompt before your texts."
        )


def write_modules(
    folder: Path, backbone_config: Any, pooling: str, projection: nn.Module | None, max_length: int
) -> None:
    """The module list of sentence-transformers beside a saved backbone, and sentence_encoder.json for `read_modules`.

    `mask_prompt`, `pooler` and layers without LayerNorm have no equivalent there: the list names our class, see
    `lib.encoders.export`.
    """
    size, needs_us = backbone_config.hidden_size, pooling in ("mask_prompt", "pooler") or removed(backbone_config) > 0
    steps: list[tuple[str, str, dict[str, Any]]] = [("Transformer", "", {})]  # class, folder and its configuration
    if POOLINGS[pooling].layers == "all":
        layers, start = backbone_config.num_hidden_layers, POOLINGS[pooling].first
        weights = torch.zeros(layers + 1 - start, device="cpu")
        weights[0] += 1
        weights[-1] += 1
        shape = {"word_embedding_dimension": size, "num_hidden_layers": layers, "layer_start": start}
        steps.append(("WeightedLayerPooling", "1_WeightedLayerPooling", shape))
        _write_weights(folder / "1_WeightedLayerPooling", {"layer_weights": weights})
        write_json(folder / "config.json", _read_json(folder / "config.json") | {"output_hidden_states": True})
    if not needs_us:
        mode = "cls" if pooling == "cls" else "mean"
        flags = {flag: name == mode for flag, name in _POOLING_FLAGS.items()} | {"pooling_mode_max_tokens": False}
        steps.append(("Pooling", "1_Pooling", {"word_embedding_dimension": size} | flags))
    if projection is not None:
        linear = projection[0]
        dense = {"in_features": linear.in_features, "out_features": linear.out_features, "bias": True}
        steps.append(("Dense", "2_Dense", dense | {"activation_function": "torch.nn.modules.activation.Tanh"}))
        _write_weights(folder / "2_Dense", {"linear.weight": linear.weight, "linear.bias": linear.bias})
    modules = []
    for i, (kind, place, config) in enumerate(steps):
        modules.append({"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{kind}"})
        if config:
            write_json(folder / place / "config.json", config)
    write_json(folder / "modules.json", [OUR_MODULE] if needs_us else modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    write_json(folder / "sentence_encoder.json", {"pooling": pooling, "max_length": max_length})


def check_nothing_else(folder: Path, new: Path) -> None:
    """Raise EncoderError when a folder that the encoder in `new` is to replace holds files that belong to no encoder."""
    ours = {path.name for path in new.rglob("*")} | {*FILES, *TOKENIZER_FILES}
    others = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.name not in ours]
    if strangers := sorted(path for path in others if not PART_OF_AN_ENCODER.fullmatch(path.name)):
        raise EncoderError(
            f"{folder} also holds {strangers[0]}, which is no part of an encoder: move it, or choose another folder; nothing "
            "was written."
        )


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf8")


def _read_json(path: Path) -> dict[str, Any]:
    """{} where there is no such file."""
    return paths.read_json(path) if path.is_file() else {}


def _write_weights(folder: Path, weights: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().cpu().contiguous() for k, v in weights.items()}, folder / "model.safetensors")
