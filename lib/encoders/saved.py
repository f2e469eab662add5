"""Encoders on disk: where they are found, and the layout of sentence-transformers.

That layout is read and written without the package, whose import takes as long as a small run: what is read of it is two
names and one matrix. Its own loader falls back on pickles, passes over weights that are missing, and writes poolings that
its older versions do not know.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.utils import HFValidationError, validate_repo_id
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer

from lib import paths
from lib.checks import DataError, EncoderError, reason, remark
from lib.encoders.dropout import replace_dropout
from lib.encoders.kinds import DECODERS, HAS_POOLER, PADDED, check_packed, dropout_rates
from lib.encoders.layer_norms import remove_layer_norms, removed
from lib.encoders.packed import MODEL_TYPES
from lib.encoders.pooling import POOLINGS
from lib.encoders.weights import fault, save_weights
from lib.session import quiet

MINI_BERT = paths.root() / "lib" / "assets" / "mini-bert"  # the backbone of the demo profile
# Encoders that come with the repository, by the names that parameters give them.
SHIPPED = {"demo": MINI_BERT} | {f"demo-{one}": MINI_BERT.with_name(f"mini-bert-{one}") for one in ("simcse", "msse")}
# The list of modules for sentence-transformers where it has none of its own.
OUR_MODULE = {"idx": 0, "name": "0", "path": "", "type": "lib.encoders.export.EncoderModule"}
# The steps of sentence-transformers that are read, in their order, and their folders; their classes have other packages in
# other versions. Dropout does nothing to an embedding.
STEPS = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": ""}
SENTENCE = "sentence_embedding"  # what a step there reads and writes
FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]  # of a model of the hub; none of them can run
TRAINED_LAYER = "mlp.dense"  # in checkpoints of SimCSE's script: what training read the embedding through
USUALLY_UNREAD = re.compile(  # what no embedding needs
    r"(^|\.)pooler\.|^(cls|\w*lm_head|vocab_\w+|\w*predictions|head|decoder)\.|(position_ids|inv_freq)$"
)
PICKLED = (
    "has its weights in a pickle (pytorch_model.bin), which could run code and is not read: load it once where you trust it, "
    "and `save_pretrained` it as safetensors"
)
_POOLING_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}


def find_folder(path_or_id: str | os.PathLike) -> Path | None:
    """The folder of this name, one of SHIPPED or looked up from here, then from the repository; None: there is none."""
    if (text := str(path_or_id)) in SHIPPED or not text:
        return SHIPPED.get(text)
    return next((place for place in (Path(text).expanduser(), paths.root() / text) if os.path.isdir(place)), None)


def locate(path_or_id: str | os.PathLike, what: str = "backbone") -> tuple[str, bool]:
    """(folder or hub name, is a folder here); folders are looked up from here, then from the repository.

    Raises:
        EncoderError: neither a folder nor a hub name; `what` it should have been stands in the sentence.
    """
    text = str(path_or_id)
    if folder := find_folder(text):
        return str(folder), True
    try:
        validate_repo_id(text)
    except HFValidationError:
        raise EncoderError(f"{what} {text!r} is neither an existing folder nor a hub name like 'user/model'.") from None
    return text, False


def model_files(path_or_id: str | os.PathLike, what: str = "backbone") -> Path:
    """The folder with a model's files; those of a hub name are fetched into the hub's cache. what: for errors.

    Raises:
        EncoderError: neither a folder nor a hub name, or one that is not on the hub or cannot be reached; weights in a
            pickle.
    """
    source, is_here = locate(path_or_id, what)
    name, folder = f"{what} {str(path_or_id)!r}", Path(source)
    if not is_here:
        try:
            folder = Path(snapshot_download(source, allow_patterns=FILES))
        except Exception as error:  # the library raises a dozen kinds; all mean the same to the user
            raise EncoderError(
                f"{name}: no loadable model and tokenizer on the hub or in its cache ({reason(error)})."
            ) from error
    foreign, is_model = _foreign_shard(folder), (folder / "config.json").is_file()
    is_without = not is_here and is_model and not list(folder.glob("*.safetensors"))  # pickles were not fetched
    problems = {
        PICKLED: (any(folder.glob("pytorch_model*.bin")) and not any(folder.glob("*.safetensors"))) or is_without,
        f"cannot be loaded: {foreign}": foreign,
        "is an ensemble: name one of the encoders in its folder": (folder / "ensemble.json").is_file(),
        "is the folder of a run: name the folder `encoder` in it": (folder / "encoder").is_dir() and not is_model,
    }
    if problem := next((text for text, is_so in problems.items() if is_so), ""):
        raise EncoderError(f"{name} {problem}.")
    return folder


def _foreign_shard(folder: Path) -> str:
    """Where a model's files send for weights elsewhere than to safetensors files beside them; empty: nowhere. The list of a
    model whose weights lie in several files may do that, and its configuration. Raises DataError where one is no JSON."""
    index, config = folder / "model.safetensors.index.json", folder / "config.json"
    if config.is_file() and paths.read_json(config).get("transformers_weights") is not None:
        return f"{config} names a file of weights (transformers_weights), which is not read: take the entry out"
    if index.is_file() and not (folder / "model.safetensors").is_file():
        for name in paths.read_json(index)["weight_map"].values():
            if Path(name).name != name or not name.endswith(".safetensors"):
                return f"{index} names {name!r}: weights are read from safetensors files beside it alone"
    return ""


def load_backbone(
    path_or_id: str | os.PathLike, *, pooling: str | None, dropout: float | None, what: str
) -> tuple[nn.Module, Any, dict[str, Any]]:
    """Backbone, tokenizer, and what `read_modules` says; arguments and errors as in SentenceEncoder.from_pretrained."""
    quiet()
    name, folder = f"{what} {str(path_or_id)!r}", model_files(path_or_id, what)
    try:
        modules = read_modules(folder)
        has_pooler = (pooling or modules.get("pooling")) == "pooler"
        backbone = _load_model(folder, dropout, has_pooler=has_pooler)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        _check_tokenizer(tokenizer, backbone.config, lowers=modules.pop("lower_case", False))
        if backbone.config.model_type in DECODERS:
            modules = {"pooling": "last"} | modules
            tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    except (EncoderError, DataError) as error:
        raise EncoderError(f"{name}: {error}") from error
    except Exception as error:  # the libraries raise a dozen kinds; all mean the same to the user
        raise EncoderError(f"{name}: no loadable model and tokenizer in that folder ({reason(error)}).") from error
    return backbone, tokenizer, modules


def _load_model(folder: Path, dropout: float | None, *, has_pooler: bool) -> nn.Module:
    """The backbone in float32 with our dropout. has_pooler: whether it is to have its pooler."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if config.model_type not in (known := (*MODEL_TYPES, *PADDED, *DECODERS)):
        raise EncoderError(f"{config.model_type} models are not supported, only {', '.join(known)}.")
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        raise EncoderError("its config.json makes it a decoder: set is_decoder and add_cross_attention to false.")
    if has_pooler:
        check_packed(config, "pooling 'pooler'")
    for name in dropout_rates(config) if dropout is not None else ():
        setattr(config, name, dropout)
    form = {"config": config, "dtype": torch.float32, "output_loading_info": True, "local_files_only": True}
    form["attn_implementation"] = "sdpa" if config.model_type in MODEL_TYPES else None  # not every class has it
    form["ignore_mismatched_sizes"] = True  # reported by `fault`
    form["key_mapping"] = {rf"^{re.escape(TRAINED_LAYER)}": "pooler.dense"} if has_pooler else None
    if config.model_type in HAS_POOLER:
        form["add_pooling_layer"] = has_pooler
    backbone, report = AutoModel.from_pretrained(folder, trust_remote_code=False, use_safetensors=True, **form)
    if removed(config):
        remove_layer_norms(backbone, removed(config))
    if problem := fault(backbone, report, folder):
        raise EncoderError(f"{problem}.")
    if unread := sorted(key for key in report["unexpected_keys"] if not USUALLY_UNREAD.search(key)):
        hint = f"; pooling 'pooler' reads {TRAINED_LAYER}" if unread[0].startswith(TRAINED_LAYER) else ""
        remark(f"{folder}: {len(unread)} of its weights are not read, {', '.join(unread[:4])}{hint}.")
    replace_dropout(backbone)
    return backbone


def _check_tokenizer(tokenizer: Any, config: Any, *, lowers: bool) -> None:
    """Raise EncoderError where texts would be read in another way than when the backbone of this configuration was
    trained. lowers: whether sentence-transformers makes the texts lower-case."""
    entries, special = config.vocab_size, [tokenizer.cls_token_id, tokenizer.sep_token_id]
    last = max(tokenizer.get_vocab().values(), default=-1)
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise EncoderError("no tokenizer is saved with it.")
    if last >= entries:
        raise EncoderError(f"its tokenizer has {last + 1:,} entries and its weights know {entries:,}.")
    if config.model_type not in DECODERS and tokenizer("")["input_ids"] != special:
        raise EncoderError("its tokenizer does not put its [CLS] before a text and its [SEP] behind it.")
    if lowers and tokenizer("A")["input_ids"] != tokenizer("a")["input_ids"]:
        raise EncoderError("its sentence_bert_config.json has do_lower_case, and its tokenizer keeps capital letters.")


def read_modules(folder: Path) -> dict[str, Any]:
    """What a saved encoder says of its pooling, projection, max_length, and whether it normalises (ours or
    sentence-transformers'); {} for a plain backbone.

    Raises:
        EncoderError: its pooling or its projection is none of those known here.
        DataError: one of these files is damaged.
    """
    modules = _read_json(folder / "sentence_encoder.json") or _read_steps(folder)
    if modules.get("pooling", "cls") not in POOLINGS:
        raise EncoderError(f"{folder}: its pooling {modules['pooling']!r} is none of {', '.join(POOLINGS)}.")
    for config in map(paths.read_json, sorted(folder.glob("sentence_*_config.json"))):  # bert, roberta, ...
        modules = {"max_length": config.get("max_seq_length"), "lower_case": config.get("do_lower_case")} | modules
    if config := _read_json(folder / "2_Dense/config.json"):
        modules["projection"] = _read_dense(folder, config)
    return modules


def _read_dense(folder: Path, config: Mapping[str, Any]) -> nn.Sequential:
    """The linear layer in 2_Dense, and its tanh if it has one."""
    activation = str(config.get("activation_function")).rpartition(".")[2]
    is_plain = {config.get(f"module_{side}_name") or SENTENCE for side in ("input", "output")} == {SENTENCE}
    if activation not in ("Tanh", "Identity") or config.get("use_residual") or not is_plain:
        raise EncoderError(
            f"{folder}: its dense layer is more than a linear layer of the embedding, perhaps with tanh, which is all that "
            "is read here."
        )
    linear = nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
    weights = load_file(folder / "2_Dense/model.safetensors")
    linear.load_state_dict({name.removeprefix("linear."): value for name, value in weights.items()})
    return nn.Sequential(linear, nn.Tanh()) if activation == "Tanh" else nn.Sequential(linear)


def _read_steps(folder: Path) -> dict[str, Any]:
    """Pooling, and whether it normalises, of a folder of sentence-transformers; {} where it has no list of steps.

    Raises:
        EncoderError: it would do more to a text than is done here.
    """
    order, names = iter(STEPS), []
    for step in _read_json(folder / "modules.json"):
        package, _, name = step["type"].rpartition(".")
        is_theirs, place = package.startswith("sentence_transformers."), folder / step["path"]
        if is_theirs and name == "Dropout":
            continue
        is_known = is_theirs and name in order  # which moves on: each at most once, in this order
        is_there = is_known and place == folder / STEPS[name] and (place / "config.json").is_file()
        if not (is_there or (is_known and name == "Normalize")):  # which has no settings
            raise EncoderError(
                f"modules.json lists the step {step['type']!r} in {step['path']!r}, which is not read here: known are a "
                "transformer in the folder itself, 1_Pooling and 2_Dense, each with its config.json, and Normalize, in "
                "this order."
            )
        names.append(name)
    prompts = _read_json(folder / "config_sentence_transformers.json")
    default = prompts.get("default_prompt_name")
    if default is not None and (prompts.get("prompts") or {}).get(default, True):
        raise EncoderError(
            "config_sentence_transformers.json puts a prompt before each text (default_prompt_name), which is not done "
            "here: set it to null and put the prompt before your texts."
        )
    said = {"normalise": True} if "Normalize" in names else {}
    if config := _read_json(folder / "1_Pooling/config.json"):
        flags = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
        modes = [_POOLING_FLAGS.get(flag, flag) for flag in flags] or [config.get("pooling_mode")]  # newer: a name
        said["pooling"] = " and ".join(map(str, modes)).replace("lasttoken", "last")
    return said


def write_encoder(encoder: Any, folder: Path) -> None:
    """The files of a SentenceEncoder, into a folder that is there: the module list of sentence-transformers beside the
    backbone, and sentence_encoder.json for `read_modules`.

    `mask_prompt`, `pooler` and layers without LayerNorm have no equivalent there: the list names our class, see
    `lib.encoders.export`. Raises EncoderError for a projection that is not SimCSE's.
    """
    backbone, pooling, projection = encoder.backbone, encoder.pooling, encoder.projection
    layers = [] if projection is None else [type(module) for module in projection.children()]
    if layers not in ([], [nn.Linear], [nn.Linear, nn.Tanh]):
        raise EncoderError("only a projection of one linear layer, perhaps with tanh, can be saved with an encoder.")
    backbone.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)
    config = backbone.config
    size, modules = {"word_embedding_dimension": config.hidden_size}, []

    def add(kind: str, place: str, **settings: Any) -> None:
        number = len(modules)
        modules.append(
            {"idx": number, "name": str(number), "path": place, "type": f"sentence_transformers.models.{kind}"}
        )
        if settings:
            write_json(folder / place / "config.json", settings)

    add("Transformer", "")
    if POOLINGS[pooling].layers == "all":
        depth, start = config.num_hidden_layers, 1 if pooling == "first_last_mean" else 0
        weights = torch.zeros(depth + 1 - start, device="cpu")
        weights[0] += 1
        weights[-1] += 1
        place = "1_WeightedLayerPooling"
        add("WeightedLayerPooling", place, **size, num_hidden_layers=depth, layer_start=start)
        save_weights({"layer_weights": weights}, folder / place / "model.safetensors")
        write_json(folder / "config.json", _read_json(folder / "config.json") | {"output_hidden_states": True})
    is_theirs = pooling not in ("mask_prompt", "pooler") and not removed(config)
    if is_theirs:
        mode = pooling if pooling in ("cls", "last") else "mean"
        flags = {flag: name == mode for flag, name in _POOLING_FLAGS.items() if name in ("cls", "mean", mode)}
        add("Pooling", "1_Pooling", **size, **flags, pooling_mode_max_tokens=False)
    if projection is not None:
        linear = projection[0]
        shape = {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
        }
        activation = "activation.Tanh" if nn.Tanh in layers else "linear.Identity"
        add("Dense", "2_Dense", **shape, activation_function=f"torch.nn.modules.{activation}")
        weights = {f"linear.{name}": value for name, value in linear.state_dict().items()}
        save_weights(weights, folder / "2_Dense" / "model.safetensors")
    if encoder.normalise:
        add("Normalize", f"{len(modules)}_Normalize")
    write_json(folder / "modules.json", modules if is_theirs else [OUR_MODULE])
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": encoder.max_length, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    said = {"pooling": pooling, "max_length": encoder.max_length}
    said |= {name: True for name in ("normalise", "denoised") if getattr(encoder, name)}
    write_json(folder / "sentence_encoder.json", said)


def save_whole(write: Callable[[Path], object], folder: str | os.PathLike) -> Path:
    """Let `write` fill a new folder, which appears whole or not at all.

    Raises:
        EncoderError: the folder exists.
        DataError: it cannot be written.
    """
    folder = Path(folder).expanduser()
    if os.path.lexists(folder):
        raise EncoderError(f"{folder} exists: choose another folder or delete this one, nothing was written.")
    with paths.whole_folder(folder) as path:
        write(path)
    return folder


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf8")


def _read_json(path: Path) -> dict[str, Any]:
    """{} where there is no such file."""
    return paths.read_json(path) if path.is_file() else {}
