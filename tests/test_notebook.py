"""lib.notebook: the parameters of a running notebook, and what plain papermill may set."""

from types import SimpleNamespace

import ipywidgets
import matplotlib.pyplot as plt
import nbformat
import pandas as pd
import papermill
import pytest
from nbformat import v4

from lib.checks import ConfigError
from lib.notebook import _table_html, hover_map, knob, parameters

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


def test_declared_parameters_only_as_the_last_cell_that_sets_them_says():
    values = namespace("other = 2", "seed = 3")
    assert parameters(values) == {"seed": 3, "rate": 1.0e-3, "fp16": True, "sizes": [1]}
    assert isinstance(parameters(namespace("# Parameters\nrate = 1\n"))["rate"], float)
    with pytest.raises(ConfigError, match="fp16 must be bool, not 'false'"):
        parameters(namespace("# Parameters\nfp16 = 'false'\n"))
    values = namespace("# Parameters\nsed = 3\n", "x = 2", "# Parameters\nseed = 3\n", "x = 1")
    assert parameters(values)["seed"] == 3, "a session can correct itself"
    params = "params/demo/1_simcse.yaml"
    cell, first = "profile: str = 'demo'\n", "profile: str = 'demo'\nsweep_sise = 9\n"
    values = {
        "In": [first, cell + "sweep_size = 99\n"],
        "sweep_size": 99,
        "__annotations__": {"profile": str},
        "profile": "demo",
    }
    assert parameters(values, params)["sweep_size"] == 99, "without its type"
    cut = "profile: str = [\n"  # a cell that Python could not read, and one that stopped half-way
    assert parameters(values | {"In": [first, cut]}, params)["sweep_size"] == 128
    assert values.pop("sweep_size") and parameters(values, params)["sweep_size"] == 128
    with pytest.raises(ConfigError, match="unknown parameter 'sweep_sise': did you mean 'sweep_size'"):
        parameters(values | {"In": [first]}, params)
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


@pytest.fixture
def drawn(monkeypatch):
    """A function `draw` for a knob, what it drew, and what was handed to the notebook."""
    plt.close("all")  # figures of other tests
    seen = SimpleNamespace(values=[], shown=[], controls={})
    monkeypatch.setattr("IPython.display.display", lambda *shown, raw=False: seen.shown.extend(shown))

    def draw(temperature=0.05, text="a dog"):
        seen.values.append((temperature, text))
        return plt.figure()

    def interact(show, **controls):
        seen.controls = controls
        show(**{name: control.value for name, control in controls.items()})

    monkeypatch.setattr(ipywidgets, "interact", interact)
    seen.draw = draw
    return seen


def test_a_knob_is_drawn_once_where_it_starts_and_in_a_browser_has_controls(drawn, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    kept = knob(temperature=[0.01, 0.05, 1.0])(drawn.draw)
    assert drawn.values == [(0.05, "a dog")] and not drawn.controls and kept is drawn.draw
    assert len(drawn.shown) == 1 and not plt.get_fignums()  # not shown a second time at the end of the cell
    drawn.values.clear()
    monkeypatch.setenv("JPY_SESSION_NAME", "notebook.ipynb")
    knob(temperature=[0.01, 0.05, 1.0])(drawn.draw)
    controls = drawn.controls
    assert drawn.values == [(0.05, "a dog")] and controls["temperature"].options == (0.01, 0.05, 1.0)
    assert isinstance(controls["text"], ipywidgets.Text)
    drawn.shown.clear()

    @knob(encoder=["a", "b"])
    def shows_itself(encoder="b"):
        drawn.values.append(encoder)

    assert drawn.values[-1] == "b" and not drawn.shown
    assert isinstance(drawn.controls["encoder"], ipywidgets.Dropdown)  # a slider would cut names off
    with pytest.raises(ConfigError, match="unknown argument of draw 'temperatur': did you mean 'temperature'"):
        knob(temperatur=[1.0])(drawn.draw)


def test_a_map_with_a_pointer_has_the_texts_and_the_order_of_the_encoders(drawn, monkeypatch):
    points = pd.DataFrame({"encoder": ["untuned", "SimCSE"], "x": [0.0, 1.0], "y": 0.5, "label": "a", "text": [*"bc"]})
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    hover_map(figure := plt.figure(), points)
    assert drawn.shown == [figure]
    monkeypatch.setenv("JPY_SESSION_NAME", "notebook.ipynb")
    for frame, layers in ((points, 1), (points.assign(rank=[1.0, float("nan")]), 3)):
        hover_map(plt.figure(), frame)
        chart = drawn.shown[-1]["application/vnd.vegalite.v5+json"]
        assert chart["facet"]["column"]["sort"] == ["untuned", "SimCSE"] and len(chart["spec"]["layer"]) == layers
        assert [row["text"] for row in chart["data"]["values"]] == ["b", "c"]
    assert not plt.get_fignums()


def test_html_in_a_table_is_text():
    bad = "<script>alert(1)</script> & more"
    frame = pd.DataFrame({bad: [bad, "a"], "number": [1.234, 2.0]}, index=pd.Index([bad, "b"], name="query"))
    rows, columns = pd.MultiIndex.from_tuples([(bad, "x")]), pd.MultiIndex.from_tuples([("u", bad)])
    many = pd.DataFrame([[bad]], index=rows, columns=columns)
    for table in (frame.style.format(precision=1).set_caption(bad), frame.style.hide(axis="index"), many.style):
        page = _table_html(table)
        assert "<script" not in page and "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
    assert frame.iloc[0, 0] == bad and "<td" in page
    plain = pd.DataFrame({"a": [1.25, 2.5]}, index=["x'", 'y"']).style.format(precision=1)
    assert "1.2" in _table_html(plain) and "x'" in _table_html(plain) and _table_html(plain) == _table_html(plain)
