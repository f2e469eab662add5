"""Mirror-BERT (Liu et al., EMNLP 2021, arXiv 2104.08027): one copy of the sentence has a masked span."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lib.checks import ConfigError, Count, Positive
from lib.data import Batch
from lib.encoders import SentenceEncoder
from lib.losses import twin_info_nce
from lib.methods.base import Method, Needs, Views
from lib.methods.micse import AMIArguments, AttentionTerm


@dataclass(frozen=True)
class MirrorBERTArguments(AMIArguments):
    temperature: Positive = 0.04  # the authors' value for sentences
    span_length: Count = 2  # word pieces; 0 masks nothing


class MirrorBERT(Method):
    """Terms `twin_info_nce` and, with a positive ami_weight, `ami` (miCSE, Table 2); no projection.

    The authors put one mask token in the place of five characters of the text. Here `span_length` word pieces are
    masked one by one: about as much, and the two copies keep the same length and positions, which AMI needs.
    """

    Arguments = MirrorBERTArguments

    @classmethod
    def needs(cls, arguments: MirrorBERTArguments) -> Needs:
        return Needs(beside_embeddings=arguments.beside_embeddings)

    def __init__(self, encoder: SentenceEncoder, arguments: MirrorBERTArguments) -> None:
        super().__init__(encoder, arguments)
        if arguments.span_length and encoder.pooling == "mask_prompt":
            raise ConfigError("mirror_bert would mask words of the prompt: set span_length to 0 or pool otherwise.")
        self.attention_term = AttentionTerm(encoder, arguments)

    def embed(self, batch: Batch) -> Views:
        input_ids, mask = batch.column("anchor")  # [N, L]
        masked = mask_span(input_ids, mask, self.arguments.span_length, self.encoder.tokenizer.mask_token_id)
        copies = torch.stack([input_ids, masked], dim=1).flatten(0, 1)  # rows 2k and 2k + 1
        maps = self.attention_term.maps()
        z = self.encoder(copies, mask.repeat_interleave(2, 0), maps=maps)
        return Views({"encoder": z.unflatten(0, (-1, 2))}, captured={"maps": maps})

    def loss(self, views: Views, batch: Batch) -> dict[str, Tensor]:
        terms = {"twin_info_nce": twin_info_nce(views.rows(), temperature=self.arguments.temperature)}
        return terms | self.attention_term.of_copies(views, batch)


def mask_span(input_ids: Tensor, mask: Tensor, length: int | Tensor, mask_id: int) -> Tensor:
    """Put mask_id on `length` consecutive tokens of every row, [CLS] and [SEP] aside; one token at least stays.

    input_ids, mask: [N, L], padding on the right; first and last token of a row are special. -> [N, L]; with lengths
    [K, N] [K, N, L], in which a longer span of a row holds its shorter ones.
    """
    words = mask.sum(1) - 2  # [N]
    lengths = torch.minimum((words - 1).clamp(min=0), torch.as_tensor(length, device=words.device))
    draw = torch.rand(len(input_ids), device="cpu").to(input_ids.device)
    start = 1 + (draw * (words - lengths + 1)).floor().long()
    place = torch.arange(input_ids.size(1), device=input_ids.device)
    inside = (place >= start[..., None]) & (place < (start + lengths)[..., None])
    return input_ids.masked_fill(inside, mask_id)
