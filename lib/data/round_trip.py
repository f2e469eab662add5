"""Round-trip translation: a sentence into another language and back, as TNCSE and JTCSE make their first-stage text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lib import paths
from lib.checks import DataError
from lib.data.files import single_spaced
from lib.distributed import processes
from lib.progress import progress
from lib.session import quiet

CHUNK, BATCH = 1_000, 32  # sentences in a file (a killed translation goes on after the last full one), and in a batch
MOST_EMPTY = 0.1  # share of a chunk
FILES = (".safetensors", ".json", ".spm", ".model", ".txt")  # of weights, tokenizer and configurations


def round_trip(sentences: Sequence[str], there: str, back: str) -> list[str]:
    """Translate with model `there` and its output with model `back`; greedy, so that the result is always the same.

    The authors used Google Translate (French and Russian for BERT, Dutch and Chinese for RoBERTa). Here it is any pair
    of sequence-to-sequence models for one direction each, a folder or hub name with safetensors weights, for example
    Helsinki-NLP/opus-mt-en-fr and opus-mt-fr-en. Every chunk is kept in the cache by its text and the models. An empty
    translation is replaced by the sentence itself.

    Raises:
        DataError: as `load`; more than MOST_EMPTY of a chunk is empty; the cache cannot be written.
    """
    models, translated = [load(name) for name in (there, back)], []
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for *_, files in models for path in files]

    def write(path: Path) -> None:
        texts = chunk
        for tokenizer, model, _ in models:
            texts = translate(texts, tokenizer, model.to(processes().device))
        if (empty := sum(not text.strip() for text in texts)) > MOST_EMPTY * len(chunk):
            raise DataError(
                f"{there!r} and {back!r} translate {empty} of {len(chunk)} sentences to nothing: take others."
            )
        kept = [text.strip() or sentence for text, sentence in zip(texts, chunk, strict=True)]
        path.write_text(json.dumps(kept, ensure_ascii=False), encoding="utf8")

    with progress(total=len(sentences), label="translate") as bar:
        for start in range(0, len(sentences), CHUNK):
            chunk = list(sentences[start : start + CHUNK])
            key = hashlib.sha256(json.dumps([digests, chunk]).encode()).hexdigest()[:24]
            file = paths.made_once(paths.cache() / "round_trip" / f"{key}.json", write)
            translated += json.loads(file.read_text(encoding="utf8"))
            bar.update(len(chunk))
    return translated


def load(name: str) -> tuple[Any, Any, list[Path]]:
    """Tokenizer, model and files of one direction; no code of the model's own is run, and no pickle read.

    Raises:
        DataError: the model is nowhere or damaged, or does not translate in one direction without further arguments.
    """
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    quiet()
    source = str(paths.expanded(name)) if paths.expanded(name).is_dir() else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        folder = paths.model_folder(source)
        if problem := paths.foreign_shard(folder):
            raise DataError(problem)
        model = AutoModelForSeq2SeqLM.from_pretrained(source, use_safetensors=True, trust_remote_code=False)
        if hasattr(tokenizer, "src_lang") or getattr(model.config, "task_specific_params", None):
            raise DataError("it wants a language or a task beside the text, which is not given here")
    except Exception as error:  # the libraries raise a dozen kinds; all mean the same to the user
        reason = "it needs code of its own, which is never run" if "trust_remote_code" in str(error) else str(error)
        raise DataError(
            f"round-trip translation: no loadable model {name!r} ({single_spaced(reason)[:240]}): name two sequence-to-"
            "sequence models with safetensors weights, or another augmentation, such as word_repetition(0.2)."
        ) from error
    return tokenizer, model.eval(), sorted(path for path in folder.iterdir() if path.suffix in FILES)


@torch.no_grad()
def translate(sentences: list[str], tokenizer: Any, model: Any) -> list[str]:
    """n texts -> n texts; each as if it were translated alone."""
    longest = getattr(model.config, "max_position_embeddings", None) or 512  # tokens in, and tokens out
    translated: list[str] = []
    for start in range(0, len(sentences), BATCH):
        texts = sentences[start : start + BATCH]
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt")
        inputs = {name: inputs[name].to(model.device) for name in ("input_ids", "attention_mask")}
        output = model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=longest - 1)
        translated += tokenizer.batch_decode(output, skip_special_tokens=True)
    return translated
