"""Encoders besides BERT and RoBERTa, and decoders: vectors as in sentence-transformers, a step of training, refusals."""

from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer

from lib.analysis import attention
from lib.checks import ConfigError, DataError, EncoderError
from lib.config import RunConfig
from lib.data import Batch
from lib.data.tokenized import pad
from lib.encoders import SentenceEncoder, precision
from lib.encoders.kinds import DECODERS, PADDED
from lib.runs import preflight
from tests.conftest import SHAPE
from tests.methods.conftest import build

SHORT = SHAPE | {"max_position_embeddings": 66, "initializer_range": 0.2}
OWN = {  # what these kinds call it, or what makes them the kind that they are
    "deberta-v2": SHORT
    | {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "conv_kernel_size": 3,
    },
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 66},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 66},
    "modernbert": SHORT | {"global_attn_every_n_layers": 2, "local_attention": 6},
    **dict.fromkeys(("albert", "electra"), SHORT | {"embedding_size": 16}),
    **dict.fromkeys(("llama", "qwen2", "qwen3"), SHORT | {"num_key_value_heads": 1}),
}
TEXTS = ["a dog runs", "the man was in the park " * 30, "rain", "two happy women sleep on a street", "a cat , no dog"]


@pytest.fixture(scope="module")
def folder(tiny_bert, tiny_roberta, tmp_path_factory):
    """Function (kind) -> a language model with random weights, and a tokenizer, a decoder's without start and padding."""

    @cache
    def make(kind):
        source = tiny_roberta if kind in ("mpnet", "xlm-roberta", *DECODERS) else tiny_bert
        tokenizer, model = transformers.AutoTokenizer.from_pretrained(source), transformers.AutoModelForMaskedLM
        if kind in DECODERS:
            files = {"vocab": str(source / "vocab.json"), "merges": str(source / "merges.txt"), "eos_token": "</s>"}
            tokenizer, model = transformers.GPT2Tokenizer(**files), transformers.AutoModelForCausalLM
        special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        torch.manual_seed(0)
        config = transformers.CONFIG_MAPPING[kind](vocab_size=len(tokenizer), **special, **OWN.get(kind, SHORT))
        model.from_config(config).save_pretrained(place := str(tmp_path_factory.mktemp(kind)))
        tokenizer.save_pretrained(place)
        return place

    return make


def theirs(encoder, folder, pooling, side="right"):
    transformer = Transformer(folder, max_seq_length=encoder.max_length)
    transformer.tokenizer.pad_token, transformer.tokenizer.padding_side = encoder.tokenizer.pad_token, side
    return SentenceTransformer(modules=[transformer, Pooling(32, pooling_mode=pooling)], device="cpu")


@pytest.mark.parametrize("kind", [*PADDED, "xlm-roberta"])
def test_an_encoder_embeds_as_in_sentence_transformers_and_trains(
    folder, kind, tmp_path, capsys, monkeypatch, bf16_products
):
    method = build("simcse", folder(kind), dropout=0.1)
    encoder, still = method.encoder, SentenceEncoder.from_pretrained(folder(kind), dropout=0.0, pooling="mean")
    assert "are not read" not in capsys.readouterr().err, "an MLM head is no loss"
    for one in (encoder, still):
        np.testing.assert_allclose(one.encode(TEXTS), theirs(one, folder(kind), one.pooling).encode(TEXTS), atol=1e-5)
    ids = pad(still.tokenize(TEXTS), still.tokenizer.pad_token_id)
    torch.testing.assert_close(still.train()(*ids), still.eval()(*ids))  # no rate of dropout is left
    monkeypatch.setattr(precision, "computes_bf16", lambda device: False)
    encoder.training_dtype = torch.bfloat16
    with bf16_products as products:
        loss = method(Batch(*(x.unsqueeze(1) for x in ids), ("anchor",)))["info_nce"]
        loss.backward()
    assert not products, "where the CPU has none"
    encoder.training_dtype = None
    assert loss.isfinite() and all(p.grad.isfinite().all() for p in method.parameters())  # all have one, as DDP wants
    assert not torch.allclose(encoder(*ids), encoder(*ids))
    torch.optim.SGD(method.parameters(), lr=0.01).step()
    method.save(tmp_path / "saved")
    again = SentenceEncoder.from_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)
    assert again.fingerprint() == encoder.fingerprint()


@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_is_read_by_its_last_token_on_whichever_side_padding_stands(folder, kind, tmp_path):
    encoder = SentenceEncoder.from_pretrained(folder(kind))
    peer = theirs(encoder, folder(kind), "lasttoken", "right" if kind == "gpt2" else "left")  # which gpt2 counts there
    np.testing.assert_allclose(vectors := encoder.encode(TEXTS), peer.encode(TEXTS), atol=1e-5)
    ids, mask = pad([row[::-1] for row in encoder.tokenize(TEXTS)], encoder.tokenizer.pad_token_id)
    np.testing.assert_allclose(encoder.eval()(ids.flip(1), mask.flip(1)).detach(), vectors, atol=1e-5)
    encoder.save(tmp_path / "ours")
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "ours")).encode(TEXTS), vectors, atol=1e-5)
    peer.save_pretrained(str(tmp_path / "theirs"))
    np.testing.assert_allclose(SentenceEncoder.from_pretrained(tmp_path / "theirs").encode(TEXTS), vectors, atol=1e-5)
    with pytest.raises(DataError, match="an empty text has no token for this tokenizer"):
        encoder.encode(["", "a dog"])


def test_attention_is_shown_of_those_that_have_it(folder, tiny_bert, capsys):
    bert, other = SentenceEncoder.from_pretrained(tiny_bert), SentenceEncoder.from_pretrained(folder("distilbert"))
    assert list(attention.readers({"other": other, "bert": bert})) == ["bert"]
    said = "other: left out where attention is shown, which distilbert models do not give here."
    assert said in capsys.readouterr().err and not attention.readers({"other": other})


INNER = " needs the inner layers of bert, roberta, .*, and this is a distilbert model: do without it, or take one of"
CHECKED = [  # parameters, and what is refused of them; "": nothing
    ({"method": "micse", "queue_size": 0, "min_layer": 0, "max_layer": 2}, r"^attention \(ami_weight, .*\)" + INNER),
    ({"method": "micse", "ami_weight": 0.0}, r"^the momentum encoder's own dropout \(queue_size\)" + INNER),
    ({"method": "infocse"}, r"^the auxiliary network \(auxiliary_weight\)" + INNER),
    ({"method": "diffcse"}, r"^replaced-token detection \(rtd_weight\)" + INNER),
    ({"method": "mlm", "lm_head": "fresh"}, r"^an MLM head \(mlm_weight, lm_head\)" + INNER),
    ({"method": "msse", "decoder": "positionwise"}, r"^the decoder \(reconstruction_weight\)" + INNER),
    ({"method": "jtcse", "cross_attention_layers": 2}, r"^attention \(.*cross_attention_layers, .*\)" + INNER),
    ({"method": "tncse", "layer_norms_removed": 1}, "^layer_norms_removed" + INNER),
    ({"pooling": "pooler"}, "pooling 'pooler'" + INNER),
    ({"method": "prompt", "pooling": "mask_prompt", "backbone": "mpnet"}, "a mpnet model counts distances by itself"),
    ({"method": "prompt", "pooling": "mask_prompt"}, ""),
    ({"method": "three_r(tncse)", "second_backbone": "distilbert"}, ""),
    ({"backbone": "gpt2"}, "^gpt2 models are decoders: they are not trained here, and embed by their last token"),
    ({"backbone": "gpt2", "pooling": "last"}, "^gpt2 models are decoders: .*; take an encoder to train.$"),
]


@pytest.mark.parametrize(("given", "words"), CHECKED)
def test_what_a_kind_cannot_do_is_refused_before_training(folder, corpus_file, given, words):
    given = {"backbone": "distilbert", "corpus": str(corpus_file), "batch_size": 8, "dev_task": "none"} | given
    given |= {name: folder(given[name]) for name in ("backbone", "second_backbone") if name in given}
    with pytest.raises((ConfigError, EncoderError), match=words) if words else nullcontext():
        preflight(RunConfig.from_parameters(given))
