"""Method name -> class. A new method is one file here and one line in REGISTRY."""

from lib.methods.base import Method
from lib.methods.ct import CT
from lib.methods.distill import Distill
from lib.methods.jtcse import JTCSE
from lib.methods.micse import MiCSE
from lib.methods.mirror_bert import MirrorBERT
from lib.methods.mlm import MLM
from lib.methods.simcse import SimCSE
from lib.methods.tncse import TNCSE

REGISTRY: dict[str, type[Method]] = {
    "ct": CT,
    "distill": Distill,
    "jtcse": JTCSE,
    "micse": MiCSE,
    "mirror_bert": MirrorBERT,
    "mlm": MLM,
    "simcse": SimCSE,
    "tncse": TNCSE,
}

__all__ = ["REGISTRY", "Method"]
