"""lib.batch: what it refuses before a kernel starts, how runs end, sweeps, and the report."""

from __future__ import annotations

import dataclasses
import re
import sys
import types
from pathlib import Path

import nbformat
import papermill
import pytest
from nbformat import v4

from lib import batch, paths, session

PARAMETERS = """\
# what the run is
profile: str = "demo"
seed: int = 1  # random seed
lr: float = 3.0e-5  # step size
fp16: bool = False
name: str = "cse"
note: str | None = None
seeds: list[int] = [1, 2]
rates: list[float] = [0.1]
weights: dict = {}
layers = 4
data_dir: "Path" = "data"
mode = "ok"
"""
HELLO = "print(seed, lr, fp16, name, seeds)"


def write(path: Path, *cells, parameters: str | None = PARAMETERS) -> Path:
    cells = [
        v4.new_markdown_cell("# A title\nThe *claim*, see [paper](https://arxiv.org/abs/1).\n\nMore."),
        *cells,
    ]
    if parameters is not None:
        cells.insert(1, v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(v4.new_notebook(cells=cells), path)
    return path


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("CSE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setattr(session, "git_commit", lambda: "abc1234")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.fixture
def notebook(tmp_path):
    return write(
        tmp_path / "notebooks" / "2_toy.ipynb", v4.new_markdown_cell("## Train"), v4.new_code_cell(HELLO)
    )


@pytest.fixture
def no_kernel(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("a kernel would have started")

    monkeypatch.setattr(papermill, "execute_notebook", fail)


@pytest.fixture
def fake(monkeypatch):
    """papermill without a kernel: the output is written as after a good run; mode=fail raises."""
    calls = []

    def execute(source, output, parameters, **options):
        calls.append(parameters)
        content = nbformat.read(source, as_version=4)
        bad = parameters.get("mode") == "fail"
        content.metadata.papermill = {
            "parameters": parameters, "end_time": "2024", "duration": 61.0, "exception": bad or None
        }  # fmt: skip
        nbformat.write(content, output)
        if parameters.get("mode") == "interrupt":
            raise KeyboardInterrupt
        if bad:
            raise papermill.PapermillExecutionError(1, 1, "", "ValueError", "no\n good", [])

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    return calls


def refusal(capsys, *argv: object) -> str:
    """The one sentence with which a command is refused."""
    assert batch.main([str(a) for a in argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "Traceback" not in err
    return err


# --- Refusals ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "sed=3"], "-p: 2_toy.ipynb has no parameter sed, did you mean seed? It has: profile, seed"),
        (["-p", "zzz=3"], "has no parameter zzz. It has: profile"),
        (["-p", "seed=three"], "-p: seed must be int, not 'three'."),
        (["-p", "seed=true"], "seed must be int, not True"),
        (["-p", "seed=1.5"], "seed must be int, not 1.5"),
        (["-p", "lr=1e-5"], "lr must be float, not '1e-5', which is text in YAML: write 1.0e-5."),
        (["-y", "lr: 2.5e5"], "write 250000.0"),
        (["-p", "lr=true"], "lr must be float, not True"),
        (["-p", "rates=[1e-5]"], "rates must be list[float], not ['1e-5'], which is text in YAML: write 1."),
        (["-p", "rates=[1.0, yes]"], "rates must be list[float]"),
        (["-p", "seeds=[1, x]"], "seeds must be list[int]"),
        (["-p", "seeds=3"], "seeds must be list[int], not 3"),
        (["-y", 'fp16: "false"'], "fp16 must be bool, not 'false': write false without quotes"),
        (["-p", "fp16=0"], "fp16 must be bool, not 0"),
        (["-y", "name: 3"], "name must be str, not 3: put it in quotes"),
        (["-y", "note: 3"], "note must be str | None, not 3"),
        (["-p", "weights=3"], "weights must be dict, not 3"),
        (["-p", "layers=4.0"], "layers must be int, not 4.0"),
        (["-y", "data_dir: [a]"], "data_dir must be str"),
        (["-y", "just text"], "the text after -y is not a mapping"),
        (["-f", "missing.yaml"], "missing.yaml: there is no such file"),
        (["-f", "list.yaml"], "list.yaml is not a mapping"),
        (["-f", "broken.yaml"], "broken.yaml is not valid YAML (line 1)"),
        (["-p", "seed"], "-p seed: write -p name=value"),
        (["-o", "out.txt"], "ends in .ipynb"),
        (["-o", "notebooks/2_toy.ipynb"], "is the notebook itself"),
    ],
)  # fmt: skip
def test_wrong_parameters_never_start_a_kernel(notebook, tmp_path, no_kernel, capsys, arguments, message):
    (tmp_path / "list.yaml").write_text("- seed")
    (tmp_path / "broken.yaml").write_text("seed: [1")
    assert message in refusal(capsys, "run", notebook, *arguments)


def test_wrong_notebooks_never_start_a_kernel(tmp_path, no_kernel, capsys):
    assert "there is no such notebook" in refusal(capsys, "run", "nowhere.ipynb")
    for number, text in enumerate(["not json", "{}"]):
        path = tmp_path / f"text{number}.ipynb"
        path.write_text(text)
        assert "is not a Jupyter notebook" in refusal(capsys, "run", path)
    assert "no cell tagged 'parameters'" in refusal(
        capsys, "run", write(tmp_path / "n.ipynb", parameters=None)
    )
    computed = write(tmp_path / "c.ipynb", parameters="steps: int = 10 * 3")
    assert "parameter steps is not a literal" in refusal(capsys, "run", computed)
    assert "line 2" in refusal(capsys, "run", write(tmp_path / "s.ipynb", parameters="a = 1\nb = ("))
    copy = write(
        tmp_path / "x.ipynb", v4.new_code_cell("seed = 2", metadata={"tags": ["injected-parameters"]})
    )
    assert "executed copy" in refusal(capsys, "run", copy)


@dataclasses.dataclass(frozen=True)
class FakeConfig:
    backbone: str
    method: str
    steps: int

    seen = []

    @classmethod
    def from_parameters(cls, mapping):
        cls.seen.append(mapping)
        if mapping["steps"] < 1:
            raise sys.modules["lib.config"].ConfigError("steps must be\n at least 1.")
        return cls(**mapping)

    def preflight(self):
        if self.backbone == "nowhere":
            raise sys.modules["lib.encoder"].EncoderError("no backbone nowhere.")
        if self.method == "data":
            raise sys.modules["lib.data.errors"].DataError("no corpus.")


@pytest.fixture
def fake_config(monkeypatch):
    config = types.ModuleType("lib.config")
    config.ConfigError, config.RunConfig = type("ConfigError", (Exception,), {}), FakeConfig
    monkeypatch.setitem(sys.modules, "lib.config", config)
    for module, name in (("lib.data.errors", "DataError"), ("lib.encoder", "EncoderError")):
        errors = types.ModuleType(module)
        setattr(errors, name, type(name, (Exception,), {}))
        monkeypatch.setitem(sys.modules, module, errors)
    monkeypatch.setattr(FakeConfig, "seen", [])


TRAINING = 'backbone: str = "mini"\nmethod: str = "simcse"\nsteps: int = 5\ntitle: str = "shown only"'


def test_preflight_sees_the_merged_fields_of_the_config(tmp_path, fake_config, fake, capsys):
    path = write(tmp_path / "t.ipynb", parameters=TRAINING)
    assert batch.main(["run", str(path), "-p", "steps=7"]) == 0
    assert FakeConfig.seen == [{"backbone": "mini", "method": "simcse", "steps": 7}]
    capsys.readouterr()
    assert refusal(capsys, "run", path, "-p", "steps=0") == "t.ipynb: steps must be at least 1.\n"
    assert refusal(capsys, "run", path, "-p", "backbone=nowhere") == "t.ipynb: no backbone nowhere.\n"
    assert refusal(capsys, "run", path, "-p", "method=data") == "t.ipynb: no corpus.\n"
    assert len(fake) == 1


def test_preflight_leaves_other_notebooks_alone(tmp_path, fake_config, fake):
    assert batch.main(["run", str(write(tmp_path / "t.ipynb", parameters="method: str = 'simcse'"))]) == 0
    assert FakeConfig.seen == []


# --- Parameters and places ---


def test_precedence_and_types(notebook, tmp_path, fake):
    (tmp_path / "a.yaml").write_text("seed: 2\nname: a\nfp16: true\nlayers: 8\n")
    (tmp_path / "b.yaml").write_text("seed: 3\nname: b\nfp16: true\n")
    argv = "-p seed=5 -f a.yaml -p note None -y fp16:\\ false -f b.yaml -p name 007 -y seed:\\ 4"
    argv = [word.replace("\\", " ").replace("  ", " ") for word in re.split(r"(?<!\\) ", argv)]
    assert batch.main(["run", *argv, str(notebook), "-p", "lr=1", "-p", "rates=[1, 2.5]"]) == 0
    assert fake == [
        {"seed": 5, "name": "007", "fp16": False, "layers": 8, "note": None, "lr": 1.0, "rates": [1.0, 2.5]}
    ]
    assert isinstance(fake[0]["lr"], float) and isinstance(fake[0]["rates"][0], float)


def test_values_that_contain_signs(notebook, fake):
    argv = ["run", str(notebook), "-p", "name", "a=b", "-p", "layers", "-3", "-p", "note=x: y: z"]
    assert batch.main(argv) == 0
    assert fake == [{"name": "a=b", "layers": -3, "note": "x: y: z"}]


def output(notebook: Path, **given) -> str:
    return batch.single(notebook, **given).output.relative_to(paths.runs() / "notebooks").as_posix()


def test_output_path(notebook, tmp_path):
    small = tmp_path / "params" / "small"
    small.mkdir(parents=True)
    for name in ("2_toy", "toy", "other"):
        (small / f"{name}.yaml").write_text("profile: small\nseed: 8\n")
    assert output(notebook) == "demo/2_toy.ipynb"
    assert output(notebook, files=[small / "2_toy.yaml"]) == "small/2_toy.ipynb"
    assert output(notebook, files=[small / "toy.yaml"]) == "small/2_toy.ipynb"
    assert output(notebook, assignments=["seed=1"]) == "demo/2_toy.ipynb"  # the default anyway
    suffixed = output(notebook, assignments=["seed=3"])
    assert re.fullmatch(r"demo/2_toy-[0-9a-f]{8}\.ipynb", suffixed)
    assert suffixed == output(notebook, texts=["seed: 3"]) == "demo/2_toy-1391dc1f.ipynb"
    over = output(notebook, files=[small / "toy.yaml"], assignments=["seed=3"])
    assert over == suffixed.replace("demo", "small")
    assert output(notebook, files=[small / "other.yaml"]).startswith("small/2_toy-")
    assert output(notebook, assignments=["profile=../x"]).startswith("x/2_toy-")
    assert batch.single(notebook, output=Path("o.ipynb")).output == Path("o.ipynb")


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("Optional[int]", None, True),
        ("Optional[int]", "x", False),
        ("int | float", 2.5, True),
        ("Literal['a', 'b']", "b", True),
        ("Literal['a', 'b']", "c", False),
        ("Literal[1]", True, False),
        ("list[list[int]]", [[1], []], True),
        ("list[str] | None", ["a"], True),
        ("dict[str, float]", {"a": 1}, True),
        ("dict[str, float]", {"a": "b"}, False),
        ("None", 0, False),
    ],
)
def test_annotations(kind, value, fits):
    source = v4.new_notebook(cells=[v4.new_code_cell(f"x: {kind} = 0", metadata={"tags": ["parameters"]})])
    parameter = batch.read_parameters(source, "n.ipynb")["x"]
    assert parameter.type_name == kind
    if fits:
        assert batch.fit(parameter.kind, value) == value
    else:
        with pytest.raises(TypeError):
            batch.fit(parameter.kind, value)


# --- Kernels ---


@pytest.mark.notebook
def test_a_run_hands_over_the_parameters(notebook, runs, capfd):
    assert batch.main(["run", str(notebook), "-p", "seed=3", "-p", "fp16=true", "-o", "made/out.ipynb"]) == 0
    logged = capfd.readouterr().err
    assert "== Train" in logged and "3 3e-05 True cse [1, 2]" in logged and "Executing Cell" not in logged
    job = batch.single(notebook, assignments=["seed=3", "fp16=true"], output=Path("made/out.ipynb"))
    assert batch.finished(job)
    assert not batch.finished(dataclasses.replace(job, parameters=job.parameters | {"seed": 4}))


@pytest.mark.notebook
def test_a_failing_cell_keeps_the_notebook(tmp_path, runs, capfd):
    cells = [
        v4.new_markdown_cell("## Train\n```\n# a comment\n```"),
        v4.new_code_cell("1 / 0"),
        v4.new_markdown_cell("## Later"),
    ]
    assert batch.main(["run", str(write(tmp_path / "bad.ipynb", *cells))]) == 1
    last = capfd.readouterr().err.splitlines()[-1]
    kept = runs / "notebooks" / "demo" / "bad.ipynb"
    assert (
        last
        == f"bad.ipynb: cell [2] under “Train” stopped with ZeroDivisionError: division by zero. Kept: {kept}"
    )
    assert nbformat.read(kept, as_version=4).metadata.batch.status == "failed"


@pytest.mark.notebook
def test_a_killed_kernel_is_explained(tmp_path, runs, capfd):
    kill = v4.new_code_cell("import os\nos.kill(os.getpid(), 9)")
    path = write(tmp_path / "big.ipynb", kill, v4.new_code_cell("1"))
    assert batch.main(["run", str(path)]) == 138
    last = capfd.readouterr().err.splitlines()[-1]
    assert (
        "probably out of memory: lower batch_size or corpus_size" in last
        and "interrupted one resumes" in last
    )
    assert str(runs / "notebooks" / "demo" / "big.ipynb") in last
    assert not batch.finished(batch.single(path))


def test_an_interruption_says_that_it_resumes(notebook, fake, capsys):
    assert batch.main(["run", str(notebook), "-p", "mode=interrupt"]) == 130
    assert "interrupted one resumes" in capsys.readouterr().err


def test_help_is_instant():
    import subprocess

    code = "import sys, lib.batch; print([m for m in ('papermill', 'nbformat', 'torch') if m in sys.modules])"
    environment = {"PYTHONPATH": str(Path(batch.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "[]\n"


# --- Sweeps ---

SWEEP = """\
notebook: notebooks/2_toy.ipynb
base: base.yaml
parameters: {{name: fixed}}
grid:
  seed: [1, 2]
  mode: [ok, {mode}]
runs:
  - {{seed: 9, lr: 0.5}}
"""


@pytest.fixture
def sweep(notebook, tmp_path):
    path = tmp_path / "params" / "grids" / "seeds.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(SWEEP.format(mode="fail"))
    (tmp_path / "base.yaml").write_text("layers: 8\nname: base\n")
    return path


def test_a_sweep_continues_and_skips_what_is_finished(sweep, fake, runs, capsys):
    assert batch.main(["sweep", str(sweep)]) == 1
    shared = {"layers": 8, "name": "fixed"}
    assert fake == [
        shared | {"seed": 1, "mode": "ok"},
        shared | {"seed": 1, "mode": "fail"},
        shared | {"seed": 2, "mode": "ok"},
        shared | {"seed": 2, "mode": "fail"},
        shared | {"seed": 9, "lr": 0.5},
    ]
    folder = runs / "notebooks" / "demo" / "seeds"
    names = ["seed=1-mode=fail", "seed=1-mode=ok", "seed=2-mode=fail", "seed=2-mode=ok", "seed=9-lr=0.5"]
    assert sorted(path.stem for path in folder.iterdir()) == names
    assert "seed=1-mode=fail  failed, 0:00" in capsys.readouterr().out

    sweep.write_text(SWEEP.format(mode="better"))
    fake.clear()
    assert batch.main(["sweep", str(sweep)]) == 0
    assert [(call["seed"], call["mode"]) for call in fake] == [(1, "better"), (2, "better")]
    assert "seed=9-lr=0.5       finished, skipped" in capsys.readouterr().out

    (sweep.parents[2] / "base.yaml").write_text("layers: 9\n")  # other parameters under the same names
    fake.clear()
    assert batch.main(["sweep", str(sweep)]) == 0
    assert len(fake) == 5


@pytest.mark.notebook
def test_a_sweep_with_several_at_a_time(notebook, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", str(Path(batch.__file__).parents[1]))
    write(notebook, v4.new_code_cell("assert seed == 1, 'only one'"))
    (tmp_path / "two.yaml").write_text("notebook: notebooks/2_toy.ipynb\ngrid: {seed: [1, 2]}")
    assert batch.main(["sweep", "two.yaml", "--jobs", "2"]) == 1
    out, err = capfd.readouterr()
    assert "seed=1       finished" in out and "seed=2       failed" in out
    assert (
        "seed=2: 2_toy.ipynb: cell [3] under “A title” stopped with AssertionError: only one. Kept: " in err
    )


def test_an_interruption_ends_a_sweep(sweep, fake, capsys):
    sweep.write_text(SWEEP.format(mode="interrupt"))
    assert batch.main(["sweep", str(sweep)]) == 130
    assert len(fake) == 2
    out = capsys.readouterr().out
    assert "seed=1-mode=interrupt  interrupted" in out and "seed=2-mode=ok         not finished" in out


def test_a_dry_run_starts_nothing(sweep, no_kernel, capsys):
    assert batch.main(["sweep", str(sweep), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and lines[1].endswith("seeds/seed=1-mode=ok.ipynb    not finished")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid: {seed: [1]}", "write `notebook: notebooks/name.ipynb`"),
        ("notebook: notebooks/none.ipynb\ngrid: {seed: [1]}", "none.ipynb: there is no such notebook"),
        ("notebook: notebooks/2_toy.ipynb", "has no combinations"),
        ("notebook: notebooks/2_toy.ipynb\ngird: {seed: [1]}", "unknown entry gird"),
        ("notebook: notebooks/2_toy.ipynb\ngrid: [1]", "grid is not what a sweep needs"),
        ("notebook: notebooks/2_toy.ipynb\ngrid: {seed: 1}", "grid must map each name to a list"),
        ("notebook: notebooks/2_toy.ipynb\nruns: [1]", "runs must be a list of mappings"),
        ("notebook: notebooks/2_toy.ipynb\nbase: gone.yaml\nruns: [{}]", "gone.yaml: there is no such file"),
        (
            "notebook: notebooks/2_toy.ipynb\nparameters: {sed: 1}\nruns: [{}]",
            "seeds.yaml, parameters: 2_toy",
        ),
        ("notebook: notebooks/2_toy.ipynb\ngrid: {seed: [1, x]}", "seeds.yaml, seed=x: seed must be int"),
        ("notebook: notebooks/2_toy.ipynb\ngrid: {lr: [1.0, 1e-5]}", "write 1.0e-5"),
        ("notebook: notebooks/2_toy.ipynb\ngrid: {seed: [1, 1]}", "the combination seed=1 is there twice"),
    ],
)
def test_a_wrong_sweep_starts_nothing(sweep, no_kernel, capsys, text, message):
    sweep.write_text(text)
    assert message in refusal(capsys, "sweep", sweep)


def test_a_sweep_asks_the_config_before_the_first_start(tmp_path, fake_config, no_kernel, capsys):
    write(tmp_path / "t.ipynb", parameters=TRAINING)
    (tmp_path / "s.yaml").write_text("notebook: t.ipynb\ngrid: {steps: [1, 0]}")
    assert refusal(capsys, "sweep", "s.yaml") == "s.yaml, steps=0: steps must be at least 1.\n"


def test_readable_names_are_file_names(sweep):
    text = (
        "notebook: notebooks/2_toy.ipynb\nruns: [{}, {seeds: [3, 4], fp16: true}, {name: a/b}, {name: a_b}]"
    )
    sweep.write_text(text)
    names = [job.name for job in batch.expand(sweep)]
    assert names[:2] == ["defaults", "seeds=3+4-fp16=true"] and names[3] == "name=a_b"
    assert re.fullmatch("name=a_b-[0-9a-f]{8}", names[2])


# --- The collection ---


def test_all_continues_and_reports(notebook, tmp_path, runs, fake, capsys):
    write(tmp_path / "notebooks" / "0_bad.ipynb", parameters="steps: int = 2")
    (tmp_path / "params" / "demo").mkdir(parents=True)
    (tmp_path / "params" / "demo" / "0_bad.yaml").write_text("step: 3")
    assert batch.main(["all", "--report"]) == 1
    out, err = capsys.readouterr()
    assert fake == [{}]
    assert "0_bad.ipynb has no parameter step, did you mean steps?" in err
    assert "0_bad.ipynb  refused" in out and "2_toy.ipynb  finished" in out
    assert out.splitlines()[-1] == f"Report: {runs / 'report' / 'demo' / 'index.html'}"


def test_all_of_another_profile(notebook, tmp_path, runs, fake, capsys):
    write(tmp_path / "notebooks" / "0_other.ipynb", parameters="steps: int = 2")
    assert "there is no profile small" in refusal(capsys, "all", "--profile", "small")
    (tmp_path / "params" / "small").mkdir(parents=True)
    (tmp_path / "params" / "small" / "toy.yaml").write_text("seed: 3")
    assert batch.main(["all", "--profile", "small"]) == 1
    assert "toy.yaml: the profile is demo: write `profile: small`" in capsys.readouterr().err
    (tmp_path / "params" / "small" / "toy.yaml").write_text("profile: small")
    assert batch.main(["all", "--profile", "small"]) == 0
    assert "0_other.ipynb  skipped: no params/small/0_other.yaml" in capsys.readouterr().out
    assert (runs / "notebooks" / "small" / "2_toy.ipynb").is_file()


# --- Report ---


def external(page: str) -> set[str]:
    """What a page would load by itself."""
    loaded = r"""(?:<(?:script|img|link|iframe)[^>]*?(?:src|href)\s*=\s*["']?|url\(["']?|@import\s*["']?)"""
    return {match.split("?")[0] for match in re.findall(loaded + r"""(https?:[^"'>)]+)""", page)}


def test_report(tmp_path, runs, fake, capsys):
    hidden = v4.new_code_cell("secret = 1", metadata={"tags": ["remove-cell"]})
    folded = v4.new_code_cell("folded = 1", metadata={"jupyter": {"source_hidden": True}})
    plain = write(tmp_path / "1_plain.ipynb", hidden, folded, v4.new_code_cell("shown = 1"))
    formula = write(tmp_path / "2_formula.ipynb", v4.new_markdown_cell("$x^2$"))
    assert batch.main(["run", str(plain)]) == 0
    assert (
        batch.main(["run", str(formula), "-p", "mode=fail", "-o", "runs/notebooks/demo/2_formula.ipynb"]) == 1
    )
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curve.png").write_bytes(b"png")
    capsys.readouterr()
    assert batch.main(["report"]) == 0
    folder = runs / "report" / "demo"
    assert capsys.readouterr().out == f"Report: {folder / 'index.html'}\n"

    index = (folder / "index.html").read_text()
    assert "http:" not in index and "https:" not in index
    targets = set(re.findall(r'(?:href|src)="([^"]+)"', index))
    assert targets == {"1_plain.html", "2_formula.html", "figures/curve.png"}
    assert all((folder / target).is_file() for target in targets)
    for text in (
        "A title",
        "The claim, see paper.",
        "1:01",
        "finished",
        "failed",
        "ValueError: no good",
        "abc1234",
    ):
        assert text in index

    page = (folder / "1_plain.html").read_text()
    assert "shown" in page and "secret" not in page and "folded" not in page
    assert external(page) == set()
    assert {url.split("/")[2] for url in external((folder / "2_formula.html").read_text())} == {
        "cdnjs.cloudflare.com"
    }
    assert "mathjax" in external((folder / "2_formula.html").read_text()).pop()


def test_report_without_notebooks(capsys):
    assert "start with `python -m lib.batch all --profile demo`" in refusal(capsys, "report")
