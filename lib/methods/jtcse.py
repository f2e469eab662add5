"""JTCSE (Zong et al., arXiv 2505.02366): TNCSE, and cross-attention between the twins as a side branch of training."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lib.checks import ConfigError, Count
from lib.encoders import SentenceEncoder, packed
from lib.encoders.kinds import check_attention
from lib.encoders.packed import AttentionInputs
from lib.methods.base import Views
from lib.methods.tncse import TNCSE, TNCSEArguments


@dataclass(frozen=True)
class JTCSEArguments(TNCSEArguments):
    cross_attention_layers: Count = 6  # how many, evenly spaced, the last layer among them (Table IX); 0: none
    branch: Literal["carried", "last"] = "carried"  # through all of these layers, or anew at the last one
    coin: bool = True  # a fair coin per step decides which encoder looks in the other; False: I in II, as TNCSE


class JTCSE(TNCSE):
    """TNCSE's terms; `icnce` also between the [CLS] vectors c of the cross-attention branch, in the coin's direction.

    With cross_attention_layers 0 and coin False it is TNCSE.
    """

    Arguments = JTCSEArguments

    def __init__(self, encoder: SentenceEncoder, arguments: JTCSEArguments) -> None:
        depth = encoder.backbone.config.num_hidden_layers
        count = arguments.cross_attention_layers if arguments.icnce_weight else 0  # which alone reads the branch
        if count and depth % count:
            raise ConfigError(f"cross_attention_layers {count} does not divide the {depth} layers of this backbone.")
        super().__init__(encoder, arguments)
        for name, what in (("num_hidden_layers", "layers"), ("num_attention_heads", "heads")):
            first, second = (getattr(twin.backbone.config, name) for twin in self.encoder.encoders)
            if count and first != second:
                raise ConfigError(f"second_backbone has {second} {what}, backbone {first}: cross-attention pairs them.")
        self.layers = tuple(range(depth // count - 1, depth, depth // count)) if count else ()
        for twin in self.encoder.encoders if count else ():
            check_attention(twin, self.layers)
        self.names += ("first_branch", "second_branch") if self.layers else ()
        # drawn while all processes share one random state; the coin then depends on the step alone
        self.register_buffer("coin_seed", torch.randint(2**31, ()))

    def read(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        if not self.layers:
            return super().read(input_ids, attention_mask)
        inputs = [AttentionInputs(self.layers) for _ in range(2)]
        twins = zip(self.encoder.encoders, inputs, strict=True)
        h = [encoder(input_ids, attention_mask, inputs=captured) for encoder, captured in twins]
        return dict(zip(self.names, [*h, *self.cross_attention(*inputs)], strict=True))

    def pairs(self, h1: Tensor, h2: Tensor, views: Views) -> list[tuple[Tensor, Tensor]]:
        pairs = super().pairs(h1, h2, views)
        if self.layers:
            pairs.append((views.rows("first_branch"), views.rows("second_branch")))
        return [(b, a) for a, b in pairs] if self.arguments.coin and self.draw() else pairs

    def draw(self) -> bool:
        """The coin of this step; False is R = 1 of Eq. 12."""
        generator = torch.Generator().manual_seed(int(self.coin_seed) + int(self.step))
        return bool(torch.rand((), generator=generator, device="cpu") < 0.5)

    def cross_attention(self, inputs1: AttentionInputs, inputs2: AttentionInputs) -> tuple[Tensor, Tensor]:
        """c_I and c_II [n, D], n rows of this process: each encoder's [CLS] attends with its own queries and keys to
        the other encoder's values (Eqs. 7 to 10), layer after layer; no parameters of its own.

        Keys and values come from the encoders' own streams, so of the branch only the [CLS] vector is needed.
        """
        layers = self.layers if self.arguments.branch == "carried" else self.layers[-1:]
        vectors = []
        for encoder, here, there in zip(self.encoder.encoders, (inputs1, inputs2), (inputs2, inputs1), strict=True):
            with encoder.precision(encoder.device):
                c = here.captured[layers[0]][0]
                for at in layers:
                    _, query, key, _, keys = here.captured[at]
                    value = there.captured[at][3]
                    c = packed.first_token_layer(encoder.backbone.encoder.layer[at], c, query, key, value, keys)
            vectors.append(c.float())
        return vectors[0], vectors[1]
