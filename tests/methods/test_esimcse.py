"""ESimCSE: what is repeated, how the momentum encoder starts; its queue: test_micse."""

from types import SimpleNamespace

import pytest
import torch

from lib.data import Batch
from lib.methods.esimcse import repeat_tokens
from tests.methods.conftest import build, rows


def of(*counts):
    """A batch of texts with so many tokens, special ones included."""
    ids, mask = rows([n - 2 for n in counts])
    return Batch(ids[:, None], mask[:, None], ("anchor",))


def encoder(longest):
    config = SimpleNamespace(model_type="bert", max_position_embeddings=longest)
    return SimpleNamespace(backbone=SimpleNamespace(config=config), tokenizer=SimpleNamespace(pad_token_id=0))


@pytest.mark.parametrize("rate", [0.28, 0.32, 1.0])
@pytest.mark.parametrize("longest", [64, 33])
def test_some_inner_tokens_are_doubled_in_place(rate, longest):
    counts, seen = (2, 3, 6, 7, 12, 25, 32), {}
    batch = of(*counts)
    torch.manual_seed(0)
    for _ in range(200):
        changed = repeat_tokens(batch, rate, encoder(longest))
        assert changed.roles == ("anchor", "positive") and changed.input_ids.dtype == torch.int64
        assert torch.equal(changed.attention_mask, (changed.input_ids != 0).long())
        for n, (anchor, positive) in zip(counts, changed.input_ids.tolist(), strict=True):
            old, new = ([token for token in row if token] for row in (anchor, positive))
            assert old == [1, *range(10, 8 + n), 2] and positive[: len(new)] == new
            assert list(dict.fromkeys(new)) == old and len(new) == len(set(new)) + len(doubled(new))
            assert not {1, 2} & doubled(new)
            seen.setdefault(n, set()).add(len(doubled(new)))
    for n in counts:  # as in the released code, but for what the encoder cannot read
        most = max(0, min(10, int(rate * n)) - 1)
        assert seen[n] == set(range(min(most, n - 2, longest - n) + 1))


def doubled(row):
    return {token for token in row if token and row.count(token) > 1}


def test_every_inner_token_and_every_number_of_them_is_drawn_equally_often():
    torch.manual_seed(0)
    positives = repeat_tokens(of(*[12] * 6000), 0.32, encoder(64)).input_ids[:, 1].tolist()
    sets = [doubled(row) for row in positives]  # none, one or two of ten
    shares = torch.tensor([sum(len(one) == k for one in sets) for k in range(3)]) / 6000
    torch.testing.assert_close(shares, torch.full((3,), 1 / 3), atol=0.03, rtol=0)  # five deviations
    each = torch.tensor([sum(token in one for one in sets) for token in range(10, 20)]) / 6000
    torch.testing.assert_close(each, torch.full((10,), 0.1), atol=0.02, rtol=0)


def test_only_the_positive_of_a_triple_changes():
    one = of(32, 20)
    columns = (x.repeat(1, 3, 1) for x in (one.input_ids, one.attention_mask))
    three = Batch(*columns, ("anchor", "positive", "hard_negative"))
    torch.manual_seed(1)
    changed = repeat_tokens(three, 0.32, encoder(64))
    longer = changed.attention_mask.sum(2) - three.attention_mask.sum(2)
    assert (longer[:, [0, 2]] == 0).all() and (longer[:, 1] > 0).any()
    assert torch.equal(changed.input_ids[:, 0], changed.input_ids[:, 2])


def test_the_momentum_encoder_starts_from_the_weights_or_from_new_ones(backbone):
    same, other = (build("esimcse", backbone, momentum_start=start) for start in ("pretrained", "random"))
    for method, equal in ((same, True), (other, False)):
        slow, fast = method.queue.encoder.backbone, method.encoder.backbone
        weights = zip(slow.parameters(), fast.parameters(), strict=True)
        matrices = [(a, b) for a, b in weights if a.dim() == 2]
        assert [torch.equal(a, b) for a, b in matrices] == [equal] * len(matrices)
        assert all(a.std() > 0 and not a.requires_grad for a, _ in matrices)
    states = (method.encoder.state_dict() for method in (same, other))
    assert all(torch.equal(a, b) for a, b in zip(*(state.values() for state in states), strict=True))
