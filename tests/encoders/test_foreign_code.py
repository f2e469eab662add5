"""Nothing that comes with a backbone is run: no code of its own, no pickle."""

import ast
import builtins
import pickle
import shutil
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from lib import paths
from lib.checks import ConfigError, EncoderError
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.heads import mlm_head
from lib.methods import REGISTRY
from tests.conftest import rewrite

CODE = "from pathlib import Path\nPath({marker!r}).touch()\nraise ImportError('it ran')\n"


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch):
    """A question on the terminal is an error."""
    monkeypatch.setattr(builtins, "input", lambda *args: pytest.fail("asked for permission"))
    monkeypatch.setattr(sys, "stdin", None)


@pytest.fixture
def marker(tmp_path):
    """The file that foreign code writes when it runs."""
    return tmp_path / "it ran"


@pytest.fixture
def foreign(tiny_bert, tmp_path, marker):
    """A backbone that names classes of its own, and the file with them."""
    folder = shutil.copytree(tiny_bert, tmp_path / "foreign")
    (folder / "foreign_code.py").write_text(CODE.format(marker=str(marker)))
    models = {name: "foreign_code.Foreign" for name in ("AutoConfig", "AutoModel", "AutoModelForMaskedLM")}
    tokenizer = {"AutoTokenizer": [None, "foreign_code.Foreign"]}
    for name, classes in (("config.json", models), ("tokenizer_config.json", tokenizer)):
        rewrite(folder, name, {"auto_map": classes})
    return folder


@pytest.mark.parametrize("name", ["AutoConfig", "AutoModel", "AutoModelForMaskedLM", "AutoTokenizer"])
def test_the_trap_works(foreign, marker, tmp_path, monkeypatch, name):
    """With permission, each of the library's classes runs the foreign code."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    config = {"config": transformers.AutoConfig.from_pretrained(foreign, trust_remote_code=False)}
    given = config if "Model" in name else {}
    assert not marker.exists()
    with pytest.raises(ImportError, match="it ran"):
        getattr(transformers, name).from_pretrained(foreign, trust_remote_code=True, **given)
    assert marker.exists()


@pytest.mark.parametrize("on_hub", [False, True])
def test_code_of_a_backbone_is_not_run(foreign, marker, tiny_bert, tmp_path, sentences, hub, on_hub):
    source = hub(foreign, "some/foreign") if on_hub else foreign
    encoder = SentenceEncoder.from_pretrained(source)
    assert type(encoder.backbone).__module__.startswith("transformers.models.bert.")
    expected = SentenceEncoder.from_pretrained(tiny_bert).encode(sentences[:3])
    assert abs(encoder.encode(sentences[:3]) - expected).max() == 0
    head = mlm_head(encoder.backbone, tied=False)
    weights = load_file(tiny_bert / "model.safetensors")
    assert torch.equal(head.predictions.bias, weights["cls.predictions.bias"])
    method = REGISTRY["mlm"](encoder, REGISTRY["mlm"].Arguments())
    method.save(tmp_path / "saved")
    ensemble.load(tmp_path / "saved").encode(sentences[:3])
    assert not marker.exists()


class Payload:
    """Unpickled, it touches a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00001.bin"])
def test_a_pickle_is_refused_unread(tiny_bert, tmp_path, marker, hub, name):
    folder = shutil.copytree(tiny_bert, tmp_path / "pickled")
    (folder / name).write_bytes(pickle.dumps({"weights": Payload(marker)}))
    backbone = SentenceEncoder.from_pretrained(folder).backbone  # the safetensors file beside it is taken
    (folder / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match=r"has its weights in a pickle \(pytorch_model.bin\)") as caught:
        SentenceEncoder.from_pretrained(folder)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read with an MLM head"):
        mlm_head(backbone, tied=False)
    with pytest.raises(EncoderError, match="'some/pickled' has its weights in a pickle"):
        SentenceEncoder.from_pretrained(hub(folder, "some/pickled"))
    assert not marker.exists()
    pickle.loads((folder / name).read_bytes())
    assert marker.exists()  # the trap works


def problems(source):
    """What a module does that could run foreign code, one line each; an option counts where the call writes it out."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "transformers"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in ("eval", "exec"):
            yield f"line {node.lineno}: {node.id}"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        call, (owner, _, name) = ast.unparse(node.func), ast.unparse(node.func).rpartition(".")
        options = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
        if call == "torch.load" and options.get("weights_only") is not True:
            yield f"line {node.lineno}: torch.load without weights_only=True"
        if call in ("yaml.load", "yaml.unsafe_load", "yaml.full_load") or owner in ("pickle", "joblib"):
            yield f"line {node.lineno}: {call}"
        if name == "from_pretrained" and (owner in imported or owner.startswith("transformers.")):
            if options.get("trust_remote_code") is not False:
                yield f"line {node.lineno}: {call} without trust_remote_code=False"
            if not owner.endswith(("Config", "Tokenizer")) and options.get("use_safetensors") is not True:
                yield f"line {node.lineno}: {call} without use_safetensors=True"


def test_lib_runs_nothing_foreign():
    """Only the plan cell of the notebook that the user asked to run: its kernel would execute it a moment later."""
    folder, found = paths.root() / "lib", {}
    for path in sorted(folder.rglob("*.py")):
        if kinds := [problem.partition(": ")[2] for problem in problems(path.read_text(encoding="utf8"))]:
            found[path.relative_to(folder).as_posix()] = kinds
    assert found == {"batch/execute.py": ["exec"]}


LINES = {
    "AutoModel.from_pretrained('x', trust_remote_code=False, use_safetensors=True, **options)": 0,
    "AutoModel.from_pretrained('x', trust_remote_code=False, **options)": 1,
    "AutoModel.from_pretrained('x', trust_remote_code=True, use_safetensors=True)": 1,
    "transformers.BertModel.from_pretrained('x')": 2,
    "AutoConfig.from_pretrained('x')": 1,
    "SentenceEncoder.from_pretrained('x')": 0,
    "model.eval(), torch.load('x', weights_only=True), yaml.safe_load('x')": 0,
    "eval('x'), exec('x'), torch.load('x'), yaml.load('x'), pickle.loads('x')": 5,
}


@pytest.mark.parametrize(("line", "count"), LINES.items(), ids=range(len(LINES)))
def test_the_search_sees_each_of_these(line, count):
    assert len(list(problems(f"from transformers import AutoConfig, AutoModel\n{line}\n"))) == count
