"""Jobs in kernels: checked before they start, executed by papermill, kept with how they ended."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import nbformat
import papermill
import yaml
from jupyter_client.kernelspec import NoSuchKernel
from nbclient.exceptions import DeadKernelError
from traitlets.config import Config

from lib import paths
from lib.batch.jobs import Job, folder, metadata
from lib.batch.parameters import one_line, tagged
from lib.checks import ConfigError, DataError, EncoderError, Parameters
from lib.command import DONE, FAILED, say
from lib.runs import Plan

KILLED = 138
STATUS = {DONE: "finished", FAILED: "failed", KILLED: "killed"}
ENCRYPTED = Config(KernelManager={"transport_encryption": "auto"})  # else the kernel warns of others on this machine
LESS = "lower batch_size or corpus_size, or take a smaller backbone"
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
    namespace = {**job.parameters, "parameters": Parameters(job.parameters)}
    try:
        with redirect_stdout(io.StringIO()):  # its outputs belong to the notebook
            exec(cell.source, namespace)  # noqa: S102 -- the user's own notebook
        plan = namespace["plan"]
        plan.check()
        return plan
    except (ConfigError, DataError, EncoderError) as error:
        reason = one_line(error)
    except Exception as error:
        reason = f"the cell tagged 'plan' fails with these parameters ({type(error).__name__}: {one_line(error)})."
    raise ConfigError(f"{job.notebook.name}, {job.output.stem}: {reason}")


def execute(job: Job) -> int:
    """Run the notebook in a kernel of its own and return the exit code.

    The executed notebook is kept, also when it failed; how it ended is in its metadata, under `batch`, which an
    interrupted one does not have.

    Raises:
        OSError: the output cannot be written.
    """
    say(f"{job.notebook} -> {job.output}")
    job.output.parent.mkdir(parents=True, exist_ok=True)
    code, reason = DONE, ""
    try:
        with patch.dict(os.environ, CSE_FIGURES=str(_figures(job))):  # the kernel inherits it
            os.environ.pop("JPY_SESSION_NAME", None)  # else the kernel thinks that somebody looks at it in Jupyter
            logging.getLogger("papermill").setLevel(logging.ERROR)  # it warns of all parameters that no cell names
            papermill.execute_notebook(
                job.notebook, job.output, job.parameters, kernel_name="python3", language="python",
                progress_bar=False, stdout_file=sys.stderr, stderr_file=sys.stderr, config=ENCRYPTED,
            )  # fmt: skip
    except papermill.PapermillExecutionError as error:
        code, reason = FAILED, f"cell [{error.exec_count}] stopped with {error.ename}: {one_line(error.evalue)}"
    except DeadKernelError:
        code, reason = KILLED, f"the kernel was killed, probably out of memory: {LESS}; {RESUME}"
    except (NoSuchKernel, RuntimeError) as error:
        code, reason = FAILED, f"the kernel python3 did not start ({one_line(error)})"
    seconds = _keep(job, code, reason)
    reason = reason.rstrip(".") or f"finished in {timedelta(seconds=round(seconds))}"
    say(f"{job.notebook.name}: {reason}. Kept: {job.output}")
    return code


def _figures(job: Job) -> Path:
    """Where the notebook draws: in the folder of its profile, in one of its own there where other parameters were given."""
    profile = job.parameters.get("profile") or "demo"
    drawn, executed, name = paths.figures(profile), folder(profile), job.output.with_suffix("")
    if os.environ.get("CSE_FIGURES") or name.name == job.notebook.stem:
        return drawn
    return drawn / (name.relative_to(executed) if name.is_relative_to(executed) else name.name)


def _keep(job: Job, code: int, reason: str) -> float:
    """Write into the executed notebook, if there is one, how it ended; returns its seconds."""
    if not metadata(job.output):
        return 0.0
    notebook = nbformat.read(job.output, as_version=4)
    notebook.metadata["batch"] = {"status": STATUS[code], "reason": reason}
    with paths.whole_file(job.output) as path:
        nbformat.write(notebook, path)
    return notebook.metadata.papermill.get("duration") or 0.0


def finished(job: Job) -> bool:
    """The output is there, ran to its end without error, with these very parameters."""
    found = metadata(job.output)
    is_done = found.get("batch", {}).get("status") == STATUS[DONE]
    return is_done and found.get("papermill", {}).get("parameters") == job.parameters


def execute_all(jobs: Sequence[Job], side_by_side: int = 1) -> int:
    """Execute the jobs and print a summary; a failure does not stop the rest. side_by_side: in so many processes."""
    if side_by_side == 1:
        codes = list(map(execute, jobs))
    else:
        with ThreadPoolExecutor(side_by_side) as pool:  # from the last one: notebook 9 takes longest
            codes = list(pool.map(_execute_in_a_process, jobs[::-1]))[::-1]
    for job, code in zip(jobs, codes, strict=True):
        print(f"{STATUS.get(code, 'not run'):<12}{job.output}")
    return FAILED if any(codes) else DONE


def _execute_in_a_process(job: Job) -> int:
    parameters = yaml.safe_dump(job.parameters, default_flow_style=True)
    command = [sys.executable, "-m", "lib.batch", "run", str(job.notebook), "-y", parameters, "-o", str(job.output)]
    return subprocess.run(command, check=False).returncode
