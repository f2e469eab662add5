"""MSSE: its three terms against the plain modules, what each of them reads, what is kept."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from lib import paths, runs
from lib.batch.parameters import declared
from lib.data import Batch
from lib.encoders.heads import load_training_head
from lib.losses import dimension_contrast, info_nce
from tests.methods.conftest import builder, tokenized


def build(folder, dropout=0.0, **arguments):
    """A method without any dropout, so that two passes are equal."""
    method = builder("msse", decoder_input_dropout=0.0)(folder, dropout=dropout, **arguments)
    for module in method.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
        if isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = dropout
    return method


def pairs(batch, method, sentences, roles=("anchor", "positive")):
    columns = [sentences[8 * at : 8 * at + 8] for at in range(len(roles))]
    return batch(method, *columns, roles=roles)


def vectors(method, inputs, role):
    ids, mask = inputs.column(role)
    return method.encoder.backbone(input_ids=ids, attention_mask=mask).last_hidden_state, mask.bool()


def test_the_three_terms_equal_the_plain_modules(lively_backbone, sentences, batch):
    """Without padding, sentence by sentence, from the backbone's own forward pass."""
    method = build(lively_backbone, decoder_layers=2, decoder_heads=2, temperature=0.1)
    inputs = pairs(batch, method, sentences)
    (first, mask), (second, _) = (vectors(method, inputs, role) for role in inputs.roles)
    h, h_pos = first[:, 0], second[:, 0]
    terms = method(inputs)
    torch.testing.assert_close(terms["info_nce"], info_nce(h, h_pos, temperature=0.1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(terms["dimension"], 0.8 * dimension_contrast(h, h_pos), rtol=1e-4, atol=1e-5)
    each = []
    for vector, ids, keep in zip(h, inputs.column("anchor")[0], mask, strict=True):
        words = method.encoder.backbone.embeddings(input_ids=ids[keep][None])
        logits = method.decoder.words(method.decoder.layers(words, vector[None, None]))
        each += F.cross_entropy(logits[0], ids[keep], reduction="none").tolist()
    assert not mask.all() and len(each) == mask.sum()
    assert terms["reconstruction"].item() == pytest.approx(0.2 * np.mean(each), rel=1e-4)
    summed = build(lively_backbone, decoder_layers=2, decoder_heads=2, reconstruction_reduce="sum")
    summed.load_state_dict(method.state_dict())
    assert summed(inputs)["reconstruction"].item() == pytest.approx(0.2 * sum(each), rel=1e-4)


def test_the_positionwise_decoder_sees_the_vector_and_the_place_alone(bert, sentences, batch):
    method = build(bert, decoder="positionwise", reconstruction_weight=1.0)
    inputs = pairs(batch, method, sentences)
    h, mask = vectors(method, inputs, "anchor")
    ids, decoder, each = inputs.column("anchor")[0], method.decoder, []
    words = method.encoder.backbone.get_input_embeddings().weight
    for i, j in mask.nonzero().tolist():
        state = torch.tanh(decoder.from_vector(h[i, 0]) + decoder.places.weight[j])
        each.append(F.cross_entropy(words @ state, ids[i, j]).item())
    assert method(inputs)["reconstruction"].item() == pytest.approx(np.mean(each), rel=1e-4)


def test_the_noise_hides_the_words_but_not_the_vector(bert, sentences, batch):
    method = build(bert, decoder_input_dropout=0.825)
    ids, mask = pairs(batch, method, sentences).column("anchor")
    memory = torch.randn(8, 32, generator=torch.Generator().manual_seed(2))
    method.decoder.noise.p, seen = 0.825, []
    method.decoder.noise.register_forward_hook(lambda module, args, output: seen.append((output == 0).float().mean()))

    def logits(vectors, words):
        return method.decoder(vectors, words, mask.bool(), method.encoder.backbone.embeddings)

    logits(memory, ids)
    assert seen[0] == pytest.approx(0.825, abs=0.02)  # entries, not whole words
    method.decoder.noise.p = 1.0
    torch.testing.assert_close(logits(memory, ids), logits(memory, torch.where(mask.bool(), ids.roll(1, 0), ids)))
    assert (logits(memory, ids) - logits(memory.roll(1, 0), ids)).abs().mean() > 0.1


def test_which_sentence_is_rebuilt(bert, sentences, batch):
    own, code = (build(bert, reconstructed=role) for role in ("anchor", "positive"))
    inputs = pairs(batch, own, sentences)
    memory = own.encoder(*inputs.column("anchor"))
    swapped = Batch(inputs.input_ids.flip(1), inputs.attention_mask.flip(1), inputs.roles)
    torch.testing.assert_close(code.rebuild(memory, inputs), own.rebuild(memory, swapped))
    torch.testing.assert_close(own.rebuild(memory, inputs), own(inputs)["reconstruction"] / 0.2)


@pytest.mark.parametrize("pooling", ["mask_prompt", "mean", "first_last_mean"])
def test_the_dimensions_of_the_first_token_whatever_the_pooling(bert, sentences, pooling):
    whole, first = (build(bert, pooling=pooling, dimension_of=of) for of in ("embedding", "cls"))
    inputs = tokenized(whole, sentences[:8], sentences[8:16]).batch(np.arange(8))
    (h, _), (h_pos, _) = (vectors(whole, inputs, role) for role in inputs.roles)
    by_first = 0.8 * dimension_contrast(h[:, 0], h_pos[:, 0])
    torch.testing.assert_close(first(inputs)["dimension"], by_first, rtol=1e-4, atol=1e-5)
    z = [whole.encoder(*inputs.column(role)) for role in inputs.roles]
    torch.testing.assert_close(whole(inputs)["dimension"], 0.8 * dimension_contrast(*z), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first(inputs)["info_nce"], whole(inputs)["info_nce"])


def test_the_linear_layer_stands_before_contrast_and_decoder_and_not_before_the_dimensions(bert, sentences, batch):
    method = build(bert, projection="linear")
    inputs = pairs(batch, method, sentences)
    h, h_pos = (method.encoder(*inputs.column(role)) for role in inputs.roles)
    z, z_pos = method.training_head(h), method.training_head(h_pos)
    terms = method(inputs)
    torch.testing.assert_close(terms["info_nce"], info_nce(z, z_pos))
    torch.testing.assert_close(terms["dimension"], 0.8 * dimension_contrast(h, h_pos))
    torch.testing.assert_close(terms["reconstruction"], 0.2 * method.rebuild(z, inputs))


def test_hard_negatives_count_in_the_contrastive_term_alone(bert, sentences, batch):
    method = build(bert)
    two = pairs(batch, method, sentences)
    three = pairs(batch, method, sentences, roles=("anchor", "positive", "hard_negative"))
    four = pairs(batch, method, sentences, roles=("anchor", "positive", "negative_1", "negative_2"))
    alone, with_negatives, with_more = method(two), method(three), method(four)
    for name in ("dimension", "reconstruction"):
        torch.testing.assert_close(with_negatives[name], alone[name], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(with_more[name], alone[name], rtol=1e-4, atol=1e-5)
    assert with_more["info_nce"] > with_negatives["info_nce"]
    z = [method.encoder(*three.column(role)) for role in three.roles]
    expected = info_nce(*z[:2], hard_negatives=z[2])
    torch.testing.assert_close(with_negatives["info_nce"], expected, rtol=1e-4, atol=1e-5)
    assert expected > alone["info_nce"]


def test_a_sentence_alone_is_its_own_positive_dropout_the_only_difference_and_it_may_be_a_batch(bert, sentences, batch):
    inputs = batch(build(bert), sentences[:8])
    still, moved = build(bert), build(bert, dropout=0.2)
    at = [m.between_dimensions(**m.embed(inputs).by_role("dimensions")).item() for m in (still, moved)]
    h = still.encoder(*inputs.column("anchor"))
    assert at[0] == pytest.approx(dimension_contrast(h, h).item(), rel=1e-4) and at[1] != pytest.approx(at[0], rel=1e-3)
    method = build(bert)
    terms = method(batch(method, sentences[:1]))
    sum(terms.values()).backward()
    assert terms["dimension"].item() == 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())


def test_what_other_vectors_cost_is_logged(bert, sentences, batch):
    method = build(bert, decoder="positionwise", swap_every=1)
    inputs, memory = pairs(batch, method, sentences), torch.eye(32)[:8]
    vectors = {"own": memory, "other": memory.roll(-1, 0), "mean": memory.mean(0).expand(8, -1)}
    method.rebuild(memory, inputs)
    losses = method.logged()
    assert losses == pytest.approx({f"{name}_vector": method.rebuild(h, inputs).item() for name, h in vectors.items()})
    assert abs(losses["own_vector"] - losses["other_vector"]) > 1e-3 < abs(losses["own_vector"] - losses["mean_vector"])


PARAMETERS = declared(paths.root() / "notebooks/4_msse.ipynb")[1]
TABLES = runs.variants("msse", PARAMETERS, has_views=True, same_reduce=True)
ABLATIONS = {name: row for name, row in TABLES["Table 1"].items() if str(name).startswith("MSSE w/o")}
CHANGES = TABLES["switches"] | ABLATIONS


def test_every_ablation_and_switch_is_another_loss(bert, sentences, batch):
    totals = {}
    for name, arguments in {"none": {}, **CHANGES}.items():
        method = build(bert, **arguments)
        totals[name] = sum(method(pairs(batch, method, sentences)).values()).item()
    assert np.isfinite([*totals.values()]).all()
    assert [name for name, total in totals.items() if total == totals["none"]] == ["none", "L_DCM by dim"]


def test_the_decoder_is_thrown_away_and_the_linear_layer_kept_beside_the_encoder(bert, tmp_path):
    method = build(bert, projection="linear", dimension_of="cls", pooling="mask_prompt")
    method.save(tmp_path / "saved")
    names = load_file(tmp_path / "saved" / "model.safetensors")
    assert not [name for name in names if "decoder" in name or "cls." in name]
    assert torch.equal(load_training_head(tmp_path / "saved").weight, method.training_head.weight)
