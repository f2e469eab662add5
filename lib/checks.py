"""What can be wrong with what a user gives, and the checks that say so in one sentence."""

import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from math import inf
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Interval
from pydantic import ConfigDict, TypeAdapter, ValidationError


class ConfigError(Exception):
    """A parameter is unknown, of the wrong type, out of range, or does not fit this machine."""


class DataError(Exception):
    """Data is missing, truncated, empty or in another format, or a file cannot be read or written; the message says where
    and what to do."""


class EncoderError(Exception):
    """A backbone cannot be loaded, or cannot do what was asked of it."""


def say(text: str) -> None:
    """One line for the user, beside the output of the command; where nobody can read it, none."""
    with suppress(OSError):
        print(" ".join(text.splitlines()), file=sys.stderr, flush=True)


@cache
def remark(text: str) -> None:
    """What a user should know of something that goes on: `say`, once in a process."""
    say(text)


# Types of parameters with a range, for the annotation of a field; `fit` checks them. Others are written beside the field.
Positive = Annotated[float, Interval(gt=0, lt=inf)]
NonNegative = Annotated[float, Interval(ge=0, lt=inf)]
Probability = Annotated[float, Interval(ge=0, le=1)]
PositiveProbability = Annotated[float, Interval(gt=0, le=1)]
Count = Annotated[int, Interval(ge=0)]
PositiveCount = Annotated[int, Interval(ge=1)]


def refusal(error: OSError) -> str:
    """One sentence for a file that the system does not let us read or write: which, why, and what to do."""
    if not error.filename:
        return f"{' '.join(str(error).split())[:400]}: check the file, the disk or the network."
    what = f"{error.filename} cannot be read or written ({error.strerror})"
    return f"{what}: check the path, its permissions and the space on the disk."


def reason(error: Exception) -> str:
    """What a library says of something that it could not do, in one line."""
    said = f"there is no {error}" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
    return " ".join(said.split())[:250]


@cache
def _adapter(kind: Any) -> TypeAdapter:
    return TypeAdapter(kind, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def fit(name: str, kind: Any, value: Any) -> Any:
    """`value` as an instance of the type `kind`: a whole number becomes a float where one is wanted, nothing else changes.

    kind: any type; `Literal[...]` names choices, `Annotated[int, Interval(...)]` a range, as Positive and Count do.

    Raises:
        ConfigError: the value has another type, is none of the choices or out of range.
    """
    with suppress(ValidationError):
        return _adapter(kind).validate_python(value)
    if get_origin(kind) is Literal:
        check_choice(name, value, get_args(kind))
    if get_origin(kind) is Annotated:
        kind, limits = get_args(kind)
        value = fit(name, kind, value)
        low, is_open = (limits.ge, False) if limits.gt is None else (limits.gt, True)
        check_range(name, value, low, inf if limits.le is None else limits.le, above=is_open)
    wanted = kind.__name__ if type(kind) is type else str(kind)
    shown, hint = repr(value)[:200], ""
    if "float" in wanted and (text := re.search(r"'([-+.\d]+)e([-+]?\d+)'", shown)):
        mantissa = text[1] if "." in text[1] else f"{text[1]}.0"
        hint = f" (YAML reads {text[1]}e{text[2]} as text: write {mantissa}e{int(text[2]):+d})"
    elif wanted.startswith("str"):
        hint = " (put it in quotes)"
    raise ConfigError(f"{name} must be {wanted}, not {shown}{hint}.")


def kind_of(value: Any) -> type:
    """The type of a setting that only its value tells; of a list what its first element tells."""
    if not (isinstance(value, list) and value):
        return type(value)
    return list[float] if {*map(type, value)} == {int, float} else list[type(value[0])]


class Parameters(dict[str, Any]):
    """Names and values of a notebook's parameters; each value is an attribute, too."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"the notebook has no parameter {name}.")
        return self[name]


class Checked:
    """Base of a dataclass whose fields are `fit` to their annotations when one is made; raises ConfigError with a field's name."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for field in fields(self):
            object.__setattr__(self, field.name, fit(field.name, hints[field.name], getattr(self, field.name)))


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Raise ConfigError when value is none of the choices."""
    choices = list(choices)
    if value not in choices:
        raise ConfigError(f"{name} {value!r} is unknown: choose one of {', '.join(map(str, choices))}.")


def check_range(name: str, value: float, low: float, high: float = inf, *, above: bool = False) -> None:
    """Raise ConfigError when value is infinite or lies outside [low, high], or (low, high] with `above`."""
    high_enough = low < value if above else low <= value
    if high_enough and value <= high and value != inf:
        return
    bounds = f"{'above' if above else 'at least'} {low:,.10g}"
    if high < inf:
        bounds += f", at most {high:,.10g}"
    elif value == inf:
        bounds += " and finite"
    raise ConfigError(f"{name} must be {bounds}; got {value:,.10g}.")


def check_seeds(seeds: Sequence[int], choice: Sequence[int], parameter: str) -> None:
    """Raise ConfigError when there is no seed, or when one of those that `parameter` names for choosing is among them."""
    check_range("the number of seeds", len(seeds), 1)
    for seed in sorted({*choice} & {*seeds}):
        raise ConfigError(f"{parameter} {seed} is one of seeds: choose on sentences that no table uses.")


def check_known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise ConfigError for the first name that is not known, with the closest known one."""
    known = sorted(known)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}."
            raise ConfigError(f"unknown {what} {name!r}: {hint}")
