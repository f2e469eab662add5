"""What one run is: corpus, backbone, method and its arguments, optimisation, evaluation. Frozen and validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from annotated_types import Interval

from lib import checks, paths
from lib.checks import Count, NonNegative, PositiveCount, Probability
from lib.data import Corpus, STSTask, augment, load_corpus, load_sts
from lib.data.sts import is_file_of_pairs
from lib.encoders.pooling import POOLINGS
from lib.methods import MethodSpec, Needs


@dataclass(frozen=True)
class RunConfig(checks.Checked):
    """One training run. Defaults are the demo profile; `params/*/*.yaml` hold the others."""

    profile: Literal[paths.PROFILES] = "demo"  # where results are filed, and how tables are labelled
    data_dir: str = ""  # folder with the data sets; empty: CSE_DATA, else data/ in the repository
    corpus: str = "demo"  # see lib.data.load_corpus
    corpus_size: Count = 0  # rows drawn from the corpus; 0 takes all
    corpus_seed: Count = 0  # seed of that draw
    augmentation: str = "none"  # how a plain sentence becomes a pair before dropout, see lib.data.augment
    backbone: str = "demo"  # local folder, hub name, or demo
    pooling: Literal[tuple(POOLINGS)] = "cls"  # see lib.encoders.pooling
    max_length: Annotated[int, Interval(ge=4)] = 32  # training inputs are truncated to this many tokens
    dropout: Annotated[float, Interval(ge=0, le=0.99)] = 0.1  # hidden and attention dropout of the backbone
    method: str = "simcse"  # see lib.methods; `outer(inner)` puts one around another
    method_arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)  # see the method's Arguments
    batch_size: Annotated[int, Interval(ge=2)] = 64  # rows per step over all processes: N of the loss
    chunk_size: Count = 0  # rows that a process embeds at a time: the same step in less memory; 0 takes all at once
    learning_rate: Annotated[float, Interval(gt=0, le=1)] = 3.0e-5
    weight_decay: NonNegative = 0.0
    warmup_ratio: Probability = 0.0  # share of the steps with rising learning rate
    schedule: Literal["linear", "constant"] = "linear"  # linear ends at 0
    epochs: Annotated[int, Interval(ge=1, le=1_000_000)] = 1
    max_steps: Count = 0  # stop (and end the schedule) after this many steps; 0: no limit
    gradient_clip: NonNegative = 1.0  # largest gradient norm; 0 switches clipping off
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"  # the others are autocast; fp16 for GPUs without bf16
    seed: Annotated[int, Interval(ge=0, le=2**31)] = 42
    dev_task: str = "demo"  # whose dev pairs choose the checkpoint: demo, STS-B, a file (`load_sts`); none: the last
    eval_every: PositiveCount = 125  # steps between two dev evaluations
    trace_until: Count = 0  # until this step, dev score and geometry also every 10 steps (never a checkpoint)

    def __post_init__(self) -> None:
        super().__post_init__()
        augment.parse(self.augmentation)
        if not is_file_of_pairs(self.dev_task):
            checks.check_choice("dev_task", self.dev_task, ("demo", "STS-B", "none", "a .csv, .tsv or .jsonl file"))
        # the full set of arguments, so that a default that is written out is the same run
        parts = self.spec.arguments(self.method_arguments)
        values = {name: value for part in parts for name, value in asdict(part).items()}
        object.__setattr__(self, "method_arguments", MappingProxyType(values))
        needs = self.spec.needs(values)  # a wrapper refuses a method that it cannot be put around
        if self.chunk_size and (needs.pretraining or needs.beside_embeddings):
            which = f" with {', '.join(needs.beside_embeddings)} above 0" if needs.beside_embeddings else ""
            raise checks.ConfigError(f"method {self.method}{which} reads more than embeddings: set chunk_size to 0.")

    @property
    def spec(self) -> MethodSpec:
        """The method, and what is put around it."""
        return MethodSpec.parse(self.method)

    @property
    def needs(self) -> Needs:
        """What the method needs, known without loading anything."""
        return self.spec.needs(self.method_arguments)

    def as_dict(self) -> dict[str, Any]:
        """Plain types only, for YAML and JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"method_arguments": dict(self.method_arguments)}

    def replace(self, **changes: Any) -> RunConfig:
        """The same run with other values; names of the arguments of the method, and of those inside it, work too.

        Another method starts from its own defaults. A method that gets a wrapper, or loses one, keeps its arguments. Errors
        as `from_parameters`.
        """
        values = self.as_dict()
        spec = MethodSpec.parse(changes.get("method", self.method))
        if spec != self.spec:
            names = spec.argument_names() if spec.names[-1] == self.spec.names[-1] else ()
            values["method_arguments"] = {k: v for k, v in self.method_arguments.items() if k in names}
        return RunConfig.from_parameters(values | changes)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], *, others: Iterable[str] = ()) -> RunConfig:
        """From flat names: the fields above and the arguments of the method side by side.

        others: names that the caller knows and a run does not read, for example the sweeps of a notebook.

        Raises:
            ConfigError: unknown name or wrong value.
        """
        method = checks.fit("method", str, parameters.get("method", cls.method))
        run_names, arguments = {f.name for f in fields(cls)}, {*MethodSpec.parse(method).argument_names()}
        checks.check_known(parameters, run_names | arguments | {*others}, "parameter")
        given = {k: v for k, v in parameters.items() if k in run_names}
        nested = checks.fit("method_arguments", dict, given.pop("method_arguments", {}))
        return cls(**given, method_arguments=nested | {k: v for k, v in parameters.items() if k in arguments})

    def data_folder(self) -> Path:
        """See lib.paths.data_dir."""
        return paths.data_dir(self.data_dir)

    def whole_corpus(self, *kinds: str) -> Corpus:
        """The corpus of which the run draws its rows. Raises ConfigError where it is none of `kinds`, see `Corpus.kind`."""
        corpus = load_corpus(self.corpus, self.data_folder())
        checks.check_choice(f"the kind of corpus in {self.corpus}", corpus.kind, kinds or (corpus.kind,))
        return corpus

    def dev_pairs(self, instead: Sequence[str] = ()) -> STSTask:
        """The pairs that choose the checkpoint. With dev_task none the test pairs of the first STS task of `instead`, to look
        at; ConfigError where that is empty."""
        if self.dev_task == "none" and instead:
            return load_sts(self.data_folder(), instead[0])
        if self.dev_task == "none":
            raise checks.ConfigError("dev_task 'none' has no pairs: give demo, STS-B, or a .csv, .tsv or .jsonl file.")
        return load_sts(self.data_folder(), self.dev_task, "dev")

    def few_shot(self, size: int) -> RunConfig:
        """The same run on another number of sentences (at least 1), for as many steps: fewer are seen more often."""
        if size == self.corpus_size:
            return self
        checks.check_range("few_shot_sizes", size, 1)
        steps = self.epochs * ceil((self.corpus_size or len(self.whole_corpus())) / self.batch_size)
        return self.replace(corpus_size=size, epochs=ceil(steps / ceil(size / self.batch_size)), max_steps=steps)

    def with_sentences(self, size: int) -> RunConfig:
        """The same run on another number of sentences (at least 1), with at least four dev evaluations."""
        if size == self.corpus_size:
            return self
        checks.check_range("few_shot_sizes", size, 1)
        steps = self.epochs * size // self.batch_size
        return self.replace(corpus_size=size, eval_every=max(1, min(self.eval_every, steps // 4)))

    def fewer(self, size: int) -> RunConfig:
        """The same run on fewer sentences, seen in more whole passes: about as many steps. 0: itself."""
        if size in (0, self.corpus_size):
            return self
        rows = self.corpus_size or len(self.whole_corpus())
        return self.replace(corpus_size=size, epochs=self.epochs * max(1, rows // size))
