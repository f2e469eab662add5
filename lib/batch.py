"""Notebooks without a browser: papermill, with every parameter checked before a kernel starts.

    python -m lib.batch run notebooks/1_simcse.ipynb -f params/paper/1_simcse.yaml -p seed=3
    python -m lib.batch sweep params/grids/temperature.yaml
    python -m lib.batch all --profile demo --report
    python -m lib.batch report --profile demo

Executed notebooks, also failed ones, are kept in runs/notebooks/<profile>/. A sweep file runs one notebook
with many parameters; its paths start at the repository:

    notebook: notebooks/1_simcse.ipynb
    base: params/demo/1_simcse.yaml                 # for all, from a file (optional)
    parameters: {epochs: 2}                         # for all (optional)
    grid: {seed: [1, 2], temperature: [0.05, 0.1]}  # every combination
    runs: [{seed: 3, dropout: 0.0}]                 # then these

Exit codes: 0 done, 1 a cell failed, 2 a wrong parameter or file (nothing was started), 130 interrupted,
138 the kernel was killed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import difflib
import hashlib
import itertools
import json
import re
import sys
import textwrap
import time
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from lib import paths
from lib.config import PROFILES

DONE, FAILED, REFUSED, INTERRUPTED, KILLED = 0, 1, 2, 130, 138
STATUS = {DONE: "finished", FAILED: "failed", INTERRUPTED: "interrupted", KILLED: "killed"}
RESUME = "start the same command again, finished training runs are kept and the interrupted one resumes"
TYPES = {kind.__name__: kind for kind in (bool, int, float, str, list, dict)}


class Refused(Exception):
    """A wrong parameter or file, found before anything started; the message is one sentence for the user."""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- Parameters ---


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One line of the parameters cell: `lr: float = 3.0e-5`."""

    type_name: str
    kind: Any  # the annotation as a type
    default: Any


def _parameter(annotation: ast.expr | None, default: Any) -> Parameter:
    if annotation is not None:
        with contextlib.suppress(Exception):  # an annotation with other names than TYPES says nothing here
            kind = eval(ast.unparse(annotation), {"__builtins__": {}}, TYPES)
            if isinstance(kind, (type, types.GenericAlias, types.UnionType)):
                return Parameter(ast.unparse(annotation), kind, default)
    kind = object if default is None else type(default)
    return Parameter(kind.__name__, kind, default)


def read_parameters(path: Path) -> dict[str, Parameter]:
    """Names, types and defaults in the cell tagged `parameters` of a notebook.

    Raises:
        Refused: no notebook, an executed copy, no such cell, or something other than literals in it.
    """
    import nbformat

    if not path.is_file():
        raise Refused(f"{path}: there is no such notebook.")
    try:
        notebook = nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises many kinds, all of them mean the same to the user
        raise Refused(f"{path} is not a Jupyter notebook: give an .ipynb file.") from error
    tagged = {tag: cell for cell in notebook.cells for tag in cell.metadata.get("tags", [])}
    if "injected-parameters" in tagged or "batch" in notebook.metadata:
        raise Refused(f"{path} is an executed copy with its own parameters: run the original.")
    if "parameters" not in tagged:
        raise Refused(f"{path} has no cell tagged 'parameters': tag the cell that holds its settings.")
    try:
        statements = ast.parse(tagged["parameters"].source).body
    except SyntaxError as error:
        raise Refused(f"{path}: line {error.lineno} of the parameters cell is not valid Python.") from error
    found = {}
    for statement in statements:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                annotation = None
            case _:
                continue
        try:
            found[name] = _parameter(annotation, ast.literal_eval(value))
        except ValueError as error:
            message = f"{path}: the parameter {name} is not a literal; compute it in the next cell."
            raise Refused(message) from error
    return found


def fit(kind: Any, value: Any) -> Any:
    """`value` as the type `kind` wants it: a whole number becomes a float where one is wanted.

    Raises:
        TypeError: the value has another type.
    """
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        for part in arguments:
            with contextlib.suppress(TypeError):
                return fit(part, value)
    elif isinstance(value, list) and arguments and typing.get_origin(kind) is list:
        return [fit(arguments[0], item) for item in value]
    elif kind is float and type(value) is int:
        return float(value)
    elif kind is object or type(value) is (typing.get_origin(kind) or kind):
        return value
    raise TypeError(value)


def check(known: Mapping[str, Parameter], values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The `values` that the user gave in `source`, with the types that the notebook declares.

    Raises:
        Refused: a name that the notebook does not have, or a value of another type.
    """
    checked = {}
    for name, value in values.items():
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            guess = f", did you mean {close[0]}?" if close else "."
            raise Refused(f"{source}: there is no parameter {name}{guess} There are: {', '.join(known)}.")
        wanted = known[name].type_name
        try:
            checked[name] = fit(known[name].kind, value)
        except TypeError:
            hint = ""
            if "float" in wanted and "'" in repr(value):
                hint = " (YAML reads 1e-5 as text: write 1.0e-5)"
            elif wanted.startswith("str"):
                hint = " (put it in quotes)"
            raise Refused(f"{source}: {name} must be {wanted}, not {value!r}{hint}.") from None
    return checked


def read_mapping(path: Path) -> dict[str, Any]:
    """The YAML mapping in `path`; an empty file is an empty mapping.

    Raises:
        Refused: there is no such file, or it holds something else.
    """
    if not path.is_file():
        raise Refused(f"{path}: there is no such file.")
    return _mapping(path.read_text(encoding="utf-8"), str(path))


def _mapping(text: str, source: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise Refused(f"{source} is not valid YAML: {_one_line(error)}.") from error
    if not isinstance(values, dict):
        raise Refused(f"{source} is not a mapping: write one `name: value` per line.")
    return values


def _assignment(known: Mapping[str, Parameter], assignment: str) -> dict[str, Any]:
    """`name=value`: the value is YAML, and the text itself where only that fits."""
    name, separator, text = assignment.partition("=")
    if not separator:
        raise Refused(f"-p {assignment}: write -p name=value.")
    try:
        value = yaml.safe_load("null" if text == "None" else text)
    except yaml.YAMLError:
        value = text
    if name in known:
        for candidate in (value, text):
            with contextlib.suppress(TypeError):
                return {name: fit(known[name].kind, candidate)}
    return {name: value}


def _one_line(text: object) -> str:
    return textwrap.shorten(str(text), 400, placeholder=" …")


# --- Jobs ---


@dataclasses.dataclass(frozen=True)
class Job:
    """One notebook to execute; `overrides` go to papermill, `parameters` is all the notebook then has."""

    notebook: Path
    overrides: dict[str, Any]
    parameters: dict[str, Any]
    output: Path


def _job(
    notebook: Path, known: Mapping[str, Parameter], overrides: dict[str, Any], name: str, output: Path | None
) -> Job:
    parameters = {key: parameter.default for key, parameter in known.items()} | overrides
    output = output or _folder(parameters.get("profile")) / f"{name}.ipynb"
    return Job(notebook, overrides, parameters, output)


def _folder(profile: str | None) -> Path:
    return paths.runs() / "notebooks" / (profile or "demo")


def _readable(values: Mapping[str, Any]) -> str:
    """seed=3-temperature=0.05, with a digest where that is no file name."""
    plain = "-".join(f"{name}={value}" for name, value in values.items())
    safe = re.sub(r"[^\w.+=,-]+", "_", plain)
    if safe == plain and len(safe) <= 100:
        return safe
    return f"{safe[:100]}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"


def single(
    notebook: Path,
    *,
    files: Sequence[Path] = (),
    texts: Sequence[str] = (),
    assignments: Sequence[str] = (),
    output: Path | None = None,
) -> Job:
    """One job: parameter files, then YAML texts, then `name=value`; later ones win, as in papermill.

    Raises:
        Refused: a file, a name or a type is wrong.
    """
    known = read_parameters(notebook)
    from_files, given = {}, {}
    for path in files:
        from_files |= check(known, read_mapping(path), str(path))
    for text in texts:
        given |= check(known, _mapping(text, "the text after -y"), "-y")
    for text in assignments:
        given |= check(known, _assignment(known, text), "-p")
    name = [notebook.stem, *(path.stem for path in files if path.stem != notebook.stem)]
    if given:
        name.append(_readable(given))
    if output and output.resolve() == notebook.resolve():
        raise Refused(f"-o {output} is the notebook itself: choose another file.")
    return _job(notebook, known, from_files | given, "-".join(name), output)


def expand(sweep: Path) -> list[Job]:
    """The jobs of a sweep file (see the top of this module): the grid, then the runs, in their order.

    Raises:
        Refused: the file, or one of its combinations, is wrong.
    """
    spec = read_mapping(sweep)
    kinds = {"notebook": str, "base": str, "parameters": dict, "grid": dict, "runs": list}
    for key, value in spec.items():
        if key not in kinds:
            raise Refused(f"{sweep}: unknown entry {key}; a sweep has {', '.join(kinds)}.")
        if not isinstance(value, kinds[key]):
            raise Refused(f"{sweep}: {key} must be a {kinds[key].__name__}: see python -m lib.batch --help.")
    grid, runs = spec.get("grid", {}), spec.get("runs", [])
    if "notebook" not in spec:
        raise Refused(f"{sweep}: write `notebook: notebooks/name.ipynb`.")
    if not all(isinstance(values, list) for values in grid.values()) or set(map(type, runs)) - {dict}:
        raise Refused(f"{sweep}: grid must map each name to a list, runs must be a list of mappings.")
    combinations = [dict(zip(grid, row, strict=True)) for row in itertools.product(*grid.values()) if row]
    combinations += runs
    if not combinations:
        raise Refused(f"{sweep} has no combinations: give it a grid or runs.")

    notebook = paths.root() / spec["notebook"]
    known = read_parameters(notebook)
    shared = {}
    if "base" in spec:
        shared |= check(known, read_mapping(paths.root() / spec["base"]), spec["base"])
    shared |= check(known, spec.get("parameters", {}), f"{sweep}, parameters")
    jobs = {}
    for combination in combinations:
        name = _readable(combination) or "defaults"
        own = check(known, combination, f"{sweep}, {name}")
        jobs[name] = _job(notebook, known, shared | own, f"{sweep.stem}/{name}", None)
    return list(jobs.values())


def preflight(job: Job) -> None:
    """Ask lib.config whether a run with these parameters can start; notebooks without runs are not asked.

    Raises:
        Refused: a value that makes no sense, or data or a backbone that is missing.
    """
    if "backbone" not in job.parameters:
        return
    from lib import methods
    from lib.config import ConfigError, RunConfig
    from lib.data.errors import DataError
    from lib.encoder import EncoderError

    names = {field.name for field in dataclasses.fields(RunConfig)}
    if method := methods.REGISTRY.get(job.parameters.get("method", RunConfig.method)):
        names |= {field.name for field in dataclasses.fields(method.Arguments)}
    try:
        RunConfig.from_parameters({k: v for k, v in job.parameters.items() if k in names}).preflight()
    except (ConfigError, DataError, EncoderError) as error:
        raise Refused(f"{job.notebook.name}, {job.output.stem}: {_one_line(error)}") from error


# --- Execution ---


def execute(job: Job) -> int:
    """Run the notebook in a kernel of its own and return the exit code.

    The executed notebook is kept, also when it failed; how it ended is in its metadata, under `batch`.
    """
    import nbformat
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import DeadKernelError

    _say(f"{job.notebook} -> {job.output}")
    job.output.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    code, reason = DONE, ""
    try:
        papermill.execute_notebook(
            job.notebook,
            job.output,
            parameters=job.overrides,
            kernel_name="python3",
            language="python",
            progress_bar=False,
            stdout_file=sys.stderr,
            stderr_file=sys.stderr,
        )
    except papermill.PapermillExecutionError as error:
        code = FAILED
        reason = f"cell [{error.exec_count}] stopped with {error.ename}: {_one_line(error.evalue)}"
    except DeadKernelError:
        code = KILLED
        reason = "the kernel was killed, probably out of memory: lower batch_size or corpus_size, "
        reason += f"or take a smaller backbone; {RESUME}"
    except KeyboardInterrupt:
        code, reason = INTERRUPTED, f"interrupted; {RESUME}"
    except (NoSuchKernel, RuntimeError) as error:
        code = FAILED
        reason = f"the kernel python3 did not start: try `pip install ipykernel` ({_one_line(error)})"
    seconds = time.monotonic() - start
    if job.output.is_file():
        notebook = nbformat.read(job.output, as_version=4)
        ended = {"status": STATUS[code], "reason": reason, "seconds": seconds}
        notebook.metadata["batch"] = ended | {"parameters": _as_text(job.parameters)}
        nbformat.write(notebook, job.output)
    reason = reason.rstrip(".") or f"finished in {timedelta(seconds=int(seconds))}"
    _say(f"{job.notebook.name}: {reason}. Kept: {job.output}")
    return code


def _as_text(parameters: Mapping[str, Any]) -> str:
    return json.dumps(parameters, sort_keys=True, default=repr)


def finished(job: Job) -> bool:
    """The output is there, ran to its end without error, with these very parameters."""
    import nbformat

    try:
        ended = nbformat.read(job.output, as_version=4).metadata.get("batch", {})
    except Exception:  # not there, or cut off while it was written
        return False
    return ended.get("status") == STATUS[DONE] and ended["parameters"] == _as_text(job.parameters)


def execute_all(jobs: Sequence[Job]) -> int:
    """Execute one after the other and print a summary; a failure does not stop the rest; an exit code."""
    codes: list[int] = []
    for job in jobs:
        codes.append(execute(job))
        if codes[-1] == INTERRUPTED:
            break
    for job, code in itertools.zip_longest(jobs, codes):
        print(f"{STATUS.get(code, 'not run'):<12}{job.output}")
    return INTERRUPTED if INTERRUPTED in codes else FAILED if any(codes) else DONE


# --- Commands ---


def _run(args: argparse.Namespace) -> int:
    job = single(args.notebook, files=args.files, texts=args.texts, assignments=args.assignments, output=args.output)
    preflight(job)
    return execute(job)


def _sweep(args: argparse.Namespace) -> int:
    jobs = expand(args.sweep)
    for job in jobs:
        preflight(job)
    remaining = [job for job in jobs if not finished(job)]
    for job in jobs:
        print(f"{'to run' if job in remaining else 'skipped':<12}{job.output}", flush=True)
    return DONE if args.dry_run else execute_all(remaining)


def _all(args: argparse.Namespace) -> int:
    jobs = []
    for notebook in sorted((paths.root() / "notebooks").glob("*.ipynb")):
        file = paths.root() / "params" / args.profile / f"{notebook.stem}.yaml"
        if not file.is_file() and args.profile != "demo":  # the defaults of a notebook are the demo
            _say(f"{notebook.name} is skipped: there is no {file}")
            continue
        job = single(notebook, files=[file] if file.is_file() else [])
        if job.parameters.get("profile") != args.profile:
            where = file if file.is_file() else notebook
            raise Refused(f"{where} has another profile: write `profile: {args.profile}`.")
        preflight(job)
        jobs.append(job)
    if not jobs:
        raise Refused(f"{paths.root()} has no notebook with parameters for the profile {args.profile}.")
    code = execute_all(jobs)
    if args.report and code != INTERRUPTED:
        _report(args)
    return code


def _report(args: argparse.Namespace) -> int:
    from lib import report

    executed = sorted(_folder(args.profile).glob("*.ipynb"))
    if not executed:
        command = f"python -m lib.batch all --profile {args.profile}"
        raise Refused(f"{_folder(args.profile)} has no executed notebook yet: start with `{command}`.")
    print(f"Report: {report.write(args.profile, executed)}")
    return DONE


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m lib.batch", description=__doc__, formatter_class=plain)
    commands = parser.add_subparsers(required=True)

    run = commands.add_parser("run", help="execute one notebook")
    run.add_argument("notebook", type=Path)
    several = {"action": "append", "default": []}
    run.add_argument("-f", dest="files", metavar="FILE", type=Path, **several, help="parameters in YAML")
    run.add_argument("-y", dest="texts", metavar="YAML", **several, help="parameters as YAML, wins over -f")
    run.add_argument("-p", dest="assignments", metavar="NAME=VALUE", **several, help="wins over -f and -y")
    run.add_argument("-o", dest="output", metavar="OUT.ipynb", type=Path, help="the executed notebook")
    run.set_defaults(function=_run)

    sweep = commands.add_parser("sweep", help="execute one notebook with many combinations of parameters")
    sweep.add_argument("sweep", metavar="SWEEP.yaml", type=Path)
    sweep.add_argument("--dry-run", action="store_true", help="check and list the combinations, run none")
    sweep.set_defaults(function=_sweep)

    everything = commands.add_parser("all", help="execute every notebook")
    everything.add_argument("--profile", choices=PROFILES, default="demo")
    everything.add_argument("--report", action="store_true", help="write the HTML report afterwards")
    everything.set_defaults(function=_all)

    pages = commands.add_parser("report", help="write the executed notebooks as HTML")
    pages.add_argument("--profile", choices=PROFILES, default="demo")
    pages.set_defaults(function=_report)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        return args.function(args)
    except Refused as error:
        _say(str(error))
        return REFUSED
    except KeyboardInterrupt:
        _say(f"Interrupted; {RESUME}.")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
