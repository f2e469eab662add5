"""What the loops share that losses are compared with."""

import math


def cosine(u, v):
    """Of two lists of numbers."""
    return sum(x * y for x, y in zip(u, v, strict=True)) / math.hypot(*u) / math.hypot(*v)
