"""MSSE (anonymous ACL submission, "Harnessing Dimension-level Contrastive Learning and Information Compensation"):
sentences are told apart, dimensions are told apart, and a decoder has to rebuild the sentence from its vector.

Where paper and authors' code disagree, the defaults are the paper's, but for three things: L_DCM is a sum divided by D
(neither; chosen on dev), the mean over tokens in L_ICM and the decoder's design are the code's. The code also has a projection, other weights
and a term that the paper does not have (an estimate of mutual information between layers), which is left out.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Interval
from torch import Tensor, nn

from lib.checks import Checked, ConfigError, Count, NonNegative, Positive, PositiveCount
from lib.data import Batch
from lib.distributed import own_rows, processes
from lib.encoders import SentenceEncoder
from lib.encoders.dropout import Dropout
from lib.encoders.heads import MLM_HEAD_STARTS, MODEL_FILES, mlm_head
from lib.encoders.kinds import check_packed
from lib.losses import dimension_contrast, masked_lm
from lib.losses.dimension_contrast import NORMALISATIONS, REDUCTIONS
from lib.methods.base import Method, Needs, Views, check_some_weight
from lib.methods.simcse import all_columns, contrast, with_positive


@dataclass(frozen=True)
class MSSEArguments(Checked):
    temperature: Positive = 0.05  # Table 6
    nce_weight: NonNegative = 1.0  # 0 in "w/o NCE" of Table 4
    hard_negative_weight: NonNegative = 1.0  # of the third column of a triple, in the contrastive term alone
    projection: Literal["none", "linear"] = "none"  # (paper), or before contrast and decoder, in training only (code)
    dimension_weight: NonNegative = 0.8  # mu of Eq. 10; 0.2 in the code, in a line that does not run
    dimension_of: Literal["embedding", "cls"] = "embedding"  # dimensions of the embedding (paper) or of [CLS] (code)
    dimension_normalise: Literal[NORMALISATIONS] = "zscore"  # columns: see losses.dimension_contrast
    dimension_reduce: Literal[REDUCTIONS] = "dim"  # sum as printed (Eq. 4), dim, dim2, or means (code)
    diagonal_weight: NonNegative = 1.0  # 2 in the code
    off_diagonal_weight: NonNegative = 1.0  # 0.05 in the code
    reconstruction_weight: NonNegative = 0.2  # gamma of Eq. 10; 1 in the code
    reconstruction_reduce: Literal["mean", "sum"] = "mean"  # over the tokens (code), or their sum (Eq. 9)
    reconstructed: Literal["anchor", "positive"] = "anchor"  # the sentence itself (paper), or its positive (code)
    decoder: Literal["denoising", "positionwise"] = "denoising"  # denoising (code) or positionwise, see below
    decoder_layers: PositiveCount = 1  # 16 in the code; positionwise has none
    decoder_heads: PositiveCount = 1
    decoder_input_dropout: Annotated[float, Interval(ge=0, le=0.999)] = 0.825  # of the denoising decoder's words
    lm_head: Literal[MLM_HEAD_STARTS] = "pretrained"  # the word head: as saved with the backbone, or new (fresh)
    swap_every: Count = 0  # every so many steps, L_ICM also with other vectors; 0: never; changes no weight

    def __post_init__(self) -> None:
        super().__post_init__()
        check_some_weight(self, "nce_weight", "dimension_weight", "reconstruction_weight")


class MSSE(Method):
    """Terms `info_nce`, `dimension` (L_DCM) and `reconstruction` (L_ICM); the decoder is thrown away after training.

    A sentence and its positive, or the sentence twice; a hard negative counts in `info_nce` alone. Views name the
    vectors by what reads them: `encoder` (contrast), `dimensions` and `memory` (decoder).

    Logged: `contrastive_gradient`, `dimension_gradient` and `reconstruction_gradient`, the norms of what each weighted
    term sends into the encoder, at the vectors it reads, before any projection; `own_vector`, `other_vector` and
    `mean_vector`, L_ICM (mean over the tokens, the same noise) with the sentence's vector, with the next sentence's,
    and with the mean of the batch. With several processes `reconstruction` and all that is logged are those of each
    process's own sentences.
    """

    Arguments = MSSEArguments

    @classmethod
    def needs(cls, arguments: MSSEArguments) -> Needs:
        denoises = arguments.reconstruction_weight > 0 and arguments.decoder == "denoising"
        return Needs(
            optional_roles=("positive", "hard_negative"),
            further_layers=arguments.decoder_layers if denoises else 0,
            files=(MODEL_FILES,) if denoises and arguments.lm_head == "pretrained" else (),
        )

    def __init__(self, encoder: SentenceEncoder, arguments: MSSEArguments) -> None:
        super().__init__(encoder, arguments)
        if encoder.projection is not None:
            raise ConfigError("msse reads the vector before any projection: take a backbone saved without one.")
        weights = {"dimensions": arguments.dimension_weight, "memory": arguments.reconstruction_weight}
        self.names += tuple(name for name, weight in weights.items() if weight)
        if arguments.projection == "linear":
            self.training_head = nn.Linear(encoder.dimension, encoder.dimension)
        self.decoder = None
        if arguments.reconstruction_weight:
            check_packed(encoder.backbone.config, "the decoder (reconstruction_weight)")
            kind = DenoisingDecoder if arguments.decoder == "denoising" else PositionwiseDecoder
            self.decoder = kind(encoder, arguments)

    def read(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        pooling, arguments = self.encoder.pooling, self.arguments
        other = "cls" if arguments.dimension_of == "cls" and arguments.dimension_weight else pooling
        readings = self.encoder.readings(input_ids, attention_mask, tuple(dict.fromkeys((pooling, other))))
        vectors = {"encoder": readings[pooling], "dimensions": readings[other], "memory": readings[pooling]}
        return {name: vectors[name] for name in self.names}

    def embed(self, batch: Batch) -> Views:
        views = all_columns(self, batch)
        logged = {"encoder": "contrastive", "dimensions": "dimension", "memory": "reconstruction"}
        watched = {name: self.probes.watch(f"{logged[name]}_gradient", z) for name, z in views.embeddings.items()}
        return views.replace(embeddings=watched)

    def project(self, views: Views) -> Views:
        if self.training_head is None:
            return views
        changed = {name: self.training_head(z) for name, z in views.embeddings.items() if name != "dimensions"}
        return views.replace(embeddings={**views.embeddings, **changed})

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        arguments = self.arguments
        terms = {"info_nce": arguments.nce_weight * contrast(views, arguments)}
        if arguments.dimension_weight:
            z = views.by_role("dimensions")
            between = self.between_dimensions(z["anchor"], z["positive"])
            terms["dimension"] = arguments.dimension_weight * between
        if self.decoder is not None:
            memory = own_rows(views.by_role("memory")["anchor"], len(batch))
            rebuilt = self.rebuild(memory, batch, arguments.reconstruction_reduce)
            terms["reconstruction"] = arguments.reconstruction_weight * rebuilt
        return terms

    def between_dimensions(self, anchor: Tensor, positive: Tensor) -> Tensor:
        """L_DCM of anchors and positives [N, D]; 0 for one sentence, the rest of an epoch, which has no statistics."""
        if len(anchor) < 2:
            return 0.0 * (anchor.sum() + positive.sum())
        arguments = self.arguments
        weights = {"diagonal_weight": arguments.diagonal_weight, "off_diagonal_weight": arguments.off_diagonal_weight}
        how = {"normalise": arguments.dimension_normalise, "reduce": arguments.dimension_reduce}
        return dimension_contrast(anchor, positive, **how, **weights)

    def rebuild(self, memory: Tensor, batch: Batch, reduce: str = "mean") -> Tensor:
        """L_ICM = -sum_i sum_j log q(x_ij | h_i) of sentences, from their vectors [N, D] (Eqs. 7 to 9); mean or sum over all
        tokens that the encoder read, special ones and the template of pooling mask_prompt too, which soon costs nothing.

        Minus the sum, plus the constant entropy of the sentences, bounds I(h, s) from below for a decoder that sees h alone
        (Barber, Agakov; Eq. 8). One that also sees noisy words bounds less: what h adds to them.
        """
        input_ids, mask, roles = with_positive(batch)
        place = roles.index(self.arguments.reconstructed)
        input_ids, valid = input_ids[:, place], mask[:, place].bool()  # [N, L]

        def loss(h: Tensor, reduce: str = "mean") -> Tensor:
            with self.encoder.precision(h.device):
                logits = self.decoder(h, input_ids, valid, self.encoder.backbone.embeddings)
            return masked_lm(logits.float(), input_ids[valid], reduction=reduce)

        every = self.arguments.swap_every
        if every and int(self.step) % every == 0 and len(memory) > 1:
            vectors = {"own_vector": memory, "other_vector": memory.roll(-1, 0)}
            self.probes.swap(loss, vectors | {"mean_vector": memory.mean(0).expand_as(memory)})
        shares = processes().num_processes  # DDP takes the mean over the processes, a sum wants all of them
        return loss(memory, reduce) * (shares if reduce == "sum" else 1)


class DenoisingDecoder(nn.Module):
    """Transformer layers that see the words of the sentence, most of their entries dropped, and its vector (DenoSent's
    design, in MSSE's code): every word attends to all, so only the dropout makes the vector worth reading.

    The words' embeddings are the encoder's (with positions, LayerNorm and the encoder's own dropout), without gradient;
    dropout and width of the feed-forward layers are the backbone's; the word head is a copy of its MLM head.
    """

    def __init__(self, encoder: SentenceEncoder, arguments: MSSEArguments) -> None:
        super().__init__()
        config, heads = encoder.backbone.config, arguments.decoder_heads
        if config.hidden_size % heads:
            raise ConfigError(f"decoder_heads {heads} does not divide the backbone's {config.hidden_size} dimensions.")
        layer = nn.TransformerDecoderLayer(
            config.hidden_size, heads, config.intermediate_size, config.hidden_dropout_prob, "gelu", batch_first=True
        )
        self.layers = nn.TransformerDecoder(layer, arguments.decoder_layers)
        self.noise = Dropout(arguments.decoder_input_dropout)
        self.words = mlm_head(encoder.backbone, tied=False, start=arguments.lm_head)

    def forward(self, memory: Tensor, input_ids: Tensor, valid: Tensor, embeddings: nn.Module) -> Tensor:
        """memory [N, H], input_ids and valid [N, L] -> logits [T, V] of the T valid tokens."""
        with torch.no_grad():
            words = embeddings(input_ids=input_ids)
        states = self.layers(self.noise(words), memory.unsqueeze(1), tgt_key_padding_mask=~valid)
        return self.words(states[valid])  # of the tokens alone: logits of the padding would be work for nothing


class PositionwiseDecoder(nn.Module):
    """softmax(E tanh(W [h; p_j])) at place j, which sees nothing but the vector and its own place: what is rebuilt can
    only come from h. E starts as a copy of the word embeddings; the paper leaves the decoder open (Eq. 9)."""

    def __init__(self, encoder: SentenceEncoder, arguments: MSSEArguments) -> None:
        super().__init__()
        config, words = encoder.backbone.config, encoder.backbone.get_input_embeddings().weight
        self.from_vector = nn.Linear(config.hidden_size, config.hidden_size)
        self.places = nn.Embedding(config.max_position_embeddings, config.hidden_size)  # W's other half, times p_j
        nn.init.normal_(self.places.weight, std=config.initializer_range)
        self.words = nn.Linear(config.hidden_size, len(words))
        nn.init.zeros_(self.words.bias)
        with torch.no_grad():
            self.words.weight.copy_(words)

    def forward(self, memory: Tensor, input_ids: Tensor, valid: Tensor, embeddings: nn.Module) -> Tensor:
        """As in DenoisingDecoder; embeddings are not read."""
        sentences, places = valid.nonzero(as_tuple=True)
        return self.words(torch.tanh(self.from_vector(memory)[sentences] + self.places(places)))
