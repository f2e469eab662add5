"""One function per kind of picture, from tidy data frames.

With `save="name"` it also writes the picture and the frame to name.png, .svg and .csv; `note` (protocol, split, seeds) and `source` (where
the numbers come from, when that is not this run) stand below the picture. `save_figure` does that for any other figure.
"""

from lib.figures.attention import attention_maps, energy_scatter, joint_histograms, token_panels, token_shares
from lib.figures.curves import (
    ALIGNMENT_UNIFORMITY,
    averages,
    few_shot,
    intervals,
    lines,
    loss_terms,
    pretraining_curves,
    seed_bands,
    seed_spread,
    training_curves,
)
from lib.figures.geometry import (
    clusters,
    cosine_density,
    geometry_paths,
    geometry_plane,
    geometry_scatter,
    modulus_surface,
    neighbours,
    pair_scatter,
    sentence_similarity,
    singular_spectrum,
    token_similarity,
)
from lib.figures.style import CYCLE, METHODS, colour, save_figure

__all__ = [
    "ALIGNMENT_UNIFORMITY", "CYCLE", "METHODS", "attention_maps", "averages", "clusters", "colour", "cosine_density", "energy_scatter", "few_shot",
    "geometry_paths", "geometry_plane", "geometry_scatter", "intervals", "joint_histograms", "lines", "loss_terms", "modulus_surface",
    "neighbours", "pair_scatter", "pretraining_curves", "save_figure", "seed_bands", "seed_spread",
    "sentence_similarity", "singular_spectrum", "token_panels", "token_shares", "token_similarity", "training_curves",
]  # fmt: skip
