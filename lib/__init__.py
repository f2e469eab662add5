"""Models, losses and analysis behind the notebooks. `lib.setup()` is the first call of every notebook."""

__version__ = "0.1.0"

from lib.session import setup

__all__ = ["__version__", "setup"]
