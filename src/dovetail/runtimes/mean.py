"""``mean``: the average of earlier runs with the same inputs (Gregg 2011, section 4.2, first case)."""

from __future__ import annotations

from dovetail.model import Prediction
from dovetail.runtimes.base import HistoryModel, Query
from dovetail.runtimes.intervals import of_aggregate


class MeanModel(HistoryModel):
    """Knows what it has seen with exactly these inputs and this request, and nothing else."""

    def make_prediction(self, query: Query) -> Prediction | None:
        """The running average of the key; ``None`` for a key without completed runs."""
        return same_inputs(self, query)


def same_inputs(model: HistoryModel, query: Query) -> Prediction | None:
    """The average over all runs with the same inputs, if there are any. O(log n)."""
    found = model.history.find_aggregate(
        query.app, query.implementation, query.device, query.request, query.inputs
    )
    if found is None or not found.count:
        return None
    runs = "1 run" if found.count == 1 else f"{found.count} runs"
    return of_aggregate(found, f"mean of {runs} with the same inputs")
