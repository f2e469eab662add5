"""What a notebook declares in its parameters cell, and what a user gives for it."""

from __future__ import annotations

import ast
import os
import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml

from lib import paths
from lib.checks import ConfigError, check_known, fit, refusal

TYPES = {kind.__name__: kind for kind in (bool, int, float, str, list, dict)}


def declared(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Types and defaults of a notebook's parameters: the lines `name: type = value` of the cell tagged `parameters`.

    Raises:
        ConfigError: no notebook, an executed copy, no such cell, or another kind of line in it.
    """
    if not os.path.isfile(path):
        raise ConfigError(f"{one_line(path)}: there is no such notebook, or none that can be read.")
    try:
        notebook = nbformat.read(path, as_version=4)
        cells = tagged(notebook)
    except PermissionError as error:
        raise ConfigError(refusal(error)) from error
    except Exception as error:  # nbformat raises many kinds, all of them mean the same to the user
        raise ConfigError(f"{path} is not a Jupyter notebook: give an .ipynb file.") from error
    if "injected-parameters" in cells or "batch" in notebook.metadata:
        raise ConfigError(f"{path} is an executed copy with its own parameters: run the original.")
    if "parameters" not in cells:
        raise ConfigError(f"{path} has no cell tagged 'parameters': tag the cell that holds its settings.")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    reported = papermill.inspect_notebook(notebook)
    kinds, defaults, line = {}, {}, 0
    try:
        for statement in ast.parse(cells["parameters"].source).body:
            line = statement.lineno
            name = statement.target.id
            kinds[name] = _kind(ast.parse(reported[name]["inferred_type_name"], mode="eval").body)
            defaults[name] = ast.literal_eval(reported[name]["default"])
        return kinds, check(kinds, defaults, str(path))
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: line {line or getattr(error, 'lineno', 1)} of the parameters cell is not `name: type = value  # help`, "
            f"with a literal value and a type made of {', '.join(TYPES)}."
        ) from error


def tagged(notebook: nbformat.NotebookNode) -> dict[str, nbformat.NotebookNode]:
    """Tag -> the first cell that has it."""
    return {tag: cell for cell in reversed(notebook.cells) for tag in cell.metadata.get("tags") or []}


def _kind(annotation: ast.expr) -> Any:
    """The type that an annotation such as `dict[str, list[int]]` spells."""
    if isinstance(annotation, ast.Subscript):
        kind = _kind(annotation.value)
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if len(parts) != {list: 1, dict: 2}.get(kind):
            raise TypeError(f"{ast.unparse(annotation)} is no type")
        return kind[tuple(_kind(part) for part in parts)]
    return TYPES[ast.unparse(annotation)]


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML in which no name stands twice and nothing refers to something else: a few such lines can grow without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"*{self.peek_event().anchor} refers to another place: write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for name, count in names.items():
            if count > 1:
                raise yaml.YAMLError(f"{name} stands twice: keep one of them")
        if "<<" in names:
            raise yaml.YAMLError("<< takes over another mapping: write its names and values out")
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: Any) -> float:
        """YAML has numbers that nobody means: 012 is 10, and 1:30 is 90."""
        if ":" in node.value or re.match(r"[-+]?0[\dbx_]", node.value):
            raise yaml.YAMLError(f"{node.value} is no plain decimal number: write it as one, or put it in quotes")
        kind = "int" if node.tag.endswith("int") else "float"
        return getattr(self, f"construct_yaml_{kind}")(node)


for _tag in ("int", "float"):
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _PlainLoader.construct_number)


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
        if not os.path.isfile(path):
            raise ConfigError(f"{one_line(path)}: there is no such file.")
        return read_text(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8.") from None
    except OSError as error:
        raise ConfigError(refusal(error)) from None


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
    """`name=value` as a mapping: the value is YAML; where a str is wanted, the text itself unless it stands in quotes.

    Raises:
        ConfigError: there is no `=`.
    """
    name, separator, text = assignment.partition("=")
    if not separator:
        raise ConfigError(f"-p {assignment}: write -p name=value.")
    is_text, text = kinds.get(name) is str, text.strip()
    if is_text and text[:1] not in ("'", '"'):  # YAML would end the name of a file before " #"
        return {name: text}
    try:
        value = _yaml(text)
    except yaml.YAMLError:
        value = text
    return {name: text if is_text and not isinstance(value, str) else value}


def one_line(text: object) -> str:
    """At most 400 characters, without line breaks."""
    return textwrap.shorten(str(text), 400, placeholder=" …")
