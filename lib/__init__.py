"""Models, losses and analysis behind the notebooks. `lib.parameters()` and `lib.setup()` are the first calls of every notebook."""

import os

# Only where the user set none, and here because torch and huggingface_hub read them once, when they are imported. Threads of
# torch otherwise spin while they wait for each other: nothing gained on a quiet machine (measured: 5 %), and ten times slower
# as soon as another process uses one of two cores. And nobody is told what is run here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from lib.notebook import hover_map, knob, parameters, setup  # noqa: E402

__all__ = ["hover_map", "knob", "parameters", "setup"]
