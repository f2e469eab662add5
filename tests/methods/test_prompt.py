"""PromptBERT: the two templates, what is subtracted and where, against one sentence at a time and the backbone's own forward."""

import numpy as np
import pytest
import torch

from lib.encoders import SentenceEncoder, ensemble
from lib.encoders.pooling import PROMPT
from lib.encoders.template import template_vectors
from lib.losses import info_nce
from lib.methods.prompt import PromptArguments
from tests.methods.conftest import builder, tokenized

SECOND = PromptArguments().second_prompt
build = builder("prompt", pooling="mask_prompt", projection="none")


def at_mask(encoder, sentence, prompt, *, alone=False, positions=None):
    """The state at the mask token, from token ids put together by hand; alone: of the template, at the places it has there."""
    tokenizer = encoder.tokenizer
    before, after = prompt.replace("[MASK]", tokenizer.mask_token).split("[X]")
    start, middle, end = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (before, sentence, after))
    ids = [tokenizer.cls_token_id, *start, *middle, *end, tokenizer.sep_token_id]
    first = {"bert": 0, "roberta": 2}[encoder.backbone.config.model_type] if positions is None else positions
    kept = [i for i in range(len(ids)) if not alone or not len(start) < i <= len(start) + len(middle)]
    ids = torch.tensor([[ids[i] for i in kept]])
    state = encoder.backbone(ids, position_ids=torch.tensor([kept]) + first).last_hidden_state[0]
    return state[(ids[0] == tokenizer.mask_token_id).nonzero()[-1, 0]]


def by_hand(encoder, sentences, prompt, denoised, **how):
    rows = [at_mask(encoder, one, prompt) for one in sentences]
    if denoised:
        rows = [h - at_mask(encoder, one, prompt, alone=True, **how) for h, one in zip(rows, sentences, strict=True)]
    return torch.stack(rows)


@pytest.fixture
def inputs(sentences):
    """Function (method) -> sentences of several lengths, and their batch."""
    texts = [*sentences[:6], "a dog", "the cat [MASK] sleeps"]
    return lambda method: (texts, tokenized(method, texts).batch(np.arange(8)))


@pytest.mark.parametrize("denoising", ["always", "train_only", "released", "none"])
def test_the_loss_is_that_of_both_templates(lively_backbone, inputs, denoising):
    method = build(lively_backbone, denoising=denoising, temperature=0.1)
    texts, batch = inputs(method)
    assert not batch.attention_mask.bool().all()
    how = {"positions": 0} if denoising == "released" else {}
    z1, z2 = (by_hand(method.encoder, texts, prompt, denoising != "none", **how) for prompt in (PROMPT, SECOND))
    views = method.embed(batch)
    torch.testing.assert_close(views.embeddings["encoder"], torch.stack([z1, z2], 1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(method(batch), {"info_nce": info_nce(z1, z2, temperature=0.1)}, rtol=1e-3, atol=1e-5)
    assert (z1 - z2).abs().max() > 1e-2


@pytest.mark.parametrize("denoising", ["always", "train_only", "none"])
def test_what_is_kept_subtracts_only_where_it_should_and_so_does_its_folder(
    lively_backbone, tmp_path, inputs, denoising
):
    method = build(lively_backbone, denoising=denoising)
    texts, _ = inputs(method)
    expected = by_hand(method.encoder, texts, PROMPT, denoising == "always").detach().numpy()
    method.save(tmp_path / "saved")
    for encoder in (method.encoder, ensemble.load(tmp_path / "saved")):
        np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-5)
        np.testing.assert_allclose(encoder.encode(texts, batch_tokens=1), expected, atol=1e-5)
    raw = SentenceEncoder.from_pretrained(tmp_path / "saved", pooling="mask_prompt")  # asked for by name
    np.testing.assert_allclose(raw.encode(texts), by_hand(raw, texts, PROMPT, False).detach().numpy(), atol=1e-5)
    kept = ensemble.load(tmp_path / "saved")
    assert (kept.fingerprint() == raw.fingerprint()) is (denoising != "always")


def test_the_templates_vector_is_trained_too(bert, inputs):
    method = build(bert)
    _, batch = inputs(method)
    template_vectors(method.encoder, *batch.column("anchor"))[:, 0].sum().backward()
    assert method.encoder.backbone.embeddings.position_embeddings.weight.grad.any()
