"""What the tests of all methods share."""

import dataclasses
from functools import partial

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

from lib.config import RunConfig
from lib.data import Batch, Corpus, tokenize_corpus
from lib.encoders import SentenceEncoder, ensemble
from lib.methods import REGISTRY


def build(name, folder, *, dropout=0.0, pooling="cls", seed=0, **arguments):
    """The method of this name around a backbone, in training mode."""
    torch.manual_seed(seed)
    encoder = SentenceEncoder.from_pretrained(folder, dropout=dropout, pooling=pooling)
    return REGISTRY[name](encoder, REGISTRY[name].Arguments(**arguments)).train()


def builder(name, **options):
    """`build` for one method, with options of its own."""
    return partial(build, name, **options)


def tokenized(method, *columns, roles=(), max_length=32):
    """The rows of a corpus, and beside them what the method computes before training, as a run makes them."""
    corpus = Corpus("toy", tuple(map(tuple, columns)), roles)
    tokens = tokenize_corpus(corpus, ensemble.parts(method.encoder)[0], max_length=max_length)
    return dataclasses.replace(tokens, extra=method.row_data(corpus, max_length))


def run(method, inputs, seed=1):
    """What the terms of a batch read, and the terms."""
    torch.manual_seed(seed)
    views = method.project(method.embed(inputs))
    return views, method.loss(views, inputs)


def unpacked(layers, hidden, mask):
    """hidden [N, L, H] after Hugging Face's own layers, padding included."""
    keep = torch.where(mask[:, None, None, :].bool(), 0.0, torch.finfo(torch.float32).min)
    for layer in layers:
        hidden = layer(hidden, keep)
    return hidden


def short_run(method, folder, corpus_file, **changes):
    """Configuration of a run that takes a second."""
    given = {"method": method, "backbone": str(folder), "corpus": str(corpus_file), "dev_task": "none"}
    given |= {"max_steps": 6, "batch_size": 16, "max_length": 12, "learning_rate": 1e-3}
    return RunConfig.from_parameters(given | changes)


def rows(words, longest=None):
    """input_ids and mask of rows 1 (special), 10 11 12 ..., 2 (special), 0 (padding) with so many words."""
    longest = longest or max(words) + 2
    ids = torch.tensor([[1, *range(10, 10 + n), 2] + [0] * (longest - n - 2) for n in words])
    return ids, (ids != 0).long()


@pytest.fixture(scope="session")
def batch():
    """Function (method, columns; roles) -> what the loop hands to a method: [N, S, L], N sentences in each column."""

    def make(method, *columns, roles=("anchor",)):
        rows = [sentence for row in zip(*columns, strict=True) for sentence in row]
        tokens = ensemble.parts(method.encoder)[0].tokenizer(rows, padding=True, return_tensors="pt")
        shape = (len(columns[0]), len(columns), -1)
        return Batch(tokens["input_ids"].view(shape), tokens["attention_mask"].view(shape), roles)

    return make


@pytest.fixture
def inputs(batch, sentences):
    """Function (method) -> a batch of eight sentences for it."""
    return lambda method: batch(method, sentences[:8])


@pytest.fixture(scope="session")
def second(tiny_bert, variant, tmp_path_factory):
    """Another encoder with the same tokenizer, MLM head included."""
    return variant(tiny_bert, tmp_path_factory.mktemp("second"), AutoModelForPreTraining)


@pytest.fixture(scope="session")
def lively(tiny_bert, tiny_roberta, variant, tmp_path_factory):
    """Function (bert or roberta; changes of the config) -> that tiny backbone with an MLM head, and weights large enough
    for losses to differ."""

    def make(family, **changes):
        source, folder = {"bert": tiny_bert, "roberta": tiny_roberta}[family], tmp_path_factory.mktemp(family)
        return variant(source, folder, AutoModelForMaskedLM, seed=1, **({"initializer_range": 0.2} | changes))

    return make


@pytest.fixture(scope="session")
def bert(lively):
    return lively("bert", num_hidden_layers=4)


@pytest.fixture(scope="session")
def roberta(lively):
    return lively("roberta")


@pytest.fixture(params=["bert", "roberta"])
def lively_backbone(request):
    return request.getfixturevalue(request.param)
