"""What the history knows of a function's items, and what a map adds to it.

A map's items are not runs of their own there: a million of them would bury everything else. One run is
kept for each kind of worker, and for each size of item (doubling), with the mean seconds of an item:

==================  =============================================================================
app                 what the function (or the CPU program) is called
implementation      the kind of worker: ``cpu``, ``gpu``, ``opencl``
device class        kind and model of its device; of a CPU worker the CPU's model
request             one node, the worker's cores, one device for any kind but ``cpu``
inputs              ``cost`` (the hint) or ``bytes`` (of an item), a mean; nothing if neither is known
seconds             mean over the items, from the giving out of an item to its result
first on device     whether every worker's first batch is all there was: imports count then
==================  =============================================================================
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.history.base import InputsKey, MeasuredHistory, RequestKey, canonical_inputs
from dovetail.mapping.places import Place
from dovetail.mapping.summary import Sample, Tally
from dovetail.model import CPU, Run
from dovetail.splitting.finish_time import Floats

RECENT = 5
"""So many of the last maps make the mean of an item whose size is not known."""
GRID = 24
"""Sizes at which the law is evaluated; between them it is interpolated."""
BYTES, COST = "bytes", "cost"


class Lessons:
    """What one function's maps have taught; ``app`` is its name, empty for one that has none.

    ``feature`` is what the size of an item means: `BYTES`, `COST`, or nothing.
    """

    def __init__(self, history: MeasuredHistory | None, app: str, feature: str = "") -> None:
        self._history = history if app else None
        self._app, self.feature = app, feature

    def seconds(self, places: Mapping[str, Place]) -> dict[str, float]:
        """Mean seconds of an item whose size plays no part, by kind, as far as is known."""
        found: dict[str, float] = {}
        for kind, place in places.items():
            if self._history is None:
                break
            recent = self._history.recent(self._app, kind, place.device_class, 10 * RECENT)
            alike = [r for r in recent if r.cpus == len(place.cores) and not (r.inputs or r.first_on_device)]
            if alike:
                found[kind] = float(np.mean([run.seconds for run in alike[-RECENT:]]))
        return found

    def predicted_laws(self, places: Mapping[str, Place], sizes: Floats) -> dict[str, Floats] | None:
        """Predicted seconds of an item of each of these sizes, by kind; ``None`` unless all are known."""
        if self._history is None or not len(sizes):
            return None
        found: dict[str, Floats] = {}
        for kind, place in places.items():
            predicted = self._predict_law(kind, place, sizes)
            if predicted is None:
                return None
            found[kind] = predicted
        return found

    def per_unit(self, places: Mapping[str, Place], costs: Floats) -> dict[str, float]:
        """Mean seconds of one unit of cost, by kind; nothing unless all kinds are known."""
        mean = costs.mean(keepdims=True) if len(costs) else costs
        laws = self.predicted_laws(places, mean) or {}
        return {kind: float(law[0] / mean[0]) for kind, law in laws.items()}

    def _predict_law(self, kind: str, place: Place, sizes: Floats) -> Floats | None:
        from dovetail.runtimes.base import Query
        from dovetail.runtimes.registry import make_model

        assert self._history is not None
        if not self._history.count(self._app, kind, place.device_class):
            return None
        model = make_model("learned", self._history)
        positive = np.maximum(sizes, 1.0 if self.feature == BYTES else 1e-300)
        grid = np.unique(np.geomspace(positive.min(), positive.max(), GRID))
        seconds = []
        for size in grid:
            inputs: InputsKey = ((self.feature, float(size)),)
            answer = model.ask(Query(self._app, kind, place.device_class, _request_of_place(place), inputs))
            if answer is None:
                return None
            seconds.append(answer.expected)
        return np.exp(np.interp(np.log(positive), np.log(grid), np.log(seconds)))

    def record(self, tally: Tally) -> None:
        """Keep what a map has measured. Raises `HistoryError`."""
        if self._history is None:
            return
        name, when = uuid.uuid4().hex, time.time()
        # Where there are others, the first items of each worker (imports, kernels to build) are no evidence.
        cold = {key: sample for key, sample in tally.cold.items() if key not in tally.samples}
        for samples, first in ((tally.samples, False), (cold, True)):
            for (kind, size), sample in sorted(samples.items()):
                uid = f"{name}/map-{kind}-{size}"
                self._history.record(self._run_of_sample(tally.places[kind], sample, uid, when, first))

    def _run_of_sample(self, place: Place, sample: Sample, uid: str, when: float, first: bool) -> Run:
        inputs = {self.feature: sample.size / sample.items} if self.feature else {}
        nodes, cpus, gpus = _request_of_place(place)
        return Run(
            self._app,
            place.kind,
            place.device_class,
            nodes,
            cpus,
            gpus,
            dict(canonical_inputs(inputs)),
            sample.seconds / sample.items,
            when=when,
            uid=uid,
            job=uid.rpartition("/")[2],
            first_on_device=first,
        )


def _request_of_place(place: Place) -> RequestKey:
    return 1, len(place.cores), 0.0 if place.kind == CPU else 1.0


def natural_sizes(items: Sequence[Any]) -> Floats | None:
    """Bytes of each item, where items are arrays, bytes or names of files; else ``None``.

    What the first item is decides; one that is something else ends the search. One look at each file.
    """
    if not len(items):
        return None
    first = items[0]
    try:
        if isinstance(first, str | os.PathLike):
            if not os.path.isfile(first):
                return None
            return np.array([os.stat(item).st_size for item in items], dtype=float)
        if isinstance(first, bytes | bytearray | memoryview):
            return np.array([len(item) for item in items], dtype=float)
        if isinstance(getattr(first, "nbytes", None), int):
            return np.array([item.nbytes for item in items], dtype=float)
    except (AttributeError, OSError, TypeError, ValueError):
        return None
    return None
