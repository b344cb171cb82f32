"""Borrowed GPUs: the scenario that can be worked out by hand, readings, bandwidths, lost nodes, replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gangs_on_gpus import TWO_NODES, gang

from dovetail import simulate
from dovetail.engine.journal.journal import read_journal, replay
from dovetail.errors import InputError
from dovetail.model import (
    Cluster,
    Communication,
    NodeLost,
    Result,
    State,
    TableTruth,
    Workload,
)
from dovetail.model.remote_costs import RemoteCosts
from dovetail.plugins import load_policy
from dovetail.rates.communication import with_communication
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import simulate as in_virtual_time
from dovetail.testing.invariants import check_schedule
from dovetail_remote.policies.rq import Rq

TWO = "2x8cpu+3gpu"
ENDS = {
    "fcfs": (110.1429, 320.2857, 220.2857),
    "rq": (110.1429, 253.1143, 262.2483),
    "mrq": (110.1429, 231.5169, 220.2857),
}


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(TWO_NODES)
    return path


def ends(result: Result) -> list[float]:
    found = [record.end for record in result.records]
    assert all(end is not None for end in found)
    return [end for end in found if end is not None]


@pytest.mark.parametrize("policy", ENDS)
def test_the_scenario_of_two_nodes(two_nodes: Path, policy: str) -> None:
    result = simulate(two_nodes, cluster=TWO, policy=policy).result
    assert ends(result) == pytest.approx(ENDS[policy], abs=5e-5)
    check_schedule(result, _with_times(result), work=False)


def _with_times(result: Result) -> Workload:
    """The jobs of a result, as they were."""
    return Workload("again", [record.job for record in result.records], TableTruth())


def test_one_process_for_each_gpu_is_another_reading(two_nodes: Path) -> None:
    """Two processes on a node share its network where one would have it all."""
    reading = "remote_gpu?processes=gpu"
    rq = simulate(two_nodes, cluster=TWO, policy="rq", rates=reading).result
    assert ends(rq)[1:] == pytest.approx((253.4921, 262.6808), abs=5e-5)
    mrq = simulate(two_nodes, cluster=TWO, policy="mrq", rates=reading).result
    assert ends(mrq)[1:] == pytest.approx((231.7693, 220.2857), abs=5e-5)


def test_what_was_borrowed_and_what_came_home(two_nodes: Path) -> None:
    result = simulate(two_nodes, cluster=TWO, policy="mrq").result
    assert [record.remote_gpus for record in result.records] == [0, 1, 0]
    assert [record.migrations for record in result.records] == [0, 1, 0]
    second = result.records[1]
    (before,) = second.earlier
    assert (before.start, before.end) == (1.0, result.records[0].end)
    assert len(before.allocation.donors) == 1
    assert second.allocation is not None
    assert second.allocation.donors == ()


def _job(
    nodes: int = 1, gpus: int = 2, *, calls: float = 0.0, size: float = 0.0, other: float = 100.0
) -> Workload:
    return Workload("one", [gang("a", 0.0, nodes, gpus, Communication(other, calls, size))], TableTruth())


def _alone(work: Workload, cluster: Cluster, policy: str = "fcfs") -> float:
    result = simulate(work, cluster=cluster, policy=policy).result
    return ends(result)[0]


def test_bandwidths_of_a_cluster_file(tmp_path: Path) -> None:
    """10 GB at 5 GB/s to the own GPU; over half of a network of 2 GB/s, with 3 % more, to a borrowed one."""
    path = tmp_path / "cluster.toml"
    path.write_text(
        '[[node]]\nname = "n[0-1]"\ncpus = 4\ngpus = 2\nnetwork_bandwidth = 2e9\ngpu_bandwidth = 5e9\n'
    )
    cluster = Cluster.parse(str(path))
    assert _alone(_job(1, 1, size=1e10), cluster) == pytest.approx(100 + 10 / 5)
    # One GPU of each node is taken by a process that uses the network too, so that half of it is left.
    jobs = [
        gang("busy", 0.0, 2, 1, Communication(1000.0)),
        gang("lent", 0.0, 1, 2, Communication(100.0, 0.0, 1e10), index=1),
    ]
    result = simulate(Workload("lent", jobs, TableTruth()), cluster=cluster, policy="rq").result
    assert result.records[1].remote_gpus == 1
    assert ends(result)[1] == pytest.approx(100 + 1.03 * 10 / 1, abs=1e-3)


def test_constants_of_a_file_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    path.write_text('[gpu_latency]\nvalue = 2e-5\nunit = "s"\nsource = "measured"\n')
    work = _job(1, 1, calls=1e6)
    ours = simulate(work, cluster=TWO, policy="fcfs", rates=f"remote_gpu?costs={path}").result
    assert ends(ours) == pytest.approx([100 + 20])
    assert _alone(work, Cluster.parse(TWO)) == pytest.approx(100 + 10)


def test_a_file_that_is_no_file_of_constants(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.toml"):
        simulate(_job(), cluster=TWO, policy="fcfs", rates=f"remote_gpu?costs={tmp_path / 'nothing.toml'}")


def test_a_job_borrows_no_more_than_it_asks_for() -> None:
    """Of nine GPUs five are free, two of them at home; six are wanted on two nodes, then four."""
    for gpus, start, borrowed in ((3, 50.0, 0), (2, 1.0, 1)):
        jobs = [
            gang("busy", 0.0, 2, 2, Communication(50.0)),
            gang("wide", 1.0, 2, gpus, Communication(10.0), index=1),
        ]
        work = Workload("both", jobs, TableTruth())
        result = simulate(work, cluster="3x8cpu+3gpu", policy="rq").result
        wide = result.records[1]
        assert (wide.start, wide.remote_gpus) == (start, borrowed)
        assert wide.allocation is not None
        assert len(wide.allocation.device_names(result.cluster)) == 2 * gpus
        check_schedule(result, _with_times(result), work=False)


def test_a_lost_donor_takes_its_borrower_along() -> None:
    """J2 of the scenario computes on node 0 with a GPU of node 1, which fails."""
    work = Workload(
        "lost",
        [
            gang("a", 0.0, 2, 2, Communication(100.0)),
            gang("b", 1.0, 1, 2, Communication(100.0), index=1),
        ],
        TableTruth(),
    )
    work, cluster, rates = with_communication(work, Cluster.parse(TWO), Rq(), None)
    result = in_virtual_time(
        work,
        cluster,
        Rq(),
        PerfectModel(work.truth),
        rates=rates,
        incidents=[(20.0, NodeLost(1))],
    )
    assert [record.state for record in result.records] == [State.NODE_FAIL, State.NODE_FAIL]
    assert [record.end for record in result.records] == [20.0, 20.0]
    (donor,) = result.records[1].allocation.donors  # type: ignore[union-attr]
    assert (donor.client, donor.donor) == (0, 1)


def test_a_lost_node_that_lends_nothing_takes_nobody_along() -> None:
    work = Workload("apart", [gang("a", 0.0, 1, 2, Communication(100.0))], TableTruth())
    work, cluster, rates = with_communication(work, Cluster.parse(TWO), Rq(), None)
    result = in_virtual_time(
        work, cluster, Rq(), PerfectModel(work.truth), rates=rates, incidents=[(20.0, NodeLost(1))]
    )
    assert result.records[0].state is State.COMPLETED


def test_while_a_move_is_held_the_donor_is_taken(two_nodes: Path) -> None:
    """As live: J2's borrowed GPU comes free only when its work has moved."""
    result = simulate(two_nodes, cluster=TWO, policy="mrq?held=true").result
    check_schedule(result, _with_times(result), work=False)
    first, second, third = result.records
    moved = second.earlier[-1].end
    assert first.end is not None
    assert moved > first.end
    assert second.migrations == 1
    assert third.start is not None
    assert third.start >= first.end
    assert second.end == pytest.approx(ENDS["mrq"][1], abs=5e-5)


@pytest.mark.parametrize(("local", "start"), [(0, 1.0), (1, 1.0), (2, 50.0)])
def test_at_least_so_many_gpus_at_home(local: int, start: float) -> None:
    """On each of two nodes one GPU is free, and a third job wants two."""
    jobs = [
        gang("busy", 0.0, 2, 2, Communication(50.0)),
        gang("asks", 1.0, 1, 2, Communication(10.0), index=1),
    ]
    work = Workload("local", jobs, TableTruth())
    result = simulate(work, cluster=TWO, policy=f"rq?local={local}").result
    assert result.records[1].start == start
    check_schedule(result, _with_times(result), work=False)


def test_a_replay_decides_the_same(two_nodes: Path, tmp_path: Path) -> None:
    """``mrq-aware`` rests on what it expects of running jobs, which the journal must give again."""
    for policy in ("rq", "mrq", "mrq-aware", "mrq-aware?held=true"):
        path = tmp_path / f"{policy[:9]}{len(policy)}.jsonl"
        simulate(two_nodes, cluster=TWO, policy=policy, journal=path, rates="remote_gpu?processes=gpu")
        journal = read_journal(path)
        assert replay(journal, load_policy(policy).policy) > 2  # type: ignore[arg-type]


def test_the_journal_of_a_drawn_workload_replays(tmp_path: Path) -> None:
    path = tmp_path / "drawn.jsonl"
    simulate("published:markthub?jobs=60&gpu_calls=1e5|3e8", policy="mrq-aware", journal=path)
    told = json.loads(path.read_text().splitlines()[0])["forecast"]
    assert told["recorded"] == "yes"
    assert RemoteCosts(**told["constants"]) == RemoteCosts()
    assert replay(read_journal(path), load_policy("mrq-aware").policy) >= 60  # type: ignore[arg-type]


def test_times_that_a_job_gives_win_over_its_communication() -> None:
    work = Workload(
        "told", [gang("a", 0.0, 1, 1, Communication(100.0, 1e6, 1e9))], TableTruth(fixed={"a": 7.0})
    )
    assert _alone(work, Cluster.parse(TWO)) == 7.0


def test_node_memory_is_table_3s_where_none_is_given() -> None:
    """Two jobs of 12 GB do not fit on a node of 22 GB at once."""
    jobs = [gang(n, 0.0, 1, 1, Communication(10.0), memory=12 * 10**9, index=i) for i, n in enumerate("ab")]
    result = simulate(Workload("full", jobs, TableTruth()), cluster="1x8cpu+3gpu", policy="fcfs").result
    assert [record.start for record in result.records] == [0.0, 10.0]
