"""Method name -> class. A new method is one file and one line in REGISTRY; `outer(inner)` puts a Wrapper around one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lib.checks import ConfigError, check_choice, check_known
from lib.encoders import SentenceEncoder
from lib.methods.arccse import ArcCSE
from lib.methods.base import Method, Needs, Views, Wrapper
from lib.methods.ct import CT
from lib.methods.diffcse import DiffCSE
from lib.methods.distill import Distill
from lib.methods.esimcse import ESimCSE
from lib.methods.infocse import InfoCSE
from lib.methods.informin_cl import InforMinCL
from lib.methods.jtcse import JTCSE
from lib.methods.micse import MiCSE
from lib.methods.mirror_bert import MirrorBERT
from lib.methods.mlm import MLM
from lib.methods.msse import MSSE
from lib.methods.prompt import Prompt
from lib.methods.rankcse import RankCSE
from lib.methods.simcse import SimCSE
from lib.methods.sscl import SSCL
from lib.methods.three_r import ThreeR
from lib.methods.tncse import TNCSE

REGISTRY: dict[str, type[Method]] = {
    "arccse": ArcCSE,
    "ct": CT,
    "diffcse": DiffCSE,
    "distill": Distill,
    "esimcse": ESimCSE,
    "infocse": InfoCSE,
    "informin_cl": InforMinCL,
    "jtcse": JTCSE,
    "micse": MiCSE,
    "mirror_bert": MirrorBERT,
    "mlm": MLM,
    "msse": MSSE,
    "prompt": Prompt,
    "rankcse": RankCSE,
    "simcse": SimCSE,
    "sscl": SSCL,
    "three_r": ThreeR,
    "tncse": TNCSE,
}


@dataclass(frozen=True)
class MethodSpec:
    """What the parameter `method` names: a method, or wrappers around one, as in `outer(inner(method))`.

    names: outermost first; all but the last are wrappers. Their arguments stand side by side in one mapping.
    All that is here raises ConfigError for names and values that make no sense.
    """

    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> MethodSpec:
        names = text.rstrip(")").split("(")
        if text != "(".join(names) + ")" * (len(names) - 1):
            names = [text]
        for name in names:
            check_choice("method", name, REGISTRY)
        if [issubclass(REGISTRY[name], Wrapper) for name in names] != [True] * (len(names) - 1) + [False]:
            raise ConfigError(f"method {text!r}: write outer(inner), where outer alone is a wrapper: three_r(simcse).")
        return cls(tuple(names))

    def argument_names(self) -> list[str]:
        names = [field.name for method in self.names for field in fields(REGISTRY[method].Arguments)]
        if doubled := min((name for name in names if names.count(name) > 1), default=""):
            raise ConfigError(f"methods {', '.join(self.names)} share the argument {doubled}: they cannot be combined.")
        return names

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The validated Arguments of every method, outermost first."""
        check_known(values, self.argument_names(), f"argument of {' in '.join(self.names[::-1])}")
        kinds = [REGISTRY[name].Arguments for name in self.names]
        return [kind(**{f.name: values[f.name] for f in fields(kind) if f.name in values}) for kind in kinds]

    def needs(self, values: Mapping[str, Any]) -> Needs:
        """What the method needs, after every wrapper has agreed to it."""
        *around, (inner, arguments) = zip(self.names, self.arguments(values), strict=True)
        needs = REGISTRY[inner].needs(arguments)
        for name, arguments in reversed(around):
            if needs.pretraining:
                raise ConfigError(f"method {name} cannot be put around {inner}, which embeds no sentences.")
            needs = REGISTRY[name].needs(arguments, needs)
        return needs

    def build(self, encoder: SentenceEncoder, values: Mapping[str, Any]) -> Method:
        """The method around this encoder, all of it on the encoder's device. Raises also EncoderError."""
        method: Any = encoder
        for name, arguments in reversed(list(zip(self.names, self.arguments(values), strict=True))):
            method = REGISTRY[name](method, arguments)
        return method.to(encoder.device)


__all__ = ["REGISTRY", "Method", "MethodSpec", "Needs", "Views", "Wrapper"]
