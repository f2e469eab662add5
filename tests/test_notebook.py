"""lib.notebook: the parameters of a running notebook, and what plain papermill may set."""

from __future__ import annotations

import nbformat
import papermill
import pytest
from nbformat import v4

from lib.checks import ConfigError
from lib.notebook import parameters

CELL = """\
seed: int = 1  # random seed
rate: float = 1.0e-3
fp16: bool = True
sizes: list[int] = [1]
"""


def namespace(*cells: str) -> dict:
    """What `globals()` gives in a notebook after the parameters cell and these cells."""
    values = {"In": ["", CELL, *cells]}
    for source in values["In"]:
        exec(compile(source, "cell", "exec", dont_inherit=True), values)
    return values


def test_declared_parameters_only():
    values = namespace("other = 2", "seed = 3")
    assert parameters(values) == {"seed": 3, "rate": 1.0e-3, "fp16": True, "sizes": [1]}
    assert isinstance(parameters(namespace("# Parameters\nrate = 1\n"))["rate"], float)


@pytest.mark.parametrize(
    ("injected", "message"),
    [
        ("sed = 3", "unknown parameter 'sed': did you mean 'seed'?"),
        ("seed = 3\nsteps = [4]", "unknown parameter 'steps'"),
        ("fp16 = 'false'", "fp16 must be bool, not 'false'"),
        ("rate = '1e-5'", "write 1.0e-5"),
        ("sizes = [1, 'x']", r"sizes must be list\[int\]"),
    ],
)
def test_what_papermill_sets_is_checked(injected, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        parameters(namespace(f"# Parameters\n{injected}\n"))


def test_a_session_can_correct_itself():
    values = namespace("# Parameters\nsed = 3\n", "x = 2", "# Parameters\nseed = 3\n", "x = 1")
    assert parameters(values)["seed"] == 3
    with pytest.raises(ConfigError, match="run its parameters cell first"):
        parameters({"In": [""]})


@pytest.mark.notebook
def test_plain_papermill(tmp_path):
    cells = [v4.new_code_cell(CELL, metadata={"tags": ["parameters"]})]
    for _ in range(2):
        cells.append(v4.new_code_cell("from lib.notebook import parameters\nprint(parameters(globals()))"))
    notebook = tmp_path / "toy.ipynb"
    nbformat.write(v4.new_notebook(cells=cells), notebook)

    def run(**given) -> nbformat.NotebookNode:
        options = {"kernel_name": "python3", "language": "python", "progress_bar": False}
        return papermill.execute_notebook(notebook, tmp_path / "out.ipynb", parameters=given, **options)

    outputs = [cell.outputs[0].text for cell in run(seed=3, sizes=[2, 3]).cells[2:]]
    assert outputs == ["{'seed': 3, 'rate': 0.001, 'fp16': True, 'sizes': [2, 3]}\n"] * 2
    with pytest.raises(papermill.PapermillExecutionError, match="unknown parameter 'sed'"):
        run(sed=3)
    with pytest.raises(papermill.PapermillExecutionError, match="fp16 must be bool, not 'false'"):
        run(fp16="false")
