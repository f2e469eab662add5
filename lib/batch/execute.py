"""Jobs in kernels: checked before they start, executed by papermill, kept with how they ended."""

from __future__ import annotations

import io
import itertools
import json
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path

import nbformat
import papermill
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError
from traitlets.config import Config

from lib import paths
from lib.batch.jobs import Job
from lib.batch.parameters import one_line
from lib.checks import ConfigError, DataError, EncoderError
from lib.progress import is_wanted
from lib.runs import Plan, times

DONE, FAILED, REFUSED, INTERRUPTED, KILLED = 0, 1, 2, 130, 138
STATUS = {DONE: "finished", FAILED: "failed", INTERRUPTED: "interrupted", KILLED: "killed"}
ENCRYPTED = Config(KernelManager={"transport_encryption": "auto"})  # else the kernel warns of others on this machine
KERNEL = {"kernel_name": "python3", "language": "python", "progress_bar": False, "config": ENCRYPTED}
RESUME = "start the same command again, finished training runs are kept and the interrupted one resumes"


def say(text: str) -> None:
    """One line for the user, beside the output of the command."""
    print(text, file=sys.stderr, flush=True)


def plan_of(job: Job) -> Plan | None:
    """The plan of the notebook with these parameters, made and checked here, without a kernel.

    A notebook declares it in the cell tagged `plan`, which reads the parameters and nothing else.

    Raises:
        ConfigError: a value that makes no sense, or data or a backbone that is missing.
    """
    cells = nbformat.read(job.notebook, as_version=4).cells
    source = next((cell.source for cell in cells if "plan" in cell.metadata.get("tags", [])), None)
    if source is None:
        return None
    namespace = {**job.parameters, "parameters": job.parameters}
    try:
        with redirect_stdout(io.StringIO()):  # its outputs belong to the notebook
            exec(compile(source, f"{job.notebook.name}, plan", "exec"), namespace)  # noqa: S102 -- the user's own notebook
    except (ConfigError, DataError, EncoderError) as error:
        raise ConfigError(f"{job.notebook.name}, {job.output.stem}: {one_line(error)}") from error
    return namespace["plan"]


def preview(job: Job, plan: Plan | None) -> str:
    """Which runs are in the store, which would be trained, and how long the notebook is expected to take."""
    if plan is None or not any(plan):
        return f"{job.notebook.name} trains nothing"
    state = plan.state()
    sums, seconds = state.drop(columns="seconds").sum(), plan.seconds(job.notebook.stem)
    state["minutes"] = (state.pop("seconds") / 60).map("{:.1f}".format)
    counts = f"{sums.runs} runs: {sums.found} found, {sums['to train']} to train"
    return f"{state}\n{counts}; about {_clock(seconds)} with the evaluations, on this machine"


def _literal(path: Path) -> str:
    """The path as papermill takes it, which fills in what stands in braces."""
    return str(path).replace("{", "{{").replace("}", "}}")


def execute(job: Job, plan: Plan | None = None) -> int:
    """Run the notebook in a kernel of its own and return the exit code.

    The executed notebook is kept, also when it failed; how it ended is in its metadata, under `batch`.
    """
    expected = f", about {_clock(plan.seconds(job.notebook.stem))} on this machine" if plan and is_wanted() else ""
    say(f"{job.notebook} -> {job.output}{expected}")
    spent = times.read().get(times.SPENT, 0.0)
    job.output.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    code, reason = DONE, ""
    try:
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
    except (NoSuchKernel, RuntimeError) as error:
        code, reason = FAILED, f"the kernel python3 did not start: try `pip install ipykernel` ({one_line(error)})"
    seconds = time.monotonic() - start
    if plan and code == DONE:
        work = times.read().get(times.SPENT, 0.0) - spent
        times.remember(plan.rest_of(job.notebook.stem), max(0.0, seconds - work), spent=False)
    if job.output.is_file():
        notebook = nbformat.read(job.output, as_version=4)
        ending = {"status": STATUS[code], "reason": reason, "seconds": seconds, "parameters": _as_text(job)}
        notebook.metadata["batch"] = ending
        with paths.whole_file(job.output) as path:
            nbformat.write(notebook, path)
    reason = reason.rstrip(".") or f"finished in {_clock(seconds)}"
    say(f"{job.notebook.name}: {reason}. Kept: {job.output}")
    return code


def _clock(seconds: float) -> str:
    """h:mm:ss"""
    return str(timedelta(seconds=round(seconds)))


def _as_text(job: Job) -> str:
    return json.dumps(job.parameters, sort_keys=True, default=repr)


def finished(job: Job) -> bool:
    """The output is there, ran to its end without error, with these very parameters."""
    try:
        ending = nbformat.read(job.output, as_version=4).metadata.get("batch", {})
    except Exception:  # not there, or cut off while it was written
        return False
    return ending.get("status") == STATUS[DONE] and ending["parameters"] == _as_text(job)


def execute_all(planned: Sequence[tuple[Job, Plan | None]]) -> int:
    """Execute one after the other and print a summary; a failure does not stop the rest; an exit code."""
    codes: list[int] = []
    jobs = [job for job, _ in planned]
    for job, plan in planned:
        codes.append(execute(job, plan))
        if codes[-1] == INTERRUPTED:
            break
    for job, code in itertools.zip_longest(jobs, codes):
        print(f"{STATUS.get(code, 'not run'):<12}{job.output}")
    return INTERRUPTED if INTERRUPTED in codes else FAILED if any(codes) else DONE
