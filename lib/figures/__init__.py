"""One function per kind of picture, on matplotlib and seaborn, from tidy data frames as `lib.results.rows` gives them.

Every function takes `title` (the finding, above the picture) and, with `save="name"`, writes the picture and the frame to
name.png, .svg and .csv; `note` (protocol, split, seeds) stands below the picture, behind the profile its numbers come from.
`save_figure` does that for any other figure.
"""

from lib.figures.curves import curves, forest, intervals, points, waterfall
from lib.figures.maps import cells, heatmaps, named_map, plane, scatter, text_map
from lib.figures.style import METHODS, colour, save_figure

__all__ = [
    "METHODS", "cells", "colour", "curves", "forest", "heatmaps", "intervals", "named_map", "plane", "points", "save_figure",
    "scatter", "text_map", "waterfall",
]  # fmt: skip
