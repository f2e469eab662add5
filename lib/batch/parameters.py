"""What a notebook declares in its parameters cell, and what a user gives for it."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml

from lib import paths
from lib.checks import ConfigError, check_known, fit

TYPES = {kind.__name__: kind for kind in (bool, int, float, str, list, dict)}


def declared(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Types and defaults of a notebook's parameters: the lines `name: type = value` of the cell tagged `parameters`.

    Raises:
        ConfigError: no notebook, an executed copy, no such cell, or another kind of line in it.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such notebook.")
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises many kinds, all of them mean the same to the user
        raise ConfigError(f"{path} is not a Jupyter notebook: give an .ipynb file.") from error
    tagged = {tag: cell for cell in reversed(notebook.cells) for tag in cell.metadata.get("tags", [])}
    if "injected-parameters" in tagged or "batch" in notebook.metadata:
        raise ConfigError(f"{path} is an executed copy with its own parameters: run the original.")
    if "parameters" not in tagged:
        raise ConfigError(f"{path} has no cell tagged 'parameters': tag the cell that holds its settings.")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    reported = papermill.inspect_notebook(notebook)
    kinds, defaults, line = {}, {}, 0
    try:
        for statement in ast.parse(tagged["parameters"].source).body:
            line = statement.lineno
            name = statement.target.id
            kinds[name] = _kind(ast.parse(reported[name]["inferred_type_name"], mode="eval").body)
            defaults[name] = ast.literal_eval(reported[name]["default"])
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path}: line {line or error.lineno} of the parameters cell is not `name: type = value  # help`, "
            f"with a literal value and a type made of {', '.join(TYPES)}."
        ) from error
    return kinds, check(kinds, defaults, str(path))


def _kind(annotation: ast.expr) -> Any:
    """The type that an annotation such as `dict[str, list[int]]` spells."""
    if isinstance(annotation, ast.Subscript):
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return _kind(annotation.value)[tuple(_kind(part) for part in parts)]
    return TYPES[ast.unparse(annotation)]


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML in which no name stands twice and nothing refers to something else: a few such lines can grow without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"*{self.peek_event().anchor} refers to another place: write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise yaml.YAMLError(f"{twice[0]} stands twice: keep one of them")
        return super().construct_mapping(node, deep=deep)


def _yaml(text: str) -> Any:
    """The value of YAML text. Raises yaml.YAMLError, also for dates and numbers that cannot be, and nesting without end."""
    loader = _PlainLoader(text)
    try:
        return loader.get_single_data()
    except (ValueError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from error
    finally:
        loader.dispose()


def notebook_of(file: Path) -> Path | None:
    """The notebook that a parameter file belongs to: the longest name that the name of the file starts with."""
    notebooks = (paths.root() / "notebooks").glob("*.ipynb")
    return max((path for path in notebooks if file.stem.startswith(path.stem)), key=lambda p: len(p.stem), default=None)


def check(kinds: Mapping[str, Any], values: Mapping[str, Any], source: str, what: str = "parameter") -> dict[str, Any]:
    """The `values` that the user gave in `source`, each as an instance of its type in `kinds`.

    Raises:
        ConfigError: an unknown name, or a value of another type.
    """
    try:
        check_known(values, kinds, what)
        return {name: fit(name, kinds[name], value) for name, value in values.items()}
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def read_file(path: Path) -> dict[str, Any]:
    """The YAML mapping in `path`; an empty file is an empty mapping.

    Raises:
        ConfigError: there is no such file, or it holds something else.
    """
    try:
        if not path.is_file():
            raise ConfigError(f"{path}: there is no such file.")
        return read_text(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None


def read_text(text: str, source: str) -> dict[str, Any]:
    """The YAML mapping `text`, which the user gave in `source`; see `read_file`."""
    try:
        values = _yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not valid YAML: {one_line(error)}.") from error
    if values is None:  # nothing, or comments alone
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{source} is not a mapping: write one `name: value` per line.")
    return values


def read_assignment(kinds: Mapping[str, Any], assignment: str) -> dict[str, Any]:
    """`name=value` as a mapping: the value is YAML, or the text itself where a str is wanted and YAML has another type.

    Raises:
        ConfigError: there is no `=`.
    """
    name, separator, text = assignment.partition("=")
    if not separator:
        raise ConfigError(f"-p {assignment}: write -p name=value.")
    try:
        value = _yaml(text)
    except yaml.YAMLError:
        value = text
    return {name: text if kinds.get(name) is str and not isinstance(value, str) else value}


def one_line(text: object) -> str:
    """At most 400 characters, without line breaks."""
    return textwrap.shorten(str(text), 400, placeholder=" …")
