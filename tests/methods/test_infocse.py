"""InfoCSE: the auxiliary loss, the frozen layers, the switches between paper and code."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from lib import runs
from lib.checks import ConfigError, EncoderError
from lib.config import RunConfig
from lib.encoders.heads import load_training_head
from tests.methods.conftest import builder, short_run, unpacked

build = builder("infocse", head="top_layers", auxiliary_weight=1.0)
configure = partial(short_run, "infocse", head="top_layers", auxiliary_weight=1.0)


def by_hand(method, h, ids, mask, seed, reduction="mean"):
    """L_aux from the unpacked Hugging Face modules, with the masks that `seed` draws: ids, mask [R, L], h [R, D]."""
    torch.manual_seed(seed)
    masked, labels = method.token_masking(ids, mask)
    early = method.auxiliary.early
    states = unpacked(early.encoder.layer, early.embeddings(input_ids=masked), mask)
    hidden = torch.cat([h.unsqueeze(1), states[:, 1:]], dim=1)
    logits = method.auxiliary.lm_head(unpacked(method.auxiliary.late, hidden, mask))
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction=reduction)
    return loss if reduction == "mean" else loss / len(ids)


def copies(inputs, count=2):
    return (x.repeat_interleave(count, 0) for x in inputs.column("anchor"))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("which", ["both", "first"])
def test_the_auxiliary_loss_equals_the_unpacked_modules(lively_backbone, reduction, which, sentences, batch):
    options = {"auxiliary_reduction": reduction, "auxiliary_copies": which, "auxiliary_weight": 0.5}
    method = build(lively_backbone, **options)
    inputs = batch(method, sentences[:12])
    ids, mask = copies(inputs, 2 if which == "both" else 1)
    h = method.encoder(ids, mask)
    torch.manual_seed(3)
    term = method(inputs)["auxiliary"]
    expected = by_hand(method, h, ids, mask, seed=3, reduction=reduction)
    torch.testing.assert_close(term, 0.5 * expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("detach", [True, False])
def test_the_frozen_layers(bert, sentences, batch, detach):
    """They start as the encoder's lower half, and never move while detached, whatever the optimiser; without detach they
    do, and are not the encoder's."""
    method = build(bert, detach=detach)
    before = {name: p.detach().clone() for name, p in method.auxiliary.early.named_parameters()}
    theirs = method.encoder.backbone.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in before.items())
    assert {name.split(".")[2] for name in before if name.startswith("encoder.layer")} == {"0", "1"}
    config = RunConfig(backbone=bert, method="infocse", weight_decay=0.1)
    optimizer = torch.optim.AdamW(method.parameter_groups(config), lr=1e-2)
    sum(method(batch(method, sentences[:8])).values()).backward()
    optimizer.step()
    moved = {name for name, p in method.auxiliary.early.named_parameters() if not torch.equal(p, before[name])}
    assert bool(moved) is not detach
    own = {id(p) for p in method.encoder.parameters()}
    assert not any(id(p) in own for p in method.auxiliary.parameters())


@pytest.mark.parametrize("frozen_dropout", [True, False])
def test_dropout_of_the_frozen_layers(bert, sentences, batch, frozen_dropout):
    method = build(bert, dropout=0.3, frozen_dropout=frozen_dropout)
    for mode in (True, False, True):
        method.train(mode)  # the loop calls it at every step
        assert all(m.training is (mode and frozen_dropout) for m in method.auxiliary.early.modules())
        assert all(m.training is mode for m in method.auxiliary.late.modules())
    inputs = batch(method, sentences[:8])
    ids, mask = inputs.column("anchor")
    states = [method.auxiliary.read(ids, mask, torch.full_like(ids, -100)).states for _ in range(2)]
    assert torch.equal(*states) is not frozen_dropout


def test_the_other_vector_is_that_of_the_next_sentence(bert, sentences, batch):
    """Row by row: of two copies of each sentence, neither is given the other copy's vector. The late layers read them
    without dropout."""
    method = build(bert, swap_every=1)
    for module in method.auxiliary.late.modules():
        if hasattr(module, "p"):
            module.p = 0.5
    inputs = batch(method, sentences[:5])
    ids, mask = copies(inputs)  # rows 2k and 2k + 1 are sentence k
    h = method.encoder(ids, mask)
    torch.manual_seed(3)
    method(inputs)
    measured = method.logged()
    method.eval()
    for name, rows in {"own_vector": range(10), "other_vector": [2, 3, 4, 5, 6, 7, 8, 9, 0, 1]}.items():
        expected = by_hand(method, h[list(rows)], ids, mask, seed=3)
        assert measured[name] == pytest.approx(float(expected.detach()), rel=1e-4)


def test_a_trained_encoder_is_read_before_or_after_its_projection(bert, corpus_file, tmp_path):
    run = runs.run(configure(bert, corpus_file))
    before, after = run.encoder(), run.encoder(projection=load_training_head(run.folder / "encoder"))
    h, z = (encoder.encode(["a dog runs", "a cat sleeps"]) for encoder in (before, after))
    expected = after.projection.eval()(torch.tensor(h)).detach().numpy()
    assert z.shape == h.shape and abs(z - expected).max() < 1e-5 and abs(z - h).max() > 0.1
    with pytest.raises(EncoderError, match="only a projection of one linear layer"):
        after.save(tmp_path / "after")


def test_stage_two_starts_from_what_stage_one_saved(bert, corpus_file):
    """A plan declares both; before stage 1 is trained, stage 2 is checked on its stand-in."""
    plan = runs.Plan("demo")
    first = short_run("mlm", bert, corpus_file, condenser_weight=1.0)
    (stage_one,) = plan.add("stage 1", first, {"MLM": {}}, [1]).values()
    second, start = configure(bert, corpus_file, head="pretrained"), {"backbone": stage_one}
    plan.add("stage 2", second, {"InfoCSE": {}}, [1], start)
    assert plan.check()["to train"].tolist() == [1, 1, 2]
    wrong = runs.Plan("demo")
    wrong.add("stage 2", second, {"InfoCSE": {"head": "top_layers", "late_layers": 9}}, [1], start)
    with pytest.raises(ConfigError, match="late_layers 9 is more than the 4 layers"):  # what needs no head is checked
        wrong.check()
    one, two = (plan.runs(group).run[0] for group in ("stage 1", "stage 2"))
    assert two.config.backbone == str(one.folder / "encoder") and two.config.method_arguments["head"] == "pretrained"
    saved = build(str(one.folder / "encoder"), head="pretrained")
    words = saved.encoder.backbone.get_input_embeddings().weight
    decoder = saved.auxiliary.lm_head.predictions.decoder.weight
    assert torch.equal(decoder, words) and decoder is not words  # untied, and it starts as stage 1 left it
