"""Round-trip translation: a sentence into another language and back, as TNCSE and JTCSE make their first-stage text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lib import paths
from lib.checks import ConfigError, DataError
from lib.data.files import cached, single_spaced
from lib.distributed import processes
from lib.progress import progress
from lib.session import quiet

FORMAT = 1
CHUNK = 1_000  # sentences per file: a killed translation goes on after the last full one
MOST_EMPTY = 0.1  # share of a chunk


def round_trip(sentences: Sequence[str], there: str, back: str) -> list[str]:
    """Translate with model `there` and its output with model `back`; greedy, so that the result is always the same.

    The authors used Google Translate (French and Russian for BERT, Dutch and Chinese for RoBERTa). Here it is any pair
    of sequence-to-sequence models for one direction each, a folder or hub name with safetensors weights, for example
    Helsinki-NLP/opus-mt-en-fr and opus-mt-fr-en. Every chunk is kept in the cache by its text and the models: when a
    corpus grows, only its new chunks are translated. An empty translation is replaced by the sentence itself.

    Raises:
        DataError, ConfigError: as `load`; more than MOST_EMPTY of a chunk is empty; the cache cannot be written.
    """
    models = load(there, back)
    versions = json.dumps([FORMAT, *(model.fingerprint for model in models)])
    folder = paths.cache() / "round_trip" / hashlib.sha256(versions.encode()).hexdigest()[:24]
    translated: list[str] = []

    def write(path: Path) -> None:
        path.write_text(json.dumps(_translate(chunk, *models), ensure_ascii=False), encoding="utf8")

    with progress(total=len(sentences), label="translate") as bar:
        for start in range(0, len(sentences), CHUNK):
            chunk = list(sentences[start : start + CHUNK])
            name = hashlib.sha256(json.dumps(chunk).encode()).hexdigest()[:24]
            translated += json.loads(cached(folder / f"{name}.json", write).read_text(encoding="utf8"))
            bar.update(len(chunk))
    return translated


def _translate(chunk: list[str], there: _Translator, back: _Translator) -> list[str]:
    translated = back(there(chunk))
    empty = sum(not text.strip() for text in translated)
    if empty > MOST_EMPTY * len(chunk):
        raise DataError(
            f"round-trip translation with {there.name!r} and {back.name!r} gave nothing for {empty} of "
            f"{len(chunk)} sentences: are they models for these two directions?"
        )
    return [text.strip() or sentence for text, sentence in zip(translated, chunk, strict=True)]


def load(there: str, back: str) -> list[_Translator]:
    """Both models, checked as far as possible without their weights.

    Raises:
        DataError: a model is in no folder, not in the hub's cache and not on the hub, needs code of its own, or does
            not translate in one direction without further arguments.
        ConfigError: the model's tokenizer needs a library that is not installed.
    """
    return [_Translator(name) for name in (there, back)]


class _Translator:
    """One direction; the weights are loaded when the first text comes."""

    def __init__(self, name: str) -> None:
        from transformers import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, AutoConfig, AutoTokenizer

        quiet()
        folder = paths.expanded(name)
        self.name, self.source = name, str(folder if folder.is_dir() else name)
        self.options = {"local_files_only": folder.is_dir(), "trust_remote_code": False}
        try:
            config = AutoConfig.from_pretrained(self.source, **self.options)
            self.tokenizer = AutoTokenizer.from_pretrained(self.source, **self.options)
        except ImportError as error:
            raise ConfigError(
                f"round-trip translation with {name!r} needs a library: {single_spaced(str(error))[:160]}"
            ) from error
        except Exception as error:  # the libraries raise a dozen kinds; all mean the same to the user
            raise self._refusal(error) from error
        if type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
            raise self._refusal(f"a {config.model_type} is no sequence-to-sequence model")
        if hasattr(self.tokenizer, "src_lang") or getattr(config, "task_specific_params", None):
            raise self._refusal("it wants a language or a task beside the text, which is not given here")
        if folder.is_dir() and not (folder / "model.safetensors").is_file():
            raise self._refusal(f"it {paths.PICKLED}" if paths.is_pickled(folder) else "it has no model.safetensors")
        if problem := paths.foreign_shard(paths.model_folder(self.source)):
            raise self._refusal(problem)
        version = _digest(folder) if folder.is_dir() else paths.model_folder(self.source).name  # commit of the hub
        self.fingerprint = f"{folder.name} {version}"

    def _refusal(self, reason: Exception | str) -> DataError:
        if "trust_remote_code" in str(reason):
            reason = "it needs code of its own, which is never run"
        return DataError(
            f"round-trip translation: no loadable model {self.name!r} in a folder, in the hub's cache or on the hub "
            f"({single_spaced(str(reason))[:240]}); name two sequence-to-sequence models, or choose another "
            "augmentation, such as word_repetition(0.2)."
        )

    @cached_property
    def model(self) -> Any:
        from transformers import AutoModelForSeq2SeqLM

        try:
            model = AutoModelForSeq2SeqLM.from_pretrained(self.source, use_safetensors=True, **self.options)
        except Exception as error:
            raise self._refusal(error) from error
        return model.eval().to(processes().device)

    @torch.no_grad()
    def __call__(self, sentences: Sequence[str], *, batch_size: int = 32) -> list[str]:
        longest = getattr(self.model.config, "max_position_embeddings", None) or 512  # tokens in, and tokens out
        order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
        translated: dict[int, str] = {}
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            texts = [sentences[i] for i in rows]
            inputs = self.tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt")
            inputs = {k: v.to(self.model.device) for k, v in inputs.items() if k in ("input_ids", "attention_mask")}
            limits = (2 * inputs["attention_mask"].sum(1) + 8).clamp(max=longest - 1).tolist()  # tokens out
            output = self.model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=max(limits))
            # the token after a sentence's own limit would be a forced end
            ids = [ids[:limit] for ids, limit in zip(output, limits, strict=True)]
            translated |= zip(rows, self.tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True)
        return [translated[i] for i in range(len(sentences))]


def _digest(folder: Path) -> str:
    """Of the weights, the tokenizer and the configurations."""
    suffixes = (".safetensors", ".json", ".spm", ".model", ".txt")
    files = sorted(path for path in folder.iterdir() if path.suffix in suffixes)
    digests = [path.name.encode() + hashlib.sha256(path.read_bytes()).digest() for path in files]
    return hashlib.sha256(b"".join(digests)).hexdigest()
