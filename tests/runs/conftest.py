"""What the tests of runs share."""

import pytest

from lib.config import RunConfig


@pytest.fixture
def config(tiny_bert, corpus_file):
    """Two steps from the tiny BERT."""
    values = {"corpus": str(corpus_file), "backbone": str(tiny_bert), "max_steps": 2, "eval_every": 2}
    return RunConfig(**values, batch_size=32, max_length=16)
