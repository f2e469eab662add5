"""The model card of a run, and the folder that is given away."""

import os
import shutil

import numpy as np
import pandas as pd
import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from lib import paths, runs
from lib.checks import ConfigError, EncoderError
from lib.evaluation import RESULT_COLUMNS


def card_of(run):
    return (run.folder / "encoder/README.md").read_text(encoding="utf8")


def test_a_run_comes_with_a_card_that_the_hub_understands(config, tiny_bert, tmp_path):
    run = runs.run(config)
    text, data = card_of(run), ModelCard(card_of(run)).data
    assert data.library_name == "sentence-transformers" and data.pipeline_tag == "sentence-similarity"
    assert data.base_model is None  # a folder of unknown origin
    assert f"| all | spearman | {round(run.metrics['dev'], 2)} |" in text
    for part in (run.id, tiny_bert.name, "sentences.txt (200 rows)", "arXiv 2104.08821", "| temperature | 0.05 |"):
        assert part in text
    assert f"See that of {tiny_bert.name}" in text and 'SentenceTransformer("FOLDER")' in text
    for place in (tmp_path, tiny_bert.parent, paths.root(), paths.runs()):
        assert str(place) not in text
    further = config.replace(backbone=str(run.folder / "encoder"), seed=2)
    name = runs.prepare(further).id
    (run.folder / "encoder/README.md").unlink()
    assert runs.prepare(further).id == name  # the card is no part of what the encoder is


def test_an_export_has_the_scores_measured_since_and_a_run_is_found_by_its_names(config, tmp_path, sentences):
    run = runs.run(config)
    rows = pd.DataFrame([("STS12", "test", "a | b", "all", "spearman", 61.234)], columns=RESULT_COLUMNS)
    run.results("sts", lambda: rows)
    run.results("of earlier pairs", lambda: rows.assign(value=57.0))
    os.utime(run.folder / "results/of earlier pairs.csv", (0, 0))
    run.results("dev-projected-0", lambda: rows.assign(value=58.61))  # read otherwise than the encoder that is exported
    folder = runs.export(run, tmp_path / "mine")
    text = (folder / "README.md").read_text()
    assert (
        r"| STS12 | test | a \| b | all | spearman | 61.23 |" in text
        and not {"57.0", "57.00", "58.61"} & {*text.split()}
        and "| demo | dev |" in text
    )
    peer = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(peer.encode(sentences[:9]), run.encoder().encode(sentences[:9]), atol=1e-5)
    with pytest.raises(EncoderError, match="mine exists: .* nothing was written"):
        runs.export(run, folder)
    with pytest.raises(ConfigError, match="there is no finished run 'simcse-0': give the id or the folder"):
        runs.export("simcse-0", tmp_path / "other")
    assert (runs.export(run.id, tmp_path / "by id") / "model.safetensors").is_file()
    for name in (run.id, str(run.folder), str(run.folder / "encoder")):
        assert runs.find_run(name).folder == run.folder
        for pooling in ("cls", "mean"):
            called = f"simcse, {run.labels['backbone']}, seed 42 ({pooling})"
            assert [*runs.open_encoders([f"{name}:{pooling}"])] == [called]
    assert runs.find_run("demo") is None and runs.find_run(config.backbone) is None
    (run.folder / "metrics.json").unlink()
    with pytest.raises(ConfigError, match="without metrics.json"):
        runs.open_encoders([run.id])


def test_other_encoders_are_named_without_their_places(config, tiny_bert, tmp_path, hub):
    teacher = str(shutil.copytree(tiny_bert, tmp_path / "places" / "teacher"))
    backbone = hub(tiny_bert, "user/bert")
    run = runs.run(config.replace(method="distill", teacher=teacher, dev_task="none", backbone=backbone))
    assert "| teacher | teacher |" in card_of(run) and "places" not in card_of(run)
    assert ModelCard(card_of(run)).data.base_model == "user/bert"
