"""A reader's own encoder: what a notebook measures of it stands in its tables and figures, before what was published."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest

from lib.encoders.saved import MINI_BERT

ROOT = Path(__file__).resolve().parents[2]
NAME = "my-encoder"
SHORT = {  # something of everything that needs no data; the switches at their own values are one run
    "corpus_size": 48, "sweep_size": 32, "seeds": [1], "sweep_seeds": [1], "figure_2_steps": 2,
    "learning_rates": [1.0e-3], "projections": ["train_only"], "dropout_rates": [0.1], "temperatures": [0.05],
    "batch_sizes": [16], "augmentations": ["none"], "replacement_rates": [0.0], "mlm_weights": [0.0], "hard_negative_weights": [1.0],
    "triples_size": 32, "supervised_seeds": [1],
}  # fmt: skip
NOT_MEASURED = (
    "paper",
    "main claims",
    "average of seven STS tasks",
    "transfer tasks",
    "cosine of each sentence",
    "profile small, level field",
)


def tables(notebook):
    """Caption and body of every table."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    for page in (output.get("data", {}).get("text/html", "") for output in outputs):
        if caption := re.search(r"<caption>(.*?)</caption>", page):
            yield caption[1], page[caption.end() :]


@pytest.mark.notebook
def test_it_stands_in_every_table_and_figure_before_what_was_published(tmp_path):
    shutil.copytree(MINI_BERT, tmp_path / NAME)
    environment = os.environ | {"CSE_RUNS": str(tmp_path / "runs"), "CSE_FIGURES": str(tmp_path / "figures")}
    environment.pop("CSE_DATA", None)
    command = [sys.executable, "-m", "lib.batch", "run", str(ROOT / "notebooks/1_simcse.ipynb")]
    command += ["-o", str(tmp_path / "done.ipynb"), "-p", f"backbone={tmp_path / NAME}"]
    command += [word for name, value in SHORT.items() for word in ("-p", f"{name}={value}")]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0 and "unknown parameter" not in ended.stderr, ended.stderr[-3000:]
    notebook = nbformat.read(tmp_path / "done.ipynb", 4)
    found = [(caption, body) for caption, body in tables(notebook) if not caption.startswith(NOT_MEASURED)]
    assert len(found) == 4
    for caption, body in found:
        assert "not measured yet" not in caption and f">{NAME}<" in body, caption
        if ">small<" in body:
            assert body.index(">this run, demo<") < body.index(">small<"), caption
    drawn = {file.name: pd.read_csv(file) for file in sorted((tmp_path / "figures").glob("*.csv"))}
    assert len(drawn) == 7
    for name, frame in drawn.items():
        assert "backbone" not in frame or frame.backbone[0] == NAME, name
        if "source" in frame:
            assert set(frame.source[frame.backbone == NAME]) == {"this run, demo"}, name
