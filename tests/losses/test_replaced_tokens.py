import math

import pytest
import torch

from lib.losses import replaced_token_detection


def test_by_hand():
    """Two of four tokens differ; logits say "replaced" with probability p for each."""
    original, filled = torch.tensor([[5, 6], [7, 8]]), torch.tensor([[5, 9], [9, 8]])
    p = torch.tensor([[0.2, 0.9], [0.6, 0.5]])
    logits = torch.stack([(1 - p).log(), p.log()], dim=-1)
    expected = -(math.log(0.8) + math.log(0.9) + math.log(0.6) + math.log(0.5)) / 4
    assert replaced_token_detection(logits, original, filled).item() == pytest.approx(expected, rel=1e-5)


def test_the_order_of_the_tokens_does_not_matter():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 2, generator=generator)
    original, filled = torch.randint(0, 3, (2, 12), generator=generator)
    order = torch.randperm(12, generator=generator)
    shuffled = replaced_token_detection(logits[order], original[order], filled[order])
    torch.testing.assert_close(shuffled, replaced_token_detection(logits, original, filled))
