"""What the notebook of a paper compares: the tables in params/variants/, filled with the notebook's parameters."""

import itertools
import re
import string
from collections.abc import Mapping
from typing import Any

import yaml

from lib import paths
from lib.checks import check_choice, check_range, check_seeds


def variants(paper: str, parameters: Mapping[str, Any], **computed: Any) -> dict[str, dict[Any, dict[str, Any]]]:
    """Table -> method, or (method, settings), or settings -> parameters that differ from the notebook's own.

    In params/variants/<paper>.yaml a table has a row for each name: "method", "method | settings", or "settings" of a method
    that the notebook names. What differs is written as it is, but for
        $name, $name[0]     a parameter, the first value of a list; `$name or other` where 0 stands for another parameter
        [a, $names]         a row for each of these values, numbers rising; so does `$name` of a list, in its own order
        {name}              in a text, and in the name of the row, which knows the row's own values too
        if                  of a row or a table, left out unless the parameter it names is anything but empty or 0, or, as
                            `value in name`, unless the list has the value; several conditions stand in a list;
                            `dev_pairs` is false with dev_task none
    `shared` holds anchors, and what is checked: `methods` that the tables are for; `chosen_on`, the parameter with seeds for
    choosing, which no list in `scored_on` shares.

    computed: further names that the file may use.

    Raises:
        ConfigError: one of these checks fails; a list of which values are taken by their place has more or fewer; a list
            holds a value that no row is for. KeyError: the file uses an unknown name.
    """
    text = (paths.root() / "params/variants" / f"{paper}.yaml").read_text(encoding="utf8")
    tables = yaml.safe_load(text)
    given = {"dev_pairs": parameters.get("dev_task") != "none"} | parameters | computed
    shared = tables.pop("shared", {})
    check_choice("method", given["method"], shared.get("methods", [given["method"]]))
    if name := shared.get("chosen_on"):
        scored_on = [seed for one in shared["scored_on"] for seed in given[one]]
        chosen_on = given[name] if isinstance(given[name], list) else [given[name]]
        check_seeds(scored_on, chosen_on, name)
    for name, place in re.findall(r"\$(\w+)\[([1-9])\]", text):
        count = int(place) + 1
        check_range(f"the number of {name}", len(given[name]), count, count)
    entries = [entry for table in tables.values() for entry in (table, *table.values()) if isinstance(entry, dict)]
    asked = [one for entry in entries for one in _conditions(entry) if one[0]]
    for name in {name for _, name in asked}:
        for value in given[name]:
            check_choice(f"a value of {name}", value, dict.fromkeys(one for one, of in asked if of == name))
    return {table: _filled(rows, given) for table, rows in tables.items()}


def _conditions(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(value, name) of `value in name`, and ("", name) of `name`."""
    conditions = entry.get("if", [])
    conditions = [conditions] if isinstance(conditions, str) else conditions
    return [(value, name) for value, _, name in (one.rpartition(" in ") for one in conditions)]


def _filled(table: Mapping[str, Any], given: Mapping[str, Any]) -> dict[Any, dict[str, Any]]:
    """The rows that are asked for; of two with one name the first counts."""
    rows: dict[Any, dict[str, Any]] = {}
    for name, change in table.items():
        conditions = [] if name == "if" else [*_conditions(table), *_conditions(change)]
        if name == "if" or not all(value in given[of] if value else given[of] for value, of in conditions):
            continue
        values = {key: _values(value, given) for key, value in change.items() if key != "if"}
        for row in itertools.product(*values.values()):
            filled = dict(zip(values, row, strict=True))
            method, _, settings = name.format_map(given | filled).partition(" | ")
            rows.setdefault((method, settings) if settings else method, filled)
    return rows


def _values(value: Any, given: Mapping[str, Any]) -> list[Any]:
    """The values that a parameter takes, one after the other."""
    if isinstance(value, list):
        found = list(dict.fromkeys(one for part in value for one in _values(part, given)))
        return found if any(isinstance(one, str) for one in found) else sorted(found)
    if isinstance(value, str) and value.startswith("$"):
        several = [string.Formatter().get_field(name, (), given)[0] for name in value[1:].split(" or ")]
        found = next(filter(None, several), several[-1])
        return found if isinstance(found, list) else [found]
    return [value.format_map(given) if isinstance(value, str) else value]
