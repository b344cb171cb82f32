"""Run times of made-up apps: laws with overhead, noise, cold first runs, disturbed runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dovetail.history import MemoryHistory
from dovetail.model import DeviceClass, Prediction, Run
from dovetail.runtimes.base import HistoryModel, Query

CPU = DeviceClass("cpu")
LAWS: Mapping[str, Callable[[float], float]] = {
    "constant": lambda n: 1.0,
    "n": lambda n: n,
    "n log n": lambda n: n * np.log2(n),
    "n^1.5": lambda n: n**1.5,
    "n^2": lambda n: n**2,
    "n^3": lambda n: n**3,
}


def run(seconds: float, inputs: Mapping[str, float | str], device: DeviceClass = CPU, **more: object) -> Run:
    fields: dict[str, object] = {
        "app": "mm",
        "implementation": device.kind,
        "device_class": device,
        "nodes": 1,
        "cpus": -1,
        "gpus": 0.0,
        "inputs": dict(inputs),
        "seconds": seconds,
    }
    return Run(**(fields | more))  # type: ignore[arg-type]


def ask(
    model: HistoryModel, inputs: Mapping[str, float | str], device: DeviceClass = CPU, nodes: int = 1
) -> Prediction | None:
    key = tuple(sorted((k, v if isinstance(v, str) else float(v)) for k, v in inputs.items()))
    return model.ask(Query("mm", device.kind, device, (nodes, -1, 0.0), key))


@dataclass(frozen=True)
class App:
    """Training runs, and unseen sizes inside and outside the trained range with their actual times."""

    training: tuple[Run, ...]
    unseen: tuple[tuple[float, float], ...]

    def history(self) -> MemoryHistory:
        return MemoryHistory(self.training)


def make_app(
    rng: np.random.Generator,
    law: Callable[[float], float],
    *,
    noise: float = 0.05,
    sizes: int = 5,
    repeats: int = 3,
    unseen: int = 5,
    cold: bool = True,
    outliers: float = 0.05,
) -> App:
    """An app of this law: sizes span a factor of 10 to 1000, the overhead 0.1 to 30 % of the longest run.

    The first run is 2 to 5 times slower if ``cold``; a share ``outliers`` of the others 1.5 to 4 times.
    Unseen sizes go from 1/1.5 of the smallest to twice the largest.
    """
    low = 10 ** rng.uniform(2, 4)
    high = low * 10 ** rng.uniform(1, 3)
    scale = 10 ** rng.uniform(-1, 1) / law(high)
    overhead = 10 ** rng.uniform(-3, -0.5) * scale * law(high)

    def seconds(n: float) -> float:
        return float((scale * law(n) + overhead) * np.exp(noise * rng.standard_normal()))

    order = np.repeat(np.geomspace(low, high, sizes).round(), repeats)
    rng.shuffle(order)
    training = []
    for i, n in enumerate(order.tolist()):
        slower = 1.0
        if i == 0 and cold:
            slower = rng.uniform(2, 5)
        elif rng.random() < outliers:
            slower = rng.uniform(1.5, 4)
        training.append(run(seconds(n) * slower, {"n": n}))
    asked = np.exp(rng.uniform(np.log(low / 1.5), np.log(high * 2), unseen)).round().tolist()
    return App(tuple(training), tuple((n, seconds(n)) for n in asked))
