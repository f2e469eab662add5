"""Before a run: everything loaded and checked, and the name that says what the run is."""

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from lib import paths
from lib.checks import ConfigError
from lib.config import RunConfig
from lib.data import Corpus, STSTask, augment, exemplars, load_corpus, load_sts
from lib.data.corpus import HARD_NEGATIVE
from lib.data.tokenized import check_words
from lib.distributed import processes
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.generator import Generator
from lib.encoders.heads import MODEL_FILES
from lib.encoders.kinds import check_no_decoder, longest_input
from lib.encoders.precision import DTYPES, is_rounded
from lib.encoders.saved import find_folder
from lib.methods import Method

FORMAT = 2  # part of every run's name: raise it when the meaning of a configuration changes
# Not part of the name by themselves: where things are filed, and what the checksums stand for.
NOT_IN_NAME = ("profile", "data_dir", "corpus", "corpus_size", "corpus_seed", "augmentation", "backbone", "dev_task")
# Parameters that came later: part of the name, and of a run's settings, unless they have the values of older runs.
LATER = {"equal_texts": "negatives", "chunk_size": 0, "replacement_rate": 0.0}


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs, loaded and checked."""

    id: str
    corpus: Corpus
    encoder: SentenceEncoder
    dev: STSTask | None
    checksums: dict[str, str]


class Shared(dict):
    """What many configurations of a plan have in common, read once. For checks and names: a run is trained from fresh
    weights."""

    def once(self, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """make(*arguments, **options), or what it gave before."""
        key = (make, arguments, tuple(options.items()))
        if key not in self:
            self[key] = make(*arguments, **options)
        return self[key]


def load(config: RunConfig, shared: Shared | None = None) -> tuple[Corpus, SentenceEncoder, STSTask | None]:
    """Corpus before augmentation, encoder and dev pairs: everything that can be checked in seconds.

    Raises:
        ConfigError, DataError, EncoderError: one sentence saying what is wrong.
    """
    data_dir, needs = config.data_folder(), config.needs
    shared, draw = Shared() if shared is None else shared, {"size": config.corpus_size, "seed": config.corpus_seed}
    if "+" in config.corpus:  # sentences are added after the draw
        corpus = shared.once(load_corpus, config.corpus, data_dir, **draw)
    else:
        corpus = shared.once(load_corpus, config.corpus, data_dir).sample(**draw)
    roles, allowed = augment.roles(corpus, config.augmentation), needs.roles + needs.optional_roles
    if "hard_negative" in allowed:
        allowed += tuple(filter(HARD_NEGATIVE.fullmatch, roles))
    if not set(needs.roles) <= set(roles) <= set(allowed):
        perhaps = f" and perhaps {', '.join(needs.optional_roles)}" if needs.optional_roles else " alone"
        raise ConfigError(
            f"method {config.method} trains on the columns {', '.join(needs.roles)}{perhaps}, but corpus "
            f"{config.corpus!r} with augmentation {config.augmentation!r} holds {', '.join(roles)}."
        )
    dev = None if config.dev_task == "none" else shared.once(load_sts, data_dir, config.dev_task, "dev")
    how = {"pooling": config.pooling, "dropout": config.dropout}
    encoder = shared.once(SentenceEncoder.from_pretrained, config.backbone, **how)
    check_no_decoder(encoder.backbone.config)
    if dev is not None:
        ids = encoder.tokenize([*dev.sentences1, *dev.sentences2])
        check_words(encoder, ids, len(ids), f"the dev pairs of {dev.name}")
    if config.max_length > (limit := longest_input(encoder.backbone)):
        raise ConfigError(f"max_length {config.max_length} is more than backbone {config.backbone!r} takes ({limit}).")
    rows = len(corpus)
    if needs.pretraining and rows < config.batch_size:  # the loop counts the rows after splitting
        rows = len(encoder.tokenize(corpus.columns[0], config.max_length, split=True))
    if rows < config.batch_size:
        raise ConfigError(
            f"corpus {corpus.name!r} has {rows} rows, less than one batch of {config.batch_size}: lower batch_size."
        )
    return corpus, encoder, dev


def prepare(config: RunConfig, *, shared: Shared | None = None) -> Prepared:
    """What `load` gives, with the corpus augmented, and the name of the run. Raises as `load` does."""
    shared = Shared() if shared is None else shared
    corpus, encoder, dev = load(config, shared)
    corpus = augment.augment_corpus(corpus, config.augmentation, config.corpus_seed)
    checksums = {
        "corpus": corpus.fingerprint(),
        "backbone": shared.once(type(encoder).fingerprint, encoder, config.needs.files),
        "dev": "" if dev is None else dev.fingerprint(),
    }
    for argument, name in config.needs.encoders.items():
        further = shared.once(ensemble.load, name, device="cpu", what=argument)
        checksums[argument] = shared.once(type(further).fingerprint, further, (MODEL_FILES,))
    for argument, name in config.needs.generators.items():
        generator = shared.once(Generator.from_pretrained, name)
        checksums[argument] = shared.once(Generator.fingerprint, generator)
    for argument, file in config.needs.texts.items():
        lines = exemplars.load_pool(file) if argument == "pool" else exemplars.load_words(file)
        checksums[argument] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return Prepared(run_id(config, checksums), corpus, encoder, dev, checksums)


def run_id(config: RunConfig, checksums: dict[str, str]) -> str:
    """Method and a hash of what the run is: content of the data and the encoders, not where they lie."""
    values = as_before({name: value for name, value in config.as_dict().items() if name not in NOT_IN_NAME})
    for argument in (*config.needs.encoders, *config.needs.generators, *config.needs.texts):
        values["method_arguments"].pop(argument)
    values["method_arguments"] = as_before(values["method_arguments"])
    return f"{'-'.join(config.spec.names)}-{paths.digest([FORMAT, values, checksums])[:12]}"


def as_before(values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a run, or arguments of a method, without those of LATER that have the value of older runs."""
    return {name: value for name, value in values.items() if LATER.get(name) != value}


def encoder_name(path_or_id: str) -> str:
    """What tables call an encoder: the folder's or the hub's name, also of a folder that is gone; for the encoder of a
    run, the backbone that the run started from; `mini-bert` for `demo`."""
    folder = (find_folder(path_or_id) or Path(path_or_id).expanduser()).resolve()
    provenance = folder.parent / "provenance.json"
    if folder.name == "encoder" and provenance.is_file():
        return paths.read_json(provenance).get("backbone", folder.parent.name)
    return folder.name


def preflight(config: RunConfig, shared: Shared | None = None) -> SentenceEncoder:
    """Everything that can be checked before long work starts: data, backbone, memory, and that the method fits. Gives the
    encoder that the run starts from. Raises ConfigError, DataError or EncoderError, as `load`, and where memory is short."""
    shared = Shared() if shared is None else shared
    corpus, encoder, _ = load(config, shared)
    for argument, name in config.needs.encoders.items():
        shared.once(ensemble.load, name, device="cpu", what=argument)
    check_machine(config, encoder, corpus, columns=len(augment.roles(corpus, config.augmentation)))
    build(config, copy.deepcopy(encoder))  # the method may change its encoder
    return encoder


def build(config: RunConfig, encoder: SentenceEncoder) -> Method:
    """The method of a run around this encoder. Raises ConfigError where they do not fit together, or there is no memory;
    DataError and EncoderError where what it reads beside the encoder cannot be read."""
    try:
        return config.spec.build(encoder, config.method_arguments)
    except RuntimeError as error:  # PyTorch found no memory
        raise ConfigError(f"method {config.method} cannot be built here: {str(error).splitlines()[0]}") from error


def check_machine(config: RunConfig, encoder: SentenceEncoder, corpus: Corpus, *, columns: int) -> None:
    """That the device has the precision, and the memory: an estimate is compared with what is free, of weights, gradient and
    Adam's two moments, and the activations.

    Activations per token and layer: 34 hidden values plus 5 heads x length, in 2-byte units (Korthikanti et al.
    2022, arXiv 2205.05198, Eq. 1), twice that in fp32, and in bf16 by rounding. The estimate is meant to catch what cannot work at all.

    columns: sentences of a row of the corpus, which an augmentation may double. Raises ConfigError for fp16 on a CPU, and where more is needed than is free.
    """
    backbone, group, needs = encoder.backbone.config, processes(), config.needs
    if config.precision == "fp16" and group.device.type == "cpu":
        raise ConfigError("precision 'fp16' needs a GPU, and there is none: take bf16 or fp32.")
    parameters = sum(p.numel() for p in encoder.parameters()) + 12 * backbone.hidden_size**2 * needs.further_layers
    rows = config.batch_size / group.num_processes
    rows = min(rows, config.chunk_size or rows)
    longest = max(len(text.encode()) for column in corpus.columns for text in column)  # bytes: a token has one or more
    length = config.max_length if needs.pretraining else min(config.max_length, longest + 2)
    tokens = rows * max(needs.passes, columns) * length
    width = 34 * backbone.hidden_size + 5 * backbone.num_attention_heads * length
    dtype = DTYPES.get(config.precision)
    is_fp32 = dtype is None or is_rounded(group.device, dtype)
    activations = tokens * backbone.num_hidden_layers * width * (2 if is_fp32 else 1)
    needed = parameters * 16 * needs.trained_encoders + activations
    if group.device.type == "cuda":  # what this process keeps cached is free for it
        cached = torch.cuda.memory_reserved(group.device) - torch.cuda.memory_allocated(group.device)
        free = torch.cuda.mem_get_info(group.device)[0] + cached
    else:
        free = psutil.virtual_memory().available
    if needed > free:
        raise ConfigError(
            f"training would need about {needed / 2**30:,.1f} GiB and {free / 2**30:.1f} GiB are free: lower batch_size "
            f"(now {config.batch_size}) or max_length (now {config.max_length}), embed in chunks (chunk_size, now "
            f"{config.chunk_size}), or take a smaller backbone or fewer layers."
        )
