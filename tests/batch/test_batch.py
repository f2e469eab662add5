"""lib.batch: what it refuses before a kernel starts, how runs end, sweeps, and all notebooks of a profile."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
from nbformat import v4

from lib import batch, paths
from lib.config import RunConfig
from lib.encoder import EncoderError

PARAMETERS = """\
profile: str = "demo"
seed: int = 1  # random seed
lr: float = 3.0e-5  # step size
fp16: bool = False
name: str = "cse"
note: str | None = None
maybe: int | None = None
mix: list[int | float] = []
seeds: list[int] = [1, 2]
rates: list[float] = [0.1]
weights: dict = {}
layers = 4
data_dir: "Path" = "data"
mode = "ok"
"""


def write(path: Path, *cells, parameters: str | None = PARAMETERS) -> Path:
    if parameters is not None:
        cells = [v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}), *cells]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(v4.new_notebook(cells=list(cells)), path)
    return path


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("CSE_RUNS", str(tmp_path / "runs"))  # the shared fixture leaves notebook tests alone
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.fixture
def notebook(tmp_path):
    return write(tmp_path / "notebooks" / "2_toy.ipynb", v4.new_code_cell("print(seed, lr, fp16, seeds)"))


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setattr(papermill, "execute_notebook", lambda *a, **k: pytest.fail("a kernel would start"))


@pytest.fixture
def fake(monkeypatch):
    """papermill without a kernel: it writes the output; mode=fail and mode=interrupt end as they say."""
    calls = []

    def execute(source, output, parameters, **options):
        calls.append(parameters)
        nbformat.write(nbformat.read(source, as_version=4), output)
        if parameters.get("mode") == "interrupt":
            raise KeyboardInterrupt
        if parameters.get("mode") == "fail":
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
        (["-p", "sed=3"], "-p: there is no parameter sed, did you mean seed? There are: profile, seed"),
        (["-p", "seed=three"], "-p: seed must be int, not 'three'."),
        (["-p", "seed=true"], "seed must be int, not True"),
        (["-p", "lr=1e-5"], "lr must be float, not '1e-5' (YAML reads 1e-5 as text: write 1.0e-5)."),
        (["-p", "rates=[1e-5]"], "rates must be list[float], not ['1e-5'] (YAML reads 1e-5 as text: write"),
        (["-p", "rates=[1.0, yes]"], "rates must be list[float], not [1.0, True]."),
        (["-p", "seeds=[1, x]"], "seeds must be list[int]"),
        (["-p", "mix=[1, x]"], "mix must be list[int | float]"),
        (["-y", 'fp16: "false"'], "fp16 must be bool, not 'false'"),
        (["-y", "name: 3"], "-y: name must be str, not 3 (put it in quotes)"),
        (["-y", "note: 3"], "note must be str | None, not 3"),
        (["-p", "maybe=x"], "maybe must be int | None, not 'x'"),
        (["-p", "weights=3"], "weights must be dict, not 3"),
        (["-p", "layers=4.0"], "layers must be int, not 4.0"),
        (["-y", "data_dir: [a]"], "data_dir must be str"),
        (["-y", "just text"], "the text after -y is not a mapping"),
        (["-f", "missing.yaml"], "missing.yaml: there is no such file"),
        (["-f", "list.yaml"], "list.yaml is not a mapping"),
        (["-f", "broken.yaml"], "broken.yaml is not valid YAML: while parsing"),
        (["-p", "seed"], "-p seed: write -p name=value"),
        (["-o", "notebooks/2_toy.ipynb"], "is the notebook itself"),
    ],
)  # fmt: skip
def test_wrong_parameters_never_start_a_kernel(notebook, tmp_path, no_kernel, capsys, arguments, message):
    (tmp_path / "list.yaml").write_text("- seed")
    (tmp_path / "broken.yaml").write_text("seed: [1")
    assert message in refusal(capsys, "run", notebook, *arguments)


def test_wrong_notebooks_never_start_a_kernel(tmp_path, no_kernel, capsys):
    def refused(parameters: str | None, *cells) -> str:
        return refusal(capsys, "run", write(tmp_path / "n.ipynb", *cells, parameters=parameters))

    assert "no cell tagged 'parameters'" in refused(None)
    assert "parameter steps is not a literal" in refused("steps: int = 10 * 3")
    assert "line 2 of the parameters cell" in refused("a = 1\nb = (")
    injected = v4.new_code_cell("a = 2", metadata={"tags": ["injected-parameters"]})
    assert "executed copy" in refused("a = 1", injected)
    assert "there is no such notebook" in refusal(capsys, "run", "nowhere.ipynb")
    (tmp_path / "text.ipynb").write_text("not json")
    assert "is not a Jupyter notebook" in refusal(capsys, "run", "text.ipynb")


TRAINING = "backbone: str = 'demo'\nepochs: int = 5\ntemperature: float = 0.05\ntitle: str = 'shown only'"


@pytest.fixture
def asked(monkeypatch):
    """The configurations that were to be checked against data and backbone; `nowhere` is missing."""
    configs = []

    def preflight(config):
        configs.append(config)
        if config.backbone == "nowhere":
            raise EncoderError("no backbone\n nowhere.")

    monkeypatch.setattr(RunConfig, "preflight", preflight)
    return configs


def test_preflight_sees_the_merged_fields_of_the_config(tmp_path, notebook, asked, fake, capsys):
    assert batch.main(["run", str(notebook)]) == 0 and asked == []  # nothing is trained there
    path = write(tmp_path / "t.ipynb", parameters=TRAINING)
    assert batch.main(["run", str(path), "-p", "epochs=7", "-p", "temperature=0.1"]) == 0
    assert asked == [RunConfig(epochs=7, method_arguments={"temperature": 0.1})]
    capsys.readouterr()
    assert "t.ipynb, t-epochs=0: epochs must be at least 1" in refusal(capsys, "run", path, "-p", "epochs=0")
    assert refusal(capsys, "run", path, "-p", "backbone=nowhere").endswith(": no backbone nowhere.\n")
    assert len(fake) == 2


def test_a_sweep_asks_the_config_before_the_first_start(tmp_path, asked, no_kernel, capsys):
    write(tmp_path / "t.ipynb", parameters=TRAINING)
    (tmp_path / "s.yaml").write_text("notebook: t.ipynb\ngrid: {epochs: [1, 0]}")
    assert "t.ipynb, epochs=0: epochs must be at least 1" in refusal(capsys, "sweep", "s.yaml")


# --- Parameters and places ---


def test_precedence_and_types(notebook, tmp_path, fake):
    (tmp_path / "a.yaml").write_text("seed: 2\nname: a\nfp16: true\nlayers: 8\n")
    (tmp_path / "b.yaml").write_text("seed: 3\nname: b\nfp16: true\n")
    argv = ["-p", "seed=5", "-f", "a.yaml", "-p", "note=None", "-y", "fp16: false", "-f", "b.yaml"]
    argv += ["-p", "name=007", "-y", "seed: 4", "-p", "lr=1", "-p", "rates=[1, 2.5]", "-p", "maybe=-3"]
    argv += ["-p", "data_dir=a=b: c: d"]
    assert batch.main(["run", *argv, str(notebook)]) == 0
    rest = {"fp16": False, "layers": 8, "note": None, "lr": 1.0, "rates": [1.0, 2.5], "maybe": -3}
    assert fake == [{"seed": 5, "name": "007", "data_dir": "a=b: c: d"} | rest]
    assert isinstance(fake[0]["lr"], float) and isinstance(fake[0]["rates"][0], float)


def test_output_path(notebook, tmp_path):
    def output(**given) -> str:
        return batch.single(notebook, **given).output.relative_to(paths.runs() / "notebooks").as_posix()

    for name in ("2_toy", "other"):
        (tmp_path / f"{name}.yaml").write_text("profile: small\nseed: 8\n")
    own, other = tmp_path / "2_toy.yaml", tmp_path / "other.yaml"
    assert output() == "demo/2_toy.ipynb"
    assert output(files=[own]) == "small/2_toy.ipynb"
    assert output(assignments=["seed=3"]) == output(texts=["seed: 3"]) == "demo/2_toy-seed=3.ipynb"
    assert output(files=[own, other], assignments=["lr=0.1"]) == "small/2_toy-other-lr=0.1.ipynb"
    safe, unsafe = output(assignments=["name=a_b"]), output(assignments=["name=a/b"])
    assert safe == "demo/2_toy-name=a_b.ipynb" and unsafe.startswith("demo/2_toy-name=a_b-")
    assert batch.single(notebook, output=Path("o.ipynb")).output == Path("o.ipynb")


# --- Kernels ---


@pytest.mark.notebook
def test_a_run_hands_over_the_parameters(notebook, capfd):
    assert batch.main(["run", str(notebook), "-p", "seed=3", "-p", "fp16=true", "-o", "made/out.ipynb"]) == 0
    assert "3 3e-05 True [1, 2]\n" in capfd.readouterr().err
    job = batch.single(notebook, assignments=["seed=3", "fp16=true"], output=Path("made/out.ipynb"))
    assert batch.finished(job)
    assert not batch.finished(dataclasses.replace(job, parameters=job.parameters | {"seed": 4}))


@pytest.mark.notebook
def test_a_failing_cell_keeps_the_notebook(tmp_path, runs, capfd):
    assert batch.main(["run", str(write(tmp_path / "bad.ipynb", v4.new_code_cell("1 / 0")))]) == 1
    kept = runs / "notebooks" / "demo" / "bad.ipynb"
    sentence = f"bad.ipynb: cell [2] stopped with ZeroDivisionError: division by zero. Kept: {kept}"
    assert capfd.readouterr().err.splitlines()[-1] == sentence
    assert nbformat.read(kept, as_version=4).metadata.batch.status == "failed"


@pytest.mark.notebook
def test_a_killed_kernel_is_explained(tmp_path, runs, capfd):
    kill = v4.new_code_cell("import os\nos.kill(os.getpid(), 9)")
    path = write(tmp_path / "big.ipynb", kill, v4.new_code_cell("1"))
    assert batch.main(["run", str(path)]) == 138
    last = capfd.readouterr().err.splitlines()[-1]
    assert "probably out of memory: lower batch_size or corpus_size" in last
    assert "interrupted one resumes" in last and str(runs / "notebooks" / "demo" / "big.ipynb") in last
    assert not batch.finished(batch.single(path))


def test_help_is_instant():
    code = "import sys, lib.batch; print([m for m in ('papermill', 'nbformat', 'torch') if m in sys.modules])"
    environment = {"PYTHONPATH": str(Path(batch.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "[]\n"


# --- Sweeps ---

TOY = "notebook: notebooks/2_toy.ipynb\n"
SWEEP = """\
notebook: notebooks/2_toy.ipynb
base: base.yaml
parameters: {{name: fixed}}
grid: {{seed: [1, 2], mode: [ok, {mode}]}}
runs: [{{seed: 9, lr: 0.5}}]
"""


@pytest.fixture
def sweep(notebook, tmp_path):
    path = tmp_path / "params" / "grids" / "seeds.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(SWEEP.format(mode="fail"))
    (tmp_path / "base.yaml").write_text("layers: 8\nname: base\n")
    return path


def test_a_sweep_continues_and_skips_what_is_finished(sweep, fake, runs, capsys):
    assert batch.main(["sweep", str(sweep), "--dry-run"]) == 0
    assert fake == [] and capsys.readouterr().out.count("to run ") == 5
    assert batch.main(["sweep", str(sweep)]) == 1
    grid = [{"seed": seed, "mode": mode} for seed in (1, 2) for mode in ("ok", "fail")]
    assert fake == [{"layers": 8, "name": "fixed"} | own for own in (*grid, {"seed": 9, "lr": 0.5})]
    folder = runs / "notebooks" / "demo" / "seeds"
    assert len(list(folder.iterdir())) == 5
    assert f"failed      {folder / 'seed=1-mode=fail.ipynb'}" in capsys.readouterr().out

    sweep.write_text(SWEEP.format(mode="better"))
    fake.clear()
    assert batch.main(["sweep", str(sweep)]) == 0
    assert [(call["seed"], call["mode"]) for call in fake] == [(1, "better"), (2, "better")]
    assert f"skipped     {folder / 'seed=9-lr=0.5.ipynb'}" in capsys.readouterr().out

    fake.clear()
    (sweep.parents[2] / "base.yaml").write_text("layers: 9\n")  # other parameters under the same names
    assert batch.main(["sweep", str(sweep)]) == 0 and len(fake) == 5


def test_an_interruption_ends_a_sweep(sweep, fake, capsys):
    sweep.write_text(SWEEP.format(mode="interrupt"))
    assert batch.main(["sweep", str(sweep)]) == 130
    out, err = capsys.readouterr()
    assert "2_toy.ipynb: interrupted; start the same command again" in err
    assert [line.split()[0] for line in out.splitlines()[5:]] == [
        "finished",
        "interrupted",
        "not",
        "not",
        "not",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid: {seed: [1]}", "write `notebook: notebooks/name.ipynb`"),
        ("notebook: none.ipynb\ngrid: {seed: [1]}", "none.ipynb: there is no such notebook"),
        (TOY, "has no combinations"),
        (TOY + "gird: {seed: [1]}", "unknown entry gird"),
        (TOY + "grid: [1]", "grid must be a dict"),
        (TOY + "grid: {seed: 1}", "grid must map each name to a list"),
        (TOY + "runs: [1]", "runs must be a list of mappings"),
        (TOY + "base: gone.yaml\nruns: [{}]", "gone.yaml: there is no such file"),
        (TOY + "parameters: {sed: 1}\nruns: [{}]", "seeds.yaml, parameters: there is no parameter sed"),
        (TOY + "grid: {seed: [1, x]}", "seeds.yaml, seed=x: seed must be int"),
        (TOY + "grid: {lr: [1.0, 1e-5]}", "write 1.0e-5"),
    ],
)
def test_a_wrong_sweep_starts_nothing(sweep, no_kernel, capsys, text, message):
    sweep.write_text(text)
    assert message in refusal(capsys, "sweep", sweep)


# --- All notebooks ---


def test_all_checks_first_continues_and_reports(notebook, tmp_path, runs, fake, monkeypatch, capsys):
    write(tmp_path / "notebooks" / "0_bad.ipynb")
    own = tmp_path / "params" / "demo" / "0_bad.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("mod: fail")
    assert "0_bad.yaml: there is no parameter mod, did you mean mode?" in refusal(capsys, "all")
    own.write_text("mode: fail")
    monkeypatch.setattr("lib.report.write", lambda profile, notebooks: len(notebooks))
    assert batch.main(["all", "--report"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert fake == [{"mode": "fail"}, {}]
    assert [line.split()[0] for line in out[:2]] == ["failed", "finished"] and out[2] == "Report: 2"


def test_all_of_another_profile(notebook, tmp_path, runs, fake, capsys):
    write(tmp_path / "notebooks" / "0_other.ipynb")
    assert batch.main(["all", "--profile", "small"]) == 2  # neither has parameters for it
    own = tmp_path / "params" / "small" / "2_toy.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("seed: 3")
    assert batch.main(["all", "--profile", "small"]) == 2
    assert "2_toy.yaml has another profile: write `profile: small`" in capsys.readouterr().err
    own.write_text("profile: small")
    assert batch.main(["all", "--profile", "small"]) == 0
    assert "0_other.ipynb is skipped: there is no" in capsys.readouterr().err
    assert fake == [{"profile": "small"}] and (runs / "notebooks" / "small" / "2_toy.ipynb").is_file()


def test_report_without_notebooks(capsys):
    assert "start with `python -m lib.batch all --profile demo`" in refusal(capsys, "report")
