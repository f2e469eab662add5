# Optional: the grids of params/grids/ as jobs of Snakemake 9, one job a combination, here or on a SLURM cluster.
# One machine needs only `python -m lib.batch sweep`. Installed by `pip install -r profiles/requirements.txt`, in an environment of its own.
#
#   snakemake -n --config grids=params/grids/methods.yaml                                            list the jobs
#   snakemake -j 4 -k --resources gpu=1 --config grids=params/grids/simcse_seeds.yaml                this machine
#   snakemake --profile profiles/slurm --config grids=params/grids/methods.yaml python=/env/bin/python
#
# -k: a failure leaves the other jobs alone; gpu=1: one at a time has the GPU (without it: 4 at a time, as on a CPU).
# `grids`: one file, or several with commas between them. `python`: that of the notebooks' environment, .venv/bin/python by default.
# What was killed goes on when the same command is started again; after a kill -9, `snakemake --unlock --config ...` first.
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT))
try:
    import yaml

    from lib import paths
    from lib.batch.jobs import expand
    from lib.checks import ConfigError
except ModuleNotFoundError as error:
    sys.exit(f"Snakemake's environment has no {error.name}: pip install -r {ROOT}/profiles/requirements.txt there.")

for name in ("CSE_RUNS", "CSE_DATA", "CSE_CACHE", "CSE_FIGURES"):  # jobs are started in the repository
    if os.environ.get(name):
        os.environ[name] = os.path.abspath(os.path.expanduser(os.environ[name]))


def jobs_of(grids):
    """Where the executed notebook goes, below runs/notebooks/ and without its ending -> the job."""
    shipped = ", ".join(sorted(f"params/grids/{path.name}" for path in ROOT.glob("params/grids/*.yaml")))
    if not grids:
        sys.exit(f"Name a grid with --config grids=FILE; there are {shipped}.")
    found = {}
    for grid in grids.split(","):
        file = next(filter(Path.is_file, (Path(grid).expanduser(), ROOT / grid)), None)
        if file is None:
            sys.exit(f"grids={grid}: there is no such file, here or in {ROOT}; there are {shipped}.")
        try:
            for job in expand(file):
                found[str(job.output.with_suffix("").relative_to(NOTEBOOKS))] = job
        except ConfigError as error:
            sys.exit(str(error))
    return found


def interpreter(given):
    """The absolute path of the Python that has the packages of the notebooks."""
    file = next(filter(None, map(shutil.which, (os.path.expanduser(given), str(ROOT / given)))), None)
    advice = "name that of the notebooks' environment with --config python=FILE"
    if file is None:
        sys.exit(f"python={given}: there is no such program; {advice}.")
    look = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, ('torch', 'papermill'))))"
    if subprocess.run([file, "-c", look]).returncode:
        sys.exit(f"python={given} has no torch or no papermill; {advice}.")
    return os.path.abspath(file)


NOTEBOOKS = paths.runs() / "notebooks"
JOBS = jobs_of(config.get("grids"))
PYTHON = interpreter(config.get("python", ".venv/bin/python"))


rule all:
    input:
        [f"{NOTEBOOKS}/{path}.done" for path in JOBS],


rule notebook:
    output:
        touch(f"{NOTEBOOKS}/{{path}}.done"),
    log:  # not an output: Snakemake deletes the outputs of a failed job and keeps its logs
        f"{NOTEBOOKS}/{{path}}.ipynb",
    params:
        notebook=lambda wildcards: JOBS[wildcards.path].notebook.resolve(),
        given=lambda wildcards: yaml.safe_dump(JOBS[wildcards.path].parameters, default_flow_style=True),
    resources:
        gpu=1,
    shell:  # a job that was killed may have left half a notebook
        "cd {ROOT:q} && rm -f {log:q} && "
        "{PYTHON:q} -m lib.batch run {params.notebook:q} -y {params.given:q} -o {log:q}"
