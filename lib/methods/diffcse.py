"""DiffCSE (Chuang et al. 2022, arXiv 2204.10298): SimCSE, and a discriminator that finds replaced tokens with the help
of the sentence's vector. Facts from the authors' code; what InfoCSE combines it with (Table 12) is in `infocse`."""

import copy
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.checks import ConfigError, NonNegative, PositiveProbability
from lib.data import Batch
from lib.distributed import own_rows
from lib.encoders import SentenceEncoder, packed
from lib.encoders.generator import Generator
from lib.encoders.heads import MODEL_FILES
from lib.encoders.kinds import check_packed
from lib.methods.base import Needs, Views
from lib.methods.mlm import TokenMasking
from lib.methods.simcse import Projection, SimCSE, SimCSEArguments, both_views


@dataclass(frozen=True)
class DiffCSEArguments(SimCSEArguments):
    projection: Projection = "bn_mlp"  # what the authors' scripts train with
    rtd_weight: NonNegative = 0.005  # lambda of the authors' code for STS; 0 switches the term off
    rtd_probability: PositiveProbability = 0.3  # share of the tokens that the generator does not see
    rtd_padding: bool = True  # the mean also counts the padding (code), which is never replaced; False: tokens only
    generator_dropout: bool = True  # as the code trains, where train() reaches the generator; False: it guesses without
    generator: str = ""  # masked-language model, a folder or hub name; empty: the backbone (the authors: DistilBERT)


class DiffCSE(SimCSE):
    """Terms of SimCSE, and `rtd`."""

    Arguments = DiffCSEArguments

    @classmethod
    def needs(cls, arguments: DiffCSEArguments) -> Needs:
        needs = super().needs(arguments)
        if not arguments.rtd_weight:
            return needs
        generators = {"generator": arguments.generator} if arguments.generator else {}
        files = needs.files if arguments.generator else tuple({*needs.files, MODEL_FILES})
        needs = replace(needs, beside_embeddings=(*needs.beside_embeddings, "rtd_weight"), files=files)
        return replace(needs, passes=needs.passes + 2, trained_encoders=2, generators=generators)

    def __init__(self, encoder: SentenceEncoder, arguments: DiffCSEArguments) -> None:
        super().__init__(encoder, arguments)
        self.replaced_tokens = ReplacedTokenDetection(encoder, arguments) if arguments.rtd_weight else None

    def embed(self, batch: Batch) -> Views:
        views = super().embed(batch)
        if self.replaced_tokens is None:
            return views
        return views.replace(captured={"filled": self.replaced_tokens.fill(*both_views(batch))})

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        terms = super().loss(views, batch)
        if self.replaced_tokens is not None:
            z = own_rows(view_pairs(views), len(batch)).flatten(0, 1)  # [2N, D], projected
            loss = self.replaced_tokens(z, *both_views(batch), views.captured["filled"])
            terms["rtd"] = self.arguments.rtd_weight * loss
        return terms


def view_pairs(views: Views) -> Tensor:
    """The embeddings [N, 2, D] of anchors and positives."""
    z = views.by_role()
    return torch.stack([z["anchor"], z["positive"]], dim=1)


class ReplacedTokenDetection(nn.Module):
    """Generator and discriminator.

    The generator guesses every token of a masked copy ([CLS] stays). The discriminator, a second encoder that starts
    as a copy of the backbone and is trained, reads the guesses with the sentence's vector in the place of the [CLS]
    token's embedding, and says of every token whether it was replaced. Raises as `Generator`.
    """

    def __init__(self, encoder: SentenceEncoder, arguments: DiffCSEArguments) -> None:
        super().__init__()
        check_reads_cls(encoder, "replaced-token detection (rtd_weight)")
        backbone, name = encoder.backbone, arguments.generator or encoder.backbone.config._name_or_path
        self.generator = Generator.from_pretrained(name)
        self.generator.check(name, encoder)
        self.generator.dropout = arguments.generator_dropout
        self.masking = TokenMasking(encoder, probability=arguments.rtd_probability)
        self.discriminator = copy.deepcopy(backbone)
        self.classifier = nn.Linear(backbone.config.hidden_size, 2)
        nn.init.normal_(self.classifier.weight, std=backbone.config.initializer_range)
        nn.init.zeros_(self.classifier.bias)
        self.padding, self.precision = arguments.rtd_padding, encoder.precision

    def fill(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """The generator's guesses for a masked copy: input_ids, mask [M, L] -> ids [M, L]; padding stays padding."""
        masked, _ = self.masking(input_ids, mask)
        with self.precision(input_ids.device):
            filled = torch.where(mask.bool(), self.generator(masked, mask), input_ids)
        return torch.cat([input_ids[:, :1], filled[:, 1:]], dim=1)

    def forward(self, z: Tensor, input_ids: Tensor, mask: Tensor, filled: Tensor) -> Tensor:
        """z [M, D], the vectors of M sentences; input_ids, mask, filled [M, L] -> mean cross-entropy. A token that the
        generator guessed right counts as not replaced (ELECTRA, arXiv 2003.10555)."""
        tokens = packed.Tokens(mask.bool(), compute_padding=self.padding)
        with self.precision(input_ids.device):
            embedded = tokens.pack(self.discriminator.embeddings(input_ids=filled))
            conditioned = embedded.index_copy(0, tokens.starts(), z.to(embedded.dtype))
            hidden = packed.run_layers(self.discriminator.encoder.layer, conditioned, tokens)
            logits = self.classifier(hidden)
        original, filled = (tokens.pack(ids.unsqueeze(-1)).squeeze(-1) for ids in (input_ids, filled))
        return F.cross_entropy(logits.float(), (filled != original).long())


def check_reads_cls(encoder: SentenceEncoder, what: str) -> None:
    """Raise ConfigError when an encoder's embedding is not the plain [CLS] vector, EncoderError when it is no BERT."""
    check_packed(encoder.backbone.config, what)
    if encoder.pooling != "cls":
        raise ConfigError(f"{what} is given the [CLS] vector: set pooling to cls, not {encoder.pooling}.")
    if encoder.projection is not None:
        advice = "set projection to bn_mlp, train_only or none, and take a backbone that was saved without one"
        raise ConfigError(f"{what} is given the [CLS] vector: {advice}.")
