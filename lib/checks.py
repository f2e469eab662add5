"""What can be wrong with what a user gives, and the checks that say so in one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError


class ConfigError(Exception):
    """A parameter is unknown, of the wrong type, out of range, or does not fit this machine."""


class DataError(Exception):
    """Data is missing, truncated, empty or in another format; the message says where and what to do."""


class EncoderError(Exception):
    """A backbone cannot be loaded, or cannot do what was asked of it."""


@cache
def _adapter(kind: Any) -> TypeAdapter:
    return TypeAdapter(kind, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def fit(name: str, kind: Any, value: Any) -> Any:
    """`value` as an instance of the type `kind`: a whole number becomes a float where one is wanted, nothing else changes.

    Raises:
        ConfigError: the value has another type.
    """
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError:
        wanted, hint = kind.__name__ if type(kind) is type else str(kind), ""
        if "float" in wanted and "'" in repr(value):
            hint = " (YAML reads 1e-5 as text: write 1.0e-5)"
        elif wanted.startswith("str"):
            hint = " (put it in quotes)"
        raise ConfigError(f"{name} must be {wanted}, not {value!r}{hint}.") from None


def check_types(instance: Any) -> None:
    """`fit` every field of a dataclass to its annotation.

    Raises:
        ConfigError: names the field, what was given and what is expected.
    """
    hints = get_type_hints(type(instance))
    for field in fields(instance):
        object.__setattr__(instance, field.name, fit(field.name, hints[field.name], getattr(instance, field.name)))


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Raise ConfigError when value is none of the choices."""
    choices = list(choices)
    if value not in choices:
        raise ConfigError(f"{name} {value!r} is unknown: choose one of {', '.join(map(str, choices))}.")


def check_range(name: str, value: float, low: float, high: float = float("inf"), *, above: bool = False) -> None:
    """Raise ConfigError when value is infinite or lies outside [low, high], or (low, high] with `above`."""
    high_enough = low < value if above else low <= value
    if not (high_enough and value <= high and value != float("inf")):
        bounds = f"{'above' if above else 'at least'} {low:g}"
        if high != float("inf"):
            bounds += f", at most {high:g}"
        elif value == high:
            bounds += " and finite"
        raise ConfigError(f"{name} must be {bounds}; got {value:g}.")


def check_seeds(seeds: Sequence[int], choice: Sequence[int], parameter: str = "choice_seed") -> None:
    """Raise ConfigError when there is no seed, or when one of those that `parameter` names for choosing is among them."""
    check_range("the number of seeds", len(seeds), 1)
    if both := sorted({*choice} & {*seeds}):
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
