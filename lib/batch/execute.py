"""Jobs in kernels: checked before they start, executed by papermill, kept with how they ended."""

from __future__ import annotations

import ast
import io
import itertools
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError
from traitlets.config import Config

from lib import paths
from lib.batch.jobs import Job, ending, folder
from lib.batch.parameters import one_line, tagged
from lib.checks import ConfigError, DataError, EncoderError, refusal
from lib.command import DONE, FAILED, INTERRUPTED, say
from lib.runs import Plan

KILLED = 138
STATUS = {DONE: "finished", FAILED: "failed", INTERRUPTED: "interrupted", KILLED: "killed"}
ENCRYPTED = Config(KernelManager={"transport_encryption": "auto"})  # else the kernel warns of others on this machine
KERNEL = {"kernel_name": "python3", "language": "python", "progress_bar": False, "config": ENCRYPTED}
RESUME = "start the same command again, finished training runs are kept and the interrupted one resumes"


def plan_of(job: Job) -> Plan | None:
    """The plan of the notebook with these parameters, made and checked here, without a kernel.

    A notebook declares it in the cell tagged `plan`, which reads the parameters and nothing else.

    Raises:
        ConfigError: a value that makes no sense, data or a backbone that is missing, or a cell that makes no plan.
    """
    cell = tagged(nbformat.read(job.notebook, as_version=4)).get("plan")
    if cell is None:
        return None
    source, place = cell.source, f"{job.notebook.name}, plan"
    namespace = {**job.parameters, "parameters": job.parameters}
    try:
        with redirect_stdout(io.StringIO()):  # its outputs belong to the notebook
            exec(compile(source, place, "exec"), namespace)  # noqa: S102 -- the user's own notebook
        if not isinstance(plan := namespace.get("plan"), Plan):
            raise ConfigError("the cell tagged 'plan' makes no plan: write plan = Plan(profile) in it.")
        plan.check()
    except (ConfigError, DataError, EncoderError) as error:
        reason = one_line(error)
    except OSError as error:
        reason = refusal(error)
    except (Exception, SystemExit) as error:
        reason = _at_fault(error, source, place, job.parameters)
    else:
        return plan
    raise ConfigError(f"{job.notebook.name}, {job.output.stem}: {reason}")


def _at_fault(error: BaseException, source: str, place: str, parameters: Mapping[str, Any]) -> str:
    """The line of the plan cell that an unexpected error comes from, and the parameters that it goes back to."""
    what = f"{type(error).__name__}: {one_line(error)}"
    numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
    if not numbers:
        return f"the cell tagged 'plan' is not plain Python ({what})."
    line = source.splitlines()[numbers[-1] - 1].strip()
    names, before = {*re.findall(r"\w+", line)}, set()
    while names != before:
        before = {*names}
        for node in ast.walk(ast.parse(source)):  # what a name is taken from: `for size in sizes`, `size = ...`
            made_of = getattr(node, "iter", None) or getattr(node, "value", None)
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            if made_of and any(
                isinstance(t, ast.Name) and t.id in names for target in filter(None, targets) for t in ast.walk(target)
            ):
                names |= {name.id for name in ast.walk(made_of) if isinstance(name, ast.Name)}
    values = ", ".join(f"{name} {value!r}" for name, value in parameters.items() if name in names)
    return f"line {numbers[-1]} of the cell tagged 'plan', `{line}`, fails with {one_line(values)} ({what}): change one of these."


def preview(job: Job, plan: Plan | None) -> str:
    """Which runs are in the store, which would be trained, and how long these are expected to take."""
    if plan is None or not any(plan):
        return f"{job.notebook.name} trains nothing"
    return f"{plan.check().to_string()}\n{_summary(plan)}"


def _summary(plan: Plan) -> str:
    whole = plan.check().iloc[-1]
    expected = f", expected time {whole.expected}" if whole.expected else ""
    return f"{whole.found} of {whole.runs} runs found, {whole['to train']} to train{expected}"


def _literal(path: Path) -> str:
    """The path as papermill takes it, which fills in what stands in braces."""
    return str(path).replace("{", "{{").replace("}", "}}")


def execute(job: Job, plan: Plan | None = None) -> int:
    """Run the notebook in a kernel of its own and return the exit code.

    The executed notebook is kept, also when it failed; how it ended is in its metadata, under `batch`.
    """
    say(f"{job.notebook} -> {job.output}{f'; {_summary(plan)}' if plan and any(plan) else ''}")
    figures = _figures(job)
    for place in (paths.runs(), job.output.parent, figures):
        paths.check_writable(place)
    job.output.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    code, reason = DONE, ""
    try:
        with _environment(CSE_FIGURES=str(figures), JPY_SESSION_NAME=None):  # in which a Jupyter server names its own
            papermill.execute_notebook(
                *map(_literal, (job.notebook, job.output)),
                job.overrides,
                **KERNEL,
                stdout_file=sys.stderr,
                stderr_file=sys.stderr,
            )
    except papermill.PapermillExecutionError as error:
        code, reason = FAILED, f"cell [{error.exec_count}] stopped with {error.ename}: {one_line(error.evalue)}"
    except DeadKernelError:
        hint = "lower batch_size or corpus_size, or take a smaller backbone"
        code, reason = KILLED, f"the kernel was killed, probably out of memory: {hint}; {RESUME}"
    except KeyboardInterrupt:
        code, reason = INTERRUPTED, f"interrupted; {RESUME}"
    except OSError as error:
        error.filename = error.filename or str(job.output)
        code, reason = FAILED, refusal(error)
    except (NoSuchKernel, RuntimeError) as error:
        code, reason = FAILED, f"the kernel python3 did not start: try `pip install ipykernel` ({one_line(error)})"
    seconds = time.monotonic() - start
    try:
        _keep(job, {"status": STATUS[code], "reason": reason, "seconds": seconds, "parameters": _as_text(job)})
    except DataError as error:
        code, reason = code or FAILED, reason or str(error)
    reason = reason.rstrip(".") or f"finished in {_clock(seconds)}"
    kept = f" Kept: {job.output}" if job.output.exists() else ""  # a full disk keeps nothing
    say(f"{job.notebook.name}: {reason}.{kept}")
    return code


def _figures(job: Job) -> Path:
    """Where the notebook draws: in the folder of its profile, in one of its own there where other parameters were given."""
    profile = job.parameters.get("profile") or "demo"
    drawn, executed = paths.figures(profile), folder(profile)
    if os.environ.get("CSE_FIGURES") or job.output.stem == job.notebook.stem:
        return drawn
    name = job.output.relative_to(executed) if job.output.is_relative_to(executed) else Path(job.output.name)
    return drawn / name.with_suffix("")


@contextmanager
def _environment(**values: str | None) -> Iterator[None]:
    """Variables of the environment of the kernels that are started in the block; None takes one away."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _keep(job: Job, how: dict[str, Any]) -> None:
    """Write how it ended into the executed notebook, if one is there."""
    try:
        notebook = nbformat.read(job.output, as_version=4)
    except Exception:  # none, or a full disk cut it
        return
    notebook.metadata["batch"] = how
    with paths.whole_file(job.output) as path:
        nbformat.write(notebook, path)


def _clock(seconds: float) -> str:
    """h:mm:ss"""
    return str(timedelta(seconds=round(min(seconds, 1e12))))


def _as_text(job: Job) -> str:
    return json.dumps(job.parameters, sort_keys=True, default=repr)


def finished(job: Job) -> bool:
    """The output is there, ran to its end without error, with these very parameters."""
    how = ending(job.output) or {}
    return how.get("status") == STATUS[DONE] and how.get("parameters") == _as_text(job)


def execute_all(planned: Sequence[tuple[Job, Plan | None]]) -> int:
    """Execute one after the other and print a summary; a failure does not stop the rest; an exit code."""
    codes: list[int] = []
    for job, plan in planned:
        codes.append(execute(job, plan))
        if codes[-1] == INTERRUPTED:
            break
    return _ended([job for job, _ in planned], codes)


def execute_side_by_side(jobs: Sequence[Job], number: int) -> int:
    """As `execute_all`, each job in a process of its own that checks its plan first, `number` of them at a time."""

    def one(job: Job) -> int:
        overrides = yaml.safe_dump(job.overrides, default_flow_style=True)
        command = [sys.executable, "-m", "lib.batch", "run", str(job.notebook), "-y", overrides, "-o", str(job.output)]
        return subprocess.run(command, cwd=paths.root(), check=False).returncode

    with ThreadPoolExecutor(number) as pool:
        return _ended(jobs, list(pool.map(one, jobs)))


def _ended(jobs: Sequence[Job], codes: Sequence[int]) -> int:
    for job, code in itertools.zip_longest(jobs, codes):
        print(f"{STATUS.get(code, 'not run'):<12}{job.output}")
    return INTERRUPTED if INTERRUPTED in codes else FAILED if any(codes) else DONE
