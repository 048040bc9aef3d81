"""Plans the training of large models on GPU clusters, and proves how good the plan is."""

from importlib.metadata import version

__version__ = version("taut")
