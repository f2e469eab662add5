"""What public bug reports of this field stumble over: each case with what a user gets here, the right value or one sentence."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from torch import nn
from transformers import BertTokenizerFast

from lib.batch.execute import plan_of
from lib.batch.jobs import single
from lib.checks import ConfigError, DataError
from lib.config import RunConfig
from lib.data import load_corpus, load_sts
from lib.encoders import SentenceEncoder
from lib.losses import info_nce
from lib.paths import root
from lib.results import history
from lib.runs import Best, Plan, Run, projected_dev, run
from lib.runs.prepare import preflight, run_id
from tests.conftest import rewrite
from tests.methods.conftest import batch, build

CHINESE = ["我喜欢音乐。", "今天天气很好。", "这只狗在公园里跑。"]
__all__ = ["batch"]  # a fixture


# --- Folders of sentence-transformers: the vectors that its version wrote them for; refusals: test_hostile ---

FLAGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "mean_sqrt_len_tokens": "mean_sqrt_len_tokens"}
LATER_FLAGS = FLAGS | {"weightedmean_tokens": "weightedmean", "lasttoken": "lasttoken"}


@pytest.fixture
def theirs(tiny_bert, tmp_path):
    """Function (version, ...) -> a folder as that version of sentence-transformers lays it out, with the tiny BERT."""

    def write(version, *, pooling="mean", dense=None, normalise=False, length=None):
        folder = shutil.copytree(tiny_bert, tmp_path / f"version-{version}")
        steps = [("Transformer", ""), ("Pooling", "1_Pooling")]
        flags = FLAGS if version < 3 else LATER_FLAGS
        settings = {f"pooling_mode_{flag}": name == pooling for flag, name in flags.items()}
        settings |= {"include_prompt": True} if version >= 3 else {}
        rewrite(folder, "1_Pooling/config.json", {"word_embedding_dimension": 32} | settings)
        if dense:
            steps.append(("Dense", "2_Dense"))
            linear = nn.Linear(32, dense["out_features"], bias=dense["bias"])
            torch.manual_seed(1)
            nn.init.normal_(linear.weight, std=0.3)
            rewrite(folder, "2_Dense/config.json", {"in_features": 32} | dense)
            weights = {f"linear.{name}": value for name, value in linear.state_dict().items()}
            save_file(weights, folder / "2_Dense/model.safetensors")
        steps += [("Normalize", f"{len(steps)}_Normalize")] if normalise else []
        names = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                 for i, (kind, path) in enumerate(steps)]  # fmt: skip
        rewrite(folder, "modules.json", json.dumps(names))
        rewrite(folder, "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
        about = {"__version__": {"sentence_transformers": f"{version}.0.0"}}
        about |= {"prompts": {}, "default_prompt_name": None} if version >= 3 else {}
        about |= {"similarity_fn_name": "cosine"} if version >= 4 else {}
        rewrite(folder, "config_sentence_transformers.json", about)
        if version == 6:  # this one is installed: opened and saved once more by it
            peer = SentenceTransformer(str(folder), device="cpu")
            shutil.rmtree(folder)
            peer.save_pretrained(str(folder))
        return folder

    return write


SQUARE = {"out_features": 32, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
WIDE = {"out_features": 48, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}


@pytest.mark.parametrize("version", [2, 4, 6])
@pytest.mark.parametrize(
    "how",
    [
        {"pooling": "cls"},
        {"length": 8, "normalise": True},
        {"dense": SQUARE, "length": 16},
        {"dense": WIDE, "normalise": True, "pooling": "cls", "length": 40},
    ],
)
def test_a_folder_gives_the_vectors_of_its_package(theirs, sentences, tmp_path, version, how):
    folder = theirs(version, **how)
    texts = [*sentences[:9], "", "the dog runs in the park . " * 30]
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    encoder = SentenceEncoder.from_pretrained(folder)
    assert encoder.max_length == how.get("length", 64)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-5)
    encoder.save(tmp_path / "again")
    for same in (SentenceEncoder.from_pretrained(tmp_path / "again"), SentenceTransformer(str(tmp_path / "again"))):
        np.testing.assert_allclose(same.encode(texts), expected, atol=1e-5)
    assert encoder.fingerprint() == SentenceEncoder.from_pretrained(tmp_path / "again").fingerprint()


# --- Weights that are in the file ---


def test_a_trained_layer_is_read_as_pooler_and_named_where_it_is_not(tiny_bert, sentences, tmp_path, capsys):
    """In a checkpoint of SimCSE's script, in safetensors."""
    folder = shutil.copytree(tiny_bert, tmp_path / "checkpoint")
    saved = load_file(folder / "model.safetensors")
    state = {name: value for name, value in saved.items() if name.startswith("bert.") and "pooler" not in name}
    torch.manual_seed(1)
    layer = nn.Linear(32, 32)
    state |= {f"mlp.dense.{name}": value for name, value in layer.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    plain = torch.from_numpy(SentenceEncoder.from_pretrained(folder, pooling="cls").encode(sentences[:9]))
    said = capsys.readouterr().err
    assert "2 of its weights are not read, mlp.dense.bias, mlp.dense.weight; pooling 'pooler' reads mlp.dense" in said
    found = SentenceEncoder.from_pretrained(folder, pooling="pooler").encode(sentences[:9])
    np.testing.assert_allclose(found, layer(plain).tanh().detach().numpy(), atol=1e-5)
    assert not capsys.readouterr().err


def test_supervised_simcse_goes_on_with_a_projection_that_was_saved(theirs):
    folder = theirs(2, dense=SQUARE)
    saved = SentenceEncoder.from_pretrained(folder).projection[0].weight
    assert torch.equal(build("simcse", folder, pooling=None, projection="always").encoder.projection[0].weight, saved)


# --- Text that the tokenizer does not know ---


def test_text_in_another_script_is_refused_and_some_of_it_is_remarked_on(sentences, capsys):
    encoder = SentenceEncoder.from_pretrained("demo")
    with pytest.raises(DataError, match=r"the texts: 100% of the tokens are unknown .*; take a backbone made for"):
        encoder.encode(CHINESE)
    assert not capsys.readouterr().err
    encoder.encode([*sentences[:12], *CHINESE])
    assert "of the tokens are unknown to the tokenizer, which reads all of them as one" in capsys.readouterr().err
    assert encoder.encode(CHINESE, any_words=True).shape == (3, encoder.dimension)


def test_a_corpus_dev_pairs_or_a_test_task_in_another_script_are_refused_before_training(config, tiny_bert, tmp_path):
    """Of a tokenizer that knows Chinese alone; what is trained on, and the demo, are English."""
    folder = shutil.copytree(tiny_bert, tmp_path / "chinese")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*"".join(CHINESE)})]
    BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}).save_pretrained(folder)
    chinese, unknown = config.replace(backbone=str(folder), dev_task="none"), ": 1?[0-9]{2}% of the tokens are unknown"
    preflight(chinese)
    for dev_task, what in (("none", "corpus 'sentences.txt'"), ("demo", "the dev pairs of demo")):
        with pytest.raises(DataError, match=what + unknown):
            run(chinese.replace(dev_task=dev_task))
    plan = Plan("demo")
    plan.add("main", chinese, {"SimCSE": {}}, [1])
    plan.check()
    plan.tasks("sts", ["demo"], tmp_path)
    with pytest.raises(ConfigError, match="main, SimCSE, given: sts tasks, texts such as '.+'" + unknown):
        plan.check()


# --- No dev pairs ---


@pytest.mark.notebook  # in the common cache, see tests/batch/test_batch.py
@pytest.mark.parametrize("path", sorted((root() / "notebooks").glob("[1-69]_*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_takes_no_dev_pairs(path):
    """Its plan holds: what looks at pairs has others, and nothing is chosen by a score that is not there."""
    plan = plan_of(single(path, assignments=["dev_task=none"]))
    assert {trial.config.dev_task for trial in plan} == {"none"}
    assert not any(isinstance(start, Best) for trial in plan for start in trial.after.values())


def test_without_dev_pairs_the_last_step_is_kept_and_there_are_no_rows_of_dev(config, tiny_bert):
    plan, config = Plan("demo"), config.replace(max_steps=4, dev_task="none")
    plan.add("main", config, {"SimCSE": {}}, [1])
    (run,) = plan.runs("main").run
    assert run.metrics == {"steps": 4, "best_step": 4, "dev": None}
    assert run.history[["dev", "alignment", "uniformity"]].isna().all(axis=None) and len(run.history) == 4
    untuned = SentenceEncoder.from_pretrained(tiny_bert)
    for what in ("dev", projected_dev, history("alignment", "uniformity")):
        assert plan.measure("main", what, table="dev", **({"untuned": untuned} if what == "dev" else {})).empty
    assert config.dev_pairs(["demo"]).fingerprint() == load_sts(config.data_folder(), "demo").fingerprint()


# --- Rows of a corpus ---


def test_empty_hard_negatives_and_copies_are_counted_aloud(tmp_path, capsys):
    (tmp_path / "triples.csv").write_text("sent0,sent1,hard_neg\na cat,a dog,\na fox,a hen,a wolf\n")
    assert load_corpus("triples.csv", tmp_path).columns[2] == (" ", "a wolf")
    assert "triples.csv: 1 of 2 hard negatives are empty" in capsys.readouterr().err
    (tmp_path / "some.txt").write_text("a cat\na dog\na cat\na fox\n")
    load_corpus("some.txt", tmp_path)
    assert "some.txt: 25% of the rows are there already" in capsys.readouterr().err
    (tmp_path / "other.txt").write_text("a cat\na dog\n")
    load_corpus("other.txt", tmp_path)
    assert not capsys.readouterr().err


def test_copies_of_a_sentence_and_equal_positives_and_hard_negatives_are_no_negatives(tiny_bert, sentences, batch):
    """Of eight copies nothing is left to push away; as negatives they cost log 8."""
    copies = [sentences[0]] * 8
    method = build("simcse", tiny_bert, equal_texts="left_out", projection="none")
    assert method(batch(method, copies))["info_nce"].item() == pytest.approx(0, abs=1e-6)
    plain = build("simcse", tiny_bert, projection="none")
    assert plain(batch(plain, copies))["info_nce"].item() == pytest.approx(np.log(8), rel=1e-5)
    # By tokens: a row's positive as the positive, or the hard negative, of another row, in other white space and case.
    roles = ("anchor", "positive", "hard_negative")
    inputs = batch(
        method, ["a dog", "the cat", "a man"], ["the  Dog", "a cat", "the dog"], ["rain", "A DOG", "snow"], roles=roles
    )
    z = dict(zip(roles, method.embed(inputs).embeddings["encoder"].unbind(1), strict=True))
    excluded = torch.zeros(3, 6, dtype=torch.bool)
    excluded[0, 2] = excluded[2, 0] = excluded[0, 4] = True
    expected = info_nce(z["anchor"], z["positive"], hard_negatives=z["hard_negative"], excluded=excluded)
    torch.testing.assert_close(method(inputs)["info_nce"], expected)


def test_several_hard_negatives_for_a_row(tiny_bert, tmp_path, sentences, batch):
    rows = [sentences[i : i + 16] for i in (0, 16, 32, 48)]
    lines = ["anchor,positive,negative_1,negative_2", *map(",".join, zip(*rows, strict=True))]
    (tmp_path / "four.csv").write_text("\n".join(lines) + "\n")
    config = RunConfig(corpus="four.csv", data_dir=str(tmp_path), backbone=str(tiny_bert), batch_size=8)
    preflight(config)
    roles = config.whole_corpus().roles
    assert roles == ("anchor", "positive", "negative_1", "negative_2")
    method = build("simcse", tiny_bert, projection="none", hard_negative_weight=0.5)
    z = [method.encoder(*batch(method, column).column("anchor")) for column in rows]
    expected = info_nce(z[0], z[1], hard_negatives=torch.stack(z[2:]), hard_negative_weight=0.5)
    torch.testing.assert_close(method(batch(method, *rows, roles=roles))["info_nce"], expected, rtol=1e-4, atol=1e-5)


def test_new_parameters_move_no_run(tmp_path):
    """A run that leaves nothing out, and embeds its batches whole, has the name it had before the parameters came."""
    config = RunConfig(corpus="demo", seed=7)
    changes = [{}, {"equal_texts": "negatives"}, {"chunk_size": 0}, {"replacement_rate": 0.0}]
    changes += [{"equal_texts": "left_out"}, {"chunk_size": 8}, {"replacement_rate": 0.1}]
    names = [run_id(config.replace(**change), {"corpus": "c"}) for change in changes]
    assert names[:4] == ["simcse-ee48a12bbda9"] * 4 and len({*names}) == 4
    (tmp_path / "config.yaml").write_text("method: simcse\ndev_task: none\n")
    settings = Run(tmp_path).settings
    assert not {"equal_texts", "chunk_size", "replacement_rate"} & {*settings, *settings["method_arguments"]}


# --- One's own pairs ---

PAIRS = [("我喜欢音乐。", "我爱音乐。", 1.0), ("a red cat", "a blue dog", -0.5), ("two dogs", "two  dogs", 0.25)]


def written(path, pairs=PAIRS):
    if path.suffix == ".jsonl":
        names = ("sentence1", "sentence2", "score")
        lines = [json.dumps(dict(zip(names, pair, strict=True)), ensure_ascii=False) for pair in pairs]
    else:
        sign = "," if path.suffix == ".csv" else "\t"
        lines = [sign.join(("score", "sentence1", "sentence2"))] + [sign.join((str(s), a, b)) for a, b, s in pairs]
    path.write_text("\n".join(lines) + "\n", encoding="utf8")
    return path


@pytest.mark.parametrize("name", ["STS-B.csv", "mine.tsv", "mine.jsonl"])
def test_own_pairs_on_any_scale_but_not_without_the_columns(tmp_path, name):
    written(tmp_path / name)
    task = load_sts(tmp_path, name, "dev")
    assert (task.name, task.split, task.protocol) == (name, "dev", "own pairs")
    assert task.sentences1 == ["我喜欢音乐。", "a red cat", "two dogs"] and task.sentences2[2] == "two dogs"
    np.testing.assert_allclose(task.gold, [5, 0, 2.5])
    (tmp_path / "mine.csv").write_text("a,b,score\nx,y,1\n")
    with pytest.raises(DataError, match="the header lacks sentence1, sentence2; it must name"):
        load_sts(tmp_path, "mine.csv")


@pytest.mark.parametrize(
    "pairs, words",
    [
        ([("a", "b", "high"), ("c", "d", 1)], "pair 1: the score 'high' is no number"),
        ([("a", "b", 1), ("c", "", 2)], "pair 2: sentence1 or sentence2 is missing or empty"),
        ([("a", "b", 1), ("c", "d", 1)], "2 pairs with 1 different scores cannot be ranked"),
    ],
)
@pytest.mark.parametrize("name", ["mine.csv", "mine.jsonl"])
def test_pairs_that_cannot_be_scored_are_refused(tmp_path, name, pairs, words):
    written(tmp_path / name, pairs)
    with pytest.raises(DataError, match=f"{name}.*{words}"):
        load_sts(tmp_path, name)


def test_a_run_on_own_pairs_chooses_by_them_and_is_labelled_so(config, sentences, tmp_path):
    pairs = [(a, b, len({*a.split()} & {*b.split()})) for a, b in zip(sentences[:60], sentences[60:120], strict=True)]
    written(tmp_path / "mine.tsv", pairs)
    plan = Plan("demo")
    plan.add("main", config.replace(data_dir=str(tmp_path), dev_task="mine.tsv", max_steps=4), {"SimCSE": {}}, [1])
    plan.tasks("sts", ["mine.tsv"], tmp_path)
    plan.check()
    dev, scores = plan.measure("main", "dev", table="dev"), plan.measure("main", table="own")
    for rows in (dev, scores):
        assert set(rows.task) == {"mine.tsv"} and set(rows.protocol) == {"own pairs"}
    of_all = scores[scores.aggregation == "all"].value.iloc[0]
    assert dev.value.iloc[0] == pytest.approx(of_all, abs=1e-9)
