"""Snakefile and profiles/: grids as jobs of Snakemake.

Snakemake is no dependency: CSE_SNAKEMAKE names its program, else it is looked for on PATH; without it the tests that need it are skipped.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lib.batch.jobs import expand

ROOT = Path(__file__).resolve().parents[2]
SNAKEMAKE = shutil.which(os.environ.get("CSE_SNAKEMAKE") or "snakemake")

needs_snakemake = pytest.mark.skipif(not SNAKEMAKE, reason="no snakemake here, neither in CSE_SNAKEMAKE nor on PATH")


def snakemake(folder: Path, *options: str, grid: object) -> subprocess.CompletedProcess:
    """Run it from a folder that is not the repository."""
    command = [os.path.abspath(SNAKEMAKE), "-s", str(ROOT / "Snakefile"), *options]
    command += ["--config", f"grids={grid}", f"python={sys.executable}"]
    environment = os.environ | {"PYTHONPATH": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


def test_the_environment_of_snakemake_has_the_versions_of_the_notebooks():
    texts = [(ROOT / folder / "requirements.txt").read_text() for folder in ("profiles", ".")]
    own, ours = ({*re.findall(r"^([\w.-]+==[\w.]+)", text, flags=re.M)} for text in texts)
    assert {pin.partition("==")[0] for pin in own - ours} == {"snakemake", "snakemake-executor-plugin-slurm"}
    assert yaml.safe_load((ROOT / "profiles" / "slurm" / "config.yaml").read_text())["executor"] == "slurm"


@needs_snakemake
def test_a_dry_run_lists_the_jobs_of_the_grids_and_starts_none(tmp_path):
    grids = sorted((ROOT / "params" / "grids").glob("*.yaml"))
    done = snakemake(tmp_path, "-n", grid=",".join(str(path.relative_to(ROOT)) for path in grids))
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"^    log: (.+)$", done.stdout + done.stderr, flags=re.M)
    assert sorted(listed) == sorted(str(job.output) for path in grids for job in expand(path))
    assert not (tmp_path / "runs").exists()
    (tmp_path / "wrong grid.yaml").write_text("notebook: notebooks/0_start_here.ipynb\ngrid: {sed: [1]}\n")
    wrong = snakemake(tmp_path, "-n", grid="wrong grid.yaml")
    assert wrong.returncode
    assert re.fullmatch(r"wrong grid\.yaml.*: unknown parameter 'sed': did .*\?", wrong.stderr.strip())
