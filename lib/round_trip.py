"""Round-trip translation: a sentence into another language and back, as TNCSE and JTCSE make their first-stage text."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors import SafetensorError

from lib import paths
from lib.config import ConfigError
from lib.data.errors import DataError
from lib.distributed import processes
from lib.progress import progress
from lib.session import quiet

FORMAT = 1
CHUNK = 1_000  # sentences per file: a killed translation goes on after the last full one
MOST_EMPTY = 0.1


def round_trip(sentences: Sequence[str], there: str, back: str, *, show_progress: bool = False) -> list[str]:
    """Translate with model `there` and its output with model `back`; greedy, so that the result is always the same.

    The authors used Google Translate (French and Russian for BERT, Dutch and Chinese for RoBERTa). Here any pair of
    sequence-to-sequence models that know one direction each, for example Helsinki-NLP/opus-mt-en-fr and opus-mt-fr-en.
    Every chunk is kept in the cache by its text and the models, so that a corpus that grows is not translated again.

    Args:
        there, back: folder or hub name of each model, with safetensors weights.

    Returns:
        n strings; an empty translation is replaced by the sentence itself.

    Raises:
        DataError, ConfigError: as `load`; more than MOST_EMPTY of a chunk comes back empty.
    """
    models = load(there, back)
    versions = json.dumps([FORMAT, *(model.fingerprint for model in models)])
    folder = paths.cache() / "round_trip" / hashlib.sha256(versions.encode()).hexdigest()[:24]
    folder.mkdir(parents=True, exist_ok=True)
    bar = progress(total=len(sentences), label="translate", enabled=show_progress)
    found: list[str] = []
    for start in range(0, len(sentences), CHUNK):
        chunk = list(sentences[start : start + CHUNK])
        text = json.dumps(chunk).encode()
        path = folder / f"{hashlib.sha256(text).hexdigest()[:24]}.json"
        with FileLock(path.with_suffix(".lock")):  # of several processes one translates
            if not path.is_file():
                partial = path.with_suffix(".partial")
                partial.write_text(json.dumps(_translate(chunk, models), ensure_ascii=False), encoding="utf8")
                os.replace(partial, path)
        found += json.loads(path.read_text(encoding="utf8"))
        bar.update(len(chunk))
    bar.close()
    return found


def _translate(chunk: list[str], models: list[_Translator]) -> list[str]:
    translated = models[1](models[0](chunk))
    empty = sum(not new.strip() for new in translated)
    if empty > MOST_EMPTY * len(chunk):
        raise DataError(
            f"round-trip translation with {models[0].name!r} and {models[1].name!r} gave nothing for {empty} of "
            f"{len(chunk)} sentences: are they models for these two directions?"
        )
    return [new.strip() or old for new, old in zip(translated, chunk, strict=True)]


def load(there: str, back: str) -> list[_Translator]:
    """Both models as far as they can be checked without their weights.

    Raises:
        DataError: a model is in no folder, not in the hub's cache and not on the hub, or does not translate in one
            direction without further arguments.
        ConfigError: the model's tokenizer needs a library that is not installed.
    """
    return [_Translator(name) for name in (there, back)]


class _Translator:
    """One direction; the weights are loaded when the first text comes."""

    def __init__(self, name: str) -> None:
        from transformers import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, AutoConfig, AutoTokenizer

        quiet()
        folder = Path(name).expanduser()
        self.name, self.model = name, None
        self.source = str(folder if folder.is_dir() else name)
        try:
            config = AutoConfig.from_pretrained(self.source, local_files_only=folder.is_dir())
            self.tokenizer = AutoTokenizer.from_pretrained(self.source, local_files_only=folder.is_dir())
        except ImportError as error:
            raise ConfigError(f"round-trip translation with {name!r} needs a library: {_one_line(error)}") from error
        except (OSError, ValueError) as error:
            raise self._refusal(_one_line(error)) from error
        if type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
            raise self._refusal(f"a {config.model_type} is no sequence-to-sequence model")
        if hasattr(self.tokenizer, "src_lang") or getattr(config, "task_specific_params", None):
            raise self._refusal("it wants a language or a task beside the text, which is not given here")
        if folder.is_dir() and not (folder / "model.safetensors").is_file():
            raise self._refusal("it has no model.safetensors")
        commit = paths.model_folder(self.source).name
        self.fingerprint = f"{folder.name} {_files(folder) if folder.is_dir() else commit}"

    def _refusal(self, reason: str) -> DataError:
        return DataError(
            f"round-trip translation: no loadable model {self.name!r} in a folder, in the hub's cache or on the hub "
            f"({reason}); name two sequence-to-sequence models, or choose another augmentation, such as word_repetition(0.2)."
        )

    def _load(self) -> Any:
        from transformers import AutoModelForSeq2SeqLM

        local = Path(self.source).is_dir()
        try:
            model = AutoModelForSeq2SeqLM.from_pretrained(self.source, local_files_only=local, use_safetensors=True)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise self._refusal(_one_line(error)) from error
        return model.eval().to(processes().device)

    @torch.no_grad()
    def __call__(self, sentences: Sequence[str], *, batch_size: int = 32) -> list[str]:
        self.model = self.model or self._load()
        most = getattr(self.model.config, "max_position_embeddings", None) or 512  # tokens in, and tokens out
        order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
        found = [""] * len(sentences)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            inputs = self.tokenizer(
                [sentences[i] for i in rows], padding=True, truncation=True, max_length=most, return_tensors="pt"
            )
            inputs = {k: v.to(self.model.device) for k, v in inputs.items() if k in ("input_ids", "attention_mask")}
            new = (2 * inputs["attention_mask"].sum(1) + 8).clamp(max=most - 1).tolist()  # at most, for each sentence
            output = self.model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=max(new))
            own = [ids[:count] for ids, count in zip(output, new, strict=True)]  # a forced end would be the next token
            for i, text in zip(rows, self.tokenizer.batch_decode(own, skip_special_tokens=True), strict=True):
                found[i] = text
        return found


def _one_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()[:160]


def _files(folder: Path) -> str:
    """Digest of the weights, the tokenizer and the configurations."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".safetensors", ".json", ".spm", ".model", ".txt"):
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
