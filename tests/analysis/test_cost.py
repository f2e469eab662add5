"""Operations counted by hand."""

import time
from itertools import chain

import pytest
import torch

from lib.analysis import cost
from lib.encoders import SentenceEncoder
from lib.encoders.ensemble import EncoderSum


@pytest.mark.parametrize("length", [8, 20])
def test_multiply_accumulates_are_those_of_the_matrix_products(tiny_bert, length):
    encoder = SentenceEncoder.from_pretrained(tiny_bert)
    linear = 4 * 32 * 32 + 2 * 32 * 64  # query, key, value, output, and the feed-forward part, per token and layer
    attention = 2 * length * 32  # scores and weighted values, per token and layer
    expected = 2 * length * (linear + attention) / 1e9
    assert cost.multiply_accumulates(encoder, length) == pytest.approx(expected)
    assert cost.multiply_accumulates(EncoderSum([encoder, encoder]), length) == pytest.approx(2 * expected)


class Linear(torch.nn.Module):
    """A method of one matrix, whose costs can be counted by hand."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8, 3))
        self.unused = torch.nn.Parameter(torch.ones(100))

    def forward(self, batch):
        return {"one": (batch @ self.weight).sum(), "two": (batch @ self.weight).square().mean()}

    def after_step(self):
        pass


def test_a_training_step_by_hand():
    found = cost.training_step(Linear(), torch.ones(4, 8))
    product = 4 * 8 * 3  # forward twice, and the gradient of the weight twice; the batch has none
    assert found["operations"] == pytest.approx(4 * product / 1e9)
    assert found["kept"] == pytest.approx((4 * 8 + 4 * 3) * 4 / 2**20)  # the batch once, and what is squared
    assert found["trained"] == pytest.approx(24 / 1e6)


def test_a_relative_time_is_the_median_ratio_of_turns_but_the_first(monkeypatch):
    seconds = [9, 1, 1, 2, 10, 20, 100, 900]  # of the peer and the method in turn, on a machine that slows down
    clock = chain.from_iterable((0, each) for each in seconds)
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    method, peer, batch = Linear(), Linear(), torch.ones(4, 8)
    assert cost.relative_time(method, batch, peer, batch, rounds=3) == 2
    assert next(clock, None) is None and method.weight.grad is None  # nothing is left behind
