import torch

from lib.encoders import SentenceEncoder
from lib.losses import info_nce, mutual_reconstruction
from lib.methods import REGISTRY

InforMinCL, SimCSE = REGISTRY["informin_cl"], REGISTRY["simcse"]


def build(folder, kind=InforMinCL, **arguments):
    torch.manual_seed(0)
    return kind(SentenceEncoder.from_pretrained(folder, dropout=0.0), kind.Arguments(**arguments)).train()


def test_the_terms_are_those_of_the_raw_vectors_or_of_the_projected_ones(tiny_bert, sentences, batch):
    for projection in ("none", "train_only"):
        method = build(tiny_bert, projection=projection, forgetting_weight=3.0, forgetting_reduce="sum")
        inputs = batch(method, sentences[:8], sentences[8:16], roles=("anchor", "positive"))
        z = [method.encoder(*inputs.column(role)) for role in inputs.roles]
        z = [x if method.training_head is None else method.training_head(x) for x in z]
        terms = method(inputs)
        torch.testing.assert_close(terms["info_nce"], info_nce(*z), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            terms["forgetting"], 3 * mutual_reconstruction(*z, reduce="sum"), rtol=1e-4, atol=1e-5
        )
