"""Compiled simulations: an interrupt waits until the kernel has returned."""

from __future__ import annotations

import signal

import pytest

from dovetail.engine import twins
from dovetail.engine.asked import Asked, SimulationOptions
from dovetail.engine.prepare import prepare
from dovetail.policies.fcfs import Fcfs
from dovetail.runtimes.perfect import PerfectModel
from dovetail.testing.builders import rigid_workload


def test_an_interrupt_waits_until_the_kernel_has_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = []

    def interrupted(asked: Asked) -> None:
        signal.raise_signal(signal.SIGINT)
        returned.append(asked)

    monkeypatch.setattr(twins, "TWINS", (interrupted,))
    inherited = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job ignores it
    try:
        w, cluster = rigid_workload([(0.0, 1, 5.0, 5.0)], 2)
        ready = prepare(w, cluster, need_truth=True)
        asked = Asked(ready, cluster, Fcfs(), PerfectModel(w.truth), None, None, SimulationOptions())
        with pytest.raises(KeyboardInterrupt):
            twins.compiled(asked)
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert returned == [asked]
