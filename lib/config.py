"""What one run is: corpus, backbone, method and its arguments, optimisation, evaluation. Frozen and validated."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from lib import paths

PROFILES = ("demo", "small", "paper")
DEV_TASKS = ("demo", "STS-B", "none")
PRECISIONS = ("fp32", "bf16")
SCHEDULES = ("linear", "constant")


class ConfigError(Exception):
    """A parameter is unknown, of the wrong type, out of range, or does not fit this machine."""


def _matches(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return any(_matches(value, part) for part in typing.get_args(kind))
    if kind is type(None):
        return value is None
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if typing.get_origin(kind) is dict or kind is dict or typing.get_origin(kind) is Mapping:
        return isinstance(value, Mapping)
    return isinstance(value, kind)


def _kind_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def check_types(instance: Any) -> None:
    """Compare every field of a dataclass with its annotation; whole numbers pass as floats and become floats.

    Raises:
        ConfigError: names the field, what was given and what is expected.
    """
    hints = typing.get_type_hints(type(instance))
    for entry in fields(instance):
        value, kind = getattr(instance, entry.name), hints[entry.name]
        if not _matches(value, kind):
            hint = ""
            if kind is float and isinstance(value, str):
                hint = " (YAML reads 1e-5 as text: write 1.0e-5)"
            raise ConfigError(
                f"{entry.name} must be {_kind_name(kind)}, got {value!r} of type {type(value).__name__}{hint}."
            )
        if kind is float:
            object.__setattr__(instance, entry.name, float(value))


def check_choice(name: str, value: Any, choices: typing.Iterable[Any]) -> None:
    """Raise ConfigError when value is none of the choices."""
    choices = list(choices)
    if value not in choices:
        raise ConfigError(f"{name} {value!r} is unknown: choose one of {', '.join(map(str, choices))}.")


def check_range(name: str, value: float, low: float, high: float = float("inf"), *, above: bool = False) -> None:
    """Raise ConfigError when value lies outside [low, high], or (low, high] with `above`."""
    if not (low < value if above else low <= value) or not value <= high:
        bounds = f"{'above' if above else 'at least'} {low:g}" + ("" if high == float("inf") else f", at most {high:g}")
        raise ConfigError(f"{name} must be {bounds}; got {value:g}.")


def unknown_names(given: typing.Iterable[str], known: typing.Iterable[str], what: str) -> None:
    """Raise ConfigError naming the first unknown name and the closest known one."""
    known = sorted(known)
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}."
            raise ConfigError(f"unknown {what} {name!r}: {hint}")


@dataclass(frozen=True)
class RunConfig:
    """One training run. Defaults are the demo profile; `params/*/*.yaml` hold the others."""

    profile: str = "demo"  # demo, small or paper: where results are filed, and how tables are labelled
    data_dir: str = ""  # folder with the data sets; empty: CSE_DATA, else data/ in the repository
    corpus: str = "demo"  # see lib.data.load_corpus
    corpus_size: int = 0  # rows drawn from the corpus; 0 takes all
    corpus_seed: int = 0  # seed of that draw
    augmentation: str = "none"  # how a plain sentence becomes a pair before dropout, see lib.augment
    backbone: str = "demo"  # local folder, hub name, or demo
    pooling: str = "cls"  # see lib.encoder.POOLINGS
    max_length: int = 32  # training inputs are truncated to this many tokens
    dropout: float = 0.1  # hidden and attention dropout of the backbone
    method: str = "simcse"  # see lib.methods
    method_arguments: Mapping[str, Any] = field(default_factory=dict)  # see the method's Arguments
    batch_size: int = 64  # rows per step over all processes: N of the loss
    learning_rate: float = 3.0e-5
    weight_decay: float = 0.0
    warmup_ratio: float = 0.0  # share of the steps with rising learning rate
    schedule: str = "linear"  # linear (to 0) or constant
    epochs: int = 1
    max_steps: int = 0  # stop (and end the schedule) after this many steps; 0: no limit
    gradient_clip: float = 1.0  # largest gradient norm; 0 switches clipping off
    precision: str = "fp32"  # fp32 or bf16 (autocast)
    seed: int = 42
    dev_task: str = "demo"  # whose dev pairs choose the checkpoint: demo, STS-B, none (keeps the last)
    eval_every: int = 125  # steps between two dev evaluations
    trace_until: int = 0  # until this step, dev score and geometry also every 10 steps (never a checkpoint)

    def __post_init__(self) -> None:
        from lib import augment, methods
        from lib.encoder import POOLINGS

        check_types(self)
        check_choice("profile", self.profile, PROFILES)
        check_choice("pooling", self.pooling, POOLINGS)
        check_choice("method", self.method, methods.REGISTRY)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("dev_task", self.dev_task, DEV_TASKS)
        augment.parse(self.augmentation)
        for name in ("corpus_size", "corpus_seed", "max_steps", "trace_until", "seed"):
            check_range(name, getattr(self, name), 0)
        for name in ("epochs", "eval_every"):
            check_range(name, getattr(self, name), 1)
        check_range("batch_size", self.batch_size, 2)
        check_range("max_length", self.max_length, 4)
        check_range("learning_rate", self.learning_rate, 0, 1, above=True)
        check_range("dropout", self.dropout, 0, 0.99)
        check_range("warmup_ratio", self.warmup_ratio, 0, 1)
        for name in ("weight_decay", "gradient_clip"):
            check_range(name, getattr(self, name), 0)
        # the full set of arguments, so that a default that is written out is the same run
        object.__setattr__(self, "method_arguments", types.MappingProxyType(dataclasses.asdict(self.arguments())))

    def __hash__(self) -> int:
        return hash(repr(sorted(self.as_dict().items(), key=str)))

    def __reduce__(self) -> tuple:
        return (_rebuild, (self.as_dict(),))

    def arguments(self) -> Any:
        """The method's own arguments, validated."""
        from lib import methods

        kind = methods.REGISTRY[self.method].Arguments
        unknown_names(self.method_arguments, [f.name for f in fields(kind)], f"argument of {self.method}")
        return kind(**self.method_arguments)

    def as_dict(self) -> dict[str, Any]:
        """Plain types only, for YAML and JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"method_arguments": dict(self.method_arguments)}

    def replace(self, **changes: Any) -> RunConfig:
        """The same run with other values; names of the method's arguments work too. Another method starts from its
        own defaults.

        Raises:
            ConfigError: unknown name or wrong value.
        """
        values = self.as_dict()
        if changes.get("method", self.method) != self.method:
            values["method_arguments"] = {}
        return RunConfig.from_parameters(values | changes)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> RunConfig:
        """From flat names: the fields above and the arguments of the method side by side.

        Raises:
            ConfigError: unknown name or wrong value.
        """
        from lib import methods

        method = parameters.get("method", cls.method)
        check_choice("method", method, methods.REGISTRY)
        own = {f.name for f in fields(cls)}
        arguments = {f.name for f in fields(methods.REGISTRY[method].Arguments)}
        unknown_names(parameters, own | arguments, "parameter")
        given = {k: v for k, v in parameters.items() if k in own}
        nested = dict(given.pop("method_arguments", {}))
        nested |= {k: v for k, v in parameters.items() if k in arguments}
        return cls(**given, method_arguments=nested)

    def data_folder(self) -> Path:
        """See lib.paths.data_dir."""
        return paths.data_dir(self.data_dir)

    def preflight(self) -> None:
        """Everything that can be checked before long work starts: data, backbone, memory, and that the method fits.

        Raises:
            ConfigError, lib.data.DataError, lib.encoder.EncoderError: one sentence saying what is wrong.
        """
        from lib import augment, methods, runs

        corpus, encoder, _ = runs.load(self)
        columns = {"sentences": 1, "pairs": 2, "triples": 3}[augment.kind(corpus, self.augmentation)]
        runs.check_memory(self, encoder, columns=columns)
        methods.REGISTRY[self.method](encoder, self.arguments())


def _rebuild(values: dict[str, Any]) -> RunConfig:
    return RunConfig(**values)
