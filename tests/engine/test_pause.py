"""A pause in the engine: as journal, checkpoint and replay have it."""

from __future__ import annotations

import pytest

from dovetail.engine.state.checkpoint import make_checkpoint
from dovetail.engine.state.core import Engine
from dovetail.history.memory import MemoryHistory
from dovetail.model import Cluster, Ended, Job, Paused, Requeued, Start, State, Submitted
from dovetail.plugins import load_policy
from dovetail.runtimes.registry import make_model
from dovetail.testing.builders import timed


def _engine(shape: str = "1x1cpu+1gpu", policy: str = "history") -> Engine:
    return Engine(Cluster.parse(shape), load_policy(policy).policy, make_model("mean", MemoryHistory()))


def _job(name: str, *kinds: str) -> Job:
    job: Job = timed(name, dict.fromkeys(kinds, 10.0))[0]
    return job


@pytest.mark.parametrize("policy", ["history", "fcfs", "easy", "mct", "rsa", "best-device", "min-min"])
def test_what_is_paused_waits_and_comes_back_with_all_its_choices(policy: str) -> None:
    engine = _engine(policy=policy)
    engine.handle_events(
        0.0, [Paused(("gpu",)), Submitted(_job("g", "gpu")), Submitted(_job("both", "cpu", "gpu"))]
    )
    assert [placed.implementation.kind for placed in engine.running.values()] == ["cpu"]
    assert engine.held["g"] == "the queue is paused for gpu"
    engine.validate_books()
    engine.handle_events(1.0, [Paused(("all",)), Ended("both", State.FAILED, 1), Requeued("both")])
    assert engine.held["both"] == engine.held["g"] == "the queue is paused"
    assert len(engine.records["both"].job.choices) == 2
    engine.validate_books()
    assert any(isinstance(one, Start) for one in engine.handle_events(2.0, [Paused()]))
    assert not engine.held
    engine.validate_books()


def test_a_checkpoint_of_a_paused_queue_has_the_jobs_as_they_were_submitted() -> None:
    engine = _engine()
    engine.handle_events(0.0, [Paused(("gpu",)), Submitted(_job("g", "gpu"))])
    engine.handle_events(0.0, [Submitted(_job("a", "cpu", "gpu")), Submitted(_job("b", "cpu", "gpu"))])
    found = make_checkpoint(engine, 1.0)
    assert found is not None
    again = _engine()
    again.handle_events(1.0, found.jobs, ask=False)
    again.handle_events(1.0, found.nodes, ask=False)
    assert again.suspensions.paused == {"gpu"}
    assert again.handle_events(1.0, [Ended("a", State.COMPLETED)])
    assert set(again.held) == {"g"}
    again.handle_events(2.0, [Paused()])
    assert set(again.running) == {"b", "g"}
    assert len(again.records["b"].job.choices) == 2 or again.running["b"].implementation.kind == "cpu"
