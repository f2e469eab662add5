"""python -m lib.runs: what it refuses, and that the file's method is the one that is trained."""

import pytest

from lib import paths
from lib.checks import ConfigError
from lib.runs.__main__ import main, read

DEMO = paths.root() / "params/demo"


@pytest.fixture
def file(tiny_bert, corpus_file, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(f"method: simcse\ncorpus: {corpus_file}\nbackbone: {tiny_bert}\nbatch_size: 32\nmax_steps: 3\n")
    return path


def test_one_run(file, capsys):
    assert main(["-f", str(file), "-p", "max_steps=2", "-p", "temperature=1"]) == 0
    assert '"steps": 2' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "sed=9"], "unknown parameter 'sed': did you mean 'seed'?"),
        (["-f", str(DEMO / "2_micse.yaml"), "-p", "projection=none"], "-p: unknown parameter 'projection'"),
        (["-f", str(DEMO / "2_micse.yaml"), "-p", "seeds=[x]"], "seeds must be list[int], not ['x']"),
        (
            ["-f", str(DEMO / "2_micse.yaml"), "-p", "seeds=[43]"],
            "-p seeds=[43]: a run of micse does not read seeds; give",
        ),
    ],
)
def test_what_is_refused_starts_no_run(file, capsys, arguments, message):
    assert main(["-f", str(file), *arguments]) == 2 and not paths.runs().exists()
    assert message in capsys.readouterr().err


def test_a_file_names_its_method_and_nothing_unknown_and_overrides_come_on_top(file):
    text = file.read_text()
    file.write_text(text + "few_shot_sizes: [1]\n")
    with pytest.raises(ConfigError, match="p.yaml: unknown parameter 'few_shot_sizes'"):
        read(file)
    file.write_text(text.replace("method: simcse\n", ""))
    with pytest.raises(ConfigError, match="p.yaml names no method: write `method: simcse` in it"):
        read(file)
    assert read(file, ["method=simcse"]).method == read(file, ['method="simcse"']).method == "simcse"
    config = read(paths.root() / "params/paper/2_micse_authors.yaml", ["data_dir=007", "ami_weight=1", "trace_until=5"])
    assert config.method_arguments["ami_weight"] == 1.0 and config.method_arguments["min_layer"] == 7
    assert (config.data_dir, config.trace_until, config.corpus_size) == ("007", 5, 1000)
