"""What every committed notebook and parameter file must keep to."""

import ast
import functools
import os
import re
import statistics
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import nbformat
import pytest
import yaml

from lib.batch import parameters
from lib.batch.jobs import expand
from lib.batch.parameters import check, notebook_of
from lib.config import RunConfig
from lib.methods import MethodSpec

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PARAMS = [path for path in sorted((ROOT / "params").glob("*/*.yaml")) if path.parent.name != "variants"]
KNOWN_TAGS = {"parameters", "plan", "nbval-check-output", "nbval-ignore-output", "nbval-skip", "remove-cell"}


declared = functools.cache(parameters.declared)  # read by many of the tests below


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda p: p.stem)
def notebook(request):
    return request.param, nbformat.read(request.param, 4)


def test_executed_small_and_clean(notebook):
    path, content = notebook
    assert path.stat().st_size < 500_000
    assert content.metadata.kernelspec.name == "python3"
    counts = [cell.execution_count for cell in code_cells(content)]
    assert counts == list(range(1, len(counts) + 1)), "not executed from top to bottom"
    for cell in code_cells(content):
        for output in cell.outputs:
            assert output.output_type != "error"
            if output.output_type == "stream":
                assert "Warning" not in output.text and output.text.count("\n") < 40
                assert output.name == "stdout" or not output.text.strip(), output.text[:200]
    text = path.read_text(encoding="utf8")
    assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|Users|opt)/[\w.-]+", text)


def test_one_parameters_cell_with_commented_lines_and_known_tags(notebook):
    path, content = notebook
    tagged = [cell for cell in content.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1 and declared(path), "which reads typed literals alone"
    assert all("  # " in line for line in tagged[0].source.splitlines())
    assert {tag for cell in content.cells for tag in cell.metadata.get("tags", [])} <= KNOWN_TAGS


def test_what_a_notebook_trains_stands_in_its_plan(notebook):
    """The third code cell, which lib.batch runs alone; no other cell trains."""
    path, content = notebook
    cells = code_cells(content)
    assert [i for i, cell in enumerate(cells) if "plan" in cell.metadata.get("tags", [])] == [2]
    body = ast.parse(cells[2].source).body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert len(imports) > 1 and imports[:2] == body[:2], "its imports come first"
    lines = cells[2].source.splitlines()[imports[-1].end_lineno :]
    assert len([line for line in lines if line.strip()]) <= 20
    kinds, _ = declared(path)
    nodes = [node for cell in cells for node in ast.walk(ast.parse(cell.source))]
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    assert calls.count("Plan") == calls.count("plan.check") == 1
    assert not {"runs.run", "run", "train", "results.add"} & set(calls)
    assert ("publish" in kinds) == ("plan.measure" in calls and not path.stem.startswith(("0_", "8_")))


def test_short_enough_to_be_read_in_one_sitting_with_headings_in_order_and_prose_before_code(notebook):
    _, content = notebook
    code = [cell.source for cell in content.cells if cell.cell_type == "code"]
    lines = [len(source.splitlines()) for source in code]
    assert len(code) <= 30 and sum(lines) <= 250
    assert statistics.median(lines) <= 6
    prose = "\n".join(cell.source for cell in content.cells if cell.cell_type == "markdown")
    words = re.findall(r"\S*\w\S*", re.sub(r"^\|.*$", "", prose, flags=re.M))  # of all but tables
    assert len(words) <= 2_000
    levels = [len(marks) for marks in re.findall(r"^(#+) ", prose, flags=re.M)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in zip(levels, levels[1:], strict=False))
    assert content.cells[0].cell_type == "markdown"
    assert any("nbval-check-output" in cell.metadata.get("tags", []) for cell in content.cells)


@pytest.mark.parametrize("path", PARAMS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_parameter_files_fit_their_notebook_and_say_what_to_expect(path):
    text = path.read_text(encoding="utf8")
    for word in ("# Command:", "# Hardware:", "# Time:", "# Expected:"):
        assert word in text
    if path.parent.name == "grids":
        assert expand(path)
        return
    if path.name == "methods.yaml":  # of the level field
        return
    kinds, defaults = declared(notebook_of(path))
    values = yaml.safe_load(text)
    assert {*values} == {*kinds}
    check(kinds, values, path.name)
    assert values["profile"] == ("small" if path.parent.name == "level" else path.parent.name)
    if path.parent.name == "demo":
        assert values == defaults
    if "method" in kinds:  # else the notebook trains nothing
        assert values["method"] == defaults["method"]
        assert RunConfig.from_parameters(values, others=kinds).method == values["method"]


BLOCK_NETWORK = """
import socket
real = socket.socket.connect
def connect(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"the network is blocked in this test: {address}")
    return real(self, address)
socket.socket.connect = connect
"""


@pytest.fixture
def run_blocked(tmp_path):
    """Function (arguments of Python) -> the ended process, started elsewhere, with sockets blocked in every process."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(BLOCK_NETWORK)
    environment = {name: value for name, value in os.environ.items() if name != "CSE_DATA"}
    environment |= {"CSE_RUNS": str(tmp_path / "runs"), "CSE_FIGURES": str(tmp_path / "figures")}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    how = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    return lambda *arguments: subprocess.run([sys.executable, *arguments], **how)


@pytest.mark.notebook
def test_a_headless_run_from_elsewhere_without_a_network(tmp_path, run_blocked):
    """The whole path, from parameters to an executed notebook."""
    (tmp_path / "params.yaml").write_text("corpus_size: 64\neval_every: 2\n")
    command = ["-m", "lib.batch", "run", str(ROOT / "notebooks/0_start_here.ipynb"), "-f", "params.yaml", "-p"]
    done = run_blocked(*command, "seed=3")
    assert done.returncode == 0, done.stderr[-3000:]
    (executed,) = (tmp_path / "runs/notebooks/demo").glob("*.ipynb")
    tags = [tag for cell in nbformat.read(executed, 4).cells for tag in cell.metadata.get("tags", [])]
    assert "injected-parameters" in tags
    assert {"start_clusters.png", "start_clusters.svg", "start_clusters.csv"} <= {*os.listdir(tmp_path / "figures")}
    assert len(list((tmp_path / "runs/demo").glob("simcse-*/metrics.json"))) == 1
    assert run_blocked(*command, "sed=3").returncode == 2


def test_the_block_really_blocks(run_blocked):
    done = run_blocked("-c", "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)")
    assert "the network is blocked" in done.stderr


def test_a_setting_that_a_notebook_does_not_show_is_read_by_somebody(notebook):
    path, content = notebook
    further = ROOT / "params" / "demo" / f"{path.stem}.yaml"
    cells = [cell.source for cell in content.cells if cell.cell_type == "code"]
    if not any(f'"params/demo/{path.stem}.yaml"' in source for source in cells):
        pytest.skip("it shows all of them")
    values = yaml.safe_load(further.read_text(encoding="utf8"))
    tables = " ".join(file.read_text(encoding="utf8") for file in (ROOT / "params" / "variants").glob("*.yaml"))
    read = {*re.findall(r"\w+", " ".join(cells) + " " + tables)} | {field.name for field in fields(RunConfig)}
    read |= {*MethodSpec.parse(values.get("method", "simcse")).argument_names()}
    assert {name for name in values if not name.endswith("_tasks")} <= read  # notebook 4 reads f"{kind}_tasks"
