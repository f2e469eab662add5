"""Models, losses and analysis behind the notebooks. `lib.parameters()` and `lib.setup()` are the first calls of every notebook."""

import os

# Before torch is imported. Its threads otherwise spin while they wait for each other: nothing gained on a quiet machine
# (measured: 5 %), and ten times slower as soon as another process uses one of two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

from lib.notebook import parameters, setup  # noqa: E402

__all__ = ["__version__", "parameters", "setup"]
