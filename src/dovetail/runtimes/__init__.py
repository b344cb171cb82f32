"""How long a job will take: models that predict run times from history, or know them."""

from dovetail.runtimes.perfect import PerfectModel
from dovetail.runtimes.registry import DEFAULT_MODEL, MODELS, make_model

__all__ = ["DEFAULT_MODEL", "MODELS", "PerfectModel", "make_model"]
