"""What a notebook declares in its parameters cell, and what a user gives for it."""

import ast
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import yaml

from lib import paths
from lib.checks import ConfigError, check_known, fit, kind_of, refusal

TYPES = {kind.__name__: kind for kind in (bool, int, float, str, list, dict)}


def declared(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Types and defaults of a notebook's parameters: the lines `name: type = value` of the cell tagged `parameters`.

    Raises:
        ConfigError: no notebook, no such cell, or another kind of line in it.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
        cells = tagged(notebook)
    except OSError as error:
        raise ConfigError(refusal(error)) from error
    except Exception as error:  # nbformat raises many kinds, all of them mean the same to the user
        raise ConfigError(f"{path} is not a Jupyter notebook: give an .ipynb file.") from error
    if "parameters" not in cells:
        raise ConfigError(f"{path} has no cell tagged 'parameters': tag the cell that holds its settings.")
    kinds, defaults, number = {}, {}, 1
    try:
        for line in ast.parse(cells["parameters"].source).body:
            number = line.lineno
            kinds[line.target.id] = _kind(line.annotation)
            defaults[line.target.id] = ast.literal_eval(line.value)
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path}: line {getattr(error, 'lineno', number)} of the parameters cell is not `name: type = value  # help`, "
            f"with a literal value and a type made of {', '.join(TYPES)}."
        ) from error
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    further = re.findall(r'lib\.parameters\(globals\(\), "(.+?)"\)', code)
    more = read_file(paths.root() / further[0]) if further else {}  # settings that the notebook does not show
    return {name: kind_of(value) for name, value in more.items()} | kinds, more | check(kinds, defaults, str(path))


def tagged(notebook: nbformat.NotebookNode) -> dict[str, nbformat.NotebookNode]:
    """Tag -> the first cell that has it."""
    return {tag: cell for cell in reversed(notebook.cells) for tag in cell.metadata.get("tags") or []}


def _kind(annotation: ast.expr) -> Any:
    """The type that an annotation such as `dict[str, list[int]]` spells."""
    if not isinstance(annotation, ast.Subscript):
        return TYPES[ast.unparse(annotation)]
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    return _kind(annotation.value)[tuple(_kind(part) for part in parts)]


class _Loader(yaml.SafeLoader):
    """Safe YAML in which no name stands twice: the first of the two values would be lost in silence."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        if len(set(map(str, names))) < len(names):
            raise yaml.YAMLError("a name stands twice: keep one of them")
        return super().construct_mapping(node, deep=deep)


def notebook_of(file: Path) -> Path | None:
    """The notebook that a parameter file belongs to: the longest name that the name of the file starts with."""
    notebooks = (paths.root() / "notebooks").glob("*.ipynb")
    return max((path for path in notebooks if file.stem.startswith(path.stem)), key=lambda p: len(p.stem), default=None)


def check(kinds: Mapping[str, Any], values: Mapping[str, Any], source: str, what: str = "parameter") -> dict[str, Any]:
    """The `values` given in `source` as instances of their types in `kinds`; ConfigError for another name or type."""
    try:
        check_known(values, kinds, what)
        return {name: fit(name, kinds[name], value) for name, value in values.items()}
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def read_file(path: Path) -> dict[str, Any]:
    """The YAML mapping in `path`, empty for an empty file; ConfigError when there is no such file, or something else in it."""
    try:
        return read_text(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(refusal(error)) from None


def read_text(text: str | bytes, source: str) -> dict[str, Any]:
    """The YAML mapping `text`, which the user gave in `source`; see `read_file`."""
    values = _yaml(text, source)
    if values is None:  # nothing, or comments alone
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{source} is not a mapping: write one `name: value` per line.")
    return values


def read_assignment(kinds: Mapping[str, Any], assignment: str) -> dict[str, Any]:
    """`name=value` as a mapping: the value is YAML; where a str is wanted, the text itself unless it stands in quotes."""
    name, separator, text = assignment.partition("=")
    if not separator:
        raise ConfigError(f"-p {assignment}: write -p name=value.")
    is_plain_text = kinds.get(name) is str and text.strip()[:1] not in ("'", '"')
    return {name: text.strip() if is_plain_text else _yaml(text, f"-p {assignment}")}


def _yaml(text: str | bytes, source: str) -> Any:
    try:
        return _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError) as error:  # also a date that cannot be
        raise ConfigError(f"{source} is not valid YAML: {one_line(error)}.") from error


def one_line(text: object) -> str:
    """At most 400 characters, without line breaks."""
    return textwrap.shorten(str(text), 400, placeholder=" …")
