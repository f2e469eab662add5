"""chunk_size: the step of a whole batch, embedded in chunks (GradCache). Refusals: test_contract."""

import numpy as np
import pytest
import torch

from lib.data import Batch
from tests.methods.test_contract import configure, prepare

CASES = [  # method, arguments with which its loss reads embeddings alone, columns of the corpus
    ("simcse", {"mlm_weight": 0.0}, 1),
    ("simcse", {"mlm_weight": 0.0, "projection": "bn_mlp", "dropout_masks": "identical"}, 3),
    ("simcse", {"mlm_weight": 0.0, "projection": "always", "equal_texts": "left_out"}, 3),
    ("simcse", {"mlm_weight": 0.0, "replacement_rate": 1.0}, 1),
    ("three_r(simcse)", {"mlm_weight": 0.0, "threshold": 0.9}, 3),
    ("esimcse", {"mlm_weight": 0.0, "repetition_rate": 0.0}, 1),
    ("msse", {}, 3),
    ("sscl", {}, 3),
    ("micse", {"ami_weight": 0.0}, 1),
    ("mirror_bert", {"ami_weight": 0.0, "span_length": 0}, 1),
    ("ct", {"ami_weight": 0.0}, 1),
    ("jtcse", {"second_backbone": ""}, 1),
    ("distill", {}, 1),
]


@pytest.fixture
def make(bert, second, sentences):
    """Function (case; further parameters) -> method in training mode, and a batch of 16 rows."""

    def build(name, arguments, columns, **parameters):
        around, _, inner = name.rstrip(")").rpartition("(")
        config = configure(bert, second, inner, around, **parameters).replace(**arguments)
        method, tokens = prepare(config, sentences, columns)
        return method, tokens.batch(np.arange(16))

    return build


def step(method, forward, *given):
    """Terms, gradients, logged values, and a random number that is drawn after the step."""
    torch.manual_seed(1)
    method.zero_grad()
    terms = forward(*given)
    sum(terms.values()).backward()
    gradients = {name: p.grad.clone() for name, p in method.named_parameters() if p.grad is not None}
    return [{name: term.detach() for name, term in terms.items()}, gradients, method.logged(), torch.rand(())]


@pytest.mark.parametrize("case", CASES)
def test_without_dropout_chunks_change_nothing(make, case):
    method, batch = make(*case, dropout=0.0)
    whole, chunked = step(method, method, batch), step(method, method, batch, 5)
    gradients, others = (whole.pop(1), chunked.pop(1)), (whole, chunked)
    torch.testing.assert_close(*others, rtol=1e-4, atol=1e-6)
    noise = 1e-5 * max(gradient.abs().max().item() for gradient in gradients[0].values())
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=noise)


@pytest.mark.parametrize(("case", "precision"), [*((case, None) for case in CASES), (CASES[2], torch.bfloat16)])
def test_with_dropout_it_is_bit_by_bit_the_graph_of_all_chunks(make, case, precision):
    method, batch = make(*case, dropout=0.3)
    method.encoder.training_dtype = precision

    def graph_of_all():
        parts = []
        for at in torch.arange(16).split(5):
            extra = {name: values[at] for name, values in batch.extra.items()}
            parts.append(method.embed(Batch(batch.input_ids[at], batch.attention_mask[at], batch.roles, extra)))
        joined = {name: torch.cat([part.embeddings[name] for part in parts]) for name in parts[0].embeddings}
        return method.loss(method.project(parts[0].replace(embeddings=joined)), batch)

    torch.testing.assert_close(step(method, method, batch, 5), step(method, graph_of_all), rtol=0, atol=0)


def test_no_more_than_a_chunk_is_embedded_at_a_time(make):
    """Every chunk once more in the backward pass, the last one first; a chunk that holds the whole batch is the batch."""
    method, batch = make(*CASES[2])
    seen = []
    method.encoder.register_forward_pre_hook(lambda _, given: seen.append(len(given[0]) // 3))
    for size, rows in ((5, [5, 5, 5, 1, 1, 5, 5, 5]), (16, [16]), (0, [16])):
        step(method, method, batch, size)
        assert [seen.pop(0) for _ in rows] == rows and not seen
