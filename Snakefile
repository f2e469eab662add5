# Optional: the sweeps of params/grids/ on a cluster. One machine needs only `python -m lib.batch sweep`.
#
#   snakemake -n                                       list the jobs
#   snakemake -j 4 -k --resources gpu=1                this machine; -k: a failure leaves the others alone
#   snakemake --profile slurm --config python=/env/bin/python grids=params/grids/simcse_seeds.yaml
#
# Snakemake may live in its own environment (with papermill and pydantic); `python` is the one of the notebooks.
import sys
from pathlib import Path

import yaml

sys.path.insert(0, workflow.basedir)
from lib.batch.jobs import expand

PYTHON = config.get("python", "python")
GRIDS = [config["grids"]] if "grids" in config else sorted(Path(workflow.basedir).glob("params/grids/*.yaml"))
JOBS = {str(job.output.with_suffix("")): job for grid in GRIDS for job in expand(Path(grid))}


rule all:
    input:
        [f"{path}.done" for path in JOBS],


rule notebook:
    output:
        touch("{path}.done"),
    log:  # not an output: Snakemake deletes the outputs of a failed job and keeps its logs
        "{path}.ipynb",
    params:
        notebook=lambda wildcards: JOBS[wildcards.path].notebook.resolve(),
        overrides=lambda wildcards: yaml.safe_dump(JOBS[wildcards.path].overrides, default_flow_style=True),
    resources:
        gpu=1,
    shell:
        "cd {workflow.basedir:q} && {PYTHON:q} -m lib.batch run {params.notebook:q} -y {params.overrides:q} -o {log:q}"
