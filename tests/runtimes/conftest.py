"""Jobs and runs for the tests of runtime models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dovetail.model import App, Choice, DeviceClass, Implementation, Job, Prediction, Request, Run
from dovetail.runtimes.base import HistoryModel

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: helpers are found by name

CPU = DeviceClass("cpu")
GPU = DeviceClass("gpu", "T4")

RunMaker = Callable[..., Run]
Asker = Callable[..., Prediction | None]


@pytest.fixture
def run() -> RunMaker:
    """Makes a run: ``run(seconds, n=…, device=…)``; other inputs by ``inputs=``."""

    def make(seconds: float, n: float | None = None, device: DeviceClass = CPU, **more: object) -> Run:
        fields: dict[str, object] = {
            "app": "mm",
            "implementation": device.kind,
            "device_class": device,
            "nodes": 1,
            "cpus": -1,
            "gpus": 0.0,
            "inputs": {} if n is None else {"n": n},
            "seconds": seconds,
        }
        return Run(**(fields | more))  # type: ignore[arg-type]

    return make


@pytest.fixture
def ask() -> Asker:
    """Asks a model through the Protocol: ``ask(model, {"n": 8}, device=…, nodes=…, walltime=…)``."""

    def predict(
        model: HistoryModel,
        inputs: Mapping[str, float | str],
        device: DeviceClass = CPU,
        nodes: int = 1,
        walltime: float | None = None,
        app: str = "mm",
    ) -> Prediction | None:
        request = Request(nodes)
        implementation = Implementation(device.kind, device.kind, request)
        job = Job(
            "j",
            App(app, (implementation,)),
            (Choice(implementation, request),),
            inputs=dict(inputs),
            walltime=walltime,
        )
        return model.predict(job, implementation, request, device)

    return predict
