"""What careless and hostile users give: one clear sentence before any work, nothing foreign read, nothing overwritten.

The cases are data: input, and words of the sentence. They run in this process, but for closed streams and full disks."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from nbformat import v4
from safetensors.torch import load_file, save_file

from lib import command, figures, paths, runs
from lib.batch import execute, jobs
from lib.batch.parameters import declared, read_assignment, read_file, read_text
from lib.checks import ConfigError, DataError, EncoderError, fit
from lib.config import RunConfig
from lib.data import __main__ as data_command
from lib.data import load_corpus, load_sts
from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.generator import Generator
from lib.evaluation import evaluate_sts
from lib.runs import __main__ as run_command
from lib.runs import running

ROOT = paths.root()
NOTEBOOK = ROOT / "notebooks" / "0_start_here.ipynb"
LONG = "a pasted sentence " * 30  # no file has such a name
OURS = (ConfigError, DataError, EncoderError)
LINES = "".join(f"line {i} of a corpus\n" for i in range(40))


def one_sentence(caught) -> str:
    """The message, which says it in one line of a length that somebody reads."""
    text = str(caught.value)
    assert text and "\n" not in text and len(text) < 1_000
    return text


# --- Parameters ---

YAML = {
    "seed: 1\nseed: 2": "seed stands twice: keep one of them",
    "[]": "is not a mapping",
    "seed: 2020-99-99": "not valid YAML",
    "seed: !!python/object/apply:os.system [ls]": "not valid YAML",
}


@pytest.mark.parametrize(("text", "words"), YAML.items(), ids=range(len(YAML)))
def test_parameters_that_are_no_plain_mapping(text, words):
    with pytest.raises(ConfigError, match=words.replace("*", r"\*")) as caught:
        read_text(text, "-y")
    one_sentence(caught)


def test_nothing_and_comments_alone_are_no_parameters():
    assert read_text("", "-y") == read_text("# later", "-y") == {}
    values = read_text("{a: 0, b: -1.5, c: 1.0e-5, d: .5, e: +3, f: 1_000, g: .inf, h: '012'}", "-y")
    assert list(values.values()) == [0, -1.5, 1e-5, 0.5, 3, 1000, float("inf"), "012"]
    assert read_assignment({"data_dir": str}, "data_dir=007") == {"data_dir": "007"}
    texts = {
        "a": str,
        "b": list[str],
    }  # the name of a file is taken as it stands, without YAML's comments and line breaks
    for name in ("my #1 file.txt", "a\nb", "null", "a: b", "", "it's"):
        assert read_assignment(texts, f"a={name}") == {"a": name}
    assert read_assignment(texts, "a= x ") == {"a": "x"}  # as in YAML
    assert read_assignment(texts, "a='#1'") == {"a": "#1"} and read_assignment(texts, "b=[x] # y") == {"b": ["x"]}


FITS = [
    (float, "1e-5", "write 1.0e-5"),
    (list[float], ["x", "2e5"], r"write 2.0e\+5"),
    (int, "012", "must be int, not '012'"),
]


@pytest.mark.parametrize(("kind", "value", "words"), FITS, ids=range(len(FITS)))
def test_a_value_that_does_not_fit_says_what_would(kind, value, words):
    with pytest.raises(ConfigError, match=words) as caught:
        fit("name", kind, value)
    one_sentence(caught)


CONFIGS = {
    "seed": [2**31 + 1, 2**63, 10**4000, -1],
    "epochs": [10**12, 0],
    "corpus_size": [-1, 2**31],
    "batch_size": [1, 2**31],
    "learning_rate": [0.0, float("inf"), float("nan"), 1.5],
    "temperature": [float("inf"), float("nan"), 0.0],
    "dropout": [1.0, -0.1],
    "augmentation": ["crop(9)", "", "round_trip(a)"],
    "method": ["", "simcse)", "three_r", "three_r(three_r(simcse)", "simcse(simcse)"],
    "corpus": ["\ud800"],
    "profile": ["../../x"],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(n, v) for n, values in CONFIGS.items() for v in values],
    ids=range(sum(map(len, CONFIGS.values()))),
)
def test_a_configuration_that_cannot_be(name, value):
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_parameters({name: value})
    one_sentence(caught)


@pytest.mark.parametrize("name", ["missing.yaml", "x" * 5000, LONG])
def test_a_parameter_file_that_cannot_be_read(tmp_path, name):
    with pytest.raises(ConfigError, match="no such file|cannot be read") as caught:
        read_file(tmp_path / name)
    one_sentence(caught)


# --- Notebooks that are given, and outputs ---


def notebook(path, parameters="seed: int = 1", plan=None, **metadata):
    cells = [v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    cells += [v4.new_code_cell(plan, metadata={"tags": ["plan"]})] if plan is not None else []
    nbformat.write(v4.new_notebook(cells=cells, metadata=metadata), path)
    return path


CELLS = {
    "a: __import__('os').mkdir('it ran') = 1": "line 1 of the parameters cell",
    "a: int = __import__('os').mkdir('it ran')": "line 1 of the parameters cell",
    "a: list[__import__('os').mkdir('it ran')] = []": "line 1 of the parameters cell",
    "a: int = 1\nimport os; os.mkdir('it ran')": "of the parameters cell",
    "a: dict[str] = {}": "line 1 of the parameters cell",
    "a: int[str] = 1": "line 1 of the parameters cell",
    "a: list[str, int] = []": "line 1 of the parameters cell",
    f"a: {'list[' * 300}int{']' * 300} = []": "of the parameters cell",
    "%time a = 1": "of the parameters cell",
    "a: int = 'x'": "a must be int",
}


@pytest.mark.parametrize(("cell", "words"), CELLS.items(), ids=range(len(CELLS)))
def test_a_parameters_cell_runs_nothing(tmp_path, monkeypatch, cell, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        declared(notebook(tmp_path / "n.ipynb", cell))
    assert not (tmp_path / "it ran").exists()


def test_notebooks_that_are_none(tmp_path):
    path = notebook(tmp_path / "n.ipynb")
    content = json.loads(path.read_text())
    for damage in ("", "[" * 100_000, "[]", "{}", '{"cells": 3}', "\ud800".encode("utf8", "surrogatepass")):
        path.write_bytes(damage if isinstance(damage, bytes) else damage.encode())
        with pytest.raises(ConfigError, match="is not a Jupyter notebook"):
            declared(path)
    content["cells"][0]["metadata"]["tags"] = None
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="no cell tagged 'parameters'"):
        declared(path)
    with pytest.raises(
        ConfigError, match="File name too long. give a shorter name|cannot be read or written"
    ) as caught:
        declared(tmp_path / LONG)
    one_sentence(caught)


def test_other_parameters_draw_into_a_folder_of_their_own(monkeypatch):
    monkeypatch.delenv("CSE_FIGURES")
    one, other = jobs.single(NOTEBOOK), jobs.single(NOTEBOOK, assignments=["seed=3"])
    drawn = paths.runs() / "figures" / "demo"
    assert execute._figures(one) == drawn and execute._figures(other) == drawn / "0_start_here-seed=3"


def test_a_full_disk_while_a_notebook_runs_is_its_reason(tmp_path, monkeypatch, capsys):
    def full(source, output, *arguments, **options):
        Path(output).write_text('{"cells": [')
        raise OSError(errno.ENOSPC, "x")

    monkeypatch.setattr(execute.papermill, "execute_notebook", full)
    job = jobs.single(notebook(tmp_path / "n.ipynb"), output=tmp_path / "o.ipynb")
    assert execute.execute(job) == 1
    err = capsys.readouterr().err
    assert "o.ipynb cannot be read or written (No space left on device): free some space" in err and "Kept: " in err
    assert not execute.finished(job)


# --- Texts ---

CORPORA = [
    ("a.csv", "a cat,a dog\nred house,blue house\n", "line 1 is a header, and 'a cat' is no name"),
    ("a.csv", "text,label\ngood film,pos\nbad film,neg\n", "'label' is no name of a column of text"),
    ("a.csv", "sent0,sent1\na b,\nc d,\n", "all 2 rows of 'sent1' are numbers or signs alone"),
    ("a.jsonl", '{"text": "a"}\n', "is a file of another format .*jsonl"),
    ("a.csv", "sent0,hard_neg,sent1\na b,c d,e f\ng,h,i\n", "the column 'hard_neg' would be trained on as positive"),
    ("a.csv", "sent0,neg1\na b,c d\ne f,g h\n", "the column 'neg1' would be trained on as positive"),
]


@pytest.mark.parametrize(("name", "text", "words"), CORPORA, ids=range(len(CORPORA)))
def test_texts_that_are_none_are_named(tmp_path, name, text, words):
    (tmp_path / name).write_bytes(text.replace("{}", "here").encode())
    with pytest.raises(DataError, match=words) as caught:
        load_corpus(name, tmp_path)
    assert name in one_sentence(caught)


def test_good_tables_stay_good(tmp_path):
    tables = {
        "premise,hypothesis,contradiction\n"
        + "".join(f"it is {i // 3},is it {i},no {i}\n" for i in range(9)): "triples",
        "sentence 1,sentence 2\na b,c d\ne f,\n": "pairs",
        "word,phrase\ncat,feline\nhouse,home\n": "pairs",
        "句子1,句子2\n你好世界,世界你好\n今天,明天\n": "pairs",
        "anchor,positive\na,b\n": "pairs",
        "Anchor,Positive,Negative\na b,c d,e f\n": "triples",
        "sent0,sent1,hard_neg\na b,c d,e f\n": "triples",
    }
    for text, kind in tables.items():
        text = text.replace("句子1,句子2", "text1,text2")
        (tmp_path / "t.csv").write_text(text, encoding="utf8")
        assert load_corpus("t.csv", tmp_path).kind == kind


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (LONG, "no such file"),
        ("", "no such file"),
        ("hub:", "'' is no name of the hub"),
        ("hub:/etc", "'/etc' is no name of the hub"),
        ("hub:../x:a", "is no name of the hub"),
        ("a.txt+STS99", "an STS task"),
        ("~nosuchuser/a.txt", "home folder of nobody"),
        ("link.txt", "no such file|Too many levels"),
        ("pipe.txt", "no such file"),
    ],
)
def test_a_corpus_that_is_not_there(tmp_path, spec, words):
    (tmp_path / "a.txt").write_text(LINES)
    (tmp_path / "link.txt").symlink_to("link.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(DataError, match=words) as caught:
        load_corpus(spec, tmp_path)
    one_sentence(caught)


@pytest.mark.parametrize("name", ["my[1].txt", "a+STS12", "x+y.txt", "a,b.txt", "*.txt", "日本.txt"])
def test_the_name_of_a_file_is_taken_as_it_is(tmp_path, name):
    (tmp_path / name).write_text(LINES)
    for spec in (name, str(tmp_path / name)):
        assert len(load_corpus(spec, tmp_path)) == 40


# --- Encoders ---

LISTS = [
    {"encoders": ["../elsewhere"], "weights": [1.0]},
    {"encoders": ["/etc"], "weights": [1.0]},
    {"encoders": [".."], "weights": [1.0]},
    {"encoders": ["0"], "weights": [0.0]},
    {"encoders": ["0"], "weights": [float("nan")]},
    {"encoders": ["0"], "weights": [1.0, 1.0]},
]


@pytest.fixture(scope="module")
def saved_sum(tmp_path_factory, tiny_bert):
    folder = tmp_path_factory.mktemp("sums") / "sum"
    ensemble.EncoderSum([SentenceEncoder.from_pretrained(tiny_bert)]).save(folder)
    return folder


@pytest.mark.parametrize("listed", LISTS, ids=range(len(LISTS)))
def test_a_list_of_encoders_names_its_own_folders_and_finite_weights(tmp_path, saved_sum, listed):
    folder = shutil.copytree(saved_sum, tmp_path / "sum")
    (folder / "link").symlink_to(tmp_path)
    (name,) = json.loads((folder / ensemble.LIST).read_text())["encoders"]
    text = listed if isinstance(listed, str) else json.dumps(listed).replace('"0"', json.dumps(name))
    (folder / ensemble.LIST).write_text(text)
    with pytest.raises(EncoderError, match="an ensemble|a sum of|names '|its vectors") as caught:
        ensemble.load(folder)
    one_sentence(caught)


def rewrite(folder, name, change):
    """Change a JSON file of a folder: by new values, or as a whole."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    if isinstance(change, dict):
        path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | change))
    else:
        path.write_text(change)


JSON = [
    ("config.json", {"hidden_size": "a"}, "no loadable model"),
    ("config.json", {"num_attention_heads": 0}, "no loadable model"),
    ("config.json", {"pad_token_id": 999}, "no loadable model"),
    ("config.json", {"dtype": "nope"}, "no loadable model|its vectors"),
    (
        "config.json",
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
        "no loadable model",
    ),
    ("config.json", {"intermediate_size": 48}, r"do not belong together: encoder.layer.0.* has the shape \[64"),
    ("config.json", {"layer_norm_eps": -1.0}, "its vectors are not finite"),
    ("config.json", {"model_type": "gpt2"}, "gpt2 models are not supported"),
    ("sentence_encoder.json", {"max_length": -1}, "max_length -1 must be a whole number of tokens, at most 64"),
    ("sentence_encoder.json", {"max_length": 1000}, "max_length 1000 must be a whole number of tokens, at most 64"),
    ("sentence_encoder.json", {"max_length": 2}, "max_length 2 must be .* at least 3"),
    ("sentence_bert_config.json", {"max_seq_length": 1}, "max_length 1 must be .* at least 3"),
    ("sentence_encoder.json", {"pooling": "nope"}, "pooling 'nope' is n"),
    ("modules.json", '[{"type": "sentence_transformers.models.LSTM", "path": "1_LSTM"}]', "models.LSTM' in '1_LSTM'"),
    ("modules.json", '[{"type": "x.Dense", "path": "3_Dense"}]', "lists the step 'x.Dense' in '3_Dense'"),
    ("sentence_roberta_config.json", {"max_seq_length": 1}, "max_length 1 must be .* at least 3"),
    ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "puts a prompt before each text"),
    ("modules.json", '[{"type": "evil.Transformer", "path": ""}]', "lists the step 'evil.Transformer'"),
    (
        "modules.json",
        '[{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]',
        "lists the step .*Pooling' in '1_Pooling'",
    ),
    ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "is none of"),
    ("ensemble.json", {}, "is an ensemble: name one of the encoders"),
]


@pytest.mark.parametrize(("name", "change", "words"), JSON, ids=range(len(JSON)))
def test_a_file_of_an_encoder_that_cannot_be_meant_is_named(tmp_path, tiny_bert, name, change, words):
    folder = shutil.copytree(tiny_bert, tmp_path / "bert")
    rewrite(folder, name, change)
    with pytest.raises(EncoderError, match=words) as caught:
        SentenceEncoder.from_pretrained(folder, what="teacher")
    assert one_sentence(caught).startswith(f"teacher {str(folder)!r}")


def zero(x):
    return torch.zeros_like(x)


WEIGHTS = [
    (r"word_embeddings\.weight$", zero, "all its word vectors are 0"),
    (r"layer\.1\.output\.dense\.weight$", lambda x: x * float("nan"), "encoder.layer.1.output.dense.weight holds NaN"),
    (r"layer\.0\.output\.dense\.bias$", lambda x: x + float("inf"), "encoder.layer.0.output.dense.bias holds NaN"),
    (r"layer\.0\.attention\.self\.key\.weight$", lambda x: (x * 9).to(torch.int8), "stored as I8"),
    (r"layer\.0\.attention\.self\.key\.weight$", lambda x: x.to(torch.float8_e4m3fn), "stored as F8_E4M3"),
    (r"(?<!word_embeddings)\.(weight|bias|gamma|beta)$", zero, "its vectors are zero"),
    (r"LayerNorm\.weight$", zero, "its vectors are (zero|the same)"),
    (r"bert\..*weight$", lambda x: x * 1e30, "its vectors are"),
    (r"layer\.0\.output\.dense\.weight$", lambda x: x[:16], r"do not belong together: .* has the shape \[16, 64\]"),
]


@pytest.mark.parametrize(("pattern", "change", "words"), WEIGHTS, ids=range(len(WEIGHTS)))
def test_weights_that_cannot_be_meant(tmp_path, tiny_bert, pattern, change, words):
    folder = shutil.copytree(tiny_bert, tmp_path / "bert")
    weights = load_file(folder / "model.safetensors")
    changed = {key: change(weight).contiguous() for key, weight in weights.items() if re.search(pattern, key)}
    assert changed
    save_file(weights | changed, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(EncoderError, match=words) as caught:
        SentenceEncoder.from_pretrained(folder)
    one_sentence(caught)


def test_weights_in_several_files_are_read_from_safetensors_beside_the_list(tmp_path, tiny_bert):
    folder = shutil.copytree(tiny_bert, tmp_path / "bert")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "part.safetensors", {"format": "pt"})
    content = {"metadata": {}, "weight_map": dict.fromkeys(weights, "part.safetensors")}
    rewrite(folder, "model.safetensors.index.json", content)
    whole, parts = (SentenceEncoder.from_pretrained(place).encode(["the dog"]) for place in (tiny_bert, folder))
    np.testing.assert_array_equal(whole, parts)
    for change, words in (
        ({"weight_map": {"a": "../part.safetensors"}}, "names '../part.safetensors'"),
        ({"weight_map": ["a"]}, "is damaged: it needs `metadata` and a `weight_map`"),
        ({"weight_map": {}}, "is damaged: it needs `metadata` and a `weight_map`"),
        ('{"weight_map', "index.json is damaged: it is no JSON"),
    ):
        rewrite(
            folder, "model.safetensors.index.json", change if isinstance(change, str) else json.dumps(content | change)
        )
        with pytest.raises(EncoderError, match=words):
            SentenceEncoder.from_pretrained(folder)
    torch.save(weights, folder / "weights.bin")
    content["weight_map"] = dict.fromkeys(weights, "weights.bin")
    rewrite(folder, "model.safetensors.index.json", json.dumps(content))
    for load in (SentenceEncoder.from_pretrained, lambda place: Generator.from_pretrained(str(place))):
        with pytest.raises(EncoderError, match=r"names 'weights.bin': weights are read from safetensors files"):
            load(folder)


TOKENIZERS = [
    ({"post_processor": None}, "does not put its .CLS. before a text"),
    ({"model": {"vocab": {"dog": 500}}}, "its tokenizer has 501 entries and its weights know"),
]


@pytest.mark.parametrize(("change", "words"), TOKENIZERS, ids=range(len(TOKENIZERS)))
def test_a_tokenizer_that_does_not_fit_its_model(tmp_path, tiny_bert, change, words):
    folder = shutil.copytree(tiny_bert, tmp_path / "bert")
    content = json.loads((folder / "tokenizer.json").read_text())
    for name, value in change.items():
        if name == "model":
            content["model"]["vocab"] |= value["vocab"]
        else:
            content[name] = value
    rewrite(folder, "tokenizer.json", json.dumps(content))
    rewrite(folder, "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    with pytest.raises(EncoderError, match=words) as caught:
        SentenceEncoder.from_pretrained(folder)
    one_sentence(caught)


def test_what_is_encoded_is_a_list_of_texts(tiny_bert):
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    total = ensemble.EncoderSum([encoder])
    texts = ["the dog", "the cat"]
    for one in (encoder, total):
        for form in ((text for text in texts), map(str, texts), pd.Series(texts), np.array(texts), tuple(texts)):
            np.testing.assert_allclose(one.encode(form), one.encode(texts), atol=1e-6)
        for wrong in ("a text", b"bytes", [1], [["a"]], [None]):
            with pytest.raises(TypeError, match="takes a list of strings"):
                one.encode(wrong)


def test_steps_without_effect_and_an_empty_prompt_are_read(tmp_path, tiny_bert):
    expected = SentenceEncoder.from_pretrained(tiny_bert, pooling="mean").encode(["the dog"])
    folder, kind = shutil.copytree(tiny_bert, tmp_path / "bert"), "sentence_transformers.models."
    steps = {"Transformer": "./", "Pooling": "./1_Pooling", "Dropout": "2_Dropout", "Normalize": "3_Normalize"}
    listed = [{"type": kind + name, "path": path} for name, path in steps.items()]
    rewrite(folder, "modules.json", json.dumps(listed))
    rewrite(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    prompts = {"prompts": {"document": ""}, "default_prompt_name": "document"}
    rewrite(folder, "config_sentence_transformers.json", prompts)
    encoder = SentenceEncoder.from_pretrained(folder)
    np.testing.assert_array_equal(encoder.encode(["the dog"], batch_tokens=np.int64(8)), expected)


def test_text_that_the_tokenizer_does_not_know_is_refused(tmp_path, tiny_bert):
    (tmp_path / "russian.txt").write_text("".join(f"слово {'аб'[i % 2] * (i + 1)} и ещё\n" for i in range(40)))
    config = RunConfig(corpus=str(tmp_path / "russian.txt"), backbone=str(tiny_bert), max_steps=1, batch_size=8)
    for pooling in ("cls", "mask_prompt"):
        with pytest.raises(DataError, match="80% of its tokens are unknown to the tokenizer"):
            runs.run(config.replace(max_length=16, pooling=pooling))


def test_a_projection_that_does_not_fit(tmp_path, tiny_bert):
    from lib.encoders.heads import projection_head

    folder, odd = tmp_path / "encoder", float("nan")
    SentenceEncoder.from_pretrained(tiny_bert, projection=projection_head(32)).save(folder)
    dense = load_file(folder / "2_Dense/model.safetensors")
    save_file({name: weight * odd for name, weight in dense.items()}, folder / "2_Dense/model.safetensors")
    with pytest.raises(EncoderError, match="its vectors are not finite"):
        SentenceEncoder.from_pretrained(folder)
    save_file({name: weight[:16].contiguous() for name, weight in dense.items()}, folder / "2_Dense/model.safetensors")
    with pytest.raises(EncoderError, match="no loadable model"):
        SentenceEncoder.from_pretrained(folder)


@pytest.mark.parametrize(
    "name", ["", LONG, "~nosuchuser/bert", "a\0b", "user/" + "x" * 300, "/dev/null", "pipe", "file"]
)
def test_a_backbone_that_is_no_folder(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    with pytest.raises(OURS, match="neither an existing folder|home folder of nobody|no loadable model") as caught:
        SentenceEncoder.from_pretrained(name)
    one_sentence(caught)


@pytest.mark.parametrize(
    ("method", "argument", "words"),
    [
        ("distill", "teacher", "^teacher 'nope/x/y' is neither"),
        ("tncse", "second_backbone", "^second_backbone 'nope/x/y' is neither"),
        ("tncse", "pooler_from", "^pooler_from 'nope/x/y' is neither"),
        ("diffcse", "generator", "^generator 'nope/x/y' is neither"),
        ("simcse", "backbone", "^backbone 'nope/x/y' is neither"),
    ],
)
def test_it_is_said_which_encoder_is_meant(tiny_bert, corpus_file, method, argument, words):
    values = {"corpus": str(corpus_file), "backbone": str(tiny_bert), "method": method, "batch_size": 8}
    with pytest.raises(EncoderError, match=words):
        runs.prepare(RunConfig.from_parameters(values | {argument: "nope/x/y"}))


def test_a_run_and_an_ensemble_are_no_backbone(finished_run, saved_sum):
    with pytest.raises(EncoderError, match="is the folder of a run: name the folder `encoder` in it"):
        SentenceEncoder.from_pretrained(finished_run)
    with pytest.raises(EncoderError, match="is an ensemble: name one of the encoders in its folder"):
        SentenceEncoder.from_pretrained(saved_sum)


def test_saving_an_encoder_deletes_no_file_of_the_users(tmp_path, tiny_bert):
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    for folder, save in ((tmp_path / "one", encoder.save), (tmp_path / "sum", ensemble.EncoderSum([encoder]).save)):
        save(folder)
        (folder / "notes.txt").write_text("mine")
        with pytest.raises(EncoderError, match="exists: choose another folder.*nothing was written"):
            save(folder)
        assert (folder / "notes.txt").read_text() == "mine" and not list(tmp_path.glob(".*"))
    with pytest.raises(DataError, match="Not a directory|cannot be read or written"):
        encoder.save(tmp_path / "one" / "config.json" / "below")


def test_an_encoder_without_a_score_is_refused():
    task = load_sts(ROOT, "demo", "test")
    with pytest.raises(EncoderError, match="vectors are not finite"):
        evaluate_sts(lambda texts: np.full((len(texts), 3), np.nan), [task])
    with pytest.raises(EncoderError, match="all pairs of demo equally near"):
        evaluate_sts(lambda texts: np.ones((len(texts), 3)), [task])


# --- What the store wrote and somebody cut, changed or emptied ---


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, tiny_bert):
    corpus = tmp_path_factory.mktemp("corpus") / "lines.txt"
    corpus.write_text(LINES)
    config = RunConfig(corpus=str(corpus), backbone=str(tiny_bert), max_steps=1, batch_size=8, max_length=16)
    with pytest.MonkeyPatch.context() as patch:  # the store of a test is gone with it
        patch.setenv("CSE_RUNS", str(corpus.parent / "runs"))
        patch.setenv("CSE_CACHE", str(corpus.parent / "cache"))
        return runs.run(config).folder


CHECKPOINTS = [
    b"",
    None,
]


@pytest.mark.parametrize("content", CHECKPOINTS, ids=range(len(CHECKPOINTS)))
def test_a_damaged_checkpoint_is_named(tiny_bert, corpus_file, content):
    config = RunConfig(corpus=str(corpus_file), backbone=str(tiny_bert), max_steps=2, batch_size=8, max_length=16)
    identity = runs.prepare(config).id
    checkpoint = paths.runs() / ".unfinished" / identity / "checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    if content is None:
        torch.save({"progress": torch.zeros(10_000)}, checkpoint)
        content = checkpoint.read_bytes()[:20_000]
    if isinstance(content, bytes):
        checkpoint.write_bytes(content)
    else:
        torch.save(content, checkpoint)
    with pytest.raises(ConfigError, match="checkpoint.pt is damaged .*delete it, and training begins anew"):
        runs.run(config)


# --- Places that cannot be written, disks that are full, processes that are killed ---


@pytest.mark.parametrize("place", ["file", "/dev/null", "/proc/x", "~nosuchuser/runs", LONG, "loop"])
def test_a_store_that_cannot_be_written(tmp_path, monkeypatch, tiny_bert, corpus_file, capsys, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.iterdir())
    monkeypatch.setenv("CSE_RUNS", place)
    (tmp_path / "p.yaml").write_text(f"method: simcse\ncorpus: {corpus_file}\nbackbone: {tiny_bert}\nbatch_size: 8\n")
    before.append(tmp_path / "p.yaml")
    assert run_command.main(["-f", str(tmp_path / "p.yaml"), "-p", "dev_task=none", "-p", "max_steps=1"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "cannot be read or written" in err or "in the home folder of nobody" in err
    assert set(tmp_path.iterdir()) <= {*before, tmp_path / "cache"} and (tmp_path / "file").read_text() == "mine"


def test_what_is_in_the_way_of_a_run_is_named_before_it_trains(tmp_path, monkeypatch, tiny_bert, corpus_file):
    config = RunConfig(corpus=str(corpus_file), backbone=str(tiny_bert), max_steps=1, batch_size=8, max_length=16)
    monkeypatch.setattr(running, "train", lambda *a, **k: pytest.fail("it trains"))
    place = paths.runs() / "demo" / runs.prepare(config).id
    place.parent.mkdir(parents=True)
    for make in (lambda: place.write_text("mine"), lambda: place.symlink_to(tmp_path / "gone")):
        make()
        with pytest.raises(DataError, match="is in the way of the run of this name: move it"):
            runs.run(config)
        assert os.path.lexists(place)
        place.unlink()
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="notes.txt lies where a run is to be trained again: move it"):
        runs.run(config)
    shutil.rmtree(place)
    for blocked in (paths.runs() / ".unfinished", paths.runs() / ".unfinished" / f".{place.name}.lock"):
        if blocked.name == ".unfinished":
            blocked.write_text("a file")
        else:
            blocked.parent.unlink()
            blocked.mkdir(parents=True)
        with pytest.raises(DataError, match="cannot be read or written"):
            runs.run(config)


FULL = """
import json, resource, sys
from pathlib import Path
import matplotlib.pyplot as plt, numpy as np, pandas as pd, torch
from lib import figures, paths, runs
from lib.batch import report
from lib.checks import ConfigError, DataError, EncoderError
from lib.config import RunConfig
from lib.data import Corpus, tokenize_corpus
from lib.encoders import SentenceEncoder, ensemble
from lib.training import whole_file

tmp, bert, finished, corpus = Path(sys.argv[1]), *sys.argv[2:]
encoder, run = SentenceEncoder.from_pretrained(bert, device="cpu"), runs.Run(Path(finished))
rows = pd.DataFrame({"value": np.arange(2000.0)})
lines = Corpus("lines", [[f"line {i} of the corpus" for i in range(600)]])
figure = plt.figure()
config = RunConfig(corpus=corpus, backbone=bert, max_steps=1, batch_size=8, max_length=16, seed=5)
paths.check_writable = lambda folder: None  # the early try; here is what happens when a disk fills up later

def checkpoint():
    with whole_file(tmp / "checkpoint.pt") as new:
        torch.save({"a": torch.zeros(10_000)}, new)

tries = {
    "encoder": lambda: encoder.save(tmp / "encoder"),
    "ensemble": lambda: ensemble.EncoderSum([encoder]).save(tmp / "ensemble"),
    "tokens": lambda: tokenize_corpus(lines, encoder, max_length=16),
    "checkpoint": checkpoint,
    "results": lambda: run.results("full", lambda: rows),
    "figure": lambda: figures.save_figure(figure, "full", rows),
    "run": lambda: runs.run(config),
    "report": lambda: report.write("demo", [Path(f"{i}.ipynb") for i in range(20)]),
}
for limit in (300, 2_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for name, attempt in tries.items():
        try:
            attempt()
            said = "nothing"
        except (ConfigError, DataError, EncoderError) as error:
            said = str(error)
        except BaseException as error:
            said = f"TRACEBACK {type(error).__name__} {error}"
        print(json.dumps([limit, name, said]), flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(json.dumps([0, "left", sorted(path.name for path in tmp.rglob("*") if path.is_file() and path.suffix != ".lock")]))
"""


@pytest.mark.process
def test_a_full_disk_is_said_and_leaves_nothing_half(tmp_path, tiny_bert, finished_run, corpus_file):
    folder = shutil.copytree(finished_run, tmp_path / finished_run.name)
    (tmp_path / "written").mkdir()
    arguments = [str(tmp_path / "written"), str(tiny_bert), str(folder), str(corpus_file)]
    places = {"CSE_RUNS": "runs", "CSE_CACHE": "cache", "CSE_FIGURES": "figures"}
    environment = os.environ | {name: str(tmp_path / "written" / place) for name, place in places.items()}
    ended = subprocess.run(
        [sys.executable, "-c", FULL, *arguments], capture_output=True, text=True, cwd=ROOT, env=environment | {"CSE_PROGRESS": "off"}
    )  # fmt: skip
    said = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(said) == 17, ended.stderr
    for limit, name, text in said[:-1]:
        assert "(File too large): raise the limit on the size of files" in text and "\n" not in text, (
            limit,
            name,
            text,
        )
    assert said[-1][2] == []


# --- Commands ---


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (PermissionError(errno.EACCES, "x", "/a/b"), 2, "/a/b cannot be read or written (Permission denied): change"),
        (
            OSError(errno.EROFS, "x", "/a/b"),
            2,
            "/a/b cannot be read or written (Read-only file system): choose a folder",
        ),
        (OSError("connection lost\nagain"), 2, "connection lost again: check"),
        (DataError("two\nlines"), 2, "two lines"),
        (KeyboardInterrupt(), 130, "Interrupted; start the same command again"),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_how_a_command_ends(capsys, error, code, words):
    def work():
        raise error

    assert command.ended(work) == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(words) and err.count("\n") == bool(words)


@pytest.mark.parametrize(
    "argv",
    [
        ["check", "everything"],
        ["check", "--data-dir", "/no/such/folder"],
        ["check", "--data-dir", LONG],
        ["check-pool", "/dev/null"],
    ],
)
def test_the_data_command_refuses_with_the_code_of_the_others(argv, capsys):
    assert data_command.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1


def test_a_home_folder_of_nobody_is_one_sentence(monkeypatch):
    monkeypatch.setenv("CSE_RUNS", "~nosuchuser/runs")
    for ask_for in (
        lambda: paths.expanded("~nosuchuser/x"),
        paths.runs,
        lambda: SentenceEncoder.from_pretrained("~nosuchuser/x"),
    ):
        with pytest.raises(DataError, match="nosuchuser.* is in the home folder of nobody here"):
            ask_for()


def test_signs_of_formulas_are_signs_in_a_figure():
    drawing = [
        draw for draw in vars(figures).values() if getattr(draw, "__annotations__", {}).get("return") == "Figure"
    ]
    assert len(drawing) > 6 and all(hasattr(draw, "__wrapped__") for draw in drawing), (
        "figures.style.drawing is missing"
    )
    frame = pd.DataFrame({"encoder": ["$5_{ and $6"] * 5, "index": range(1, 6), "value": [1.0, 0.5, 0.2, 0.1, 0.05]})
    figure = figures.curves(frame, x="index", log=[""])
    saved = figures.save_figure(figure, "name", frame, note="$5_{ and $6")
    assert "$5_{ and $6" in saved.with_suffix(".svg").read_text()
    (Path(os.environ["CSE_FIGURES"]) / "file").write_text("x")
    os.environ["CSE_FIGURES"] += "/file"
    with pytest.raises(DataError, match="cannot be read or written"):
        figures.save_figure(figure, "name", frame)


def test_a_named_file_that_a_method_does_not_need_must_be_there(tiny_bert, corpus_file):
    values = {"corpus": str(corpus_file), "backbone": str(tiny_bert), "batch_size": 8, "max_length": 16}
    with pytest.raises(DataError, match="nope does not exist"):
        runs.preflight(RunConfig.from_parameters(values | {"method": "three_r(simcse)", "words": "nope"}))
    with pytest.raises(ConfigError, match="cannot be built here"):
        runs.run(RunConfig.from_parameters(values | {"method": "micse", "ami_weight": 0.0, "queue_size": 2**31 - 1}))
