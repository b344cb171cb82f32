"""Runtime models by the name that ``--model`` takes; a user's own by file and class, or entry point."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dovetail.errors import InputError
from dovetail.files.specs import split_spec
from dovetail.interfaces import History
from dovetail.plugins import load_runtime_model, registered_entries
from dovetail.runtimes.base import HistoryModel
from dovetail.runtimes.foreign import ForeignModel
from dovetail.runtimes.last_two import LastTwoModel
from dovetail.runtimes.learned import LearnedModel, PowerModel
from dovetail.runtimes.least_squares import LeastSquaresModel
from dovetail.runtimes.mean import MeanModel
from dovetail.runtimes.user_estimate import UserEstimateModel
from dovetail.spec.values import DEFAULT_MODEL

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


def make_model(spec: str, history: History) -> HistoryModel:
    """The model over this history: a name of `MODELS`, ``path/to/file.py:Class``, or an entry point.

    Entry points are those of ``dovetail.runtimes``; options may follow (``mine.py:Mine?window=20``). Raises
    `InputError` for a model that is not there or cannot be made.

    >>> from dovetail.history import MemoryHistory
    >>> type(make_model("mean", MemoryHistory())).__name__
    'MeanModel'
    """
    if spec in MODELS:
        return MODELS[spec](history)
    name = split_spec(spec)[0]
    known = [*MODELS, *(n for n in registered_entries("dovetail.runtimes") if n not in MODELS)]
    if ".py:" not in name and name not in known:
        raise InputError(
            f"found {name!r}, expected one of {', '.join(known)}, or FILE.py:ClassName", where="--model"
        )
    return ForeignModel(name, load_runtime_model(spec, history), history)
