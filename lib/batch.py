"""Notebooks without a browser: papermill, with every parameter checked before a kernel starts.

    python -m lib.batch run notebooks/2_micse.ipynb -f params/paper/micse.yaml -p seed=3
    python -m lib.batch sweep params/grids/temperature.yaml --dry-run
    python -m lib.batch all --profile demo --report
    python -m lib.batch report --profile demo

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
import html
import importlib.metadata
import inspect
import itertools
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml

from lib import paths

if TYPE_CHECKING:
    from nbformat import NotebookNode

DONE, FAILED, REFUSED, INTERRUPTED, KILLED = 0, 1, 2, 130, 138
STATUS = {
    DONE: "finished",
    FAILED: "failed",
    REFUSED: "refused",
    INTERRUPTED: "interrupted",
    KILLED: "killed",
}
RESUME = "start the same command again, finished training runs are kept and the interrupted one resumes"


class Refused(Exception):
    """A wrong parameter or file, found before anything started; the message is one sentence for the user."""


# --- The parameters of a notebook ---


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One line of the parameters cell: `lr: float = 3.0e-5  # Adam step size`."""

    kind: ast.expr  # the annotation, or the type of the default
    default: Any

    @property
    def type_name(self) -> str:
        return ast.unparse(self.kind)


def read_notebook(path: Path) -> NotebookNode:
    """The notebook at `path`.

    Raises:
        Refused: there is no such file, or it is not a notebook.
    """
    import nbformat

    if not path.is_file():
        raise Refused(f"{path}: there is no such notebook.")
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        return notebook
    except Exception as error:  # nbformat raises many kinds, all of them mean the same to the user
        raise Refused(f"{path} is not a Jupyter notebook: give an .ipynb file.") from error


def _tagged(notebook: NotebookNode, tag: str) -> int | None:
    return next((i for i, cell in enumerate(notebook.cells) if tag in cell.metadata.get("tags", [])), None)


def read_parameters(notebook: NotebookNode, name: str) -> dict[str, Parameter]:
    """Names, types and defaults in the cell tagged `parameters`.

    Args:
        notebook: what to read.
        name: how messages call it.

    Raises:
        Refused: there is no such cell, or it holds something other than literals.
    """
    index = _tagged(notebook, "parameters")
    if index is None:
        raise Refused(f"{name} has no cell tagged 'parameters': tag the cell that holds its settings.")
    try:
        statements = ast.parse(notebook.cells[index].source).body
    except SyntaxError as error:
        raise Refused(f"{name}: line {error.lineno} of the parameters cell is not valid Python.") from error
    found: dict[str, Parameter] = {}
    for statement in statements:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=key), value=ast.expr() as value):
                kind = statement.annotation
            case ast.Assign(targets=[ast.Name(id=key)], value=value):
                kind = None
            case _:
                continue
        try:
            default = ast.literal_eval(value)
        except ValueError as error:
            message = f"{name}: the parameter {key} is not a literal; compute it in the next cell."
            raise Refused(message) from error
        known = kind is not None and _is_known(kind)
        found[key] = Parameter(kind if known else ast.Name(id=type(default).__name__), default)
    return found


def _is_known(kind: ast.expr) -> bool:
    match kind:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_known(left) and _is_known(right)
        case ast.Subscript(value=ast.Name(id=name)):
            return name in {"list", "dict", "Optional", "Literal"}
        case ast.Name(id=name):
            return name in {"int", "float", "bool", "str", "list", "dict"}
    return isinstance(kind, ast.Constant) and kind.value is None


def fit(kind: ast.expr, value: Any) -> Any:
    """`value` as the annotation `kind` wants it: an int becomes a float where wanted.

    Raises:
        TypeError: the value has another type.
    """
    match kind:
        case ast.BinOp(left=left, right=right):
            with contextlib.suppress(TypeError):
                return fit(left, value)
            return fit(right, value)
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return None if value is None else fit(inner, value)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            allowed = [ast.literal_eval(c) for c in getattr(choices, "elts", [choices])]
            if any(type(a) is type(value) and a == value for a in allowed):
                return value
        case ast.Subscript(value=ast.Name(id="list"), slice=item) if isinstance(value, list):
            return [fit(item, v) for v in value]
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[key, item])):
            if isinstance(value, dict):
                return {fit(key, k): fit(item, v) for k, v in value.items()}
        case ast.Name(id="float") if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        case ast.Name(id="int") if isinstance(value, int) and not isinstance(value, bool):
            return value
        case ast.Name(id="bool" | "str" | "list" | "dict" as name) if type(value).__name__ == name:
            return value
        case ast.Constant(value=None) if value is None:
            return value
        case ast.Name(id=name) if name not in {"int", "float", "bool", "str", "list", "dict"}:
            return value  # a default such as None, without annotation, says nothing about the type
    raise TypeError(value)


def _hint(kind: ast.expr, value: Any) -> str:
    """What to write instead, where that can be told."""
    if isinstance(value, list):
        return next(filter(None, (_hint(kind, v) for v in value)), "")
    if not isinstance(value, str):
        return ": put it in quotes" if "str" in ast.unparse(kind) else ""
    if "float" in ast.unparse(kind):
        with contextlib.suppress(ValueError):
            written = re.sub(r"e([+-])0+", r"e\1", yaml.safe_dump(float(value)).split()[0])
            return f", which is text in YAML: write {written}"
    with contextlib.suppress(TypeError, yaml.YAMLError):
        fit(kind, yaml.safe_load(value))
        return f": write {value} without quotes"
    return ""


def check(
    parameters: Mapping[str, Parameter], values: Mapping[str, Any], *, source: str, name: str
) -> dict[str, Any]:
    """`values` with the notebook's types.

    Args:
        parameters: what the notebook declares.
        values: what the user gave.
        source: where the values come from, for messages.
        name: how messages call the notebook.

    Raises:
        Refused: a name that the notebook does not have, or a value of another type.
    """
    checked = {}
    for key, value in values.items():
        if key not in parameters:
            close = difflib.get_close_matches(str(key), parameters, n=1)
            guess = f", did you mean {close[0]}?" if close else "."
            raise Refused(f"{source}: {name} has no parameter {key}{guess} It has: {', '.join(parameters)}.")
        parameter = parameters[key]
        if value is None and parameter.default is None:
            checked[key] = None
            continue
        try:
            checked[key] = fit(parameter.kind, value)
        except TypeError:
            hint = _hint(parameter.kind, value)
            message = f"{source}: {key} must be {parameter.type_name}, not {value!r}{hint}."
            raise Refused(message) from None
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
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if getattr(error, "problem_mark", None) else ""
        raise Refused(f"{source} is not valid YAML{line}: write one `name: value` per line.") from error
    if values is not None and not isinstance(values, dict):
        raise Refused(f"{source} is not a mapping: write one `name: value` per line.")
    return values or {}


def _from_text(parameters: Mapping[str, Parameter], assignment: str) -> tuple[str, Any]:
    """A `name=value` of the command line; the value is YAML, and the text itself where a text is wanted."""
    key, separator, text = assignment.partition("=")
    if not separator:
        raise Refused(f"-p {assignment}: write -p name=value.")
    try:
        value = yaml.safe_load("null" if text == "None" else text)
    except yaml.YAMLError:
        value = text
    if key in parameters:
        kind = parameters[key].kind
        try:
            fit(kind, value)
        except TypeError:
            with contextlib.suppress(TypeError):
                value = fit(kind, text)
    return key, value


# --- Jobs ---


@dataclasses.dataclass(frozen=True)
class Job:
    """One notebook to execute; `overrides` go to papermill, `parameters` is all the notebook then has."""

    notebook: Path
    overrides: dict[str, Any]
    parameters: dict[str, Any]
    output: Path

    @property
    def name(self) -> str:
        return self.output.stem


def declared(notebook: Path) -> dict[str, Parameter]:
    """The parameters of the notebook at this path.

    Raises:
        Refused: it is no notebook, or not one to run with parameters.
    """
    content = read_notebook(notebook)
    if _tagged(content, "injected-parameters") is not None:
        raise Refused(f"{notebook} is an executed copy with its own parameters: run the original.")
    return read_parameters(content, notebook.name)


def _defaults(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in parameters.items()}


def preflight(job: Job, source: str = "") -> None:
    """Ask lib.config whether a run with these parameters can start; notebooks without runs are not asked.

    Args:
        job: what will be executed.
        source: where its parameters come from, for messages (the notebook, if empty).

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
    if (method := job.parameters.get("method", RunConfig.method)) in methods.REGISTRY:
        names |= {field.name for field in dataclasses.fields(methods.REGISTRY[method].Arguments)}
    try:
        RunConfig.from_parameters({k: v for k, v in job.parameters.items() if k in names}).preflight()
    except (ConfigError, DataError, EncoderError) as error:
        raise Refused(f"{source or job.notebook.name}: {_one_line(error)}") from error


def _one_line(text: object, limit: int = 400) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _safe(text: str) -> str:
    """`text` as a file name."""
    return re.sub(r"[^\w.+=,-]+", "_", text).strip("._") or "_"


def _profile(parameters: Mapping[str, Any]) -> str:
    return _safe(str(parameters.get("profile") or "demo"))


def _folder(profile: str) -> Path:
    return paths.runs() / "notebooks" / profile


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _union(*mappings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for mapping in mappings for name, value in mapping.items()}


def _same_stem(params: Path, notebook: Path) -> bool:
    """2_micse.yaml and micse.yaml both belong to 2_micse.ipynb."""
    return params.stem in (notebook.stem, re.sub(r"^\d+_", "", notebook.stem))


def single(
    notebook: Path,
    *,
    files: Sequence[Path] = (),
    texts: Sequence[str] = (),
    assignments: Sequence[str] = (),
    output: Path | None = None,
) -> Job:
    """One job: parameter files, then YAML texts, then `name=value`; later ones win.

    Raises:
        Refused: a file, a name or a type is wrong.
    """
    known = declared(notebook)
    sources = [(str(path), read_mapping(path)) for path in files]
    sources += [("-y", _mapping(text, "the text after -y")) for text in texts]
    sources += [("-p", dict([_from_text(known, text)])) for text in assignments]
    given = [check(known, values, source=source, name=notebook.name) for source, values in sources]
    parameters = _union(_defaults(known), *given)
    if output is None:
        usual = len(files) == 1 and _same_stem(files[0], notebook)
        baseline = _union(_defaults(known), *given[:usual])
        changed = {name: value for name, value in parameters.items() if value != baseline[name]}
        suffix = f"-{_digest(changed)}" if changed else ""
        output = _folder(_profile(parameters)) / f"{notebook.stem}{suffix}.ipynb"
    elif output.suffix != ".ipynb":
        raise Refused(f"-o {output}: the executed notebook needs a name that ends in .ipynb.")
    if output.resolve() == notebook.resolve():
        raise Refused(f"-o {output} is the notebook itself: choose another file.")
    return Job(notebook, _union(*given), parameters, output)


def expand(sweep: Path) -> list[Job]:
    """The jobs of a sweep file, in the order of the file: `grid` (all combinations), then `runs`.

        notebook: notebooks/1_simcse.ipynb
        base: params/demo/1_simcse.yaml        # a file or a list of files, optional
        parameters: {steps: 20}                # the same for all, optional
        grid: {seed: [1, 2], temperature: [0.05, 0.1]}
        runs: [{seed: 3, pooling: mean}]

    Raises:
        Refused: the file, or one of its combinations, is wrong.
    """
    shapes = {"notebook": str, "base": (str, list), "parameters": dict, "grid": dict, "runs": list}
    spec = read_mapping(sweep)
    for key, value in spec.items():
        if key not in shapes:
            raise Refused(f"{sweep}: unknown entry {key}; a sweep has {', '.join(shapes)}.")
        if not isinstance(value, shapes[key]):
            raise Refused(
                f"{sweep}: {key} is not what a sweep needs, see `python -m lib.batch sweep --help`."
            )
    grid, runs, base = spec.get("grid", {}), spec.get("runs", []), spec.get("base", [])
    if "notebook" not in spec:
        raise Refused(f"{sweep}: write `notebook: notebooks/name.ipynb`.")
    if not all(isinstance(values, list) and values for values in grid.values()):
        raise Refused(f"{sweep}: grid must map each name to a list of values.")
    if not all(isinstance(run, dict) for run in runs):
        raise Refused(f"{sweep}: runs must be a list of mappings.")
    cells = itertools.product(*grid.values()) if grid else ()
    combinations = [dict(zip(grid, values, strict=True)) for values in cells] + runs
    if not combinations:
        raise Refused(f"{sweep} has no combinations: give it a grid or runs.")

    notebook = _find(spec["notebook"], sweep)
    known = declared(notebook)
    files = [_find(str(path), sweep) for path in ([base] if isinstance(base, str) else base)]
    sources = [(str(path), read_mapping(path)) for path in files]
    sources.append((f"{sweep}, parameters", spec.get("parameters", {})))
    shared = [check(known, values, source=source, name=notebook.name) for source, values in sources]
    jobs: dict[Path, Job] = {}
    for combination in combinations:
        name = _readable(combination)
        own = check(known, combination, source=f"{sweep}, {name}", name=notebook.name)
        overrides = _union(*shared, own)
        parameters = _union(_defaults(known), overrides)
        output = _folder(_profile(parameters)) / sweep.stem / f"{name}.ipynb"
        if output in jobs:
            raise Refused(f"{sweep}: the combination {name} is there twice, remove one.")
        jobs[output] = Job(notebook, overrides, parameters, output)
    return list(jobs.values())


def _find(name: str, sweep: Path) -> Path:
    """A file named in a sweep: from the sweep's folder, from the repository, from the working directory."""
    places = [folder / name for folder in (sweep.parent, paths.root(), Path.cwd())]
    found = next((place.resolve() for place in places if place.is_file()), Path(name))
    return found.relative_to(Path.cwd()) if found.is_relative_to(Path.cwd()) else found


def _readable(combination: Mapping[str, Any]) -> str:
    """seed=3-temperature=0.05"""

    def show(value: Any) -> str:
        if isinstance(value, list):
            return "+".join(map(show, value)) or "none"
        return str(value).lower() if isinstance(value, bool) else str(value)

    plain = "-".join(f"{name}={show(value)}" for name, value in combination.items()) or "defaults"
    safe = _safe(plain)
    return safe if safe == plain and len(safe) <= 120 else f"{safe[:100]}-{_digest(combination)}"


# --- Execution ---


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How an execution ended: the exit code, one sentence when it failed, the seconds it took."""

    code: int
    reason: str = ""
    seconds: float = 0.0

    @property
    def status(self) -> str:
        return STATUS[self.code]


def clock(seconds: float) -> str:
    """12:03 or 1:12:03"""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Lines(logging.Handler):
    """papermill's log as short lines: elapsed time, a line per section, and what the cells print."""

    own = re.compile(
        "(Executing Cell|Ending Cell|Input Notebook|Output Notebook|Executing notebook|Kernel died)"
    )

    def __init__(self, headings: Sequence[str]) -> None:
        super().__init__()
        self.headings, self.section, self.start = headings, "", time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if cell := re.match(r"Executing Cell (\d+)", text):
            index = int(cell[1]) - 1
            section = self.headings[index] if index < len(self.headings) else self.section
            if section != self.section:
                self.section = section
                self.write(f"== {section}")
        elif not self.own.match(text):
            for line in text.splitlines():
                line = line.rstrip().split("\r")[-1]
                if line and not re.fullmatch(r"<.*>", line):  # not the repr of a figure
                    self.write(line)

    def write(self, line: str) -> None:
        _say(f"[{clock(time.monotonic() - self.start):>5}] {line}")


@contextlib.contextmanager
def _headless(headings: Sequence[str]) -> Iterator[None]:
    """papermill's messages go to `_Lines`, and the kernel sees the environment of a headless run."""
    logger, handler = logging.getLogger("papermill"), _Lines(headings)
    before = logger.level, logger.propagate
    environment = {
        "CSE_BATCH": "1",  # progress as lines, not as bars
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),  # for determinism
    }
    outside = {name: os.environ.get(name) for name in environment}
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    os.environ.update(environment)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
        for name, value in outside.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _headings(notebook: NotebookNode, injected: bool = False) -> list[str]:
    """For each cell the nearest heading above; `injected` counts the cell that papermill will add."""
    found, current = [], ""
    parameters = _tagged(notebook, "parameters")
    for index, cell in enumerate(notebook.cells):
        text = re.sub(r"```.*?```", "", cell.source, flags=re.S) if cell.cell_type == "markdown" else ""
        if titles := re.findall(r"^#{1,6}\s+(.+?)\s*$", text, re.M):
            current = titles[-1]
        found += [current] * (2 if injected and index == parameters else 1)
    return found


def execute(job: Job, *, report_mode: bool = False) -> Outcome:
    """Run the notebook in a kernel of its own; the executed notebook is kept, also when it failed.

    Raises:
        Refused: there is no kernel to run it.
    """
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import DeadKernelError

    job.output.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    code, reason = DONE, ""
    literal = str.maketrans({"{": "{{", "}": "}}"})  # papermill would fill in {names} in a path
    with _headless(_headings(read_notebook(job.notebook), bool(job.overrides))):
        try:
            papermill.execute_notebook(
                str(job.notebook).translate(literal),
                str(job.output).translate(literal),
                parameters=job.overrides,
                kernel_name="python3",
                language="python",
                progress_bar=False,
                log_output=True,
                report_mode=report_mode,
            )
        except NoSuchKernel as error:
            raise Refused("Jupyter has no kernel named python3: pip install ipykernel.") from error
        except papermill.PapermillExecutionError as error:
            code, reason = FAILED, f"{error.ename}: {_one_line(error.evalue)}"
        except DeadKernelError:
            code = KILLED
            reason = "the kernel was killed, probably out of memory: lower batch_size or corpus_size, "
            reason += f"or take a smaller backbone; {RESUME}"
        except RuntimeError as error:  # jupyter_client: the kernel did not start
            code, reason = FAILED, f"the kernel did not start, check ipykernel ({_one_line(error)})"
        except KeyboardInterrupt:
            code, reason = INTERRUPTED, f"interrupted; {RESUME}"
    if code and job.output.is_file():
        reason = _mark(job.output, code, reason)
    return Outcome(code, reason, time.monotonic() - start)


def _mark(output: Path, code: int, reason: str) -> str:
    """Write into the kept notebook how it ended; the reason comes back, with the place of an error."""
    import nbformat

    notebook = read_notebook(output)
    for heading, cell in zip(_headings(notebook), notebook.cells, strict=True):
        if code == FAILED and any(out.output_type == "error" for out in cell.get("outputs", [])):
            place = f" under “{heading}”" if heading else ""
            reason = f"cell [{cell.execution_count}]{place} stopped with {reason}"
            break
    notebook.metadata.setdefault("papermill", {})["exception"] = True
    notebook.metadata["batch"] = {"status": STATUS[code], "reason": reason}
    nbformat.write(notebook, output)
    return reason


def finished(job: Job) -> bool:
    """The output is there, ran to its end without error, with these very parameters."""
    try:
        notebook = read_notebook(job.output)
        defaults = _defaults(read_parameters(notebook, job.output.name))
    except Refused:
        return False
    ran = notebook.metadata.get("papermill", {})
    parameters = defaults | dict(ran.get("parameters") or {})
    return bool(ran.get("end_time")) and not ran.get("exception") and parameters == job.parameters


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run_one(job: Job, report_mode: bool = False) -> Outcome:
    _say(f"{job.notebook} -> {job.output}")
    try:
        outcome = execute(job, report_mode=report_mode)
    except Refused as error:
        outcome = Outcome(REFUSED, str(error))
    if outcome.code:
        kept = f" Kept: {job.output}" if job.output.is_file() else ""
        _say(f"{job.notebook.name}: {outcome.reason.rstrip('.')}.{kept}")
    else:
        _say(f"finished in {clock(outcome.seconds)}: {job.output}")
    return outcome


def _run_many(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, Outcome]]:
    """Execute the jobs one after the other, or several at a time; an interruption ends the rest."""
    if processes <= 1:
        for job in jobs:
            outcome = _run_one(job)
            yield job, outcome
            if outcome.code == INTERRUPTED:
                return
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    stop = threading.Event()
    with ThreadPoolExecutor(processes) as pool:
        pending = {pool.submit(_run_apart, job, stop): job for job in jobs}
        try:
            for future in as_completed(pending):
                if outcome := future.result():
                    yield pending[future], outcome
        finally:
            stop.set()


def _run_apart(job: Job, stop: threading.Event) -> Outcome | None:
    """Execute the job in a process of its own, its lines marked with its name; None if it is not to start."""
    if stop.is_set():
        return None
    start = time.monotonic()
    command = [sys.executable, "-m", "lib.batch", "run", str(job.notebook), "-o", str(job.output)]
    command += ["-y", yaml.safe_dump(job.overrides)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            _say(f"{job.name}: {line.rstrip()}")
    code = process.returncode if process.returncode in STATUS else FAILED
    return Outcome(code, seconds=time.monotonic() - start)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _exit_code(outcomes: Iterable[Outcome]) -> int:
    codes = {outcome.code for outcome in outcomes}
    return INTERRUPTED if INTERRUPTED in codes else FAILED if codes - {DONE} else DONE


# --- Commands ---


def run_command(args: argparse.Namespace) -> int:
    """`run`: one notebook."""
    job = single(
        args.notebook, files=args.files, texts=args.texts, assignments=args.assignments, output=args.output
    )
    preflight(job)
    return _run_one(job, args.report_mode).code


def sweep_command(args: argparse.Namespace) -> int:
    """`sweep`: all combinations of a file, checked before the first starts; finished ones are skipped."""
    jobs = expand(args.sweep)
    for job in jobs:
        preflight(job, f"{args.sweep}, {job.name}")
    status = {job.output: "finished, skipped" if finished(job) else "not finished" for job in jobs}
    remaining = [job for job in jobs if status[job.output] == "not finished"]
    if args.dry_run:
        print(_table([("notebook", "status"), *((str(path), text) for path, text in status.items())]))
        return DONE
    outcomes: dict[Path, Outcome] = {}
    try:
        for job, outcome in _run_many(remaining, args.jobs):
            outcomes[job.output] = outcome
            status[job.output] = f"{outcome.status}, {clock(outcome.seconds)}"
    except KeyboardInterrupt:  # between two notebooks, or with several at a time
        outcomes[Path()] = Outcome(INTERRUPTED)
    print(_table([("combination", "status"), *((job.name, status[job.output]) for job in jobs)]))
    return _exit_code(outcomes.values())


def all_command(args: argparse.Namespace) -> int:
    """`all`: every notebook with its parameters of one profile; a failure does not stop the rest."""
    status: dict[str, str] = {}
    outcomes: list[Outcome] = []
    folder = paths.root() / "params" / args.profile
    notebooks = sorted((paths.root() / "notebooks").glob("*.ipynb"))
    if not notebooks:
        raise Refused(f"{paths.root() / 'notebooks'} holds no notebook.")
    if args.profile != "demo" and not folder.is_dir():
        raise Refused(f"there is no profile {args.profile}: params/ has {', '.join(_profiles())}.")
    for notebook in notebooks:
        files = [path for path in sorted(folder.glob("*.yaml")) if _same_stem(path, notebook)]
        if not files and args.profile != "demo":
            status[notebook.name] = f"skipped: no params/{args.profile}/{notebook.stem}.yaml"
            _say(f"{notebook.name} {status[notebook.name]}")
            continue
        try:
            job = single(notebook, files=files, output=_folder(_safe(args.profile)) / notebook.name)
            profile = job.parameters.get("profile", args.profile)
            if profile != args.profile:
                where = files[0] if files else notebook
                raise Refused(f"{where}: the profile is {profile}: write `profile: {args.profile}`.")
            preflight(job)
        except Refused as error:
            _say(str(error))
            outcome = Outcome(REFUSED, str(error))
        else:
            outcome = _run_one(job)
        outcomes.append(outcome)
        status[notebook.name] = f"{outcome.status}, {clock(outcome.seconds)}"
        if outcome.code == INTERRUPTED:
            break
    print(_table([("notebook", "status"), *((n.name, status.get(n.name, "not run")) for n in notebooks)]))
    code = _exit_code(outcomes)
    if args.report and code != INTERRUPTED:
        print(f"Report: {report(args.profile)}")
    return code


def _profiles() -> list[str]:
    return sorted(path.name for path in (paths.root() / "params").glob("*/") if path.name != "grids")


def report_command(args: argparse.Namespace) -> int:
    """`report`: the executed notebooks of a profile as HTML."""
    print(f"Report: {report(args.profile)}")
    return DONE


# --- Report ---

# nbconvert's page without require.js, mermaid and the widget manager, which it would load from the network.
# MathJax alone still comes from there, on pages with formulas; without a network these show their TeX.
PAGE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js_requirejs -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- if resources.formulas -%}{{ super() }}{%- endif -%}{%- endblock -%}
"""

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #222; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: 0; }
h2 { font-size: 1.2rem; margin-top: 2.5rem; }
a { color: #0b5394; }
table { border-collapse: collapse; width: 100%; margin-top: 1.5rem; }
th, td { text-align: left; vertical-align: top; padding: .6rem .8rem; border-bottom: 1px solid #ddd; }
td.time { white-space: nowrap; text-align: right; font-variant-numeric: tabular-nums; }
small, footer, figcaption, details { color: #666; font-size: .85rem; }
.failed, .killed, .interrupted { color: #b00020; font-weight: 600; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1.5rem; }
figure { margin: 0; }
figure img { width: 100%; border: 1px solid #eee; }
footer { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1rem; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<table>
<tr><th>Notebook</th><th>What it shows</th><th>Run time</th><th>Status</th></tr>
{%- for page in pages %}
<tr>
<td><a href="{{ page.href }}">{{ page.title }}</a><br><small>{{ page.name }}</small></td>
<td>{{ page.claim }}
{%- if page.parameters %}<details><summary>parameters</summary>
{%- for name, value in page.parameters.items() %}{{ name }} = {{ value }}<br>{% endfor -%}
</details>{% endif %}</td>
<td class="time">{{ page.time }}</td>
<td><span class="{{ page.status }}">{{ page.status }}</span>
{%- if page.reason %}<br><small>{{ page.reason }}</small>{% endif %}</td>
</tr>
{%- endfor %}
</table>
{%- if figures %}
<h2>Figures</h2>
<div class="gallery">
{%- for figure in figures %}
<figure><a href="figures/{{ figure }}"><img src="figures/{{ figure }}" alt="{{ figure }}" loading="lazy"></a>
<figcaption>{{ figure }}</figcaption></figure>
{%- endfor %}
</div>
{%- endif %}
<footer>{{ versions }}<br>commit {{ commit }}, report made {{ made }}</footer>
</body>
</html>
"""


def report(profile: str = "demo") -> Path:
    """Write runs/report/<profile>/: executed notebooks as HTML, figures, and index.html; returns its path.

    Raises:
        Refused: no notebook of this profile was executed yet.
    """
    import jinja2

    from lib import session

    executed = sorted(_folder(_safe(profile)).glob("*.ipynb"))
    if not executed:
        command = f"python -m lib.batch all --profile {profile}"
        raise Refused(f"{_folder(_safe(profile))} has no executed notebook yet: start with `{command}`.")
    target = paths.runs() / "report" / _safe(profile)
    (target / "figures").mkdir(parents=True, exist_ok=True)
    pages = [_page(path, target) for path in executed]
    figures = sorted(paths.figures(profile).glob("*.png"))
    for figure in figures:
        shutil.copyfile(figure, target / "figures" / figure.name)
    packages = {"python": platform.python_version()}
    for package in (*session.REPORTED, "papermill", "nbconvert"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[package] = importlib.metadata.version(package)
    index = target / "index.html"
    environment = jinja2.Environment(autoescape=True)
    text = environment.from_string(INDEX).render(
        title=f"Contrastive sentence embeddings: the {profile} profile",
        pages=pages,
        figures=[figure.name for figure in figures],
        versions=", ".join(f"{package} {version}" for package, version in packages.items()),
        commit=session.git_commit(),
        made=time.strftime("%Y-%m-%d %H:%M"),
    )
    index.write_text(text, encoding="utf-8")
    return index


def _page(path: Path, target: Path) -> dict[str, Any]:
    """Convert one executed notebook, return its line of the index."""
    from nbconvert.exporters import HTMLExporter
    from traitlets.config import Config

    notebook = read_notebook(path)
    title, claim = _title_and_claim(notebook, path.stem)
    for cell in notebook.cells:
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata.tags = [*cell.metadata.get("tags", []), "remove-input"]
    config = Config()
    config.TagRemovePreprocessor.enabled = True
    config.TagRemovePreprocessor.remove_cell_tags = {"remove-cell"}
    config.TagRemovePreprocessor.remove_input_tags = {"remove-input"}
    formulas = any(
        cell.cell_type == "markdown" and re.search(r"\$|\\\(|\\\[", cell.source) for cell in notebook.cells
    )
    resources = {"metadata": {"name": title}, "formulas": formulas}
    body, _ = HTMLExporter(config=config, raw_template=PAGE).from_notebook_node(notebook, resources)
    (target / f"{path.stem}.html").write_text(body, encoding="utf-8")

    ran, batch = notebook.metadata.get("papermill", {}), notebook.metadata.get("batch", {})
    complete = ran.get("end_time") and not ran.get("exception")
    return {
        "href": quote(f"{path.stem}.html"),
        "title": title,
        "name": path.stem,
        "claim": claim,
        "parameters": ran.get("parameters") or {},
        "time": clock(ran["duration"]) if ran.get("duration") else "",
        "status": batch.get("status")
        or ("finished" if complete else "failed" if ran.get("exception") else "running"),
        "reason": batch.get("reason", ""),
    }


def _title_and_claim(notebook: NotebookNode, default: str) -> tuple[str, str]:
    """The first heading and the first paragraph, without their markup."""
    from nbconvert.filters import markdown2html

    title, claim = "", ""
    for cell in notebook.cells:
        if cell.cell_type != "markdown" or "papermill-error-cell-tag" in cell.metadata.get("tags", []):
            continue
        for block in re.split(r"\n\s*\n", re.sub(r"^(#.*)$", r"\n\1\n", cell.source, flags=re.M)):
            plain = html.unescape(re.sub(r"<[^>]+>", "", markdown2html(block))).replace("¶", "").strip()
            if block.strip().startswith("#"):
                title = title or plain
            else:
                claim = claim or " ".join(plain.split())
            if title and claim:
                return title, claim
    return title or default, claim


# --- Command line ---


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lib.batch", description="Run the notebooks headlessly; parameters are checked first."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="execute one notebook")
    run.add_argument("notebook", type=Path)
    run.add_argument(
        "-f",
        dest="files",
        metavar="PARAMS.yaml",
        type=Path,
        action="append",
        default=[],
        help="parameters from a YAML file; may be repeated, later files win",
    )
    run.add_argument(
        "-y",
        dest="texts",
        metavar="YAML",
        action="append",
        default=[],
        help="parameters as YAML text, wins over -f",
    )
    run.add_argument(
        "-p",
        dest="assignments",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one parameter, wins over -f and -y; `-p name value` works too",
    )
    run.add_argument(
        "-o",
        dest="output",
        metavar="OUT.ipynb",
        type=Path,
        help="the executed notebook (default: runs/notebooks/<profile>/<name>.ipynb)",
    )
    run.add_argument("--report-mode", action="store_true", help="hide the code in the executed notebook")
    run.set_defaults(function=run_command)

    sweep = commands.add_parser(
        "sweep",
        help="execute one notebook with many combinations of parameters",
        description=inspect.getdoc(expand).partition("Raises:")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sweep.add_argument("sweep", metavar="SWEEP.yaml", type=Path)
    sweep.add_argument("--dry-run", action="store_true", help="check and list the combinations, run none")
    sweep.add_argument("--jobs", type=int, default=1, help="how many at a time (default: 1)")
    sweep.set_defaults(function=sweep_command)

    everything = commands.add_parser("all", help="execute every notebook")
    everything.add_argument("--profile", default="demo", help="folder in params/ (default: demo)")
    everything.add_argument("--report", action="store_true", help="write the HTML report afterwards")
    everything.set_defaults(function=all_command)

    pages = commands.add_parser("report", help="write the executed notebooks as HTML")
    pages.add_argument("--profile", default="demo", help="which executed notebooks (default: demo)")
    pages.set_defaults(function=report_command)
    return parser


def _join_assignments(argv: Sequence[str]) -> list[str]:
    """papermill's `-p name value` becomes `-p name=value`."""
    rest, joined = iter(argv), []
    for word in rest:
        joined.append(word)
        if word == "-p" and (name := next(rest, None)) is not None:
            value = None if "=" in name else next(rest, None)
            joined[-1] = f"-p{name}" if value is None else f"-p{name}={value}"
    return joined


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    args = _parser().parse_args(_join_assignments(sys.argv[1:] if argv is None else argv))
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
