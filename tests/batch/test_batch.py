"""lib.batch: what it refuses before a kernel starts, how runs end, sweeps, and all notebooks of a profile."""

import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
from nbformat import v4

from lib import paths
from lib.batch.__main__ import main
from lib.batch.execute import finished, plan_of
from lib.batch.jobs import expand, single
from lib.batch.parameters import declared, read_text
from lib.checks import ConfigError
from lib.data import load_corpus
from tests.conftest import fill

ROOT = Path(__file__).resolve().parents[2]

PARAMETERS = """\
profile: str = "demo"
seed: int = 1  # random seed
lr: float = 3.0e-5  # step size
fp16: bool = False
name: str = "cse"
seeds: list[int] = [1, 2]
rates: list[float] = [0.1]
sizes: dict[str, list[int]] = {"a": [1]}
layers: int = 4
data_dir: str = "data"
mode: str = "ok"
"""


def write(path: Path, *sources: str, parameters: str | None = PARAMETERS, plan: str | None = None) -> Path:
    """A notebook with these cells, behind one tagged `parameters` and one tagged `plan`."""
    tagged = {tag: source for tag, source in {"parameters": parameters, "plan": plan}.items() if source is not None}
    cells = [v4.new_code_cell(source, metadata={"tags": [tag]}) for tag, source in tagged.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(v4.new_notebook(cells=cells + list(map(v4.new_code_cell, sources))), path)
    return path


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")  # a kernel that inherits it thinks that somebody looks at it
    monkeypatch.setenv("CSE_RUNS", str(tmp_path / "runs"))  # the shared fixture leaves notebook tests alone
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.fixture
def notebook(repository):
    return write(repository / "notebooks" / "2_toy.ipynb", "print(seed, lr, fp16, seeds)")


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setattr(papermill, "execute_notebook", lambda *a, **k: pytest.fail("a kernel would start"))


@pytest.fixture
def fake(monkeypatch):
    """papermill without a kernel: it writes the output; other modes than ok end as they say."""
    calls = []

    def execute(source, output, parameters, **options):
        assert "JPY_SESSION_NAME" not in os.environ
        calls.append(parameters)
        if parameters.get("mode") == "dead":
            raise RuntimeError("Kernel died before replying to kernel_info")
        if parameters.get("mode") == "full":
            Path(output).write_text('{"cells": [')
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        notebook = nbformat.read(source, as_version=4)
        notebook.metadata["papermill"] = {"parameters": parameters, "duration": 1.0}
        nbformat.write(notebook, output)
        if parameters.get("mode") == "interrupt":
            raise KeyboardInterrupt
        if parameters.get("mode") == "fail":
            raise papermill.PapermillExecutionError(1, 1, "", "ValueError", "no\n good", [])

    monkeypatch.setattr(papermill, "execute_notebook", execute)
    return calls


def refusal(capsys, *argv: object) -> str:
    """The one sentence with which a command is refused."""
    assert main([str(a) for a in argv]) == 2
    out, err = capsys.readouterr()
    said = [line for line in err.splitlines(keepends=True) if "tokens are unknown" not in line]  # of a tiny vocabulary
    assert out == "" and len(said) == 1 and "Traceback" not in err
    return said[0]


# --- Refusals ---

TRAP = "__import__('os').mkdir('it ran')"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "sed=3"], "-p: unknown parameter 'sed': did you mean 'seed'?"),
        (["-p", "seed=three"], "-p: seed must be int, not 'three'."),
        (["-p", "rates=[1.0"], "-p rates=[1.0 is not valid YAML"),
        (["-p", "sizes={a: [x]}"], "sizes must be dict[str, list[int]], not {'a': ['x']}"),
        (["-y", "just text"], "the text after -y is not a mapping"),
        (["-y", "{seed: 1, name: a, seed: 2}"], "not valid YAML: a name stands twice: keep one of them."),
        (["-f", "missing.yaml"], "missing.yaml cannot be read or written (No such file or directory)"),
        (["-f", "latin.yaml"], "latin.yaml is not valid YAML"),
        (["-p", "seed"], "-p seed: write -p name=value"),
        (["-p", "profile=../../x"], "profile '../../x' is unknown: choose one of demo, small, paper."),
        (["-y", "seed: !!python/object/apply:os.system [ls]"], "not valid YAML"),
        (["-o", "notebooks/2_toy.ipynb"], "is there already and is no executed notebook: choose another file."),
    ],
)  # fmt: skip
def test_wrong_parameters_never_start_a_kernel(notebook, tmp_path, no_kernel, capsys, arguments, message):
    (tmp_path / "latin.yaml").write_bytes("name: é".encode("latin-1"))
    assert message in refusal(capsys, "run", notebook, *arguments)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"parameters": None}, "no cell tagged 'parameters'"),
        ({"parameters": "a: int = 'x'"}, "n.ipynb: a must be int, not 'x'"),
        ({"plan": "x = 1"}, "(KeyError: 'plan')"),
        ({"plan": "seeds[5]"}, "the cell tagged 'plan' fails with these parameters (IndexError: list index"),
        *(({"parameters": f"a: int = 1  # one\n# a remark\n{line}"}, "n.ipynb: line 3 of the parameters cell is not")
          for line in ("b: int = 10 * 3", "b = (", "b = 1", "b: Path = 'data'", "b: int[str] = 1", "%time b = 1",
                       f"{TRAP} = 1", f"b: int = {TRAP}", f"b: list[{TRAP}] = []", f"import os; {TRAP}")),
    ],
)  # fmt: skip
def test_wrong_notebooks_never_start_a_kernel_and_run_nothing(tmp_path, no_kernel, capsys, cells, message):
    assert message in refusal(capsys, "run", write(tmp_path / "n.ipynb", **cells))
    assert not (tmp_path / "it ran").exists()


TRAINING = """\
profile: str = "demo"
method: str = "simcse"
corpus: str = "{corpus}"
backbone: str = "{backbone}"
epochs: int = 5
temperatures: list[float] = [0.05]
title: str = "shown only"
"""

PLAN = """\
from lib.config import RunConfig
from lib.runs import Plan

plan = Plan(profile)
config = RunConfig.from_parameters(parameters, others=parameters)
variants = {f"temperature {value}": {"temperature": value} for value in temperatures}
plan.add("sweep", config, variants, [1], method="SimCSE")
print("seen in the notebook only")
"""


@pytest.fixture
def training(repository, tiny_bert, corpus_file):
    """A notebook that declares runs."""
    parameters = TRAINING.format(corpus=corpus_file, backbone=tiny_bert)
    return write(repository / "t.ipynb", parameters=parameters, plan=PLAN)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run t.ipynb -p epochs=0", "t.ipynb, t-epochs=0: epochs must be at least 1"),
        ("run t.ipynb -p method=mice", "method 'mice' is unknown"),
        ("run t.ipynb -p backbone=./nowhere", ": sweep, SimCSE, temperature 0.05: backbone './nowhere' is neither"),
        ("sweep s.yaml", "t.ipynb, epochs=0: epochs must be at least 1"),
    ],
)
def test_what_the_plan_refuses_starts_no_kernel(training, no_kernel, capsys, command, message):
    training.with_name("s.yaml").write_text("notebook: t.ipynb\ngrid: {epochs: [1, 0]}")
    assert message in refusal(capsys, *command.split())


def test_a_dry_run_lists_the_runs_and_starts_trains_and_writes_nothing(training, store, no_kernel, capsys):
    assert main(["run", str(training), "-p", "temperatures=[0.1, 0.2]", "--dry-run"]) == 0
    out = capsys.readouterr().out
    table = [line.split() for line in out.splitlines() if line.startswith(("sweep", "all"))]
    assert table == [["sweep", "simcse", "2", "0", "2"], ["all", "2", "0", "2"]]
    assert "seen in" not in out and not store.exists()
    assert main(["run", str(write(training.with_name("n.ipynb"))), "--dry-run"]) == 0
    assert "n.ipynb trains nothing" in capsys.readouterr().out


# Values that only a notebook knows, and what their one sentence says.
WRONG = [
    ("1_simcse", "choice_seed=42", "choice_seed 42 is one of seeds"),
    ("1_simcse", "triples=nowhere.csv", "no such file"),
    ("10_level_field", "dev_task=none", "dev_task 'none' has no pairs to choose learning_rate by"),
    ("11_diagnose", 'mine=["STS99: 3"]', "give scores from -100 to 100"),
    ("11_diagnose", 'settings=["warmth: 1"]', "are unknown: choose from"),
    ("3_infocse", "stage_one_steps=-1", "stage 1 alone, given: corpus_size must be at least 0; got -64"),
    ("4_msse", "triples=demo", "the kind of corpus in demo 'sentences' is unknown"),
    ("5_jtcse", "loss_terms=[MSE]", "a value of loss_terms 'MSE' is unknown"),
    ("5_jtcse", "third=./nowhere", "neither an existing"),
    ("9_backbone", "max_length=500", "max_length 500"),
    ("9_backbone", "max_positions=1000000000", "too many for the free memory"),
]


@pytest.mark.notebook  # in the common cache: reading the doc strings anew takes half a minute
@pytest.mark.parametrize(("stem", "assignment", "words"), WRONG)
def test_what_only_a_notebook_knows_is_checked_before_a_kernel(stem, assignment, words):
    with pytest.raises(ConfigError, match=words) as refused:
        plan_of(single(ROOT / "notebooks" / f"{stem}.ipynb", assignments=[assignment]))
    assert "\n" not in str(refused.value)


@pytest.mark.notebook
def test_a_size_of_zero_is_labelled_with_the_whole_corpus():
    plan = plan_of(single(ROOT / "notebooks" / "1_simcse.ipynb", assignments=["corpus_size=0"]))
    sizes = {trial.config.corpus_size for trial in plan if trial.group == "main"}
    assert min(sizes) > 0 and max(sizes) == len(load_corpus("demo", paths.data_dir()))


@pytest.mark.notebook
def test_labelled_pairs_give_a_run_for_each_label_and_one_for_all(tmp_path):
    labels = ["entailment", "neutral", "contradiction"]
    lines = [f"a cat of {age} years\tan animal of {age}\t{label}" for age in range(40) for label in labels]
    (tmp_path / "nli.tsv").write_text("\n".join(["premise\thypothesis\tlabel", *lines]))
    asked = [f"labelled_pairs={tmp_path}/nli.tsv:premise,hypothesis", "sweep_seeds=[1]"]
    plan = plan_of(single(ROOT / "notebooks" / "1_simcse.ipynb", assignments=asked))
    rows = {one.settings: len(one.config.whole_corpus()) for one in plan if one.group == "Table 4"}
    assert rows == {f"NLI {label}": 40 for label in labels} | {"NLI all": 120}


@pytest.mark.notebook
def test_running_text_gives_the_same_sentences_with_four_kinds_of_positives(tmp_path):
    paragraphs = [" ".join(f"Cat {age} has {n} toys." for n in range(6)) for age in range(40)]
    (tmp_path / "prose.txt").write_text("\n".join(paragraphs))
    asked = [f"running_text={tmp_path}/prose.txt", "sweep_seeds=[1]"]
    plan = plan_of(single(ROOT / "notebooks" / "1_simcse.ipynb", assignments=asked))
    read = {one.settings: one.config.whole_corpus() for one in plan if one.group == "Table 2"}
    assert len({corpus.columns[0] for corpus in read.values()}) == 1
    pairs = ["next 3 sentences", "next sentence"]
    assert sorted(name for name, corpus in read.items() if corpus.kind == "pairs") == pairs
    assert sorted({*read} - {*pairs}) == ["delete one word", "unsup. SimCSE"]


# --- Parameters and places ---


def test_precedence_and_types(notebook, tmp_path, fake):
    (tmp_path / "a.yaml").write_text("seed: 2\nname: a\nfp16: true\nlayers: 8\n")
    (tmp_path / "b.yaml").write_text("seed: 3\nname: b\nfp16: true\n")
    argv = ["-p", "seed=5", "-f", "a.yaml", "-y", "fp16: false", "-f", "b.yaml"]
    argv += ["-p", "name=007", "-y", "seed: 4", "-p", "lr=1", "-p", "rates=[1, 2.5]", "-p", "layers=-3"]
    argv += ["-p", "data_dir=a=b: c: d"]
    assert main(["run", *argv, str(notebook)]) == 0
    given = {"seed": 5, "name": "007", "data_dir": "a=b: c: d", "fp16": False, "layers": -3}
    given |= {"lr": 1.0, "rates": [1.0, 2.5]}
    assert fake == [declared(notebook)[1] | given]
    assert isinstance(fake[0]["lr"], float) and isinstance(fake[0]["rates"][0], float)


def test_output_path(notebook, tmp_path):
    def output(**given) -> str:
        return single(notebook, **given).output.relative_to(paths.runs() / "notebooks").as_posix()

    for name in ("2_toy", "other"):
        (tmp_path / f"{name}.yaml").write_text("profile: small\nseed: 8\n")
    same_name, other = tmp_path / "2_toy.yaml", tmp_path / "other.yaml"
    assert output() == "demo/2_toy.ipynb"
    assert output(files=[same_name]) == "small/2_toy.ipynb"
    assert output(assignments=["seed=3"]) == output(texts=["seed: 3"]) == "demo/2_toy-seed=3.ipynb"
    assert output(files=[same_name, other], assignments=["lr=0.1"]) == "small/2_toy-other-lr=0.1.ipynb"
    safe, unsafe = output(assignments=["name=a_b"]), output(assignments=["name=a/b"])
    assert safe == "demo/2_toy-name=a_b.ipynb" and unsafe.startswith("demo/2_toy-name=a_b-")
    assert single(notebook, output=Path("o.ipynb")).output == Path("o.ipynb")


# --- Kernels ---


@pytest.mark.parametrize(("mode", "code", "words"), [("dead", 1, "did not start (Kernel"), ("full", 2, "No space")])
def test_without_a_kernel_or_space_on_the_disk_a_notebook_is_unfinished(notebook, fake, capsys, mode, code, words):
    assert main(["run", str(notebook), "-p", f"mode={mode}"]) == code
    assert words in capsys.readouterr().err and not finished(single(notebook, assignments=[f"mode={mode}"]))


@pytest.mark.notebook
def test_a_run_hands_over_the_parameters(notebook, capfd):
    assert main(["run", str(notebook), "-p", "seed=3", "-p", "fp16=true", "-o", "made/out.ipynb"]) == 0
    said = capfd.readouterr().err
    assert "3 3e-05 True [1, 2]\n" in said and "encryption" not in said  # the kernel would warn
    job = single(notebook, assignments=["seed=3", "fp16=true"], output=Path("made/out.ipynb"))
    assert finished(job)
    assert not finished(dataclasses.replace(job, parameters=job.parameters | {"seed": 4}))


@pytest.mark.notebook
def test_a_failing_cell_keeps_the_notebook(tmp_path, store, capfd):
    assert main(["run", str(write(tmp_path / "bad.ipynb", "1 / 0"))]) == 1
    kept = store / "notebooks" / "demo" / "bad.ipynb"
    sentence = f"bad.ipynb: cell [3] stopped with ZeroDivisionError: division by zero. Kept: {kept}"
    assert capfd.readouterr().err.splitlines()[-1] == sentence
    assert nbformat.read(kept, as_version=4).metadata.batch.status == "failed"


@pytest.mark.notebook
def test_a_killed_kernel_is_explained(tmp_path, store, capfd):
    path = write(tmp_path / "big.ipynb", "import os\nos.kill(os.getpid(), 9)", "1")
    assert main(["run", str(path)]) == 138
    last = capfd.readouterr().err.splitlines()[-1]
    assert "probably out of memory: lower batch_size or corpus_size" in last
    assert "interrupted one resumes" in last and str(store / "notebooks" / "demo" / "big.ipynb") in last
    assert not finished(single(path))


def test_the_jobs_of_a_sweep_are_listed_without_torch():
    """The environment of Snakemake has none."""
    code = "import sys, lib.batch.jobs; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


# --- Sweeps ---

TOY = "notebook: notebooks/2_toy.ipynb\n"
SWEEP = """\
notebook: notebooks/2_toy.ipynb
base: base.yaml
parameters: {{name: fixed}}
grid: {{seed: [1, 2], mode: [ok, {mode}]}}
"""


@pytest.fixture
def sweep(notebook, tmp_path):
    files = {"params/grids/seeds.yaml": SWEEP.format(mode="fail"), "base.yaml": "layers: 8\nname: base\n"}
    return fill(tmp_path, files) / "params/grids/seeds.yaml"


def test_a_sweep_continues_and_skips_what_is_finished(sweep, notebook, fake, store, capsys):
    assert main(["sweep", str(sweep), "--dry-run"]) == 0
    assert fake == [] and capsys.readouterr().out.count("to run ") == 4
    assert main(["sweep", str(sweep)]) == 1
    grid = [{"seed": seed, "mode": mode} for seed in (1, 2) for mode in ("ok", "fail")]
    fixed = declared(notebook)[1] | {"layers": 8, "name": "fixed"}
    assert fake == [fixed | changes for changes in grid]
    folder = store / "notebooks" / "demo" / "seeds"
    assert len(list(folder.iterdir())) == 4
    assert f"failed      {folder / 'seed=1-mode=fail.ipynb'}" in capsys.readouterr().out

    sweep.write_text(SWEEP.format(mode="better"))
    fake.clear()
    assert main(["sweep", str(sweep)]) == 0
    assert [(call["seed"], call["mode"]) for call in fake] == [(1, "better"), (2, "better")]
    assert f"skipped     {folder / 'seed=2-mode=ok.ipynb'}" in capsys.readouterr().out

    fake.clear()
    (sweep.parents[2] / "base.yaml").write_text("layers: 9\n")  # other parameters under the same names
    assert main(["sweep", str(sweep)]) == 0 and len(fake) == 4


def test_side_by_side_each_job_is_a_command_of_its_own(sweep, notebook, store, monkeypatch, capsys):
    commands, real = [], subprocess.run

    def run(command, **how):
        if command[1:4] != ["-m", "lib.batch", "run"]:
            return real(command, **how)
        commands.append(command)
        return subprocess.CompletedProcess(command, 1 if "mode: fail" in command[6] else 0)

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["sweep", str(sweep), "--jobs", "3"]) == 1
    folder = store / "notebooks" / "demo" / "seeds"
    given = {command[8]: read_text(command[6], "-y") for command in commands}
    changed = {"layers": 8, "name": "fixed", "seed": 2, "mode": "ok"}
    assert given[str(folder / "seed=2-mode=ok.ipynb")] == declared(notebook)[1] | changed
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed ")]
    assert len(given) == 4 and len(failed) == 2 and all("mode=fail" in line for line in failed)
    assert "--jobs must be at least 1" in refusal(capsys, "sweep", sweep, "--jobs", "0")
    assert main(["all", "--jobs", "2"]) == 0
    assert len(commands) == 5 and commands[-1][4::4] == [str(notebook), str(folder.parent / "2_toy.ipynb")]


def test_an_interruption_ends_a_sweep_and_leaves_it_unfinished(sweep, fake, capsys):
    sweep.write_text(SWEEP.format(mode="interrupt"))
    assert main(["sweep", str(sweep)]) == 130
    assert "Interrupted; start the same command again" in capsys.readouterr().err
    assert len(fake) == 2 and list(map(finished, expand(sweep))) == [True, *[False] * 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid: {seed: [1]}", "write `notebook: notebooks/name.ipynb`"),
        ("notebook: none.ipynb\ngrid: {seed: [1]}", "none.ipynb cannot be read"),
        (TOY, "has no combinations"),
        (TOY + "grid: {seed: [1], lr: []}", "a grid with values for every name"),
        (TOY + "gird: {seed: [1]}", "seeds.yaml: unknown entry 'gird': did you mean 'grid'?"),
        (TOY + "parameters: {sed: 1}\ngrid: {seed: [1]}", "seeds.yaml, parameters: unknown parameter 'sed'"),
        (TOY + "grid: {seed: [1, x]}", "seeds.yaml, seed=x: seed must be int"),
    ],
)
def test_a_wrong_sweep_starts_nothing(sweep, no_kernel, capsys, text, message):
    sweep.write_text(text)
    assert message in refusal(capsys, "sweep", sweep)


# --- All notebooks ---


def test_all_checks_first_continues_and_reports_but_not_on_nothing(notebook, tmp_path, store, fake, capsys):
    assert "start with `python -m lib.batch all --profile demo`" in refusal(capsys, "report")
    write(tmp_path / "notebooks" / "0_bad.ipynb")
    fill(tmp_path, {"params/small/2_toy.yaml": "profile: small"})
    assert main(["all", "--profile", "small"]) == 0
    assert "0_bad.ipynb is skipped: there is no" in capsys.readouterr().err
    assert [call["profile"] for call in fake] == ["small"] and (store / "notebooks" / "small" / "2_toy.ipynb").is_file()
    fill(tmp_path, {"params/demo/0_bad.yaml": "mod: fail"})
    assert "0_bad.yaml: unknown parameter 'mod': did you mean 'mode'?" in refusal(capsys, "all")
    fill(tmp_path, {"params/demo/0_bad.yaml": "mode: fail"})
    assert main(["all", "--report"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [call["mode"] for call in fake[1:]] == ["fail", "ok"]
    assert [line.split()[0] for line in out[:2]] == ["failed", "finished"]
    assert out[2].startswith("Report: ") and Path(out[2].removeprefix("Report: ")).is_file()
