from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.model import Cluster, Prediction, Record, Rejected, Result, State, Usage
from dovetail.report.metrics import (
    TrimmedTrace,
    _middle,
    _percentile_90,
    break_down,
    compute_metrics,
    jain_index,
    later_than,
    prediction_error,
    size_class,
)

CONTRACT = (
    "makespan",
    "mean_wait",
    "mean_response",
    "mean_bounded_slowdown",
    "utilisation",
    "gpu_utilisation",
    "anl",
    "aql",
    "mit",
    "decision_seconds_mean",
    "decision_seconds_p99",
)
"""The metrics that the JSON form promises."""
Make = Callable[..., Record]
Build = Callable[..., Result]

# Ravi 2012, Fig. 1: sequential seconds, speedup on the GPU, on the CPUs
FIG_1 = [
    (7.3, 4.7, 6.8),
    (33.8, 5.1, 7.8),
    (8.4, 2.2, 7.6),
    (2.6, 2.1, 7.2),
    (11.8, 5.6, 4.2),
    (45.4, 38.4, 7.9),
    (330.0, 12.1, 7.8),
    (67.3, 7.8, 6.2),
    (142.0, 9.7, 5.6),
    (46.6, 12.9, 7.9),
]
# Gregg 2011, Table 2: (GPU, CPU) in ms
TABLE_2 = [
    ("BinarySearch", 60, 4),
    ("BitonicSort", 933, 9122),
    ("FastWalshTrans", 77, 236),
    ("DCT", 49, 503),
    ("DwtHaar1D", 842, 924),
    ("EigenValue", 712, 1448),
    ("FFT", 1.6, 0.2),
    ("FloydWarshall", 45, 527),
    ("MatrixMult", 41, 4475),
    ("MatrixTranspose", 999, 3736),
    ("PrefixSum", 112, 3),
    ("QuasiRandSeq", 18, 441),
    ("Reduction", 26, 340),
    ("ScanLargeArrays", 17, 154),
    ("SimpleConv", 287, 481),
    ("SobelFilter", 8, 13),
]


def gregg(make_record: Make, on_gpu: Callable[[float, float], bool]) -> list[Record]:
    free = [0.0, 0.0]
    records = []
    for name, gpu, cpu in TABLE_2:
        which = int(on_gpu(gpu, cpu))
        start, free[which] = free[which], free[which] + (gpu if which else cpu) / 1000
        records.append(
            make_record(name, start=start, end=free[which], cpus=1 - which, devices=(0,) if which else ())
        )
    return records


def test_table_2_of_gregg_under_static_placements(make_record: Make, make_result: Build) -> None:
    best = {name: min(gpu, cpu) / 1000 for name, gpu, cpu in TABLE_2}
    gpu = compute_metrics(make_result(gregg(make_record, lambda g, c: True), best=best))
    cpu = compute_metrics(make_result(gregg(make_record, lambda g, c: False), best=best))
    fast = compute_metrics(make_result(gregg(make_record, lambda g, c: g < c), best=best))
    assert gpu["makespan"] == pytest.approx(4.2276)
    assert cpu["makespan"] == pytest.approx(22.4072)
    assert fast["makespan"] == pytest.approx(4.0540)
    assert (gpu["gpu_utilisation"], gpu["utilisation"]) == (pytest.approx(1.0), 0.0)
    assert gpu["mit"] == pytest.approx(4.2276)  # the CPU idles all the time
    assert fast["anl"] == pytest.approx(0.0)
    assert fast["utilisation"] == pytest.approx(0.0072 / 4.054)
    assert fast["mit"] == pytest.approx(4.054 - 0.0072)


def test_round_robin_of_ravi_gives_the_reference_values(make_record: Make, make_result: Build) -> None:
    """Static round robin is simple enough to be worked out here: [CT, ANL, AQL, MIT] of the method notes."""
    free = dict.fromkeys([(0, 0), (0, 1), (1, 0), (1, 1)], 0.0)  # CPU0, GPU0, CPU1, GPU1
    units = list(free)
    records, best = [], {}
    for i in range(24):
        sequential, on_gpu, on_cpu = FIG_1[i % 10]
        node, device = units[i % 4]
        start = free[node, device]
        free[node, device] += sequential / (on_gpu if device else on_cpu)
        held = {"cpus": 0, "devices": (0,)} if device else {"cpus": 8}
        records.append(make_record(f"j{i}", start=start, end=free[node, device], nodes=[node], **held))
        best[f"j{i}"] = sequential / max(on_gpu, on_cpu)
    found = compute_metrics(make_result(records, Cluster.uniform(2, 8, 1), best=best))
    assert [found[k] for k in ("makespan", "anl", "aql", "mit")] == [
        pytest.approx(v, abs=5e-4) for v in (73.758, 2.601, 19.688, 51.232)
    ]


def test_by_hand(make_record: Make, make_result: Build) -> None:
    """Two nodes of 4 CPUs; utilisation by CPU-seconds, idle time by pools, slowdown from 10 s on."""
    records = [
        make_record("a", submit=5, start=5, end=25, nodes=[0], cpus=3),
        make_record("b", submit=5, start=15, end=35, nodes=[0], cpus=1),  # overlaps a: the pool is busy once
        make_record("c", submit=15, start=25, end=45, nodes=[0, 1], cpus=2),
        make_record("d", submit=20, start=45, end=47, nodes=[1], cpus=4),
    ]
    found = compute_metrics(make_result(records, Cluster.uniform(2, 4), decision_seconds=[1e-3, 3e-3]))
    assert found["makespan"] == 42
    assert found["mean_wait"] == (0 + 10 + 10 + 25) / 4
    assert found["mean_response"] == (20 + 30 + 30 + 27) / 4
    assert found["mean_bounded_slowdown"] == pytest.approx((1 + 1.5 + 1.5 + 2.7) / 4)
    assert found["utilisation"] == pytest.approx((3 * 20 + 20 + 2 * 2 * 20 + 4 * 2) / (8 * 42))
    assert found["gpu_utilisation"] is None
    assert found["mit"] == 42 - 22  # node 1: 20 s of c, 2 s of d
    assert found["aql"] == found["mean_wait"]
    assert found["anl"] is None
    assert found["decision_seconds_mean"] == pytest.approx(2e-3)
    assert found["decision_seconds_p99"] == pytest.approx(2.98e-3)
    assert (found["median_wait"], found["max_wait"], found["p95_wait"]) == (10, 25, pytest.approx(22.75))


def test_means_leave_out_cancelled_and_unfinished_jobs(make_record: Make, make_result: Build) -> None:
    records = [
        make_record("a", start=0, end=10),
        make_record("b", start=10, end=20, state=State.FAILED),
        make_record("c", start=20, end=30, state=State.CANCELLED),
        make_record("d", start=None, end=None, state=State.PENDING),
        make_record("e", start=None, end=5, state=State.CANCELLED),
    ]
    found = compute_metrics(make_result(records, rejected=[Rejected("f", "too large")]))
    assert found["mean_wait"] == 5
    assert found["makespan"] == 30
    assert found["utilisation"] == 1.0  # the cancelled job used its CPU
    assert (found["jobs"], found["jobs_counted"], found["jobs_rejected"]) == (5, 2, 1)
    assert (found["jobs_completed"], found["jobs_failed"], found["jobs_cancelled"]) == (1, 1, 2)


def test_nothing_is_not_a_number(make_result: Build) -> None:
    found = compute_metrics(make_result([]))
    assert found["makespan"] == 0
    assert found["mean_wait"] is None
    assert all(v is None or math.isfinite(v) for v in found.values())
    assert list(found)[: len(CONTRACT)] == list(CONTRACT)


def test_shares_of_a_device(make_record: Make, make_result: Build) -> None:
    records = [
        make_record("a", start=0, end=10, cpus=0, devices=(0,), share=0.25),
        make_record("b", start=5, end=10, cpus=0, devices=(0,), share=0.5),
    ]
    found = compute_metrics(make_result(records))
    assert found["gpu_utilisation"] == pytest.approx((0.25 * 10 + 0.5 * 5) / 10)
    assert found["mit"] == 10  # the CPU; the device is in use throughout


def test_cut_leaves_out_warm_up_and_cool_down(make_record: Make, make_result: Build) -> None:
    records = [make_record(f"j{i}", submit=i, start=i + i % 10, end=i + i % 10 + 1) for i in range(101)]
    result = make_result(records)
    found = compute_metrics(result, cut=TrimmedTrace.parse_trim("10%"))
    assert found["jobs_counted"] == 81
    assert compute_metrics(result, cut=TrimmedTrace.parse_trim("10"))["jobs_counted"] == 81
    assert compute_metrics(result, cut=TrimmedTrace.parse_trim("10", "0"))["jobs_counted"] == 91
    assert found["makespan"] == compute_metrics(result)["makespan"]
    used = sum(1 for r in records if 10 < r.end <= 90)  # type: ignore[operator]
    assert found["utilisation"] == pytest.approx(used / 80)


@pytest.mark.parametrize("texts", [("60%",), ("-1",), ("x",), ("10%", "5"), ("nan",)])
def test_cut_refuses(texts: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="expected"):
        TrimmedTrace.parse_trim(*texts)


def test_breakdown(make_record: Make, make_result: Build) -> None:
    records = [
        make_record("a", start=0, end=10, user="u1", cpus=1),
        make_record("b", start=10, end=20, user="u2", cpus=4),
        make_record("c", start=30, end=40, user="u1", cpus=16),
        make_record("d", start=0, end=10, cpus=0, devices=(0,)),
    ]
    result = make_result(records, Cluster.uniform(1, 16, 1))
    users = break_down(result, "user")
    assert list(users) == ["-", "u1", "u2"]
    assert (users["u1"]["jobs"], users["u1"]["mean_wait"], users["u1"]["cpu_seconds"]) == (2, 15, 170)
    assert list(break_down(result, "size")) == ["1 CPU", "2-4 CPUs", "5-16 CPUs", "1 GPU"]
    assert break_down(result, "implementation")["gpu"]["device_seconds"] == 10
    more = [make_record(f"j{i}", user=name) for i, name in enumerate(["u10", "u9", "7", "12"])]
    assert list(break_down(make_result(more), "user")) == ["7", "12", "u9", "u10"]
    with pytest.raises(InputError, match="one of user, group"):
        break_down(result, "colour")


def test_size_classes() -> None:
    assert [size_class(c, 0) for c in (1, 2, 4, 5, 64, 65, 5000)] == [
        "1 CPU",
        "2-4 CPUs",
        "2-4 CPUs",
        "5-16 CPUs",
        "17-64 CPUs",
        "65-256 CPUs",
        "4097+ CPUs",
    ]
    assert size_class(8, 0.5) == "<1 GPU"
    assert size_class(8, 8) == "5-16 GPUs"


def test_prediction_error(make_record: Make, make_result: Build) -> None:
    def ran(name: str, seconds: float, expected: float, lower: float, upper: float) -> Record:
        predicted = Prediction(expected, upper, 3, "mean of 3 runs", lower)
        return make_record(name, start=0, end=seconds, predicted=predicted)

    records = [ran("a", 10, 11, 9, 12), ran("b", 10, 8, 7, 9), ran("c", 10, 10, 10, 10), ran("z", 0, 1, 0, 1)]
    error = prediction_error(make_result(records))
    assert error is not None
    assert (error.jobs, error.median, error.coverage) == (3, pytest.approx(0.1), pytest.approx(2 / 3))
    assert error.p90 == pytest.approx(0.18)
    assert prediction_error(make_result([make_record("a")])) is None


def test_a_prediction_is_held_against_what_the_job_took_and_not_its_start(
    make_record: Make, make_result: Build
) -> None:
    """2 s as the supervisor measured it, 10 s until a busy machine told of the end: 2 s was foretold."""
    record = make_record("a", start=0, end=10, predicted=Prediction(2.0, 3.0, 3, "mean of 3 runs", 1.0))
    record.usage = Usage(1.5, 1000, wall_time=2.0)
    error = prediction_error(make_result([record]))
    assert error is not None
    assert (error.median, error.coverage) == (0.0, 1.0)
    assert record.run_time == 10
    record.state = State.TIMEOUT
    assert record.took == 10  # what was ended took as long as it was allowed to


def test_later_than(make_record: Make, make_result: Build) -> None:
    ours = make_result([make_record("a", end=5), make_record("b", end=7), make_record("c", end=1)])
    reference = make_result([make_record("a", end=5), make_record("b", end=4), make_record("c", end=2)])
    assert later_than(ours, reference) == {"b": 3}
    found = compute_metrics(ours, reference=reference)
    assert (found["later_jobs"], found["later_mean"], found["later_max"]) == (1, 3, 3)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 10, 11, 12, 999])
def test_quantiles_are_those_of_numpy_to_the_last_bit(count: int) -> None:
    for values in np.random.Generator(np.random.PCG64(count)).lognormal(size=(20, count)):
        assert _middle(values) == np.median(values)
        assert _percentile_90(values) == np.percentile(values, 90)


def test_jain() -> None:
    assert jain_index(np.array([2.0, 2.0, 2.0])) == pytest.approx(1)
    assert jain_index(np.array([1.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert jain_index(np.array([])) is None
    assert jain_index(np.zeros(3)) == 1.0
