"""Models, losses and analysis behind the notebooks. `lib.parameters()` and `lib.setup()` are the first calls of every notebook."""

__version__ = "0.1.0"

from lib.notebook import parameters, setup

__all__ = ["__version__", "parameters", "setup"]
