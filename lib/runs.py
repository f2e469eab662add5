"""The run store: one folder per finished run, found again by what the run is; nothing finished is ever lost."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import torch
import yaml
from accelerate.utils import set_seed
from filelock import FileLock, Timeout

from lib import augment, ensemble, methods, paths, session
from lib.config import ConfigError, RunConfig, check_choice, unknown_names
from lib.data import Corpus, STSTask, load_corpus, load_sts, tokenize_corpus
from lib.distributed import processes
from lib.encoder import SentenceEncoder, longest_input
from lib.training import train

FORMAT = 1  # part of every run's name: raise it when the meaning of a configuration changes
ROW_COLUMNS = [
    "paper",
    "table",
    "method",
    "backbone",
    "profile",
    "task",
    "split",
    "protocol",
    "aggregation",
    "metric",
    "value",
    "seed",
    "run_id",
]


@dataclass(frozen=True)
class Run:
    """A finished run: `<runs>/<profile>/<id>/` with config.yaml, metrics.json, history.csv, provenance.json, encoder/."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @cached_property
    def config(self) -> RunConfig:
        return RunConfig(**yaml.safe_load((self.folder / "config.yaml").read_text(encoding="utf8")))

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """steps, best_step, dev (Spearman x100 of the chosen step; None without a dev task)."""
        return json.loads((self.folder / "metrics.json").read_text(encoding="utf8"))

    @cached_property
    def provenance(self) -> dict[str, Any]:
        return json.loads((self.folder / "provenance.json").read_text(encoding="utf8"))

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row per step, see lib.training.Trained."""
        return pd.read_csv(self.folder / "history.csv")

    def encoder(self, **options: Any) -> SentenceEncoder | ensemble.EncoderSum:
        """The trained encoder, or sum of encoders; options as in SentenceEncoder.from_pretrained."""
        return ensemble.load(self.folder / "encoder", **options).to(_device())

    def results(
        self, name: str, compute: Callable[[], pd.DataFrame], *, key: Any = None, **labels: str
    ) -> pd.DataFrame:
        """Result rows of this run: read from results/<name>.csv of its folder, or computed once and kept there.

        Args:
            key: whatever else the rows depend on (the list of tasks): another key is another file.
            compute: gives task, split, protocol, aggregation, metric, value.
            labels: values of the columns `paper`, `table`, `method` where they differ from the defaults; kept with the
                rows, for `collect`.
        """
        if key is not None:
            name += "-" + hashlib.sha256(json.dumps([FORMAT, key]).encode()).hexdigest()[:8]
        path = self.folder / "results" / f"{name}.csv"
        if not path.is_file():
            _write_atomically(path, compute().assign(**labels).to_csv(index=False))
        return label_rows(pd.read_csv(path), self.config, self.id, **labels)


def label_rows(frame: pd.DataFrame, config: RunConfig, run_id: str, **labels: str) -> pd.DataFrame:
    """Add who, where and how to evaluation rows: the tidy columns ROW_COLUMNS."""
    known = {
        "paper": frame.get("paper", config.method),
        "table": frame.get("table", ""),
        "method": frame.get("method", config.method),
        "backbone": Path(config.backbone).name,
        "profile": config.profile,
        "seed": config.seed,
        "run_id": run_id,
    }
    return frame.assign(**(known | labels))[ROW_COLUMNS]


def collect(profile: str | None = None) -> pd.DataFrame:
    """Result rows of all finished runs in the store (of one profile), tidy."""
    frames = []
    for path in sorted(paths.runs().glob(f"{profile or '*'}/*/results/*.csv")):
        run = Run(path.parents[1])
        frames.append(label_rows(pd.read_csv(path), run.config, run.id))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=ROW_COLUMNS)


def publish(frame: pd.DataFrame, profile: str, name: str, note: str, *, extend: bool = False) -> Path:
    """Write measured rows to results/<profile>/<name>.csv, values to two decimals, with a provenance file beside it.

    Args:
        note: one sentence for the provenance: what was measured and what it shows.
        extend: keep what was published under this name and not measured again, with its provenance (a long series of
            runs may be made on several machines).
    """
    path = paths.root() / "results" / profile / f"{name}.csv"
    beside = path.with_suffix(".provenance.json")
    frame, known = frame.assign(value=frame.value.round(2)).astype({"seed": str, "run_id": str}), {}
    if extend and path.is_file():
        earlier = published(profile, name).astype({"seed": str, "run_id": str})
        same = [column for column in ROW_COLUMNS if column not in ("value", "run_id")]
        both = pd.concat([earlier, frame], ignore_index=True)
        both["place"] = both.groupby(same, sort=False).ngroup()
        frame = both.drop_duplicates("place", keep="last").sort_values("place").drop(columns="place")
        known = json.loads(beside.read_text(encoding="utf8"))["runs"]
    _write_atomically(path, frame.to_csv(index=False))
    ids = sorted({i for i in frame.run_id if i})
    store = paths.runs() / profile
    sources = {i: Run(store / i).provenance if (store / i).is_dir() else known[i] for i in ids}
    content = {"note": note, **_environment(), "runs": sources}
    _write_atomically(beside, json.dumps(content, indent=2) + "\n")
    return path


def published(profile: str, name: str) -> pd.DataFrame:
    """Rows that `publish` wrote earlier; an empty frame with the same columns when there are none."""
    path = paths.root() / "results" / profile / f"{name}.csv"
    return pd.read_csv(path, keep_default_na=False) if path.is_file() else pd.DataFrame(columns=ROW_COLUMNS)


# -- preparing and running ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs, loaded and checked."""

    id: str
    corpus: Corpus
    encoder: SentenceEncoder
    dev: STSTask | None
    checksums: dict[str, str]


def load(config: RunConfig) -> tuple[Corpus, SentenceEncoder, STSTask | None]:
    """Corpus before augmentation, encoder and dev pairs: everything that can be checked in seconds.

    Raises:
        ConfigError, lib.data.DataError, lib.encoder.EncoderError: one sentence saying what is wrong.
    """
    data_dir = config.data_folder()
    corpus = load_corpus(config.corpus, data_dir, size=config.corpus_size, seed=config.corpus_seed)
    method = methods.REGISTRY[config.method]
    augment.check(config.augmentation)
    kind = augment.kind(corpus, config.augmentation)
    if kind not in method.corpora:
        with_augmentation = "" if config.augmentation == "none" else f" with augmentation {config.augmentation!r}"
        raise ConfigError(
            f"method {config.method} trains on {' or '.join(method.corpora)}, but corpus {config.corpus!r}"
            f"{with_augmentation} holds {kind}."
        )
    dev = None
    if config.dev_task != "none":
        dev = load_sts(data_dir, config.dev_task, "dev")
    encoder = SentenceEncoder.from_pretrained(
        config.backbone, pooling=config.pooling, dropout=config.dropout, max_length=None
    )
    longest = longest_input(encoder.backbone)
    if config.max_length > longest:
        raise ConfigError(
            f"max_length {config.max_length} is more than backbone {config.backbone!r} takes ({longest})."
        )
    if len(corpus) < config.batch_size and not method.splits_long_rows:  # the loop counts the rows after splitting
        raise ConfigError(
            f"corpus {corpus.name!r} has {len(corpus)} rows, less than one batch of {config.batch_size}: lower batch_size."
        )
    return corpus, encoder, dev


def prepare(config: RunConfig, *, show_progress: bool = False) -> Prepared:
    """What `load` gives, with the corpus augmented, and the name of the run.

    Raises:
        ConfigError, lib.data.DataError, lib.encoder.EncoderError: as `load`.
    """
    corpus, encoder, dev = load(config)
    method = methods.REGISTRY[config.method]
    corpus = augment.augment_corpus(corpus, config.augmentation, config.corpus_seed, show_progress=show_progress)
    checksums = {
        "corpus": corpus.fingerprint(),
        "backbone": _backbone_fingerprint(encoder, method.reads_files),
        "dev": _task_fingerprint(dev),
    }
    for name in method.backbone_arguments:
        if named := config.method_arguments[name]:
            checksums[name] = _other_fingerprint(named)
    return Prepared(_run_id(config, checksums), corpus, encoder, dev, checksums)


def run(config: RunConfig, *, show_progress: bool = False) -> Run:
    """The finished run with this configuration: from the store, or trained now; a killed one resumes exactly.

    Two processes that ask for the same run do not train it twice: the second waits and takes the result. Under
    `accelerate launch` all processes call this and train together.

    Raises:
        ConfigError, lib.data.DataError, lib.encoder.EncoderError: before training starts.
        lib.training.NumericError: a loss term is not finite.
    """
    group = processes()
    prepared = prepare(config, show_progress=show_progress)
    folder = paths.runs() / config.profile / prepared.id
    working = paths.runs() / ".unfinished" / prepared.id
    if (folder / "metrics.json").is_file():
        return _found(folder, show_progress and group.is_main_process)
    check_memory(config, prepared.encoder, columns=len(prepared.corpus.columns))
    if group.is_main_process:
        warn_if_slow(config)
    with _only_one(working.with_suffix(".lock"), group.is_main_process):
        group.wait_for_everyone()
        if not (folder / "metrics.json").is_file():
            set_seed(config.seed)  # the heads that a method adds are drawn with it, equal on all processes
            method = methods.REGISTRY[config.method](prepared.encoder, config.arguments())
            if group.process_index:
                set_seed(config.seed + 1000 * group.process_index)  # but every process has its own dropout masks
            tokens = tokenize_corpus(
                prepared.corpus,
                prepared.encoder,
                max_length=config.max_length,
                split=method.splits_long_rows,
                show_progress=show_progress,
            )
            extra = method.row_data(prepared.corpus, config.max_length, show_progress)
            tokens = dataclasses.replace(tokens, extra=extra)
            trained = train(
                method,
                tokens,
                config,
                dev=prepared.dev,
                checkpoint=working / "checkpoint.pt",
                show_progress=show_progress,
            )
            if group.is_main_process:
                _finish(folder, config, prepared, method, trained, group.num_processes)
                shutil.rmtree(working, ignore_errors=True)
            group.wait_for_everyone()
    return Run(folder)


def _found(folder: Path, show: bool) -> Run:
    found = Run(folder)
    if show and found.provenance["commit"] != session.git_commit():
        print(
            f"run {found.id} was trained at commit {found.provenance['commit']}; delete its folder to train it again "
            "with the present code.",
            file=sys.stderr,
        )
    return found


def grid(config: RunConfig, values: Mapping[str, Sequence[Any]], *, show_progress: bool = False) -> pd.DataFrame:
    """Train (or find) one run for every combination of values.

    Args:
        values: parameter or method argument -> values, e.g. {"temperature": [0.05, 0.1], "seed": [1, 2]}.

    Returns:
        One row per run: the varied values, seed, dev, best_step, run_id and the Run itself in column `run`. All
        combinations are validated before the first one trains.
    """
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    configs = [config.replace(**combination) for combination in combinations]
    rows = []
    for combination, each in zip(combinations, configs, strict=True):
        finished = run(each, show_progress=show_progress)
        rows.append({"seed": each.seed} | combination | finished.metrics | {"run_id": finished.id, "run": finished})
    return pd.DataFrame(rows)


def _finish(
    folder: Path,
    config: RunConfig,
    prepared: Prepared,
    method: methods.Method,
    trained: Any,
    processes: int,
) -> None:
    with paths.whole_folder(folder) as path:
        method.save(path / "encoder")
        (path / "config.yaml").write_text(yaml.safe_dump(config.as_dict(), sort_keys=False), encoding="utf8")
        trained.history.to_csv(path / "history.csv", index=False)
        provenance = {
            "corpus": prepared.corpus.name,
            "rows": len(prepared.corpus),
            "checksums": prepared.checksums,
            "seconds": round(trained.seconds, 3),
            "processes": processes,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **_environment(),
        }
        (path / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf8")
        (path / "metrics.json").write_text(json.dumps(trained.metrics, indent=2) + "\n", encoding="utf8")


def _environment() -> dict[str, Any]:
    return {"device": session.device_name(), "commit": session.git_commit(), "versions": session.versions()}


def _run_id(config: RunConfig, checksums: dict[str, str]) -> str:
    """Method and a hash of what the run is: content of the data and the backbone, not where they lie."""
    values = config.as_dict()
    for name in (
        "profile",
        "data_dir",
        "corpus",
        "corpus_size",
        "corpus_seed",
        "augmentation",
        "backbone",
        "dev_task",
    ):
        values.pop(name)  # the checksums stand for these
    for name in methods.REGISTRY[config.method].backbone_arguments:
        values["method_arguments"].pop(name)
    text = json.dumps([FORMAT, values, checksums], sort_keys=True)
    return f"{config.method}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _backbone_fingerprint(encoder: SentenceEncoder, files: Sequence[str]) -> str:
    """SHA-256 over the weights, the architecture, the tokenizer, and the backbone's files of these patterns."""
    from lib.data.tokenized import tokenizer_fingerprint

    digest = hashlib.sha256(tokenizer_fingerprint(encoder.tokenizer).encode())
    config = {k: v for k, v in encoder.backbone.config.to_dict().items() if k[0] != "_" and k != "transformers_version"}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).data)
    folder = paths.model_folder(encoder.backbone.config._name_or_path)
    for found in (sorted(folder.glob(pattern)) for pattern in files):
        digest.update(b"".join(path.read_bytes() for path in found) or b"none")
    return digest.hexdigest()


def _other_fingerprint(name: str) -> str:
    """Of an encoder or ensemble that an argument names, its pooler included."""
    encoder = ensemble.load(name, device="cpu")
    each = [
        [_backbone_fingerprint(part, ("model*.safetensors",)), part.pooling, part.max_length]
        for part in ensemble.parts(encoder)
    ]
    return hashlib.sha256(json.dumps([each, getattr(encoder, "weights", None)]).encode()).hexdigest()


def _task_fingerprint(task: STSTask | None) -> str:
    if task is None:
        return ""
    return hashlib.sha256(repr((task.sentences1, task.sentences2, task.gold.tolist())).encode()).hexdigest()


def _device() -> torch.device:
    return processes().device


def check_memory(config: RunConfig, encoder: SentenceEncoder, *, columns: int) -> None:
    """Compare an estimate with what is free: weights, gradient and Adam's two moments, and the activations.

    Activations per token and layer: 34 hidden values plus 5 heads x length, in 2-byte units (Korthikanti et al.
    2022, arXiv 2205.05198, Eq. 1), twice that in fp32. The estimate is meant to catch what cannot work at all.

    Args:
        columns: sentences of a row of the corpus.

    Raises:
        ConfigError: more is needed than is free.
    """
    backbone = encoder.backbone.config
    group = processes()
    parameters = sum(p.numel() for p in encoder.parameters())
    tokens = (
        config.batch_size
        / group.num_processes
        * max(methods.REGISTRY[config.method].views, columns)
        * config.max_length
    )
    width = 34 * backbone.hidden_size + 5 * backbone.num_attention_heads * config.max_length
    activations = tokens * backbone.num_hidden_layers * width * (2 if config.precision == "fp32" else 1)
    needed = parameters * 16 * methods.REGISTRY[config.method].encoders + activations
    device = _device()
    if device.type == "cuda":  # what this process keeps cached is free for it
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + cached
    else:
        free = psutil.virtual_memory().available
    if needed > free:
        raise ConfigError(
            f"training would need about {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free: lower batch_size "
            f"(now {config.batch_size}) or max_length (now {config.max_length}), or take a smaller backbone."
        )


def warn_if_slow(config: RunConfig) -> None:
    """Say so when this CPU has no bf16 arithmetic: it is emulated (measured: 25 times slower than fp32)."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)  # a private name: may go
    if config.precision == "bf16" and _device().type == "cpu" and not supported():
        print(
            "this CPU has no bf16 arithmetic and is many times slower with it: set precision to fp32.", file=sys.stderr
        )


@contextmanager
def _only_one(lock_file: Path, is_main: bool) -> Iterator[None]:
    """Hold the lock of one run; say so when somebody else holds it, then wait."""
    if not is_main:
        yield
        return
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(
            f"another process is at work on run {lock_file.stem}: waiting for it.",
            file=sys.stderr,
            flush=True,
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf8")
    os.replace(partial, path)


def main(argv: list[str] | None = None) -> int:
    """`accelerate launch -m lib.runs -f params/paper/1_simcse.yaml`: train one run, also with several processes."""
    import argparse

    from lib.data import DataError
    from lib.encoder import EncoderError
    from lib.training import NumericError

    parser = argparse.ArgumentParser(prog="python -m lib.runs", description=main.__doc__)
    parser.add_argument("-f", "--file", type=Path, required=True, help="parameter file of a notebook")
    parser.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE", help="override")
    arguments = parser.parse_args(argv)
    try:
        if not arguments.file.is_file():
            raise ConfigError(f"parameter file {arguments.file} does not exist.")
        try:
            values = yaml.safe_load(arguments.file.read_text(encoding="utf8")) or {}
            given = dict(text.split("=", 1) for text in arguments.parameter)
            overrides = {name: yaml.safe_load(value) for name, value in given.items()}
        except (yaml.YAMLError, ValueError) as error:
            raise ConfigError(
                f"{arguments.file} or a -p NAME=VALUE cannot be read: {' '.join(str(error).split())}"
            ) from None
        if not isinstance(values, dict):
            raise ConfigError(f"{arguments.file} must map names to values.")
        method = (values | overrides).get("method", RunConfig.method)
        check_choice("method", method, methods.REGISTRY)
        known = {f.name for f in dataclasses.fields(RunConfig)}
        known |= {f.name for f in dataclasses.fields(methods.REGISTRY[method].Arguments)}
        unknown_names(overrides, known, "parameter")
        values |= overrides
        # a parameter file also holds what only the notebook reads (its sweeps)
        finished = run(RunConfig.from_parameters({k: v for k, v in values.items() if k in known}), show_progress=True)
    except (ConfigError, DataError, EncoderError) as error:
        print(error, file=sys.stderr)
        return 2
    except NumericError as error:
        print(error, file=sys.stderr)
        return 1
    if processes().is_main_process:
        print(f"{finished.folder}  {json.dumps(finished.metrics)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
