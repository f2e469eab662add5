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

from lib import paths
from lib.data.errors import DataError
from lib.distributed import processes
from lib.progress import progress
from lib.session import quiet

FORMAT = 1
CHUNK = 1_000  # sentences per file: a killed translation goes on after the last full one


def round_trip(sentences: Sequence[str], there: str, back: str, *, show_progress: bool = False) -> list[str]:
    """Translate with model `there` and its output with model `back`; greedy, so that the result is always the same.

    The authors used Google Translate (French and Russian for BERT, Dutch and Chinese for RoBERTa); any pair of
    sequence-to-sequence models works here, for example Helsinki-NLP/opus-mt-en-fr and opus-mt-fr-en. Results are
    cached by text and models.

    Args:
        there, back: folder or hub name of each model, with safetensors weights.

    Returns:
        n strings; an empty translation is replaced by the sentence itself.

    Raises:
        DataError: a model cannot be loaded.
    """
    models = load(there, back)
    digest = hashlib.sha256(json.dumps([FORMAT, *(model.fingerprint for model in models)]).encode())
    digest.update("\x00".join(sentences).encode("utf8", "surrogatepass"))
    folder = paths.cache() / "round_trip" / digest.hexdigest()[:24]
    folder.mkdir(parents=True, exist_ok=True)
    bar = progress(total=len(sentences), label="translate", enabled=show_progress)
    found: list[str] = []
    for start in range(0, len(sentences), CHUNK):
        chunk = list(sentences[start : start + CHUNK])
        path = folder / f"{start:08d}.json"
        if not path.is_file():
            translated = models[1](models[0](chunk))
            whole = [new.strip() or old for new, old in zip(translated, chunk, strict=True)]
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(whole, ensure_ascii=False), encoding="utf8")
            os.replace(partial, path)
        found += json.loads(path.read_text(encoding="utf8"))
        bar.update(len(chunk))
    bar.close()
    return found


def load(there: str, back: str) -> list[_Translator]:
    """Both models as far as they can be checked without their weights.

    Raises:
        DataError: a model is in no folder, not in the hub's cache and not on the hub.
    """
    return [_Translator(name) for name in (there, back)]


class _Translator:
    """One direction; the weights are loaded when the first text comes."""

    def __init__(self, name: str) -> None:
        from transformers import AutoConfig, AutoTokenizer

        quiet()
        folder = Path(name).expanduser()
        self.name, self.model = name, None
        self.source = str(folder if folder.is_dir() else name)
        try:
            config = AutoConfig.from_pretrained(self.source, local_files_only=folder.is_dir())
            self.tokenizer = AutoTokenizer.from_pretrained(self.source, local_files_only=folder.is_dir())
        except (OSError, ValueError, ImportError) as error:
            raise self._refusal(error) from error
        weights = folder / "model.safetensors"
        if folder.is_dir() and not weights.is_file():
            raise self._refusal(FileNotFoundError("it has no model.safetensors"))
        version = hashlib.sha256(weights.read_bytes()).hexdigest() if folder.is_dir() else config._commit_hash
        self.fingerprint = f"{folder.name} {version}"

    def _refusal(self, error: Exception) -> DataError:
        reason = re.sub(r"\s+", " ", str(error))[:160]
        return DataError(
            f"round-trip translation: no loadable model {self.name!r} in a folder, in the hub's cache or on the hub "
            f"({reason}); name two sequence-to-sequence models, or choose another augmentation, such as word_repetition(0.2)."
        )

    def _load(self) -> Any:
        from transformers import AutoModelForSeq2SeqLM

        local = Path(self.source).is_dir()
        try:
            model = AutoModelForSeq2SeqLM.from_pretrained(self.source, local_files_only=local, use_safetensors=True)
        except (OSError, ValueError, ImportError) as error:
            raise self._refusal(error) from error
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
            longest = min(2 * inputs["input_ids"].size(1) + 8, most - 1)
            output = self.model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=longest)
            for i, text in zip(rows, self.tokenizer.batch_decode(output, skip_special_tokens=True), strict=True):
                found[i] = text
        return found
