"""Mirror-BERT as a method: what the masked copy looks like, the loss, the attention term."""

import pytest
import torch

from lib.losses import twin_info_nce
from lib.methods.mirror_bert import mask_span
from tests.methods.conftest import build, rows

MASK = 99


@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_a_span_of_word_pieces_is_masked_and_nothing_else(length):
    words = [0, 1, 2, 3, 4, 7, 12] * 40
    ids, mask = rows(words, longest=16)
    before = ids.clone()
    torch.manual_seed(0)
    masked = mask_span(ids, mask, length, MASK)
    assert torch.equal(ids, before)
    for n, row, old in zip(words, masked, ids, strict=True):
        places = (row == MASK).nonzero().flatten().tolist()
        expected = max(0, min(length, n - 1))  # one token stays
        assert len(places) == expected
        assert places == [min(places) + i for i in range(expected)]
        assert all(1 <= place <= n for place in places)  # neither the first, nor the last, nor padding
        unmasked = row != MASK
        assert torch.equal(row[unmasked], old[unmasked])


def test_every_place_is_the_start_equally_often():
    ids, mask = rows([6] * 5000)
    torch.manual_seed(0)
    masked = mask_span(ids, mask, 2, MASK)
    starts = (masked == MASK).int().argmax(1)
    shares = torch.bincount(starts, minlength=8) / 5000
    torch.testing.assert_close(shares, torch.tensor([0, 0.2, 0.2, 0.2, 0.2, 0.2, 0, 0]), atol=0.028, rtol=0)  # 5 sigma


@pytest.mark.parametrize("span", [0, 2])
def test_the_term_is_the_loss_of_the_sentences_and_their_masked_copies(backbone, span, sentences, batch):
    method = build("mirror_bert", backbone, span_length=span, temperature=0.1)
    inputs = batch(method, sentences[:8])
    torch.manual_seed(1)
    terms = method(inputs)
    ids, mask = inputs.column("anchor")
    torch.manual_seed(1)
    copies = mask_span(ids, mask, span, method.encoder.tokenizer.mask_token_id)
    assert (copies != ids).sum(1).tolist() == [span] * 8
    views = method.encoder(ids, mask), method.encoder(copies, mask)
    expected = twin_info_nce(torch.stack(views, dim=1).flatten(0, 1), temperature=0.1)
    assert set(terms) == {"twin_info_nce"}
    torch.testing.assert_close(terms["twin_info_nce"], expected, rtol=1e-4, atol=1e-5)
