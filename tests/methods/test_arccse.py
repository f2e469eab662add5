"""ArcCSE: the widened angle, and triplets of a sentence and two masked copies."""

import pytest
import torch

from lib.losses import info_nce
from lib.methods.mirror_bert import mask_span
from tests.losses.conftest import cosine
from tests.methods.conftest import build, rows, run

MASK = 99


def test_a_longer_span_holds_the_shorter_one_of_the_same_row():
    words = torch.tensor([1, 2, 3, 5, 10, 30] * 200)
    ids, mask = rows(words.tolist())
    lengths = torch.stack([(share * words).long() for share in (0.2, 0.4, 1.0)])
    torch.manual_seed(0)
    short, longer, all_but_one = mask_span(ids, mask, lengths, MASK) == MASK
    assert torch.equal(short.sum(1), lengths[0]) and torch.equal(longer.sum(1), lengths[1])
    assert torch.equal(all_but_one.sum(1), words - 1)
    assert not (short & ~longer).any() and not (longer & ~all_but_one).any()
    starts = short[5::6].int().argmax(1) - longer[5::6].int().argmax(1)
    assert len(starts.unique()) > 3  # at different places in it


@pytest.mark.parametrize("projection", ["train_only", "always"])
@pytest.mark.parametrize("margin", [0.0, 0.05, 0.5])
def test_equals_the_loops(bert, sentences, batch, projection, margin):
    options = {"margin": 15.0, "triplet_weight": 0.3, "triplet_margin": margin, "temperature": 0.1, "larger_span": 0.8}
    method = build("arccse", bert, dropout=0.1, projection=projection, **options)
    inputs, texts = batch(method, sentences[:8]), []
    method.encoder.register_forward_pre_hook(lambda module, args: texts.append((module.training, *args)))
    views, terms = run(method, inputs)
    z = views.by_role()
    expected = info_nce(z["anchor"], z["positive"], temperature=0.1, margin=15.0)
    assert torch.equal(terms["info_nce"], expected) and expected > info_nce(z["anchor"], z["positive"], temperature=0.1)
    (first_mode, *_), (mode, ids, mask) = texts
    assert (first_mode, mode, method.encoder.training) == (True, False, True)  # triplets without dropout
    anchors, *copies = ids.unflatten(0, (3, 8))
    masked = [(copy == method.encoder.tokenizer.mask_token_id).sum(1) for copy in copies]
    words = inputs.column("anchor")[1].sum(1) - 2
    assert torch.equal(anchors, inputs.column("anchor")[0])
    for share, number in zip((0.2, 0.8), masked, strict=True):
        assert number.tolist() == [min(int(share * n), n - 1) for n in words.tolist()]
    h = method.encoder.eval()(ids, mask).double().tolist()
    total = 0.0
    for one, less, more in zip(h[:8], h[8:16], h[16:], strict=True):
        total += max(0.0, cosine(one, more) - cosine(one, less) + margin) / 8
    assert terms["triplet"].item() == pytest.approx(0.3 * total, abs=1e-5) and (total > 0 or margin == 0)
    if total:
        terms["triplet"].backward()
        assert method.encoder.backbone.embeddings.word_embeddings.weight.grad.any()
        assert method.training_head is None or method.training_head[0].weight.grad is None
