"""Method name -> class. A new method is one file here and one line in REGISTRY."""

from lib.methods.base import Method
from lib.methods.mlm import MLM
from lib.methods.simcse import SimCSE

REGISTRY: dict[str, type[Method]] = {"mlm": MLM, "simcse": SimCSE}

__all__ = ["REGISTRY", "Method"]
