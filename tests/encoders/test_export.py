"""Encoders in sentence-transformers: the same vectors, and the same scores in mteb."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.export import EncoderModule, sentence_transformer
from lib.encoders.heads import projection_head
from lib.encoders.layer_norms import remove_layer_norms
from lib.evaluation.mteb_tasks import mteb_encoder


@pytest.fixture
def total(tiny_bert, tiny_roberta, shake):
    """A sum of encoders with tokenizers, poolings and lengths of their own."""
    first = SentenceEncoder.from_pretrained(tiny_bert, pooling="mean")
    second = SentenceEncoder.from_pretrained(tiny_roberta)
    second.max_length = 9
    return ensemble.EncoderSum([shake(first, 1), shake(second, 2)], [0.3, 0.7])


@pytest.mark.parametrize("by_us", [True, False])
def test_a_sum_of_encoders_gives_the_same_vectors_there_or_the_package_names_our_class(
    total, tmp_path, sentences, by_us
):
    texts = [*sentences[:20], "a dog " * 40]
    expected = total.encode(texts)
    if by_us:
        total.save(tmp_path / "saved")
    else:
        SentenceTransformer(modules=[EncoderModule(total)], device="cpu").save_pretrained(str(tmp_path / "saved"))
    (step,) = json.loads((tmp_path / "saved/modules.json").read_text())
    assert step["type"] == "lib.encoders.export.EncoderModule"
    np.testing.assert_allclose(ensemble.load(tmp_path / "saved").encode(texts), expected, atol=1e-6)
    model = sentence_transformer(tmp_path / "saved", device="cpu")
    np.testing.assert_allclose(model.encode(texts, batch_size=7), expected, atol=1e-5)
    assert model.get_embedding_dimension() == 32 and model.similarity_fn_name == "cosine"
    # without permission it imports no class of another package; nothing is averaged in its place
    with pytest.raises(ValueError, match="lib.encoders.export.EncoderModule"):
        SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert not list((tmp_path / "saved").rglob("*.py"))


THEIRS = ("first_last_mean", "embeddings_last_mean")  # the package reads them itself


READINGS = [*((name, projected) for name in ("first_last_mean", "mask_prompt") for projected in (False, True))]
READINGS += [(name, False) for name in ("embeddings_last_mean", "denoised", "pooler", "without LayerNorms")]


@pytest.mark.parametrize(("pooling", "projected"), READINGS)  # cls and mean: tests/test_stumbles.py
def test_a_single_encoder_too(tiny_bert, tmp_path, sentences, pooling, projected):
    projection = projection_head(32) if projected else None
    named = {"denoised": "mask_prompt", "without LayerNorms": "cls"}.get(pooling, pooling)
    encoder = SentenceEncoder.from_pretrained(tiny_bert, pooling=named, projection=projection).eval()
    encoder.denoised = pooling == "denoised"
    remove_layer_norms(encoder.backbone, int(pooling == "without LayerNorms"))
    encoder.save(tmp_path / "saved")
    expected = encoder.encode(sentences[:20])
    np.testing.assert_allclose(ensemble.load(tmp_path / "saved").encode(sentences[:20]), expected, atol=1e-6)
    load = SentenceTransformer if pooling in THEIRS else sentence_transformer
    peer = load(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(peer.encode(sentences[:20]), expected, atol=1e-5)


def test_the_module_keeps_to_what_the_package_asks(total, sentences):
    model = SentenceTransformer(modules=[EncoderModule(total)], device="cpu")
    prompted = model.encode(["dog"], prompt="a small ")
    np.testing.assert_allclose(prompted, total.encode(["a small dog"]), atol=1e-5)
    assert model.max_seq_length == 64
    with pytest.raises(AttributeError):  # of no effect: each encoder has a length of its own
        model.max_seq_length = 5
    model(model.preprocess(sentences[:3]))["sentence_embedding"].sum().backward()  # it can be trained on there
    assert all(part.backbone.get_input_embeddings().weight.grad is not None for part in ensemble.parts(total))


def test_mteb_gives_it_the_same_score(total, tmp_path, sentences, monkeypatch):
    """mteb's STS-B with pairs of ours in the place of its data: our adapter, and the exported folder."""
    import mteb
    from datasets import Dataset, DatasetDict

    texts = {"sentence1": sentences[:40], "sentence2": sentences[40:80]}
    scores = [5 * (number % 11) / 10 for number in range(40)]
    task = mteb.get_task("STSBenchmark")
    task.dataset, task.data_loaded = DatasetDict({"test": Dataset.from_dict(texts | {"score": scores})}), True
    monkeypatch.setattr(task, "unload_data", lambda: None)
    total.save(tmp_path / "saved")
    models = {"ours": mteb_encoder(total.encode), "theirs": sentence_transformer(tmp_path / "saved", device="cpu")}
    found = {
        name: mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results[0].get_score()
        for name, model in models.items()
    }
    assert found["ours"] != 0 and found["theirs"] == pytest.approx(found["ours"], abs=1e-4)
