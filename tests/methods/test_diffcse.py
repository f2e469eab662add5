"""DiffCSE: what the generator fills in, what the discriminator reads, who gets gradient."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoTokenizer, BertConfig, DistilBertConfig, DistilBertForMaskedLM

from lib.encoders.generator import Generator
from lib.methods import REGISTRY
from tests.methods.conftest import builder, run, unpacked

build = builder("diffcse")


@pytest.fixture(scope="module")
def distilbert(tiny_bert, tmp_path_factory):
    """A generator of another family with the same tokenizer."""
    folder = tmp_path_factory.mktemp("distilbert")
    size = BertConfig.from_pretrained(tiny_bert).vocab_size
    torch.manual_seed(2)
    config = DistilBertConfig(vocab_size=size, dim=16, n_layers=1, n_heads=2, hidden_dim=32, initializer_range=0.3)
    DistilBertForMaskedLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return str(folder)


def by_hand(method, z, ids, mask, filled, padding):
    """The term from the unpacked Hugging Face modules: z in the place of the first embedding."""
    task = method.replaced_tokens
    embedded = task.discriminator.embeddings(input_ids=filled)
    hidden = torch.cat([z.unsqueeze(1), embedded[:, 1:]], dim=1)
    logits = task.classifier(unpacked(task.discriminator.encoder.layer, hidden, mask))
    each = F.cross_entropy(logits.flatten(0, 1), (filled != ids).long().flatten(), reduction="none")
    return each.mean() if padding else each[mask.flatten().bool()].mean()


@pytest.mark.parametrize("padding", [True, False])
def test_the_term_equals_the_unpacked_modules(bert, sentences, batch, padding):
    method = build(bert, rtd_weight=0.5, rtd_padding=padding)
    inputs = batch(method, sentences[:12])
    views, terms = run(method, inputs)
    ids, mask = (x.repeat_interleave(2, 0) for x in inputs.column("anchor"))
    assert not mask.all()
    filled = views.captured["filled"]
    assert 0.05 < (filled != ids)[mask.bool()].float().mean() < 1
    expected = by_hand(method, views.rows(), ids, mask, filled, padding)
    torch.testing.assert_close(terms["rtd"], 0.5 * expected, rtol=1e-4, atol=1e-5)


def test_the_guesses_are_the_generators_likeliest_tokens(bert, distilbert, sentences, batch):
    for name in ("", distilbert):
        method = build(bert, generator=name, generator_dropout=False)
        inputs = batch(method, sentences[:8])
        ids, mask = inputs.column("anchor")
        torch.manual_seed(5)
        filled = method.replaced_tokens.fill(ids, mask)
        torch.manual_seed(5)
        masked, labels = method.replaced_tokens.masking(ids, mask)
        logits = Generator.from_pretrained(name or bert).model(input_ids=masked, attention_mask=mask).logits
        expected = torch.where(mask.bool(), logits.argmax(-1), ids)
        assert torch.equal(filled[:, 1:], expected[:, 1:]) and torch.equal(filled[:, 0], ids[:, 0])
        assert (labels != -100).any()


def test_guesses_in_parts_are_the_guesses(distilbert, monkeypatch):
    generator = Generator.from_pretrained(distilbert)
    ids = torch.randint(5, 40, (9, 7), generator=torch.Generator().manual_seed(0))
    whole = generator(ids, torch.ones_like(ids))
    monkeypatch.setattr("lib.encoders.generator.LOGITS", 1)
    assert torch.equal(generator(ids, torch.ones_like(ids)), whole)


def test_dropout_in_the_generator_is_a_switch(bert, distilbert, sentences, batch):
    """As in the released code, where train() reaches the generator, or never; in evaluation never."""
    assert REGISTRY["diffcse"].Arguments().generator_dropout
    for name, switch in (("", True), (distilbert, True), (distilbert, False)):
        method = build(bert, generator=name, generator_dropout=switch)
        generator = method.replaced_tokens.generator
        assert all(module.training is switch for module in generator.model.modules())
        ids, mask = batch(method, sentences[:8]).column("anchor")
        guesses = [generator(ids, mask) for _ in range(2)]
        assert torch.equal(*guesses) is not switch
        assert not any(module.training for module in method.eval().modules())


def test_who_gets_gradient(bert, distilbert, sentences, batch):
    method = build(bert, generator=distilbert)
    terms = method(batch(method, sentences[:8]))
    assert list(terms) == ["info_nce", "rtd"]
    terms["rtd"].backward()
    assert all(p.grad is None for p in method.replaced_tokens.generator.parameters())
    for module in (method.encoder, method.training_head, method.replaced_tokens.discriminator):
        assert sum(float(p.grad.abs().sum()) for p in module.parameters() if p.grad is not None) > 0
    theirs = method.replaced_tokens.discriminator.encoder.layer[0].attention.self.value.weight
    assert theirs is not method.encoder.backbone.encoder.layer[0].attention.self.value.weight
