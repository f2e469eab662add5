"""What every method keeps to, and what a method put around another one can rely on."""

import shutil
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from lib import runs, training
from lib.checks import ConfigError, DataError, EncoderError
from lib.config import RunConfig
from lib.encoders import SentenceEncoder, ensemble, precision
from lib.encoders.heads import LATE_LAYERS, projection_head
from lib.encoders.packed import AttentionMaps
from lib.encoders.pooling import PROMPT
from lib.losses import attention_mutual_information
from lib.methods import REGISTRY, MethodSpec, Wrapper
from lib.methods.mirror_bert import mask_span
from tests.conftest import reweigh
from tests.methods.conftest import tokenized

AMI = {"ami_weight": 1.0, "min_layer": 0, "max_layer": 2, "ami_samples": 10}
# method -> arguments with which all of its terms are on
ARGUMENTS = {
    "arccse": {"mlm_weight": 0.1, "triplet_margin": 0.1},
    "ct": AMI,
    "diffcse": {"generator": "SECOND"},
    "distill": {"teacher": "SECOND"},
    "esimcse": {"mlm_weight": 0.1, "queue_size": 24},
    "infocse": {"auxiliary_weight": 0.1, "rtd_weight": 0.1, "generator": "SECOND", "head": "random", "swap_every": 1},
    "informin_cl": {"mlm_weight": 0.1},
    "jtcse": {"second_backbone": "SECOND", "cross_attention_layers": 2},
    "micse": AMI | {"queue_size": 24},
    "mirror_bert": AMI,
    "mlm": {"condenser_weight": 1.0, "late_layers": 1},
    "msse": {"projection": "linear", "swap_every": 1},
    "prompt": {"denoising": "always"},
    "rankcse": {"teacher": "SECOND", "second_teacher": "SECOND"},
    "simcse": {"mlm_weight": 0.1},
    "sscl": {"negative_layers": 1},
    "tncse": {"second_backbone": "SECOND"},
}
POOLING = {"prompt": "mask_prompt"}  # of methods that read no [CLS] token
WRAPPED = sorted(set(ARGUMENTS) - {"mlm"})


class Identity(Wrapper):
    @dataclass(frozen=True)
    class Arguments:
        note: str = ""


class Shift(Wrapper):
    """A wrapper with a weight of its own: it moves the embeddings and the queue along one learnt direction."""

    @dataclass(frozen=True)
    class Arguments:
        shift_rate: float = 0.5

    def __init__(self, inner, arguments):
        super().__init__(inner, arguments)
        self.direction = nn.Parameter(torch.zeros(inner.encoder.dimension))

    def project(self, views):
        views = self.inner.project(views)
        moved = {name: z + self.direction for name, z in views.embeddings.items()}
        negatives = None if views.negatives is None else views.negatives + self.direction
        return views.replace(embeddings=moved, negatives=negatives)

    def parameter_groups(self, config):
        return [*self.inner.parameter_groups(config), {"params": [self.direction], "lr": self.arguments.shift_rate}]

    def logged(self):
        return {"direction": float(self.direction.detach().norm())}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(REGISTRY, "identity", Identity)
    monkeypatch.setitem(REGISTRY, "shift", Shift)


def configure(folder, second, name, around="", **changes):
    arguments = {k: second if v == "SECOND" else v for k, v in ARGUMENTS[name].items()}
    method = f"{around}({name})" if around else name
    values = {"backbone": str(folder), "method": method, "batch_size": 16, "max_length": 16, "max_steps": 3}
    values |= {"learning_rate": 1e-3, "dev_task": "none", "eval_every": 2, "pooling": POOLING.get(name, "cls")}
    return RunConfig(**(values | {"method_arguments": arguments} | changes))


def prepare(config, sentences, columns=1):
    """A method and its tokenised corpus, of sentences or triples, as a run makes them."""
    torch.manual_seed(config.seed)
    encoder = SentenceEncoder.from_pretrained(config.backbone, pooling=config.pooling, dropout=config.dropout)
    method = config.spec.build(encoder, config.method_arguments)
    columns = [sentences[i : 198 + i : columns] for i in range(columns)]
    return method.train(), tokenized(method, *columns, max_length=config.max_length)


@pytest.mark.parametrize(("around", "name"), [*(("", name) for name in ARGUMENTS), ("shift", "simcse")])
def test_a_method_is_built_where_its_encoder_is(tiny_bert, second, name, around):
    config = configure(tiny_bert, second, name, around)
    encoder = SentenceEncoder.from_pretrained(config.backbone, pooling=config.pooling, device="meta")
    method = config.spec.build(encoder, config.method_arguments)
    assert {x.device.type for x in method.state_dict(keep_vars=True).values()} == {"meta"}


def train(config, sentences, adjust=lambda method: None):
    """History, gradients of the last step and weights of a short training; names without the wrapper's prefix.

    adjust: what is done to the method before.
    """
    method, tokens = prepare(config, sentences)
    adjust(method)
    torch.manual_seed(7)  # jtcse draws a number while it is built
    history = training.train(method, tokens, config, dev=None).history
    plain = [(name.removeprefix("inner."), p) for name, p in method.named_parameters()]
    gradients = {name: p.grad for name, p in plain if p.grad is not None}
    return {"history": history.to_dict("list"), "gradients": gradients, "weights": dict(method.encoder.state_dict())}


def assert_equal(one, two):
    assert one["history"] == two["history"]
    for part in ("gradients", "weights"):
        assert one[part] and set(one[part]) == set(two[part])
        for name, tensor in one[part].items():
            assert torch.equal(tensor, two[part][name]), name


@pytest.mark.parametrize("name", WRAPPED)
def test_an_identity_around_a_method_changes_no_bit(tiny_bert, second, sentences, name):
    plain = train(configure(tiny_bert, second, name), sentences)
    assert_equal(plain, train(configure(tiny_bert, second, name, "identity"), sentences))


@pytest.mark.parametrize("name", ["infocse", "msse"])
def test_other_vectors_are_only_looked_at(tiny_bert, second, sentences, name):
    looking = configure(tiny_bert, second, name)
    plain, looked = (train(looking.replace(swap_every=every), sentences) for every in (0, 2))
    seen = looked["history"].pop("own_vector"), looked["history"].pop("other_vector")
    looked["history"].pop("mean_vector", None)
    assert_equal(plain, looked)
    assert [[value == value for value in values] for values in seen] == [[True, False, True]] * 2
    assert seen[0][0] != seen[1][0]


GRADIENTS = [  # method, arguments, logged norm -> its term
    ("infocse", {"rtd_weight": 0.0}, {"auxiliary": "auxiliary", "contrastive": "info_nce"}),
    ("msse", {}, {"contrastive": "info_nce", "dimension": "dimension", "reconstruction": "reconstruction"}),
]


@pytest.mark.parametrize(("name", "arguments", "norms"), GRADIENTS)
def test_logged_norms_are_those_of_the_gradients_at_the_vectors(tiny_bert, second, sentences, name, arguments, norms):
    method, tokens = prepare(configure(tiny_bert, second, name).replace(swap_every=0, **arguments), sentences)
    batch, outputs = tokens.batch(np.arange(8)), []
    method.encoder.register_forward_hook(lambda module, args, h: outputs.append(h))
    views = method.embed(batch)
    terms = method.loss(method.project(views), batch)
    vectors = outputs or [*views.embeddings.values()]  # msse reads several vectors from one pass
    sum(terms.values()).backward(retain_graph=True)
    logged = method.logged()
    assert set(logged) == {f"{norm}_gradient" for norm in norms}
    for norm, term in norms.items():
        gradients = torch.autograd.grad(terms[term], vectors, retain_graph=True, allow_unused=True)
        expected = torch.cat([g.flatten() for g in gradients if g is not None]).norm().item()
        assert logged[f"{norm}_gradient"] == pytest.approx(expected, rel=1e-3) and expected > 0


@pytest.mark.parametrize(("name", "term"), [("distill", "mse"), ("rankcse", "ranking")])
def test_a_teacher_is_no_part_of_the_method_and_its_term_trains_the_encoder(tiny_bert, second, sentences, name, term):
    method, tokens = prepare(configure(tiny_bert, second, name), sentences)
    assert {id(p) for p in method.parameters()} == {id(p) for p in method.kept().parameters()}
    method(tokens.batch(np.arange(8)))[term].backward()
    assert all(layer.attention.self.value.weight.grad.any() for layer in method.encoder.backbone.encoder.layer)


HEADS = [  # method, arguments, its head that reads vectors, the term
    ("infocse", {"auxiliary_probability": 0.9}, "auxiliary", "auxiliary"),  # something is masked in every sentence
    ("msse", {"decoder": "denoising"}, "decoder", "reconstruction"),
    ("msse", {"decoder": "positionwise"}, "decoder", "reconstruction"),
]


@pytest.mark.parametrize(("name", "arguments", "head", "term"), HEADS)
def test_a_head_reaches_the_encoder_through_the_vectors_alone(
    tiny_bert, second, sentences, name, arguments, head, term
):
    method, tokens = prepare(configure(tiny_bert, second, name).replace(**arguments), sentences)
    batch, head = tokens.batch(np.arange(8)), getattr(method, head)
    method(batch)[term].backward()
    assert method.encoder.backbone.embeddings.word_embeddings.weight.grad.any()
    method.zero_grad()
    head.register_forward_pre_hook(lambda module, given: (given[0].detach(), *given[1:]))
    method(batch)[term].backward()
    assert all(p.grad is None for p in method.encoder.parameters())
    assert all((p.grad is not None) is p.requires_grad for p in head.parameters())


def test_arguments_of_both_methods_stand_side_by_side():
    config = RunConfig.from_parameters({"method": "shift(simcse)", "shift_rate": 0.1, "temperature": 0.2})
    outer, inner = config.spec.arguments(config.method_arguments)
    assert (outer.shift_rate, inner.temperature) == (0.1, 0.2)
    assert config.replace(temperature=0.3).method_arguments["temperature"] == 0.3
    assert config.replace(shift_rate=0.7).method_arguments["temperature"] == 0.2
    assert config.replace(method="simcse") == RunConfig(method_arguments={"temperature": 0.2})
    assert config.replace(method="simcse").replace(method="shift(simcse)").method_arguments["temperature"] == 0.2
    assert config.replace(method="shift(micse)").method_arguments["temperature"] == 0.05  # another method
    with pytest.raises(ConfigError, match="did you mean 'temperature'"):
        config.replace(temprature=0.1)


def test_a_wrapper_around_a_wrapper(tiny_bert, second, sentences):
    config = configure(tiny_bert, second, "simcse").replace(method="identity(shift(simcse))", shift_rate=0.01)
    assert config.spec.names == ("identity", "shift", "simcse")
    assert "direction" in train(config, sentences)["history"]


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapper_reaches_every_embedding_and_learns_with_its_own_rate(tiny_bert, second, sentences, name):
    config = configure(tiny_bert, second, name).replace(method=f"shift({name})", shift_rate=0.25)
    method, tokens = prepare(config, sentences)
    groups = method.parameter_groups(config)
    assert groups[-1]["lr"] == 0.25 and groups[-1]["params"] == [method.direction]
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in method.parameters() if p.requires_grad)
    views = method.embed(tokens.batch(np.arange(8)))
    assert set(views.embeddings) >= set(method.names)
    assert all(z.shape[:2] == (8, len(views.roles)) for z in views.embeddings.values())
    history = training.train(method, tokens, config, dev=None).history
    shown = {"step", "loss", "learning_rate", "gradient_norm", "direction"}
    terms = [c for c in history.columns if c not in shown and not c.endswith(("_gradient", "_vector"))]
    np.testing.assert_allclose(history.loss, history[terms].sum(axis=1), rtol=1e-6)  # what is logged is not summed
    if name != "distill":  # student and teacher move alike
        assert history.direction.iloc[-1] > 0


@pytest.mark.parametrize("name", WRAPPED)
def test_texts_are_read_as_embed_reads_the_anchors(tiny_bert, second, sentences, name):
    """Without dropout: otherwise both draw masks of their own."""
    method, tokens = prepare(configure(tiny_bert, second, name, dropout=0.0), sentences)
    method.eval()
    batch = tokens.batch(np.arange(8))
    views, texts = method.embed(batch), method.read(*batch.column("anchor"))
    assert list(texts) == list(method.names) and set(texts) <= set(views.embeddings)
    for role, h in texts.items():
        torch.testing.assert_close(views.embeddings[role][:, 0], h, rtol=1e-4, atol=1e-5)


# method -> its arguments with its own idea switched off, and the method that is left
OFF = {
    "arccse": ({"margin": 0.0, "triplet_weight": 0.0}, "simcse", {}),
    "diffcse": ({"rtd_weight": 0.0}, "simcse", {"projection": "bn_mlp"}),
    "esimcse": ({"repetition_rate": 0.0, "queue_size": 0}, "simcse", {}),
    "infocse": ({"auxiliary_weight": 0.0}, "simcse", {"projection": "bn_mlp"}),
    "informin_cl": ({"forgetting_weight": 0.0}, "simcse", {"projection": "none"}),
    "jtcse": ({"cross_attention_layers": 0, "coin": False}, "tncse", {}),
    "micse": ({"ami_weight": 0.0, "queue_size": 0}, "simcse", {}),
    "prompt": ({"denoising": "none", "second_prompt": PROMPT}, "simcse", {}),
    "rankcse": ({"consistency_weight": 0.0}, "simcse", {}),
    "sscl": ({"layers_weight": 0.0}, "simcse", {}),
}


@pytest.mark.parametrize("name", OFF)
def test_without_its_idea_a_method_is_another_one_bit_by_bit(tiny_bert, second, sentences, name):
    off, plain, given = OFF[name]
    config = configure(tiny_bert, second, name, method_arguments=off)
    assert_equal(train(config, sentences), train(config.replace(method=plain, **given), sentences))


WEIGHTS = {  # method -> weight: its term
    "arccse": {"triplet_weight": "triplet"},
    "ct": {"ami_weight": "ami"},
    "diffcse": {"rtd_weight": "rtd"},
    "infocse": {"contrastive_weight": "info_nce", "auxiliary_weight": "auxiliary"},
    "informin_cl": {"forgetting_weight": "forgetting"},
    "jtcse": {"icnce_weight": "icnce"},
    "micse": {"ami_weight": "ami"},
    "mirror_bert": {"ami_weight": "ami"},
    "mlm": {"condenser_weight": "condenser"},
    "msse": {"nce_weight": "info_nce", "dimension_weight": "dimension", "reconstruction_weight": "reconstruction"},
    "rankcse": {"consistency_weight": "consistency", "ranking_weight": "ranking"},
    "simcse": {"mlm_weight": "mlm"},
    "tncse": {"nce_weight": "nce", "icnce_weight": "icnce", "ictm_weight": "ictm"},
}


@pytest.mark.parametrize(
    ("name", "weight", "term"), [(name, *pair) for name, pairs in WEIGHTS.items() for pair in pairs.items()]
)
def test_a_weight_scales_its_term_alone_and_0_switches_it_off(tiny_bert, second, sentences, name, weight, term):
    terms = {}
    for value in (0.0, 1.0, 3.0):
        method, tokens = prepare(configure(tiny_bert, second, name).replace(**{weight: value}), sentences)
        torch.manual_seed(1)
        terms[value] = method(tokens.batch(np.arange(16)))
    assert set(terms[0.0]) in (set(terms[1.0]), set(terms[1.0]) - {term}) and terms[0.0].get(term, 0.0) == 0.0
    torch.testing.assert_close(terms[3.0].pop(term), 3 * terms[1.0].pop(term))
    assert terms[3.0] == terms[1.0]


def read_copies(method, ids, mask, maps):
    """Both views of one pass: rows 2k and 2k + 1 are the copies of sentence k."""
    copies = torch.stack([ids, ids], dim=1)
    if hasattr(method.arguments, "span_length"):
        copies[:, 1] = mask_span(ids, mask, method.arguments.span_length, method.encoder.tokenizer.mask_token_id)
    method.encoder(copies.flatten(0, 1), mask.repeat_interleave(2, 0), maps=maps)
    return maps.probabilities().unflatten(1, (len(ids), 2)).unbind(2)


def read_twins(method, ids, mask, maps):
    """A view from each encoder."""
    views = []
    for encoder in (method.encoder, method.twin):
        encoder(ids, mask, maps=maps)
        views.append(maps.probabilities())
    return views


@pytest.mark.parametrize("padded_queries", [True, False])
@pytest.mark.parametrize(("slicing", "factor", "layers"), [("layer_parity", True, (0, 1)), ("head_pairs", False, (1,))])
@pytest.mark.parametrize(("name", "read"), [("micse", read_copies), ("mirror_bert", read_copies), ("ct", read_twins)])
def test_the_attention_term_is_the_loss_of_both_views(
    tiny_bert, padded_queries, slicing, factor, layers, name, read, sentences
):
    options = {"slicing": slicing, "valid_fraction_factor": factor}
    changes = {"ami_weight": 0.5, "ami_samples": 20, "min_layer": layers[0], "max_layer": layers[-1] + 1}
    changes |= options | {"padded_queries": padded_queries}
    config = RunConfig(backbone=str(tiny_bert), method=name, max_length=16)
    method, tokens = prepare(config.replace(**changes), sentences)
    batch = tokens.batch(np.arange(6))
    torch.manual_seed(1)
    term = method(batch)["ami"]
    torch.manual_seed(1)
    ids, mask = batch.column("anchor")
    att1, att2 = read(method, ids, mask, AttentionMaps(layers, padded_queries))
    tokens = mask.bool()
    valid = tokens[:, None, :] & (tokens[:, :, None] | padded_queries)
    expected = attention_mutual_information(att1, att2, valid=valid, samples=20, **options)
    assert expected < 0 and not tokens.all()
    torch.testing.assert_close(term, 0.5 * expected)
    term.backward()
    assert method.encoder.backbone.encoder.layer[1].attention.self.query.weight.grad.any()


@pytest.mark.parametrize(
    ("name", "chunk_size"), [*((name, 0) for name in (*ARGUMENTS, "three_r(simcse)")), ("msse", 3)]
)
def test_a_killed_run_ends_with_the_same_numbers(
    tiny_bert, second, corpus_file, tmp_path, monkeypatch, checkpoints_at_once, name, chunk_size
):
    """It dies between the optimiser's update and what the method does after a step: queues, coins, thresholds."""
    around, _, inner = name.rstrip(")").rpartition("(")
    further = {"corpus": str(corpus_file), "max_steps": 4, "dev_task": "demo", "chunk_size": chunk_size}
    config = configure(tiny_bert, second, inner, around, **further)
    whole, real, steps = runs.run(config), training._step, []

    def dies_once(*args):
        steps.append(args[-1])
        values = real(*args)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return values

    monkeypatch.setattr(training, "_step", dies_once)
    monkeypatch.setenv("CSE_RUNS", str(tmp_path / "again"))
    with pytest.raises(KeyboardInterrupt):
        runs.run(config)
    resumed = runs.run(config)
    assert steps == [1, 2, 3, 3, 4] and resumed.folder != whole.folder
    assert resumed.history.equals(whole.history) and resumed.metrics == whole.metrics
    weights = sorted(path.relative_to(whole.folder) for path in whole.folder.rglob("*.safetensors"))
    assert weights and all((whole.folder / at).read_bytes() == (resumed.folder / at).read_bytes() for at in weights)


REFUSED = [
    *(
        (text, {}, "is unknown")
        for text in ("identity(simsce)", "identity(simcse", "identity simcse", "identity()", "")
    ),
    ("identity", {}, "write outer\\(inner\\)"),
    ("simcse(micse)", {}, "write outer\\(inner\\)"),
    ("identity(mlm)", {}, "method identity cannot be put around mlm, which embeds no sentences"),
    ("arccse", {"smaller_span": 0.4}, "smaller_span 0.4 must be below larger_span 0.4"),
    ("ct", {"ami_weight": 1.0, "min_layer": 0, "max_layer": 3}, "even number of them, not those from min_layer 0 to"),
    ("infocse", {"contrastive_weight": 0.0, "auxiliary_weight": 0.0}, "are all 0: nothing would be trained"),
    ("three_r(micse)", {"place": "projection", "chunk_size": 8}, "with ami_weight above 0 reads more than embeddings"),
    ("ct", {"ami_weight": 1.0, "chunk_size": 8}, "method ct with ami_weight above 0 reads more"),
    ("mirror_bert", {"ami_weight": 1.0, "chunk_size": 8}, "method mirror_bert with ami_weight above 0"),
    ("arccse", {"chunk_size": 8}, "method arccse with triplet_weight above 0"),
    ("sscl", {"mlm_weight": 0.1, "chunk_size": 8}, "method sscl with mlm_weight above 0"),
    ("infocse", {"rtd_weight": 0.1, "chunk_size": 8}, "infocse with rtd_weight, auxiliary_weight above 0"),
    ("mlm", {"chunk_size": 8}, "method mlm reads more than embeddings: set chunk_size to 0"),
    ("micse", {"min_layer": 2, "max_layer": 2}, "max_layer must be at least 3"),
    ("micse", {"negatives": "none", "queue_size": 8}, "needs queue_size 0"),
    ("micse", {"negatives": "none", "queue_size": 0, "positive_in_denominator": False}, "and the positive in the"),
    ("micse", {"ami_weight": float("inf")}, "ami_weight must be at least 0 and finite; got inf"),
    ("mlm", {"lm_head": "random"}, "lm_head 'random' is unknown: choose one of pretrained, fresh"),
    ("msse", {"nce_weight": 0.0, "dimension_weight": 0.0, "reconstruction_weight": 0.0}, "nothing would be trained"),
    ("esimcse", {"projection": "bn_mlp"}, "set queue_size to 0"),
    ("sscl", {"dropout_masks": "identical"}, "dropout_masks 'identical' is unknown: choose one of independent"),
    ("three_r(distill)", {"teacher": "some"}, "means nothing where a target is fixed"),
    ("three_r(diffcse)", {}, "batch norm: set projection to train_only or none"),
    ("three_r(esimcse)", {}, "this queue holds projected vectors: set place to projection"),
    ("three_r(micse)", {}, "this queue holds projected vectors: set place to projection"),
    ("three_r(three_r(simcse))", {}, "share the argument deviation_gradient"),
    ("three_r(simcse)", {"operation": "zero", "dimensions": "all"}, "would leave nothing"),
    ("tncse", {"nce_weight": 0.0, "icnce_weight": 0.0, "ictm_weight": 0.0}, "are all 0: nothing would be trained"),
    ("tncse", {"layer_norms_removed": 1, "pooler_from": "demo"}, "pooler_from is read by nobody"),
    ("tncse", {"second_backbone": None}, "second_backbone must be str"),
]


@pytest.mark.parametrize(("method", "arguments", "words"), REFUSED)
def test_arguments_that_make_no_sense_are_refused_in_one_sentence(method, arguments, words):
    with pytest.raises(ConfigError, match=words) as caught:
        RunConfig.from_parameters({"method": method} | arguments)
    assert "\n" not in str(caught.value) and caught.value.__cause__ is caught.value.__context__ is None


HEADLESS = "saved without an MLM head: take one that has it, or, for a backbone, set lm_head to fresh, or the weight"
MISFITS = [  # with a backbone of 2 layers and 32 dimensions
    ("arccse", {"pooling": "mask_prompt"}, "would mask words of the prompt"),
    ("ct", {"ami_weight": 1.0, "min_layer": 0, "max_layer": 4}, "max_layer 4 is beyond the 2 layers"),
    ("diffcse", {"pooling": "mean"}, "set pooling to cls, not mean"),
    ("diffcse", {"projection": "always"}, "set projection to bn_mlp, train_only or none"),
    ("diffcse", {"generator": "NOTHING"}, "^generator '.*nothing' is neither an existing folder"),
    ("diffcse", {"generator": "HEADLESS"}, "generator '.*headless' was saved without an MLM head"),
    ("diffcse", {"generator": "ROBERTA"}, "has another vocabulary than the backbone .* in common;"),
    ("diffcse", {"generator": "WORDS"}, "has another vocabulary .*; weights for 96 and"),
    ("diffcse", {"generator": "SHORT"}, "takes 16 tokens, the backbone 64"),
    ("diffcse", {"generator": "HALF"}, "generator '.*half': it lacks 16 of its weights"),
    ("distill", {"teacher": "NOTHING"}, "^teacher '.*nothing' is neither an existing folder"),
    ("distill", {}, "^teacher '' is neither an existing folder"),
    ("distill", {"teacher": "NARROW"}, "have 16 dimensions, those of the backbone 32"),
    ("esimcse", {"pooling": "mask_prompt"}, "would repeat words of the prompt"),
    ("tncse", {"second_backbone": "NARROW"}, "vectors of different length cannot be added"),
    ("tncse", {"second_backbone": "SHORT"}, "another longest text"),
    ("tncse", {"second_backbone": "ROBERTA"}, "another tokenizer"),
    ("tncse", {"second_backbone": "PROJECTED"}, "was saved with a projection"),
    ("tncse", {"backbone": "PROJECTED"}, "saved with a projection does not fit"),
    ("tncse", {"pooler_from": "NARROW"}, "16 dimensions, backbone 32"),
    ("tncse", {"pooler_from": "PROJECTED"}, "saved without a pooler"),
    ("tncse", {"layer_norms_removed": 3}, "LayerNorms of 3 layers cannot be removed: this backbone has 2 layers"),
    ("tncse", {"second_backbone": "NOTHING"}, "^second_backbone '.*nothing' is neither an existing folder"),
    ("jtcse", {"second_backbone": "DEEP", "cross_attention_layers": 2}, "second_backbone has 4 layers, backbone 2"),
    ("jtcse", {"second_backbone": "HEADS", "cross_attention_layers": 2}, "second_backbone has 4 heads, backbone 2"),
    ("infocse", {"early_layers": 2, "lm_head": "fresh"}, "early_layers must lie between 1 and 1, below the last layer"),
    ("infocse", {"head": "pretrained"}, "head 'pretrained' asks for condenser_head.safetensors beside"),
    ("infocse", {"head": "top_layers", "late_layers": 9}, "late_layers 9 is more than the 2 layers"),
    ("micse", {"ami_weight": 1.0, "min_layer": 0, "max_layer": 2, "pooling": "first_last_mean"}, "no attention maps"),
    ("mirror_bert", {"pooling": "mask_prompt"}, "would mask words of the prompt"),
    ("mlm", {"whole_words": True}, "whole_words needs a WordPiece vocabulary"),
    ("mlm", {"augmentation": "word_deletion(0.2)"}, r"with augmentation 'word_deletion\(0.2\)' holds anchor, positive"),
    ("sscl", {"negative_layers": 2}, "negative_layers must be below the backbone's 2 layers, not 2"),
    ("prompt", {}, "set pooling to mask_prompt, not cls"),
    ("prompt", {"backbone": "PROJECTED", "pooling": "mask_prompt"}, "saved with a projection does not fit"),
    ("prompt", {"pooling": "mask_prompt", "second_prompt": "[X] means [MASK] ."}, "must have 4 tokens before"),
    ("prompt", {"pooling": "mask_prompt", "second_prompt": 'This sentence of " [X] "'}, "behind it those of the first"),
    ("sscl", {"pooling": "first_last_mean", "negative_layers": 1}, "sscl pools single layers: choose cls, mean or"),
    ("three_r(simcse)", {"exemplars": 65}, "exemplars 65: the pool holds 64 sentences"),
    ("three_r(simcse)", {"pool": "NOTHING"}, "nothing does not exist"),
    ("three_r(simcse)", {"words": "NOTHING"}, "nothing does not exist"),  # although it is not read
    ("msse", {"backbone": "PROJECTED"}, "before any projection"),
    ("msse", {"decoder_heads": 5}, "decoder_heads 5 does not divide the backbone's 32 dimensions"),
    ("infocse", {"backbone": "HEADLESS", "head": "top_layers"}, HEADLESS),
    ("mlm", {"backbone": "HEADLESS"}, HEADLESS),
    ("msse", {"backbone": "HEADLESS"}, HEADLESS),
    ("simcse", {"backbone": "HEADLESS", "mlm_weight": 0.1}, HEADLESS),
    ("simcse", {"backbone": "HEADLESS", "replacement_rate": 0.1}, HEADLESS),
]


@pytest.fixture
def other(tiny_bert, roberta, lively, variant, tmp_path):
    """Function (value) -> folder of another encoder than the backbone, where the value names one; else the value."""

    def half(target):
        weights = {name: w for name, w in load_file(tiny_bert / "model.safetensors").items() if "layer.1." not in name}
        shutil.copytree(tiny_bert, target)
        save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
        return str(target)

    def projected(target):
        SentenceEncoder.from_pretrained(tiny_bert, projection=projection_head(32)).save(target)
        return str(target)

    makers = {
        "NOTHING": str,
        "HALF": half,
        "PROJECTED": projected,
        "ROBERTA": lambda target: roberta,
        "WORDS": lambda target: lively("bert", vocab_size=96),
        "SHORT": lambda target: lively("bert", max_position_embeddings=16),
        "HEADLESS": lambda target: variant(tiny_bert, target),
        "NARROW": lambda target: variant(tiny_bert, target, hidden_size=16),
        "DEEP": lambda target: variant(tiny_bert, target, num_hidden_layers=4),
        "HEADS": lambda target: variant(tiny_bert, target, num_attention_heads=4),
    }
    return lambda value: makers[value](tmp_path / value.lower()) if value in makers else value


@pytest.mark.parametrize(("method", "changes", "words"), MISFITS)
def test_what_does_not_fit_the_backbone_is_refused_before_training(
    tiny_bert, corpus_file, other, method, changes, words
):
    given = {"backbone": str(tiny_bert), "corpus": str(corpus_file), "method": method, "max_length": 16}
    config = RunConfig.from_parameters(given | {name: other(value) for name, value in changes.items()})
    with pytest.raises((ConfigError, DataError, EncoderError), match=words):
        runs.preflight(config)


NAMED = [  # method, parameter that names a folder, file there, a part of it that is read, and further arguments
    ("distill", "teacher", "model.safetensors", "layer.0.output.dense.weight", {}),
    ("rankcse", "teacher", "model.safetensors", "layer.0.output.dense.weight", {}),
    ("tncse", "second_backbone", "model.safetensors", "layer.0.output.dense.weight", {}),
    ("tncse", "pooler_from", "model.safetensors", "pooler.dense.weight", {}),
    ("diffcse", "generator", "model.safetensors", "layer.0.output.dense.weight", {}),
    ("mlm", "backbone", LATE_LAYERS, "0.output.dense.weight", {"condenser_weight": 1.0, "head": "pretrained"}),
    *(("simcse", "backbone", "model.safetensors", f"cls.predictions.{part}", {"mlm_weight": 0.1})
      for part in ("transform.dense.weight", "bias")),
    ("simcse", "backbone", "model.safetensors", "cls.predictions.bias", {"replacement_rate": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parameter", "file", "part", "further"), NAMED)
def test_a_run_is_named_by_the_content_of_what_it_reads_and_not_by_its_place(
    tiny_bert, second, corpus_file, tmp_path, name, parameter, file, part, further
):
    folder = second
    if file == LATE_LAYERS:
        encoder = SentenceEncoder.from_pretrained(second)
        REGISTRY["mlm"](encoder, REGISTRY["mlm"].Arguments(condenser_weight=1.0)).save(folder := tmp_path / "stage one")
    moved, changed = (shutil.copytree(folder, tmp_path / place) for place in ("moved", "changed"))
    reweigh(changed, f"(^|[.]){part}$", lambda weight: weight + 1, file)
    given = {"corpus": str(corpus_file), "backbone": str(tiny_bert), "method": name, "max_length": 16} | further
    ids = [runs.prepare(RunConfig.from_parameters(given | {parameter: str(at)})).id for at in (folder, moved, changed)]
    assert ids[0] == ids[1] != ids[2]


def test_a_run_is_named_by_the_content_of_its_pool(tiny_bert, corpus_file, tmp_path):
    config, names = RunConfig(corpus=str(corpus_file), backbone=str(tiny_bert), method="three_r(simcse)"), []
    for at, last in enumerate(("the house", "the house", "the park")):
        (tmp_path / f"{at}.txt").write_text(f"the dog\na cat\n{last}\n")
        names.append(runs.prepare(config.replace(pool=str(tmp_path / f"{at}.txt"), exemplars=2, max_length=16)).id)
    assert names[0] == names[1] != names[2] and names[0].startswith("three_r-simcse-")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, or CSE_TEST_GPU is not set")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_gpu_gives_the_same_numbers_twice(tiny_bert, second, sentences, name, precision):
    config = configure(tiny_bert, second, name, precision=precision)
    one, two = (train(config, sentences) for _ in range(2))
    assert {weight.device.type for weight in one["weights"].values()} == {"cuda"}
    assert np.isfinite(one["history"]["loss"]).all()
    assert_equal(one, two)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_two_steps_on_the_device_of_their_tensors_and_what_is_saved_then(
    tiny_bert, second, sentences, name, monkeypatch, bf16_products, tmp_path
):
    """A tensor made without a device would be on `meta` here, and fail beside those on the CPU. In bf16 by rounding, so that
    no product may be in bf16."""
    monkeypatch.setattr(precision, "computes_bf16", lambda device: False)
    config = configure(tiny_bert, second, name)
    method, tokens = prepare(config, sentences)
    for module in method.modules():
        if isinstance(module, SentenceEncoder):
            module.training_dtype = torch.bfloat16
    optimizer = torch.optim.AdamW(method.parameter_groups(config), lr=1e-3, fused=True)
    with torch.device("meta"), bf16_products as products:
        for rows in (np.arange(16), np.arange(16, 32)):  # the second step reads what the first one left
            terms = method(tokens.batch(rows))
            optimizer.zero_grad()
            sum(terms.values()).backward()
            optimizer.step()
            method.after_step()
        assert all(torch.isfinite(term) and term.device.type == "cpu" for term in terms.values())
    assert not products
    method.save(tmp_path / "saved")
    saved, expected = ensemble.load(tmp_path / "saved").encode(sentences[:5]), method.encoder.encode(sentences[:5])
    np.testing.assert_allclose(saved, expected, atol=1e-6)


def test_every_method_is_tried_here_and_says_what_it_needs():
    assert set(ARGUMENTS) | {"identity", "shift", "three_r"} == set(REGISTRY)
    for name, arguments in ARGUMENTS.items():
        needs = MethodSpec.parse(name).needs(arguments)
        assert needs.roles[0] == "anchor" and needs.passes >= 1 and needs.trained_encoders >= 1
        named = {argument for argument, value in arguments.items() if value == "SECOND"}
        assert set(needs.encoders) | set(needs.generators) == named
