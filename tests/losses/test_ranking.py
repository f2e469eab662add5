"""RankCSE's lists against obvious loops, values by hand, and what third-party code computes in their place."""

import math

import pytest
import torch

from lib.losses import list_mle, list_net, ranking_consistency
from tests.losses.conftest import cosine


def softmax(values):
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def consistency_loop(z1, z2, t):
    total = 0.0
    for x1, x2 in zip(z1, z2, strict=True):
        p, r = softmax([cosine(x1, y) / t for y in z2]), softmax([cosine(x2, y) / t for y in z1])
        for a, b in zip(p, r, strict=True):
            total += (a * math.log(2 * a / (a + b)) + b * math.log(2 * b / (a + b))) / 2
    return total / len(z1)


def list_net_loop(z1, z2, teacher, t, t_teacher):
    total = 0.0
    for i, x in enumerate(z1):
        others = [j for j in range(len(z2)) if j != i]
        wanted = softmax([teacher[i][j] / t_teacher for j in others])
        found = softmax([cosine(x, z2[j]) / t for j in others])
        total -= sum(w * math.log(f) for w, f in zip(wanted, found, strict=True))
    return total / len(z1)


def list_mle_loop(z1, z2, teacher, t):
    total = 0.0
    for i, x in enumerate(z1):
        left = sorted((j for j in range(len(z2)) if j != i), key=lambda j: -teacher[i][j])
        while left:
            scores = [math.exp(cosine(x, z2[j]) / t) for j in left]
            total -= math.log(scores[0] / sum(scores))
            left.pop(0)
    return total / len(z1) / len(z1)


@pytest.fixture
def given():
    z1, z2, t1, t2 = torch.randn(4, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return z1, z2, torch.cosine_similarity(t1[:, None], t2[None], dim=-1)


@pytest.mark.parametrize("t", [0.05, 0.4])
def test_equal_the_loops(given, t):
    (z1, z2, teacher), lists = given, [tensor.tolist() for tensor in given]
    assert ranking_consistency(z1, z2, temperature=t).item() == pytest.approx(consistency_loop(*lists[:2], t), rel=1e-9)
    found = list_net(z1, z2, teacher, temperature=t, teacher_temperature=t / 2)
    assert found.item() == pytest.approx(list_net_loop(*lists, t, t / 2), rel=1e-9)
    assert list_mle(z1, z2, teacher, temperature=t).item() == pytest.approx(list_mle_loop(*lists, t), rel=1e-9)


def test_only_the_order_of_the_teacher_counts_in_list_mle(given):
    z1, z2, teacher = given
    torch.testing.assert_close(list_mle(z1, z2, teacher**3 - 5), list_mle(z1, z2, teacher))
    assert abs(list_mle(z1, z2, -teacher) - list_mle(z1, z2, teacher)) > 0.1
    assert abs(list_net(z1, z2, teacher**3 - 5) - list_net(z1, z2, teacher)) > 0.1


def test_values_by_hand():
    """Without a difference between the sentences a list is a guess: ln(N - 1), and ln (N - 1)! over the ranks."""
    same = torch.ones(4, 3, dtype=torch.float64)
    assert list_net(same, same, same @ same.T).item() == pytest.approx(math.log(3))
    assert list_mle(same, same, same @ same.T).item() == pytest.approx(math.log(6) / 4)
    apart = torch.eye(4, dtype=torch.float64)
    assert ranking_consistency(apart, apart[[1, 2, 3, 0]], temperature=0.01).item() == pytest.approx(math.log(2))
    for agree in (apart, same):
        assert ranking_consistency(agree, agree).item() == pytest.approx(0.0, abs=1e-12)


def test_a_student_that_ranks_as_its_teacher_loses_least(given):
    z1, _, teacher = given
    own = torch.cosine_similarity(z1[:, None], z1[None], dim=-1)
    assert list_mle(z1, z1, own, temperature=0.05) < 0.5 < list_mle(z1, z1, teacher, temperature=0.05)
    z = z1.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(list_net(z, z, own, temperature=0.1, teacher_temperature=0.1), z)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)


def clamped(z1, z2):
    """As third-party code has it: a log-mixture, never above 0, is clamped at *least* 1e-7, so that it is a constant."""
    scores = torch.cosine_similarity(z1[:, None], z2[None], dim=-1) / 0.05
    p, r = scores.softmax(1), scores.T.softmax(1)
    mixture = ((p + r) / 2).log().clamp(min=1e-7)
    return ((p * (p.log() - mixture) + r * (r.log() - mixture)).sum(1).mean() / 2).item()


def test_the_clamp_of_third_party_code_ties_no_lists_and_rewards_collapse():
    """The paper's term tells agreement (0) from disagreement (ln 2). The clamped one does not (0, 0); it is the negative
    entropy of the lists, lowest where all sentences have one vector: - ln 4."""
    apart, one = torch.eye(4, dtype=torch.float64), torch.ones(4, 4, dtype=torch.float64)
    states = {"agree": (apart, apart), "disagree": (apart, apart[[1, 2, 3, 0]]), "collapsed": (one, one)}
    paper = {name: round(ranking_consistency(*views).item(), 3) for name, views in states.items()}
    code = {name: round(clamped(*views), 3) + 0.0 for name, views in states.items()}
    assert paper == {"agree": 0.0, "disagree": 0.693, "collapsed": 0.0}
    assert code == {"agree": 0.0, "disagree": 0.0, "collapsed": -1.386}
