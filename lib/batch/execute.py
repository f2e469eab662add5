"""Jobs in kernels: checked before they start, executed by papermill, kept with how they ended."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
    namespace = {**job.parameters, "parameters": job.parameters}
    try:
        with redirect_stdout(io.StringIO()):  # its outputs belong to the notebook
            exec(compile(cell.source, "plan", "exec"), namespace)  # noqa: S102 -- the user's own notebook
        if not isinstance(plan := namespace.get("plan"), Plan):
            raise ConfigError("the cell tagged 'plan' makes no plan: write plan = Plan(profile) in it.")
        plan.check()
        return plan
    except (ConfigError, DataError, EncoderError) as error:
        reason = one_line(error)
    except (Exception, SystemExit) as error:
        reason = f"the cell tagged 'plan' fails with these parameters ({type(error).__name__}: {one_line(error)})."
    raise ConfigError(f"{job.notebook.name}, {job.output.stem}: {reason}")


def execute(job: Job) -> int:
    """Run the notebook in a kernel of its own and return the exit code.

    The executed notebook is kept, also when it failed; how it ended is in its metadata, under `batch`.

    Raises:
        DataError: the output, the runs or the figures cannot be written.
    """
    say(f"{job.notebook} -> {job.output}")
    figures = _figures(job)
    for place in (paths.runs(), job.output.parent, figures):
        paths.check_writable(place)
    job.output.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    code, reason = DONE, ""
    try:
        with patch.dict(os.environ, CSE_FIGURES=str(figures)):  # the kernel inherits it
            os.environ.pop("JPY_SESSION_NAME", None)  # else the kernel thinks that somebody looks at it in Jupyter
            papermill.execute_notebook(
                job.notebook, job.output, job.overrides, **KERNEL, stdout_file=sys.stderr, stderr_file=sys.stderr
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
    _keep(job, {"status": STATUS[code], "reason": reason, "seconds": seconds, "parameters": _as_text(job)})
    reason = reason.rstrip(".") or f"finished in {timedelta(seconds=round(seconds))}"
    kept = f" Kept: {job.output}" if job.output.exists() else ""  # a full disk keeps nothing
    say(f"{job.notebook.name}: {reason}.{kept}")
    return code


def _figures(job: Job) -> Path:
    """Where the notebook draws: in the folder of its profile, in one of its own there where other parameters were given."""
    profile = job.parameters.get("profile") or "demo"
    drawn, executed, name = paths.figures(profile), folder(profile), job.output.with_suffix("")
    if os.environ.get("CSE_FIGURES") or name.name == job.notebook.stem:
        return drawn
    return drawn / (name.relative_to(executed) if name.is_relative_to(executed) else name.name)


def _keep(job: Job, how: dict[str, Any]) -> None:
    """Write how it ended into the executed notebook, if one is there."""
    try:
        notebook = nbformat.read(job.output, as_version=4)
    except Exception:  # none, or a full disk cut it
        return
    notebook.metadata["batch"] = how
    with paths.whole_file(job.output) as path:
        nbformat.write(notebook, path)


def _as_text(job: Job) -> str:
    return json.dumps(job.parameters, sort_keys=True, default=repr)


def finished(job: Job) -> bool:
    """The output is there, ran to its end without error, with these very parameters."""
    how = ending(job.output)
    return how.get("status") == STATUS[DONE] and how.get("parameters") == _as_text(job)


def execute_all(jobs: Sequence[Job]) -> int:
    """Execute one after the other and print a summary; a failure does not stop the rest; an exit code."""
    codes: list[int] = []
    for job in jobs:
        codes.append(execute(job))
        if codes[-1] == INTERRUPTED:
            break
    return _ended(jobs, codes)


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
