"""JTCSE (Zong et al., arXiv 2505.02366): TNCSE, and cross-attention between the twins as a side branch of training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lib import packed
from lib.config import ConfigError, check_choice, check_range
from lib.distributed import gather
from lib.encoder import SentenceEncoder
from lib.losses import twin_info_nce
from lib.methods.tncse import TNCSE, TNCSEArguments
from lib.packed import FirstToken

BRANCHES = ("carried", "last")


@dataclass(frozen=True)
class JTCSEArguments(TNCSEArguments):
    cross_attention_layers: int = 6  # how many, evenly spaced, the last layer among them (Table IX); 0: none
    branch: str = "carried"  # the side branch runs through all of these layers, or starts anew at the last one
    coin: bool = True  # a fair coin per step decides which encoder looks in the other; False: I in II, as TNCSE

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("cross_attention_layers", self.cross_attention_layers, 0)
        check_choice("branch", self.branch, BRANCHES)


class JTCSE(TNCSE):
    """TNCSE's terms; `icnce` also between the [CLS] vectors c of the cross-attention branch, in the coin's direction.

    With cross_attention_layers 0 and coin False it is TNCSE.
    """

    Arguments = JTCSEArguments

    def __init__(self, encoder: SentenceEncoder, arguments: JTCSEArguments) -> None:
        depth, count = encoder.backbone.config.num_hidden_layers, arguments.cross_attention_layers
        if count and depth % count:
            raise ConfigError(f"cross_attention_layers {count} does not divide the {depth} layers of this backbone.")
        super().__init__(encoder, arguments)
        first, second = (each.backbone.config for each in self.encoder.encoders)
        for name, what in (("num_hidden_layers", "layers"), ("num_attention_heads", "heads")):
            own, other = getattr(first, name), getattr(second, name)
            if count and own != other:
                raise ConfigError(f"second_backbone has {other} {what}, backbone {own}: cross-attention pairs them.")
        self.layers = tuple(range(depth // count - 1, depth, depth // count)) if count else ()
        if self.layers:
            for each in self.encoder.encoders:
                each.check_attention(self.layers)
        # drawn while all processes share one random state; the coin then depends on the step alone
        self.register_buffer("coin_seed", torch.randint(2**31, ()))
        self.register_buffer("step", torch.tensor(0))

    def first_tokens(self) -> list[FirstToken | None]:
        return [FirstToken(self.layers) if self.layers else None for _ in range(2)]

    def between(self, h1: Tensor, h2: Tensor, seen: list[FirstToken | None]) -> Tensor:
        pairs = [(h1, h2)]
        if self.layers:
            pairs.append(tuple(gather(c) for c in self.cross_attention(*seen)))
        if self.arguments.coin and self.draw():
            pairs = [(b, a) for a, b in pairs]
        return sum(twin_info_nce(a, b, temperature=self.arguments.temperature) for a, b in pairs)

    def draw(self) -> bool:
        """The coin of this step; False is R = 1 of Eq. 12."""
        generator = torch.Generator().manual_seed(int(self.coin_seed) + int(self.step))
        return bool(torch.rand((), generator=generator) < 0.5)

    def after_step(self) -> None:
        self.step += 1

    def cross_attention(self, seen1: FirstToken, seen2: FirstToken) -> tuple[Tensor, Tensor]:
        """c_I and c_II [n, D], n rows of this process: each encoder's [CLS] attends with its own queries and keys to
        the other encoder's values (Eqs. 7 to 10), layer after layer; no parameters of its own.

        Keys and values come from the encoders' own streams, so of the branch only the [CLS] vector is needed.
        """
        used = self.layers if self.arguments.branch == "carried" else self.layers[-1:]
        found = []
        for encoder, own, other in zip(self.encoder.encoders, (seen1, seen2), (seen2, seen1), strict=True):
            with encoder.precision(encoder.device):
                c = own.found[used[0]][0]
                for at in used:
                    _, query, key, _, keys = own.found[at]
                    value = other.found[at][3]
                    c = packed.first_token_layer(encoder.backbone.encoder.layer[at], c, query, key, value, keys)
            found.append(c.float())
        return found[0], found[1]
