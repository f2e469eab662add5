"""What the tests of all methods share."""

import pytest


@pytest.fixture(scope="session")
def batch():
    """Function (method, sentences) -> what the loop hands to a method whose corpus has one column: [N, 1, L]."""

    def make(method, sentences):
        ids = method.encoder.tokenizer(sentences, padding=True, return_tensors="pt")
        return {k: ids[k].unsqueeze(1) for k in ("input_ids", "attention_mask")}

    return make
