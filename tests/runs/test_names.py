"""What a run and its backbone are called: two runs never share a name, and a name does not depend on a place."""

import shutil

from lib import runs
from lib.encoders import SentenceEncoder
from tests.conftest import reweigh


def name(config, **changes):
    return runs.prepare(config.replace(**changes)).id


def test_the_name_follows_what_is_read_and_its_role_and_no_place(config, tiny_bert, tmp_path, sentences, shake):
    moved = tmp_path / "elsewhere.txt"
    moved.write_text("\n".join(sentences) + "\n")
    assert name(config, corpus=str(moved), profile="small") == name(config)
    moved.write_text("\n".join(sentences[::-1]) + "\n")
    assert name(config, corpus=str(moved)) != name(config)
    changed = shutil.copytree(tiny_bert, tmp_path / "changed")
    reweigh(changed, "cls.predictions.bias", lambda bias: bias + 1)
    assert name(config, backbone=str(changed)) == name(config), "an MLM head is not read"
    shake(SentenceEncoder.from_pretrained(tiny_bert, pooling="pooler")).save(tmp_path / "shaken")
    config, shaken = config.replace(method="tncse"), str(tmp_path / "shaken")
    names = {name(config), name(config, second_backbone=shaken), name(config, pooler_from=shaken)}
    assert len(names | {name(config, second_backbone=shaken, pooler_from=shaken)}) == 4


def test_every_parameter_that_changes_a_run_changes_its_name(config):
    changes = [
        {}, {"learning_rate": 1e-4}, {"max_steps": 1}, {"precision": "bf16"}, {"seed": 1}, {"dev_task": "none"},
        {"eval_every": 1}, {"max_length": 12}, {"pooling": "mean"}, {"corpus_size": 100}, {"method": "ct"},
        {"corpus_size": 100, "corpus_seed": 1}, {"augmentation": "shuffle"}, {"temperature": 0.1},
    ]  # fmt: skip
    names = [name(config, **change) for change in changes]
    assert len(set(names)) == len(names), dict(zip(names, changes, strict=True))


def test_what_tables_call_a_backbone_also_of_a_run_from_the_encoder_of_a_run(config, tiny_bert, tmp_path, hub):
    assert runs.encoder_name("demo") == "mini-bert"
    assert runs.encoder_name(str(tiny_bert)) == tiny_bert.name
    assert runs.encoder_name(hub(tiny_bert, "some/bert")) == "bert"
    shutil.copytree(tiny_bert, tmp_path / "encoder")  # a folder of that name that belongs to no run
    assert runs.encoder_name(str(tmp_path / "encoder")) == "encoder"
    first = runs.run(config)
    second = runs.run(config.replace(backbone=str(first.folder / "encoder")))
    assert first.id != second.id
    for run in (first, second):
        assert run.provenance["backbone"] == run.labels["backbone"] == tiny_bert.name
        assert runs.encoder_name(str(run.folder / "encoder")) == tiny_bert.name
    (first.folder / "provenance.json").write_text("{}")  # of older code
    assert runs.encoder_name(str(first.folder / "encoder")) == first.id
