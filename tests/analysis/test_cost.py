"""Operations counted by hand."""

import time

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


class Clock:
    """A method of fixed seconds per step, on a clock that goes slower and slower, as a busy machine does."""

    def __init__(self, seconds, now):
        self.seconds, self.now, self.graded = seconds, now, False

    def train(self):
        return self

    def zero_grad(self, set_to_none):
        self.graded = False

    def __call__(self, batch):
        self.now[0] += self.seconds * batch * 1.01 ** self.now[1]
        self.now[1] += 1
        return {"one": torch.zeros((), requires_grad=True)}

    def after_step(self):
        self.graded = True


def test_steps_that_take_turns_are_compared_on_a_machine_that_slows_down(monkeypatch):
    now = [0.0, 0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    method, peer = Clock(3.0, now), Clock(1.0, now)
    assert cost.relative_time(method, 2, peer, 1, rounds=5) == pytest.approx(6 * 1.01)
    assert now[1] == 12 and not method.graded  # one round more than is timed, and nothing is left behind
