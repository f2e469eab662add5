"""Pooling, encode(), and the round trip through disk and sentence-transformers."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from lib.checks import EncoderError
from lib.data.tokenized import pad
from lib.encoders import SentenceEncoder
from lib.encoders.heads import projection_head
from lib.encoders.packed import AttentionMaps
from lib.encoders.pooling import POOLINGS
from tests.conftest import rewrite


def load(folder, max_length=None, **options):
    encoder = SentenceEncoder.from_pretrained(folder, **options).eval()
    encoder.max_length = max_length or encoder.max_length
    return encoder


@pytest.fixture
def edited(tiny_bert, tmp_path):
    """Function (file, new values) -> a copy of the tiny BERT whose JSON file has them."""

    def edit(name, values):
        folder = shutil.copytree(tiny_bert, tmp_path / "edited", dirs_exist_ok=True)
        rewrite(folder, name, values)
        return folder

    return edit


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_equals_its_definition(backbone, pooling, sentences):
    """One sentence at a time, straight from the hidden states, against batched encode()."""
    encoder = load(backbone, pooling=pooling)
    texts = sentences[:7] + ["a dog"]
    expected = []
    for text in texts:
        ids = torch.tensor([encoder.tokenize([text])[0]])
        output = encoder.backbone(ids, output_hidden_states=True)
        layers = [hidden[0] for hidden in output.hidden_states]
        at_mask = (ids[0] == encoder.tokenizer.mask_token_id).nonzero()
        by_definition = {
            "cls": layers[-1][0],
            "mean": layers[-1].mean(0),
            "last": layers[-1][-1],
            "first_last_mean": (layers[1].mean(0) + layers[-1].mean(0)) / 2,
            "embeddings_last_mean": (layers[0].mean(0) + layers[-1].mean(0)) / 2,
            "mask_prompt": layers[-1][at_mask[-1, 0]] if len(at_mask) else None,
            "pooler": output.pooler_output[0] if pooling == "pooler" else None,
        }
        expected.append(by_definition[pooling])
    np.testing.assert_allclose(encoder.encode(texts), torch.stack(expected).detach().numpy(), atol=2e-6)


def test_encode_keeps_order_removes_repeats_and_ignores_batching(tiny_bert, sentences):
    encoder = load(tiny_bert)
    texts = sentences[:30] + sentences[:10][::-1]
    whole = encoder.encode(texts)
    assert whole.dtype == np.float32 and whole.shape == (40, 32)
    np.testing.assert_array_equal(whole[30:], whole[:10][::-1])
    np.testing.assert_allclose(encoder.encode(texts, batch_tokens=1), whole, atol=2e-6)
    calls = []
    encoder.register_forward_pre_hook(lambda module, args: calls.append(args[0].shape))
    encoder.encode(texts, batch_tokens=64)
    assert sum(rows for rows, _ in calls) == 30 and all(rows * length <= 64 for rows, length in calls)
    calls.clear()
    encoder.to("cpu").encode(sentences)
    assert len(calls) > 1 and all(rows * length <= 1024 for rows, length in calls), "the default on a CPU"


def test_the_prompt_comes_on_top_of_the_sentence_that_max_length_cuts(tiny_bert, edited):
    encoder = load(tiny_bert, pooling="mask_prompt")
    words = "the dog runs in the park"
    ids = encoder.tokenize([words], 5)[0]  # three words, [CLS] and [SEP]
    assert encoder.tokenizer.decode(ids) == '[CLS] this sentence : " the dog runs " means [MASK]. [SEP]'
    longest = encoder.tokenize([" ".join(["dog"] * 90)])[0]
    assert len(longest) == 64 and longest[-3] == encoder.tokenizer.mask_token_id
    assert load(edited("sentence_encoder.json", {"max_length": 65})).max_length == 64, "what the backbone takes"


def test_one_pass_read_in_several_ways(tiny_bert, sentences):
    encoder = load(tiny_bert, pooling="mask_prompt", projection=projection_head(32))
    inputs = pad(encoder.tokenize(sentences[:6]), encoder.tokenizer.pad_token_id)
    for names in (("cls",), ("mask_prompt", "cls"), ("mean", "first_last_mean")):
        together = encoder.readings(*inputs, names)
        assert tuple(together) == names
        for name in names:
            encoder.pooling, encoder.projection = name, None
            torch.testing.assert_close(together[name], encoder(*inputs), rtol=1e-4, atol=1e-6)


def test_attention_is_float32_in_every_training_precision(tiny_bert, sentences):
    encoder = load(tiny_bert, dropout=0.0).train()
    ids, mask = pad(encoder.tokenize(sentences[:6]), encoder.tokenizer.pad_token_id)
    probabilities = []
    for encoder.training_dtype in (None, torch.bfloat16):
        maps = AttentionMaps((0, 1))
        encoder(ids, mask, maps=maps)
        probabilities.append(maps.probabilities())
    assert probabilities[1].dtype == torch.float32 and not torch.equal(*probabilities)
    torch.testing.assert_close(probabilities[1], probabilities[0], atol=0.01, rtol=0)


def test_the_fingerprint_follows_tokenizer_every_weight_and_setting_and_no_place(tiny_bert, tmp_path, hub, edited):
    moved = shutil.copytree(tiny_bert, tmp_path / "moved")
    sources = (tiny_bert, moved, hub(tiny_bert, "some/bert"))
    for files in ((), ("model*.safetensors",)):
        assert len({load(source).fingerprint(files) for source in sources}) == 1
    model = json.loads((tiny_bert / "tokenizer.json").read_text())["model"]
    model["vocab"]["dog"], model["vocab"]["cat"] = model["vocab"]["cat"], model["vocab"]["dog"]
    encoders = [load(tiny_bert), load(edited("tokenizer.json", {"model": model}))]
    assert encoders[1].tokenize(["dog"]) == encoders[0].tokenize(["cat"])
    for name in ("embeddings.position_embeddings.weight", "encoder.layer.1.output.LayerNorm.bias"):
        encoders.append(load(tiny_bert))
        with torch.no_grad():
            encoders[-1].backbone.get_parameter(name).flatten()[-1] += 1e-3
    head = projection_head(32)
    options = [{"pooling": "mean"}, {"max_length": 12}, {"dropout": 0.3}, {"projection": head}]
    options.append({"projection": nn.Sequential(head[0])})  # without its tanh
    configs = [{"layer_norm_eps": 1e-3}, {"hidden_act": "relu"}, {"num_attention_heads": 4}]
    encoders += [load(tiny_bert, **given) for given in options]
    encoders += [load(edited("config.json", config)) for config in configs]
    encoders.append(load(tiny_bert))
    encoders[-1].normalise = True
    assert len({encoder.fingerprint() for encoder in encoders}) == 13


def test_incomplete_and_damaged_files_are_refused(tiny_bert, tmp_path):
    encoder, weights_file = load(tiny_bert), tmp_path / "saved/model.safetensors"
    encoder.save(tmp_path / "saved")
    weights = load_file(weights_file)

    def refused(words, change, **options):
        save_file(change, weights_file, metadata={"format": "pt"})
        with pytest.raises(EncoderError, match=words):
            load(tmp_path / "saved", **options)

    refused("lacks 16 of its weights", {k: v for k, v in weights.items() if "layer.1" not in k})
    refused("saved without a pooler", weights, pooling="pooler")
    refused("choose one of", weights, pooling="max")
    for name in ("tokenizer.json", "vocab.txt"):
        (tmp_path / "saved" / name).unlink(missing_ok=True)
    refused("no tokenizer", weights)
    for damage in (lambda: weights_file.write_bytes(weights_file.read_bytes()[:1000]), weights_file.unlink):
        damage()
        with pytest.raises(EncoderError, match="no loadable model and tokenizer in that folder"):
            load(tmp_path / "saved")
