"""What can be wrong with what a user gives, and the checks that say so in one sentence."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
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


WHOLE = 2**31 - 1  # largest whole number of a parameter that has no other limit
# Types of parameters with a range, for the annotation of a field; `fit` checks them. Others are written beside the field.
Positive = Annotated[float, Interval(gt=0, lt=inf)]
NonNegative = Annotated[float, Interval(ge=0, lt=inf)]
Probability = Annotated[float, Interval(ge=0, le=1)]
PositiveProbability = Annotated[float, Interval(gt=0, le=1)]
Count = Annotated[int, Interval(ge=0, le=WHOLE)]
PositiveCount = Annotated[int, Interval(ge=1, le=WHOLE)]

# What to do when the system refuses a file.
ADVICE = {
    errno.ENOSPC: "free some space on that disk and start the same command again",
    errno.EDQUOT: "free some of your quota and start the same command again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) and start the same command again",
    errno.EIO: "the disk may be damaged: choose another one",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "change its permissions, or choose another file or folder",
    errno.EPERM: "change its permissions, or choose another file or folder",
    errno.ENOENT: "correct the path, or choose another one",
    errno.ENOTDIR: "something on this path is no folder: move it or choose another path",
    errno.EISDIR: "it is a folder: move it or choose another path",
    errno.EEXIST: "something else has this name: move it or choose another path",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ELOOP: "a link leads back to itself: remove it",
    errno.EMFILE: "raise the limit on open files (ulimit -n) and start the same command again",
}


def refusal(error: OSError) -> str:
    """One sentence for a file that the system does not let us read or write: which, why, and what to do."""
    if error.errno not in ADVICE:
        return f"{' '.join(str(error).split())[:400]}: check the file, the disk or the network."
    where = str(error.filename or "the output of this command")
    where = where if len(where) <= 200 else f"{where[:100]}...{where[-80:]}"
    return f"{where} cannot be read or written ({os.strerror(error.errno)}): {ADVICE[error.errno]}."


@cache
def _adapter(kind: Any) -> TypeAdapter:
    return TypeAdapter(kind, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def fit(name: str, kind: Any, value: Any) -> Any:
    """`value` as an instance of the type `kind`: a whole number becomes a float where one is wanted, nothing else changes.

    kind: any type; `Literal[...]` names choices, `Annotated[int, Interval(...)]` a range, as Positive and Count do.

    Raises:
        ConfigError: the value has another type, is none of the choices or out of range, or holds a text that no file can
            hold.
    """
    if odd := next((text for text in _texts(value) if "\0" in text or not _is_unicode(text)), ""):
        raise ConfigError(f"{name} holds {odd!r}, with a character that no text has: write it without.")
    with suppress(ValidationError):
        return _adapter(kind).validate_python(value)
    if get_origin(kind) is Literal:
        check_choice(name, value, get_args(kind))
    if get_origin(kind) is Annotated:
        kind, limits = get_args(kind)
        value = fit(name, kind, value)
        low, is_open = (limits.ge, False) if limits.gt is None else (limits.gt, True)
        check_range(name, value, low, inf if limits.le in (None, WHOLE) else limits.le, above=is_open)
    wanted, hint = kind.__name__ if type(kind) is type else str(kind), ""
    if "float" in wanted and (text := next(filter(None, map(_as_yaml, _texts(value))), "")):
        hint = f" (YAML reads {text[0]} as text: write {text[1]})"
    elif wanted.startswith("str"):
        hint = " (put it in quotes)"
    shown = repr(value)
    shown = shown if len(shown) <= 200 else f"{shown[:200]}..."
    raise ConfigError(f"{name} must be {wanted}, not {shown}{hint}.")


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value, its lists and its mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.items() if isinstance(value, dict) else value:
            yield from _texts(part)


def _is_unicode(text: str) -> bool:
    """Whether it can be written: half of a surrogate pair cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _as_yaml(text: str) -> tuple[str, str] | None:
    """A text that is a number, and how YAML reads it as one: with a point, and a sign in the exponent."""
    try:
        mantissa, _, exponent = text.lower().partition("e")
        number = float(f"{mantissa}e{exponent or 0}")
    except ValueError:
        return None
    if number in (float("inf"), float("-inf")) or number != number:
        return None
    return text, f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{int(exponent or 0):+d}"


class Checked:
    """Base of a dataclass whose values are checked when one is made."""

    def __post_init__(self) -> None:
        check_types(self)


def check_types(instance: Any) -> None:
    """`fit` every field of a dataclass to its annotation.

    Raises:
        ConfigError: names the field, what was given and what is expected.
    """
    hints = get_type_hints(type(instance), include_extras=True)
    for field in fields(instance):
        object.__setattr__(instance, field.name, fit(field.name, hints[field.name], getattr(instance, field.name)))


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Raise ConfigError when value is none of the choices."""
    choices = list(choices)
    if value not in choices:
        raise ConfigError(f"{name} {value!r} is unknown: choose one of {', '.join(map(str, choices))}.")


def check_range(name: str, value: float, low: float, high: float = float("inf"), *, above: bool = False) -> None:
    """Raise ConfigError when value is infinite or lies outside [low, high], or (low, high] with `above`; whole numbers
    end at WHOLE where no other limit is given."""
    no_limit = high == float("inf")
    high = WHOLE if no_limit and isinstance(value, int) else high
    high_enough = low < value if above else low <= value
    if not (high_enough and value <= high and value != float("inf")):
        bounds = f"{'above' if above else 'at least'} {_written(low)}"
        if not no_limit or high < value < float("inf"):
            bounds += f", at most {_written(high)}"
        elif value == high:
            bounds += " and finite"
        raise ConfigError(f"{name} must be {bounds}; got {_written(value)}.")


def _written(number: float) -> str:
    if not isinstance(number, int):
        return f"{number:g}"
    return f"{number:,}" if abs(number) < 10**18 else "a whole number of more than 18 digits"


def check_seeds(
    seeds: Sequence[int], choice: Sequence[int], parameter: str = "choice_seed", others: Sequence[int] = ()
) -> None:
    """Raise ConfigError when there is no seed, or when one of those that `parameter` names for choosing is among the seeds
    and others."""
    check_range("the number of seeds", len(seeds), 1)
    if both := sorted({*choice} & {*seeds, *others}):
        raise ConfigError(
            f"{parameter} {both[0]} is one of seeds: what is chosen is chosen on sentences that no table uses."
        )


def check_known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise ConfigError for the first name that is not known, with the closest known one."""
    known = sorted(known)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}."
            raise ConfigError(f"unknown {what} {name!r}: {hint}")
