"""SentenceEncoder: a backbone, a pooling, perhaps a projection; `encode()` is all that evaluation ever sees."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.modeling_outputs import BaseModelOutput

from lib import packed, paths
from lib.progress import progress
from lib.session import quiet

MINI_BERT = Path(__file__).parent / "assets" / "mini-bert"  # the backbone of the demo profile
POOLINGS = ("cls", "mean", "first_last_mean", "embeddings_last_mean", "mask_prompt", "pooler")
_NEEDS_LAST_LAYER = {"cls", "mean", "mask_prompt"}
_NEEDS_ALL_LAYERS = {"first_last_mean", "embeddings_last_mean"}
# SimCSE's and PromptBERT's template; [X] is the sentence, the embedding is read at the mask token.
PROMPT = 'This sentence : " [X] " means [MASK] .'


class EncoderError(Exception):
    """A backbone cannot be loaded, or cannot do what was asked of it."""


def masked_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean over real tokens, [CLS] and [SEP] included. hidden [N, L, D], mask [N, L] -> [N, D]."""
    weights = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


class SentenceEncoder(nn.Module):
    """Transformer backbone + pooling (+ projection) -> one vector per sentence.

    Args:
        backbone: a Hugging Face encoder (BERT and RoBERTa families).
        tokenizer: its fast tokenizer.
        pooling: `cls` last layer at position 0; `mean` masked mean of the last layer; `first_last_mean` masked
            mean of (layer 1 + last layer) / 2; `embeddings_last_mean` the same with the static embedding output
            instead of layer 1 (the published "first-last avg." rows of BERT, SimCSE issue 285); `mask_prompt`
            last layer at the mask token of `PROMPT`; `pooler` the backbone's own pre-trained pooler.
        projection: module [N, D] -> [N, D'] that belongs to the embedding (supervised SimCSE); None otherwise.
        max_length: longest input in tokens, special tokens included; longer sentences are truncated by `encode`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        tokenizer: Any,
        *,
        pooling: str = "cls",
        projection: nn.Module | None = None,
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise EncoderError(f"pooling {pooling!r} is unknown: choose one of {', '.join(POOLINGS)}.")
        if pooling == "pooler" and getattr(backbone, "pooler", None) is None:
            raise EncoderError("pooling 'pooler' needs a backbone that was loaded with its pooler.")
        if pooling == "mask_prompt" and tokenizer.mask_token is None:
            raise EncoderError("pooling 'mask_prompt' needs a tokenizer with a mask token.")
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.projection = projection
        self.max_length = max_length or longest_input(backbone)
        self.training_dtype: torch.dtype | None = None  # bfloat16: autocast while training, never in encode()

    # -- building ---------------------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | os.PathLike,
        *,
        pooling: str | None = None,
        projection: nn.Module | None = None,
        dropout: float | None = None,
        attention: str = "sdpa",
        max_length: int | None = None,
        device: str | torch.device | None = None,
    ) -> SentenceEncoder:
        """Load a local folder (Hugging Face or sentence-transformers layout) or a hub name.

        Args:
            pooling: one of POOLINGS; None takes what the folder was saved with, else `cls`.
            dropout: replaces the backbone's hidden and attention dropout; None keeps them.
            attention: `sdpa` (fast) or `eager` (needed when attention maps are read).
            device: None takes the GPU when there is one.

        Raises:
            EncoderError: no such folder, no such hub name or no network, or not an encoder.
        """
        quiet()
        source, local = _locate(path_or_id)
        try:
            saved = _saved_modules(Path(source) if local else _fetch_modules(source))
            pooling = pooling or saved.get("pooling", "cls")
            projection = projection or saved.get("projection")
            config = AutoConfig.from_pretrained(source, local_files_only=local)
            if config.model_type not in packed.MODEL_TYPES:
                raise EncoderError(
                    f"backbone {str(path_or_id)!r} is a {config.model_type} model: "
                    f"supported are {', '.join(packed.MODEL_TYPES)}."
                )
            if dropout is not None:
                config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
            backbone, report = AutoModel.from_pretrained(
                source,
                output_loading_info=True,
                config=config,
                local_files_only=local,
                add_pooling_layer=pooling == "pooler",
                attn_implementation=attention,
                dtype=torch.float32,
            )
            tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=local)
            if local and not any((Path(source) / name).is_file() for name in _TOKENIZER_FILES):
                raise EncoderError(f"backbone {str(path_or_id)!r}: no tokenizer in that folder.")
            if len(tokenizer) > config.vocab_size:
                raise EncoderError(
                    f"backbone {str(path_or_id)!r}: its tokenizer has {len(tokenizer):,} entries and its weights know "
                    f"{config.vocab_size:,}: they do not belong together."
                )
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            where = "in that folder" if local else "on the hub or in its cache"
            reason = re.sub(r"\s+", " ", str(error))[:200]
            raise EncoderError(
                f"backbone {str(path_or_id)!r}: no loadable model and tokenizer {where} ({reason})."
            ) from error
        if any("pooler" in key for key in report["missing_keys"]):
            raise EncoderError(
                f"backbone {str(path_or_id)!r} was saved without a pooler: choose another pooling or backbone."
            )
        if missing := sorted(report["missing_keys"]):
            raise EncoderError(
                f"backbone {str(path_or_id)!r} lacks {len(missing)} of its weights, the first is {missing[0]}: the file "
                "is incomplete or belongs to another kind of model."
            )
        encoder = cls(
            backbone,
            tokenizer,
            pooling=pooling,
            projection=projection,
            max_length=max_length or saved.get("max_length"),
        )
        return encoder.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    # -- tensors ----------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    @property
    def dimension(self) -> int:
        """Length of an embedding."""
        if self.projection is not None:
            last = [m for m in self.projection.modules() if isinstance(m, nn.Linear)][-1]
            return last.out_features
        return self.backbone.config.hidden_size

    def pool(self, output: Any, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Backbone output -> [N, D] by `self.pooling`, before any projection."""
        hidden = output.last_hidden_state
        if self.pooling == "cls":
            return hidden[:, 0]
        if self.pooling == "mean":
            return masked_mean(hidden, attention_mask)
        if self.pooling == "pooler":
            return output.pooler_output
        if self.pooling == "mask_prompt":
            at_mask = input_ids == self.tokenizer.mask_token_id
            # a sentence may itself contain the mask token: the template's comes last
            last = at_mask.size(1) - 1 - at_mask.flip(1).int().argmax(1)
            return hidden[torch.arange(len(hidden), device=hidden.device), last]
        first = output.hidden_states[1 if self.pooling == "first_last_mean" else 0]
        return (masked_mean(first, attention_mask) + masked_mean(hidden, attention_mask)) / 2

    @property
    def _is_packed(self) -> bool:
        return self.pooling in _NEEDS_LAST_LAYER and packed.supports(self.backbone)

    def check_attention(self, layers: Sequence[int]) -> None:
        """Raise EncoderError when the attention of these layers (0-based) cannot be read while embedding."""
        if not self._is_packed:
            raise EncoderError(
                f"this encoder gives no attention maps (pooling {self.pooling!r}, attention "
                f"{self.backbone.config._attn_implementation!r}): load it with attention='sdpa' and pooling "
                f"{', '.join(sorted(_NEEDS_LAST_LAYER))}."
            )
        depth = self.backbone.config.num_hidden_layers
        if not layers or min(layers) < 0 or max(layers) >= depth:
            raise EncoderError(f"attention of layers {list(layers)} was asked for; this backbone has 0 to {depth - 1}.")

    def precision(self, device: torch.device) -> torch.autocast:
        """The training precision while training, nothing otherwise."""
        lower = self.training and self.training_dtype is not None
        return torch.autocast(device.type, dtype=self.training_dtype, enabled=lower)

    def run_backbone(self, input_ids: Tensor, attention_mask: Tensor, **options: Any) -> Any:
        """The backbone's output, in the training precision while training. input_ids, attention_mask: [N, L]."""
        with self.precision(input_ids.device):
            return self.backbone(input_ids=input_ids, attention_mask=attention_mask, **options)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        *,
        maps: packed.AttentionMaps | None = None,
        first_token: packed.FirstToken | None = None,
    ) -> Tensor:
        """input_ids, attention_mask [N, L] -> embeddings [N, D], always float32; the others are filled on the way.

        Raises:
            EncoderError: attention was asked for and this encoder cannot give it.
        """
        for read in (maps, first_token):
            if read is not None:
                self.check_attention(read.layers)
        if self._is_packed:
            with self.precision(input_ids.device):
                first_only = self.pooling == "cls"
                last = packed.last_hidden(
                    self.backbone,
                    input_ids,
                    attention_mask,
                    first_only=first_only,
                    maps=maps,
                    first_token=first_token,
                )
            output = BaseModelOutput(last_hidden_state=last)
        else:
            every_layer = self.pooling in _NEEDS_ALL_LAYERS
            output = self.run_backbone(input_ids, attention_mask, output_hidden_states=every_layer)
        pooled = self.pool(output, input_ids, attention_mask).float()
        return pooled if self.projection is None else self.projection(pooled)

    # -- text -------------------------------------------------------------------------------------------------

    def tokenize(
        self, sentences: Sequence[str], max_length: int | None = None, *, split: bool = False
    ) -> list[list[int]]:
        """Sentences -> token ids with special tokens, truncated to max_length, not padded.

        With `mask_prompt` the sentence is cut so that the whole template fits. With `split` nothing is cut off: what
        is left of a long text follows as further lists, each with its own special tokens.
        """
        limit = max_length or self.max_length
        if split and self.pooling == "mask_prompt":
            raise EncoderError(
                "texts cannot be split into several rows with pooling 'mask_prompt': choose another pooling."
            )
        if self.pooling != "mask_prompt":
            return self.tokenizer(
                list(sentences),
                truncation=True,
                max_length=limit,
                return_overflowing_tokens=split,
                return_attention_mask=False,
                return_token_type_ids=False,
            )["input_ids"]
        before, after = PROMPT.replace("[MASK]", self.tokenizer.mask_token).split("[X]")
        start, end = (self.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, after))
        opening, closing = self.tokenizer("")["input_ids"]  # [CLS], [SEP] or <s>, </s>
        room = limit - len(start) - len(end) - 2
        if room < 1:
            raise EncoderError(f"max_length {limit} leaves no room for a sentence in the prompt template.")
        plain = self.tokenizer(list(sentences), add_special_tokens=False)["input_ids"]
        return [[opening, *start, *ids[:room], *end, closing] for ids in plain]

    @torch.no_grad()
    def encode(self, sentences: Sequence[str], *, batch_tokens: int = 4096, show_progress: bool = False) -> np.ndarray:
        """Embed sentences: list of n strings -> float32 array [n, D], in the given order.

        Repeated sentences are embedded once; batches hold sentences of similar length and at most `batch_tokens`
        tokens, padding included; evaluation mode, no gradient. The batching does not change a vector beyond
        floating-point noise (about 1e-6).

        Raises:
            TypeError: something else than a list of strings was given.
        """
        if isinstance(sentences, str) or not all(isinstance(s, str) for s in sentences):
            raise TypeError("encode() takes a list of strings.")
        unique, inverse = _unique(sentences)
        vectors = np.zeros((len(unique), self.dimension), dtype=np.float32)
        if not unique:
            return vectors
        ids: list[np.ndarray] = []  # as arrays, chunk by chunk: lists of a million sentences would fill the memory
        for start in range(0, len(unique), 20_000):
            ids += [np.array(x, dtype=np.int32) for x in self.tokenize(unique[start : start + 20_000])]
        lengths = np.array([len(x) for x in ids])
        order = np.argsort(-lengths, kind="stable")  # longest first: too little memory shows at once
        was_training = self.training
        self.eval()
        try:
            bar = progress(total=len(unique), label="encode", enabled=show_progress)
            position = 0
            while position < len(order):
                longest = lengths[order[position]]
                batch = order[position : position + max(1, batch_tokens // longest)]
                inputs = pad([ids[i] for i in batch], self.tokenizer.pad_token_id, device=self.device)
                vectors[batch] = self(*inputs).float().cpu().numpy()
                position += len(batch)
                bar.update(len(batch))
            bar.close()
        finally:
            self.train(was_training)
        return vectors[inverse]

    # -- disk -------------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike) -> None:
        """Write the encoder so that `from_pretrained(folder)` and `SentenceTransformer(folder)` give its vectors.

        The folder appears whole or not at all. `mask_prompt` and `pooler` have no equivalent in
        sentence-transformers: such a folder loads here, and there it stops, naming this class.
        """
        folder = Path(folder).expanduser()
        if folder.exists() and not (folder / "sentence_encoder.json").is_file():
            raise EncoderError(f"{folder} exists and is no saved encoder: choose another folder, nothing was written.")
        with paths.whole_folder(folder) as path:
            self.backbone.save_pretrained(path)
            self.tokenizer.save_pretrained(path)
            _write_modules(path, self)


def longest_input(backbone: nn.Module) -> int:
    """Longest input of a backbone in tokens (RoBERTa reserves two of its positions)."""
    reserved = 2 if "roberta" in backbone.config.model_type or backbone.config.model_type == "camembert" else 0
    return backbone.config.max_position_embeddings - reserved


def pad(ids: Sequence[Sequence[int]], pad_id: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Lists of token ids -> input_ids, attention_mask [N, longest]."""
    longest = max(len(x) for x in ids)
    input_ids = np.full((len(ids), longest), pad_id, dtype=np.int64)
    mask = np.zeros((len(ids), longest), dtype=np.int64)
    for row, x in enumerate(ids):
        input_ids[row, : len(x)] = x
        mask[row, : len(x)] = 1
    return torch.from_numpy(input_ids).to(device), torch.from_numpy(mask).to(device)


def projection_head(dimension: int, weight_std: float = 0.02) -> nn.Sequential:
    """SimCSE's training head z = tanh(W h + b): one square layer, weights normal(0, 0.02), zero bias."""
    linear = nn.Linear(dimension, dimension)
    nn.init.normal_(linear.weight, std=weight_std)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.Tanh())


def _unique(sentences: Sequence[str]) -> tuple[list[str], np.ndarray]:
    index: dict[str, int] = {}
    inverse = np.fromiter((index.setdefault(s, len(index)) for s in sentences), dtype=np.int64)
    return list(index), inverse


def _locate(path_or_id: str | os.PathLike) -> tuple[str, bool]:
    """(source, is a local folder); a relative folder is looked up from here, then from the repository."""
    text = str(path_or_id)
    if text == "demo":
        return str(MINI_BERT), True
    for folder in (Path(text).expanduser(), paths.root() / text):
        if folder.is_dir():
            return str(folder), True
    if re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", text):
        return text, False
    raise EncoderError(f"backbone {text!r} is neither an existing folder nor a hub name like 'user/model'.")


_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model")


def _fetch_modules(name: str) -> Path:
    """The small files of a hub model that say how it pools; an empty set for a plain backbone."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=["sentence_*.json", "1_Pooling/*", "2_Dense/*"]))


# The layout of sentence-transformers, written by hand so that `lib` does not need the package.
_POOLING_FLAGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf8")


def _write_modules(path: Path, encoder: SentenceEncoder) -> None:
    """The module list of sentence-transformers, which only knows what is named here; ours in sentence_encoder.json."""
    size = encoder.backbone.config.hidden_size
    steps: list[tuple[str, str, dict[str, Any]]] = [("Transformer", "", {})]
    if encoder.pooling in _NEEDS_ALL_LAYERS:
        layers, start = encoder.backbone.config.num_hidden_layers, int(encoder.pooling == "first_last_mean")
        weights = torch.zeros(layers + 1 - start)
        weights[0] += 1
        weights[-1] += 1
        shape = {"word_embedding_dimension": size, "num_hidden_layers": layers, "layer_start": start}
        steps.append(("WeightedLayerPooling", "1_WeightedLayerPooling", shape))
        _write_weights(path / "1_WeightedLayerPooling", {"layer_weights": weights})
        config = json.loads((path / "config.json").read_text(encoding="utf8"))
        write_json(path / "config.json", config | {"output_hidden_states": True})
    if encoder.pooling in ("mask_prompt", "pooler"):
        # no equivalent there: a class it does not know makes it stop instead of averaging silently
        steps.append(("lib.encoder.SentenceEncoder", "", {}))
    else:
        mode = "cls" if encoder.pooling == "cls" else "mean"
        flags = {flag: name == mode for name, flag in _POOLING_FLAGS.items()} | {"pooling_mode_max_tokens": False}
        steps.append(("Pooling", "1_Pooling", {"word_embedding_dimension": size} | flags))
    if encoder.projection is not None:
        linear = encoder.projection[0]
        dense = {"in_features": linear.in_features, "out_features": linear.out_features, "bias": True}
        steps.append(("Dense", "2_Dense", dense | {"activation_function": "torch.nn.modules.activation.Tanh"}))
        _write_weights(path / "2_Dense", {"linear.weight": linear.weight, "linear.bias": linear.bias})
    modules = []
    for i, (kind, folder, config) in enumerate(steps):
        kind = kind if "." in kind else f"sentence_transformers.models.{kind}"
        modules.append({"idx": i, "name": str(i), "path": folder, "type": kind})
        if config:
            write_json(path / folder / "config.json", config)
    write_json(path / "modules.json", modules)
    write_json(path / "sentence_bert_config.json", {"max_seq_length": encoder.max_length, "do_lower_case": False})
    write_json(path / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    write_json(path / "sentence_encoder.json", {"pooling": encoder.pooling, "max_length": encoder.max_length})


def _write_weights(folder: Path, weights: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().cpu().contiguous() for k, v in weights.items()}, folder / "model.safetensors")


def _saved_modules(folder: Path) -> dict[str, Any]:
    """What a saved folder says of pooling, projection and length (ours or sentence-transformers'); {} otherwise."""
    found: dict[str, Any] = {}
    if (folder / "sentence_encoder.json").is_file():
        found |= json.loads((folder / "sentence_encoder.json").read_text(encoding="utf8"))
    elif (folder / "1_Pooling/config.json").is_file():
        config = json.loads((folder / "1_Pooling/config.json").read_text(encoding="utf8"))
        modes = [k for k, v in config.items() if k.startswith("pooling_mode") and v is True]
        names = {flag: name for name, flag in _POOLING_FLAGS.items()}
        mode = config.get("pooling_mode")  # the newer form of the file
        if len(modes) == 1 and modes[0] in names:
            found["pooling"] = names[modes[0]]
        elif mode in _POOLING_FLAGS:
            found["pooling"] = mode
        else:
            raise EncoderError(f"{folder}: its pooling {modes or mode} is none of {', '.join(_POOLING_FLAGS)}.")
    length = folder / "sentence_bert_config.json"
    if "max_length" not in found and length.is_file():
        found["max_length"] = json.loads(length.read_text(encoding="utf8")).get("max_seq_length")
    dense = folder / "2_Dense/config.json"
    if dense.is_file():
        config = json.loads(dense.read_text(encoding="utf8"))
        if not config["activation_function"].endswith("Tanh"):
            raise EncoderError(f"{folder}: its dense layer is not linear + tanh, which is all that is read here.")
        projection = projection_head(config["in_features"])
        weights = load_file(dense.parent / "model.safetensors")
        projection[0].load_state_dict({k.removeprefix("linear."): v for k, v in weights.items()})
        found["projection"] = projection
    return found
