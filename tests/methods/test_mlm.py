"""Masked language modelling and Condenser's late head: the two losses, who gets gradient, what is kept on disk."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

from lib import runs
from lib.checks import ConfigError
from lib.encoders import SentenceEncoder, mini_bert
from lib.encoders.heads import LATE_LAYERS
from lib.losses import IGNORED
from tests.methods.conftest import builder, short_run, unpacked

build = builder("mlm")


def by_hand(method, inputs, seed):
    """Both losses from the unpacked Hugging Face modules, with the masks that `seed` draws."""
    torch.manual_seed(seed)
    ids, mask = inputs.column("anchor")
    draws = torch.rand(3, *ids.shape)
    tokenizer, backbone = method.encoder.tokenizer, method.encoder.backbone
    masked, labels = ids.clone(), torch.full_like(ids, -100)
    for i in range(ids.size(0)):
        for j in range(ids.size(1)):
            if ids[i, j] not in tokenizer.all_special_ids and draws[0, i, j] < method.arguments.mlm_probability:
                labels[i, j] = ids[i, j]
                if draws[1, i, j] < 0.8:
                    masked[i, j] = tokenizer.mask_token_id
                elif draws[1, i, j] < 0.9:
                    masked[i, j] = int(draws[2, i, j] * backbone.config.vocab_size)
    states = backbone(input_ids=masked, attention_mask=mask, output_hidden_states=True).hidden_states
    early = states[len(states) // 2]
    hidden = torch.cat([states[-1][:, :1], early[:, 1:]], dim=1)
    logits = [method.lm_head(x).flatten(0, 1) for x in (states[-1], unpacked(method.late, hidden, mask))]
    return [F.cross_entropy(x, labels.flatten(), ignore_index=-100) for x in logits]


def test_both_losses_equal_the_unpacked_modules(bert, sentences, batch):
    method = build(bert, condenser_weight=0.5, mlm_probability=0.3)
    inputs = batch(method, sentences[:16])
    expected = by_hand(method, inputs, seed=3)
    torch.manual_seed(3)
    terms = method(inputs)
    assert list(terms) == ["mlm", "condenser"]
    torch.testing.assert_close(terms["mlm"], expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(terms["condenser"], 0.5 * expected[1], rtol=1e-4, atol=1e-5)
    assert not torch.isclose(*expected)


def test_the_late_head_reaches_the_late_layers_through_the_first_token_alone(bert, sentences, batch):
    method = build(bert, condenser_weight=1.0, mlm_probability=0.9)  # something is masked in every sentence
    inputs, outputs = batch(method, sentences[:8]), []
    last = method.encoder.backbone.encoder.layer[-1].output
    last.register_forward_hook(lambda module, args, output: outputs.append(output))
    loss = method(inputs)["condenser"]
    outputs[0].retain_grad()
    loss.backward()
    starts = inputs.attention_mask.sum(-1).flatten().cumsum(0).roll(1)
    starts[0] = 0
    moved = outputs[0].grad.abs().sum(-1) > 0
    assert moved[starts].all() and int(moved.sum()) == len(starts)
    assert method.encoder.backbone.encoder.layer[0].output.dense.weight.grad.any()  # M is not detached


def test_the_last_step_is_kept_whatever_the_dev_scores(bert, corpus_file):
    one = short_run("mlm", bert, corpus_file)
    run = runs.run(one.replace(dev_task="demo", eval_every=1))
    assert run.metrics["best_step"] == run.metrics["steps"] == len(run.history.dev.dropna()) - 1
    last = runs.run(one).encoder().state_dict()
    assert all(torch.equal(tensor, last[name]) for name, tensor in run.encoder().state_dict().items())


def test_whole_words_are_masked_together(tmp_path, sentences, batch):
    texts = [f"{sentence} underground waterfront markets" for sentence in sentences]
    sizes = {"vocabulary": 110, "hidden": 16, "layers": 2, "heads": 2, "intermediate": 32, "max_positions": 256}
    method = build(mini_bert.build(texts, tmp_path / "pieces", **sizes), whole_words=True, mlm_probability=0.5)
    ids, mask = batch(method, texts[:32]).column("anchor")
    hidden = method.masking(ids, mask)[1] != IGNORED
    inside = method.masking.continues[ids][:, 1:]  # pieces that continue the word before them
    maskable = mask.bool() & ~method.masking.special[ids]
    assert inside.sum() > 50 and hidden[maskable].float().mean() == pytest.approx(0.5, abs=0.1)
    assert not hidden[~maskable].any()
    assert torch.equal(hidden[:, 1:][inside], hidden[:, :-1][inside])


@pytest.mark.parametrize("condenser_weight", [0.0, 1.0])
def test_a_fresh_head_is_saved_with_the_encoder(backbone, tmp_path, sentences, batch, condenser_weight):
    SentenceEncoder.from_pretrained(backbone, pooling="mean").save(tmp_path / "headless")
    method = build(tmp_path / "headless", lm_head="fresh", condenser_weight=condenser_weight, mlm_probability=0.5)
    inputs = batch(method, sentences[:16])
    optimizer = torch.optim.AdamW(method.parameters(), lr=1e-2)
    sum(method(inputs).values()).backward()
    optimizer.step()
    method.eval().save(tmp_path / "saved")
    model, report = AutoModelForMaskedLM.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    again = build(tmp_path / "saved", lm_head="pretrained").eval()
    ids, mask = inputs.column("anchor")
    with torch.no_grad():
        expected = method.lm_head(method.encoder.backbone(ids, mask).last_hidden_state)
        loaded = model.eval()(ids, mask).logits
        continued = again.lm_head(again.encoder.backbone(ids, mask).last_hidden_state)
    assert torch.equal(loaded, expected) and torch.equal(continued, expected)
    assert (abs(again.encoder.encode(sentences[:5]) - method.encoder.encode(sentences[:5])) < 1e-6).all()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_top_layers_are_copies_of_the_last_layers_and_are_trained(bert, sentences, batch, count):
    method = build(bert, condenser_weight=1.0, head="top_layers", late_layers=count)
    last = method.encoder.backbone.encoder.layer[4 - count :]
    for (name, ours), theirs in zip(method.late.named_parameters(), last.parameters(), strict=True):
        assert torch.equal(ours, theirs) and ours is not theirs, name
    method(batch(method, sentences[:16]))["condenser"].backward()
    assert all(p.grad is not None for p in method.late.parameters())


def test_random_late_layers_are_new_even_where_some_were_saved(bert, shake, tmp_path):
    method = build(bert, condenser_weight=1.0)
    shake(method.late, scale=0.1)
    method.save(tmp_path / "saved")
    fresh, beside = (build(at, condenser_weight=1.0).late.state_dict() for at in (bert, tmp_path / "saved"))
    saved, copies = load_file(tmp_path / "saved" / LATE_LAYERS), build(bert, condenser_weight=1.0, head="top_layers")
    kept = build(tmp_path / "saved", condenser_weight=1.0, head="pretrained").late.state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in saved.items()), "the next stage starts from them"
    for name, tensor in beside.items():
        assert torch.equal(tensor, fresh[name]) and not torch.equal(tensor, saved[name]), name
    weight = "0.intermediate.dense.weight"
    assert not torch.equal(beside[weight], copies.late.state_dict()[weight])
    torch.testing.assert_close(beside["0.attention.self.value.weight"], torch.eye(32))
    with pytest.raises(ConfigError, match="does not hold 3 layers"):
        build(tmp_path / "saved", condenser_weight=1.0, late_layers=3, head="pretrained")
