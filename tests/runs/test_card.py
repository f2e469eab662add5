"""The model card of a run, and the folder that is given away."""

import shutil

import numpy as np
import pandas as pd
import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from lib import paths, runs
from lib.checks import ConfigError, DataError, EncoderError
from lib.config import RunConfig
from lib.encoders.export import sentence_transformer
from lib.evaluation import RESULT_COLUMNS


@pytest.fixture
def config(tiny_bert, corpus_file):
    return RunConfig(corpus=str(corpus_file), backbone=str(tiny_bert), batch_size=32, max_steps=3, eval_every=2)


def card_of(run):
    return (run.folder / "encoder/README.md").read_text(encoding="utf8")


def test_a_run_comes_with_a_card_that_the_hub_understands(config, tiny_bert, tmp_path):
    run = runs.run(config)
    text, data = card_of(run), ModelCard(card_of(run)).data
    assert data.library_name == "sentence-transformers" and data.pipeline_tag == "sentence-similarity"
    assert data.base_model is None and data.license is None  # a folder of unknown origin
    (result,) = data.eval_results
    assert (result.dataset_type, result.dataset_split, result.metric_type) == ("demo", "dev", "spearman")
    assert result.metric_value == round(run.metrics["dev"], 2) and "aggregation all" in result.metric_name
    for part in (run.id, tiny_bert.name, "sentences.txt (200 rows)", "arXiv 2104.08821", "| temperature | 0.05 |"):
        assert part in text
    assert f"See that of {tiny_bert.name}" in text and 'SentenceTransformer("FOLDER")' in text
    for place in (tmp_path, tiny_bert.parent, paths.root(), paths.runs()):
        assert str(place) not in text
    further = config.replace(backbone=str(run.folder / "encoder"), seed=2)
    name = runs.prepare(further).id
    (run.folder / "encoder/README.md").unlink()
    assert runs.prepare(further).id == name  # the card is no part of what the encoder is


def test_licence_and_language_come_from_the_backbone(config, tiny_bert, hub, tmp_path):
    backbone = shutil.copytree(tiny_bert, tmp_path / "backbone")
    (backbone / "README.md").write_text("---\nlicense: apache-2.0\nlanguage: en\n---\n# Mine\n")
    run = runs.run(config.replace(backbone=hub(backbone, "user/bert")))
    data = ModelCard(card_of(run)).data
    assert (data.base_model, data.license, data.language) == ("user/bert", "apache-2.0", "en")
    assert "has the licence apache-2.0" in card_of(run)
    further = runs.run(config.replace(backbone=str(run.folder / "encoder"), seed=2))
    assert ModelCard(card_of(further)).data.license == "apache-2.0"
    for odd in ("no front matter", "---\n[\n---\n", "---\nlicense: [a\n---\n"):
        (backbone / "README.md").write_text(odd)
        assert runs.run(config.replace(backbone=str(backbone), seed=len(odd))).is_finished


def test_an_export_has_the_scores_that_were_measured_since(config, tmp_path, sentences):
    run = runs.run(config)
    kinds = {
        "spearman": "STS",
        "accuracy": "Classification",
        "ndcg@10": "Retrieval",
        "v_measure": "Clustering",
        "of a new kind": "Other",
    }
    rows = [(f"by {metric}", "test", "a | b", "all", metric, 61.234) for metric in kinds]
    rows.append(("Avg.", "test", "s", "all", "spearman", 61.0))
    run.results("sts", lambda: pd.DataFrame(rows, columns=RESULT_COLUMNS))
    folder = runs.export(run, tmp_path / "mine")
    text = (folder / "README.md").read_text()
    assert r"| by spearman | test | a \| b | all | spearman | 61.23 |" in text and "| Avg. |" in text
    results = {result.dataset_type: result for result in ModelCard(text).data.eval_results}
    assert {*results} == {"demo", *(f"by {metric}" for metric in kinds)}
    assert {metric: results[f"by {metric}"].task_type for metric in kinds} == kinds
    assert results["by spearman"].metric_value == 61.23
    peer = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(peer.encode(sentences[:9]), run.encoder().encode(sentences[:9]), atol=1e-5)
    with pytest.raises(EncoderError, match="mine exists: .* nothing was written"):
        runs.export(run, folder)
    with pytest.raises(DataError, match="lies in the finished run"):
        runs.export(run, run.folder / "mine")


def test_twin_encoders_say_how_they_are_loaded(config, tmp_path, sentences):
    run = runs.run(config.replace(method="tncse", max_steps=2))
    assert "sentence_transformer(" in card_of(run) and "trust_remote_code" not in card_of(run)
    peer = sentence_transformer(runs.export(run, tmp_path / "mine"), device="cpu")
    np.testing.assert_allclose(peer.encode(sentences[:9]), run.encoder().encode(sentences[:9]), atol=1e-5)


def test_other_encoders_are_named_without_their_places(config, tiny_bert, tmp_path):
    teacher = shutil.copytree(tiny_bert, tmp_path / "places" / "teacher")
    run = runs.run(config.replace(method="distill", teacher=str(teacher), dev_task="none"))
    assert "| teacher | teacher |" in card_of(run) and "places" not in card_of(run)
    assert ModelCard(card_of(run)).data.eval_results is None


def test_a_run_by_its_names(config):
    run = runs.run(config)
    for name in (run.id, str(run.folder), str(run.folder / "encoder")):
        assert runs.find_run(name).folder == run.folder
        assert runs.open_encoder(name)[0] == f"simcse, {run.labels['backbone']}, seed 42 (cls)"
    assert runs.find_run("demo") is None and runs.find_run(config.backbone) is None
    (run.folder / "metrics.json").unlink()
    with pytest.raises(ConfigError, match="without metrics.json"):
        runs.open_encoder(run.id)
