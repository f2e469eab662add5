"""Jobs in kernels: checked before they start, executed by papermill, kept with how they ended."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

import nbformat
import papermill
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError

from lib import paths, runs
from lib.batch.jobs import Job
from lib.batch.parameters import one_line
from lib.checks import ConfigError, DataError, EncoderError
from lib.config import RunConfig

DONE, FAILED, REFUSED, INTERRUPTED, KILLED = 0, 1, 2, 130, 138
STATUS = {DONE: "finished", FAILED: "failed", INTERRUPTED: "interrupted", KILLED: "killed"}
KERNEL = {"kernel_name": "python3", "language": "python", "progress_bar": False}
RESUME = "start the same command again, finished training runs are kept and the interrupted one resumes"


def say(text: str) -> None:
    """One line for the user, beside the output of the command."""
    print(text, file=sys.stderr, flush=True)


def preflight(job: Job) -> None:
    """Ask whether the run with these parameters can start; a notebook that names no method is not asked.

    Data and backbone are looked at where the notebook has a `backbone`; another notebook makes its own.

    Raises:
        ConfigError: a value that makes no sense, or data or a backbone that is missing.
    """
    if "method" not in job.parameters:
        return
    try:
        config = RunConfig.from_parameters(job.parameters, others=job.parameters)
        if "backbone" in job.parameters:
            runs.preflight(config)
    except (ConfigError, DataError, EncoderError) as error:
        raise ConfigError(f"{job.notebook.name}, {job.output.stem}: {one_line(error)}") from error


def execute(job: Job) -> int:
    """Run the notebook in a kernel of its own and return the exit code.

    The executed notebook is kept, also when it failed; how it ended is in its metadata, under `batch`.
    """
    say(f"{job.notebook} -> {job.output}")
    job.output.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    code, reason = DONE, ""
    try:
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
    except (NoSuchKernel, RuntimeError) as error:
        code, reason = FAILED, f"the kernel python3 did not start: try `pip install ipykernel` ({one_line(error)})"
    seconds = time.monotonic() - start
    if job.output.is_file():
        notebook = nbformat.read(job.output, as_version=4)
        ending = {"status": STATUS[code], "reason": reason, "seconds": seconds, "parameters": _as_text(job)}
        notebook.metadata["batch"] = ending
        with paths.whole_file(job.output) as path:
            nbformat.write(notebook, path)
    reason = reason.rstrip(".") or f"finished in {timedelta(seconds=int(seconds))}"
    say(f"{job.notebook.name}: {reason}. Kept: {job.output}")
    return code


def _as_text(job: Job) -> str:
    return json.dumps(job.parameters, sort_keys=True, default=repr)


def finished(job: Job) -> bool:
    """The output is there, ran to its end without error, with these very parameters."""
    try:
        ending = nbformat.read(job.output, as_version=4).metadata.get("batch", {})
    except Exception:  # not there, or cut off while it was written
        return False
    return ending.get("status") == STATUS[DONE] and ending["parameters"] == _as_text(job)


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
