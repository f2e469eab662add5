"""Snakefile and profiles/: grids as jobs of Snakemake, here and through the SLURM profile, against a cluster of shell scripts.

Snakemake is no dependency: CSE_SNAKEMAKE names its program, else it is looked for on PATH; without it the tests that need it are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat import v4

from lib.batch.__main__ import main
from lib.batch.jobs import ending, expand

ROOT = Path(__file__).resolve().parents[2]
GRIDS = sorted((ROOT / "params" / "grids").glob("*.yaml"))
PROFILE = ROOT / "profiles" / "slurm" / "config.yaml"
SNAKEMAKE = shutil.which(os.environ.get("CSE_SNAKEMAKE") or "snakemake")

needs_snakemake = pytest.mark.skipif(not SNAKEMAKE, reason="no snakemake here, neither in CSE_SNAKEMAKE nor on PATH")

PARAMETERS = """\
profile: str = "demo"
name: str = "plain"
seed: int = 1
"""
# While there is a file `hold`, all but the first to start wait; seed 13 fails. The result is what training takes from a seed.
TOY = """\
import pathlib, random, time
place = pathlib.Path({place!r})
with open(place / "started", "a") as file:
    file.write(f"{{seed}}\\n")
first = int((place / "started").read_text().split()[0])
while seed != first and (place / "hold").exists():
    time.sleep(0.1)
if seed == 13:
    raise ValueError("seed 13 is unlucky")
print(name, random.Random(seed).random())
"""


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("CSE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CSE_PROGRESS", "off")
    monkeypatch.setenv("PYTHONPATH", "")
    return tmp_path / "runs"


def toy_grid(folder: Path, **grid: list) -> Path:
    """A grid file over a small notebook, both in a folder."""
    cells = [v4.new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})]
    cells += [v4.new_code_cell(TOY.format(place=str(folder)))]
    nbformat.write(v4.new_notebook(cells=cells), folder / "toy.ipynb")
    path = folder / "toy grid.yaml"
    path.write_text(json.dumps({"notebook": str(folder / "toy.ipynb"), "grid": grid}))
    return path


def started(folder: Path) -> list[int]:
    """The seeds of the notebooks, as they started."""
    return list(map(int, (folder / "started").read_text().split())) if (folder / "started").is_file() else []


def wait_until(what, process: subprocess.Popen, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert process.poll() is None and time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def command(*options: object, grid: object = None, python: object = sys.executable) -> list[str]:
    config = [f"grids={grid}"] * (grid is not None) + [f"python={python}"] * (python is not None)
    return [os.path.abspath(SNAKEMAKE), "-s", str(ROOT / "Snakefile"), *map(str, options), "--config", *config]


def snakemake(folder: Path, *options: object, environment: dict[str, str] | None = None, **config: object):
    """Run it from a folder that is not the repository."""
    return subprocess.run(
        command(*options, **config),
        cwd=folder,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=900,
    )


def outputs(store: Path) -> dict[str, str]:
    """Executed notebook -> how it ended, and what it printed."""
    found = {}
    for path in sorted((store / "notebooks").rglob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        texts = [output.get("text", "") for cell in cells if cell.cell_type == "code" for output in cell.outputs]
        found[path.stem] = f"{ending(path)['status']}: {''.join(texts)}"
    return found


# --- Without Snakemake ---


def test_a_shipped_grid_is_method_by_encoder_by_corpus_size_by_seed():
    jobs = expand(ROOT / "params" / "grids" / "methods.yaml")
    axes = [{job.parameters[name] for job in jobs} for name in ("method", "backbone", "corpus_size", "seed")]
    assert all(len(axis) > 1 for axis in axes)
    assert len(jobs) == len({job.output for job in jobs}) == len(axes[0]) * len(axes[1]) * len(axes[2]) * len(axes[3])


def test_the_output_of_a_job_is_a_plain_name_whatever_the_grid_is_called(tmp_path):
    """Snakemake takes braces for wildcards and cuts what it hands to a job at commas."""
    grid = toy_grid(tmp_path, name=["a,b", "{x}", "c d"])
    jobs = expand(grid.rename(tmp_path / "one, two {three}.yaml"))
    assert len({job.output for job in jobs}) == 3
    assert all(re.fullmatch(r"[\w.=-]+/[\w.=-]+", f"{job.output.parent.name}/{job.output.stem}") for job in jobs)


def test_the_profile_asks_for_what_a_notebook_needs():
    profile = yaml.safe_load(PROFILE.read_text())
    assert profile["executor"] == "slurm" and profile["keep-going"] and profile["rerun-incomplete"]
    assert profile["default-resources"]["mem_mb"] > 0 and profile["default-resources"]["runtime"] > 0
    assert profile["set-threads"]["notebook"] >= 1
    known = {"executor", "jobs", "keep-going", "rerun-incomplete", "latency-wait", "default-resources", "set-threads"}
    assert all(key in known or key.startswith("slurm-") for key in profile)


def test_the_environment_of_snakemake_has_the_versions_of_the_notebooks():
    def pins(path: Path) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==([\w.]+)", path.read_text(), flags=re.M))

    own, ours = pins(ROOT / "profiles" / "requirements.txt"), pins(ROOT / "requirements.txt")
    assert set(own) - set(ours) == {"snakemake", "snakemake-executor-plugin-slurm"}
    assert {name: own[name] for name in own.keys() & ours.keys()} == {
        name: ours[name] for name in own.keys() & ours.keys()
    }


# --- What is listed, and what is refused ---


@needs_snakemake
def test_a_dry_run_lists_the_jobs_of_the_grids_and_starts_none(tmp_path, store):
    done = snakemake(tmp_path, "-n", grid=",".join(str(path.relative_to(ROOT)) for path in GRIDS))
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"^    log: (.+)$", done.stdout + done.stderr, flags=re.M)
    assert sorted(listed) == sorted(str(job.output) for path in GRIDS for job in expand(path))
    assert not store.exists()


@needs_snakemake
@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, r"Name a grid with --config grids=FILE; there are params/grids/methods\.yaml, .*\."),
        ({"grid": "nowhere.yaml"}, r"grids=nowhere\.yaml: there is no such file, here or in .*; there are .*\."),
        ({"grid": "wrong.yaml"}, r"wrong\.yaml.*: unknown parameter 'sed': did you mean 'seed'\?"),
        ({"grid": "toy grid.yaml", "python": "/no/python"}, r"python=/no/python: there is no such program; name .*\."),
        ({"grid": "toy grid.yaml", "python": "bare"}, r"python=bare has no torch or no papermill; name that .*\."),
    ],
)
def test_what_a_user_got_wrong_is_one_sentence(tmp_path, config, sentence):
    toy_grid(tmp_path, seed=[1])
    (tmp_path / "wrong.yaml").write_text(json.dumps({"notebook": str(tmp_path / "toy.ipynb"), "grid": {"sed": [1]}}))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bare").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    (tmp_path / "bin" / "bare").chmod(0o755)
    done = snakemake(tmp_path, "-n", environment={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}, **config)
    assert done.returncode != 0
    assert re.fullmatch(sentence, done.stderr.strip()), done.stderr


# --- On this machine ---


@needs_snakemake
@pytest.mark.notebook
def test_killed_in_the_middle_it_does_only_what_is_left(tmp_path, store, monkeypatch):
    """From another folder, two at once, with a relative store; half a notebook is in the way."""
    grid, options = toy_grid(tmp_path, seed=[1, 2, 3]), ("-j", 2, "-k")
    monkeypatch.setenv("CSE_RUNS", "runs")
    (tmp_path / "hold").touch()
    call = command(*options, grid=grid.name)
    with open(tmp_path / "said", "w") as said:
        killed = subprocess.Popen(call, cwd=tmp_path, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_until(lambda: len(started(tmp_path)) == 3, killed)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    first, *others = started(tmp_path)
    (done,) = store.rglob("*.done")
    assert done.stem == f"seed={first}"
    when = done.stat().st_mtime_ns
    (tmp_path / "hold").unlink()
    done.with_name(f"seed={others[0]}.ipynb").write_text('{"cells": [')

    assert snakemake(tmp_path, "--unlock", grid=grid.name).returncode == 0
    resumed = snakemake(tmp_path, *options, grid=grid.name)
    assert resumed.returncode == 0, resumed.stderr
    assert sorted(started(tmp_path)) == sorted([first, *others, *others])
    assert done.stat().st_mtime_ns == when and len(list(store.rglob("*.done"))) == 3

    monkeypatch.setenv("CSE_RUNS", str(tmp_path / "undisturbed"))
    assert main(["sweep", str(grid)]) == 0
    assert outputs(store) == outputs(tmp_path / "undisturbed") and len(outputs(store)) == 3
    assert all(text.startswith("finished: plain 0.") for text in outputs(store).values())


# --- On a cluster ---

STUBS = {
    # writes down how it was called, runs what is wrapped in the background, and says its number
    "sbatch": """\
printf '%s\\n' "$*" >> "$CLUSTER/sbatch.log"
number=1; until mkdir "$CLUSTER/$number" 2> /dev/null; do number=$((number + 1)); done
echo PENDING > "$CLUSTER/$number.state"
while [ $# -gt 0 ]; do
    case "$1" in
        --output) output=$(echo "$2" | sed "s/%j/$number/"); shift;;
        -D) folder=$2; shift;;
        --wrap=*) wrapped=${1#--wrap=};;
    esac
    shift
done
(
    cd "$folder" && echo RUNNING > "$CLUSTER/$number.state"
    if SLURM_JOB_ID=$number SLURM_GPUS=1 sh -c "$wrapped" > "$output" 2>&1 < /dev/null
    then echo COMPLETED; else echo FAILED; fi > "$CLUSTER/$number.new"
    mv "$CLUSTER/$number.new" "$CLUSTER/$number.state"
) > /dev/null 2>&1 &
echo $number
""",
    "srun": """\
printf '%s\\n' "$*" >> "$CLUSTER/srun.log"
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
""",
    "sacct": """\
case "$*" in
    *JobIdRaw,State*) for file in "$CLUSTER"/*.state; do echo "$(basename "$file" .state)|$(cat "$file")"; done;;
esac
""",
    "sinfo": 'echo "PARTITION"; echo "gpus*"',
    "sacctmgr": "echo lab",
    "scontrol": 'echo "MaxArraySize = 1001"',
    "scancel": 'echo "$*" >> "$CLUSTER/scancel.log"',
}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """The commands of SLURM that the plugin calls, as scripts that run jobs on this machine; the folder where they write."""
    folder = tmp_path / "cluster"
    (tmp_path / "slurm").mkdir()
    folder.mkdir()
    for name, script in STUBS.items():
        (tmp_path / "slurm" / name).write_text(f"#!/bin/sh\n{script}")
        (tmp_path / "slurm" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm'}:{os.environ['PATH']}")
    monkeypatch.setenv("CLUSTER", str(folder))
    return folder


@needs_snakemake
@pytest.mark.notebook
def test_the_slurm_profile_runs_every_job_and_keeps_what_a_failed_one_said(tmp_path, store, cluster):
    grid = toy_grid(tmp_path, seed=[1, 13, 2], name=["a,b"])
    options = ("--profile", PROFILE.parent, "--latency-wait", 2, "--slurm-init-seconds-before-status-checks", 1)
    options += ("--set-resources", "notebook:slurm_account=lab")
    done = snakemake(tmp_path, *options, grid=grid)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said

    assert sorted(started(tmp_path)) == [1, 2, 13]
    assert sorted(text.split(":")[0] for text in outputs(store).values()) == ["failed", "finished", "finished"]
    assert len(list(store.rglob("*.done"))) == 2

    submitted = (cluster / "sbatch.log").read_text().splitlines()
    calls = [line for line in submitted if line.startswith("--parsable")]
    profile = yaml.safe_load(PROFILE.read_text())
    memory, minutes = (profile["default-resources"][name] for name in ("mem_mb", "runtime"))
    wanted = ["--gpus=1", "-A lab", "-p gpus", "--requeue", f"-t {minutes} ", f"--mem {memory} "]
    wanted += [f"--cpus-per-task={profile['set-threads']['notebook']} "]
    assert len(calls) == 3 and all(option in call for option in wanted for call in calls), calls
    assert (cluster / "srun.log").read_text().count("--gpus=1") == 3

    logs = list((tmp_path / ".snakemake" / "slurm_logs").rglob("*.log"))
    assert len(logs) == 1 and "ValueError: seed 13 is unlucky" in logs[0].read_text()
    assert "Error in rule notebook" in said and str(logs[0]) in said

    again = snakemake(tmp_path, *options, grid=grid)
    assert again.returncode == 1 and sorted(started(tmp_path)) == [1, 2, 13, 13], "only what failed is submitted again"


@needs_snakemake
def test_the_profile_as_it_is_shipped_is_taken(tmp_path, cluster):
    """Every key is an option of this Snakemake with the plugin; nothing is submitted in a dry run."""
    done = snakemake(tmp_path, "--profile", PROFILE.parent, "-n", grid=toy_grid(tmp_path, seed=[1]))
    assert done.returncode == 0, done.stderr
    assert "gpu=1" in done.stdout + done.stderr and "threads: 4" in done.stdout + done.stderr
    assert not (cluster / "sbatch.log").exists()
