"""What sharing a node costs: by hand, and against a reckoning instant by instant."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dovetail.errors import InputError
from dovetail.model import Cluster
from dovetail.plugins import load_rates
from dovetail.policies.fms import Fms
from dovetail.policies.static import BestDevice
from dovetail.rates.isolated import Isolated
from dovetail.rates.sharing_penalty import SharingPenalty
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, workload
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.published import load_published


def ends(rows, rates, cluster="1x4cpu+1gpu"):
    work = workload(rows)
    result = simulate(work, Cluster.parse(cluster), BestDevice(), TrueTimesModel(work.truth), rates=rates)
    check_schedule(result, work, work=False)
    return {record.job.id: record.end for record in result.records}


def test_alone_or_isolated_nothing_is_slowed() -> None:
    rows = [("EM", {"cpu": 100.0}), ("GK", {"gpu": 40.0})]
    assert ends(rows, Isolated()) == {"EM": 100.0, "GK": 40.0}
    assert ends(rows[:1], SharingPenalty()) == {"EM": 100.0}
    apart = "2x4cpu+1gpu"
    work = [("EM", {"cpu": 100.0}), ("EM2", {"cpu": 100.0}), ("GK", {"gpu": 40.0}, 1000.0)]
    assert ends(work, SharingPenalty(), apart) == {"EM": 100.0, "EM2": 100.0, "GK": 1040.0}


def test_the_cpu_job_is_slowed_while_the_gpu_job_runs() -> None:
    found = ends([("EM", {"cpu": 100.0}), ("GK", {"gpu": 40.0})], SharingPenalty())
    assert found["GK"] == 40.0  # the GPU job is not slowed
    done = 40.0 / 1.043
    assert found["EM"] == pytest.approx(40.0 + 100.0 - done)


def test_slowed_to_its_end_it_takes_the_penalty_longer() -> None:
    found = ends([("EM", {"cpu": 10.0}), ("PR", {"gpu": 40.0})], SharingPenalty())
    assert found["EM"] == pytest.approx(10.68)


def test_devices_of_several_jobs_add_up() -> None:
    rows = [("c", {"cpu": 10.0}), ("g", {"gpu": 99.0}), ("h", {"gpu": 99.0})]
    found = ends(rows, SharingPenalty(default=0.1, pairs=""), "1x4cpu+2gpu")
    assert found["c"] == pytest.approx(12.0)


def test_pairs_are_looked_up_from_the_particular_to_the_general() -> None:
    model = load_rates("sharing-penalty?default=0.5&pairs=a/b:0.1,a/*:0.2,*/b:0.3")
    assert [model.penalty(*pair) for pair in ("ab", "ac", "xb", "xy")] == [0.1, 0.2, 0.3, 0.5]
    assert isinstance(load_rates("isolated"), Isolated)


@pytest.mark.parametrize(
    "spec", ["pairs=a/b", "pairs=a:0.1", "pairs=a/b:x", "pairs=a/b:-1", "default=-0.1", "pairs=/b:0.1"]
)
def test_bad_options_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="sharing-penalty"):
        load_rates(f"sharing-penalty?{spec}")


def test_gangs_are_as_slow_as_on_their_slowest_node() -> None:
    """Against the records alone: work done is the integral of the rate over the run."""
    work = load_published("published:ravi-multi?mix=25sj75lj&seed=3")
    rates = SharingPenalty()
    result = simulate(
        work, Cluster.parse("16x8cpu+1gpu"), Fms("area"), TrueTimesModel(work.truth), rates=rates
    )
    check_schedule(result, work, work=False, promises=False)
    slowed = 0
    for record in result.records:
        assert record.allocation is not None
        assert record.implementation is not None
        asked = work.truth.seconds(record.job, record.implementation, record.allocation.request)
        assert asked is not None
        beside = [
            other
            for other in result.records
            if record.implementation.kind == "cpu" and other.implementation.kind == "gpu"
            and other.allocation.mask & record.allocation.mask
        ]  # fmt: skip
        instants = sorted(
            {record.start, record.end}
            | {t for o in beside for t in (o.start, o.end) if record.start < t < record.end}
        )
        done = 0.0
        for begin, end in pairwise(instants):
            there = [o for o in beside if o.start <= begin and o.end >= end]
            worst = max((rates.penalty(record.job.app.name, o.job.app.name) for o in there), default=0.0)
            done += (end - begin) / (1 + worst)
        assert done == pytest.approx(asked, rel=1e-9)
        slowed += record.end - record.start > asked * 1.001
    assert slowed > 0
