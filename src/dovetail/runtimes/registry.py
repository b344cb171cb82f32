"""Runtime models by the name that ``--model`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dovetail.errors import InputError
from dovetail.interfaces import History
from dovetail.runtimes.base import HistoryModel
from dovetail.runtimes.last_two import LastTwoModel
from dovetail.runtimes.learned import LearnedModel
from dovetail.runtimes.least_squares import LeastSquaresModel
from dovetail.runtimes.mean import MeanModel
from dovetail.runtimes.power import PowerModel
from dovetail.runtimes.user_estimate import UserEstimateModel

__all__ = ["DEFAULT_MODEL", "MODELS", "make_model"]

MODELS: Mapping[str, type[HistoryModel]] = MappingProxyType(
    {
        "mean": MeanModel,
        "least-squares": LeastSquaresModel,
        "power": PowerModel,
        "last-two": LastTwoModel,
        "user-estimate": UserEstimateModel,
        "learned": LearnedModel,
    }
)
DEFAULT_MODEL = "learned"


def make_model(name: str, history: History) -> HistoryModel:
    """The model of that name over this history. Raises `InputError` for an unknown name."""
    if name not in MODELS:
        raise InputError(f"found {name!r}, expected one of {', '.join(MODELS)}", where="--model")
    return MODELS[name](history)
