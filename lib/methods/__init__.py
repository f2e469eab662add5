"""Method name -> class. A new method is one file here and one line in REGISTRY."""

from lib.methods.base import Method
from lib.methods.ct import CT
from lib.methods.micse import MiCSE
from lib.methods.mirror_bert import MirrorBERT
from lib.methods.mlm import MLM
from lib.methods.simcse import SimCSE

REGISTRY: dict[str, type[Method]] = {
    "ct": CT,
    "micse": MiCSE,
    "mirror_bert": MirrorBERT,
    "mlm": MLM,
    "simcse": SimCSE,
}

__all__ = ["REGISTRY", "Method"]
