"""What the tests of all methods share."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer


@pytest.fixture(scope="session")
def batch():
    """Function (method, sentences) -> what the loop hands to a method whose corpus has one column: [N, 1, L]."""

    def make(method, sentences):
        ids = method.encoder.tokenizer(sentences, padding=True, return_tensors="pt")
        return {k: ids[k].unsqueeze(1) for k in ("input_ids", "attention_mask")}

    return make


@pytest.fixture
def inputs(batch, sentences):
    """Function (method with twin encoders, n) -> a batch of n sentences for it."""
    return lambda method, n=8: batch(SimpleNamespace(encoder=method.encoder.encoders[0]), sentences[:n])


@pytest.fixture(scope="session")
def variant():
    """Function (folder, target, changes of the config) -> target, a new backbone with the tokenizer of another."""

    def make(folder, target, **changes):
        config = AutoConfig.from_pretrained(folder)
        for name, value in changes.items():
            setattr(config, name, value)
        torch.manual_seed(3)
        AutoModel.from_config(config).save_pretrained(target)
        AutoTokenizer.from_pretrained(folder).save_pretrained(target)
        return str(target)

    return make
