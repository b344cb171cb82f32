from __future__ import annotations

import pytest

from dovetail.errors import InputError
from dovetail.mapping.places import Place, ThisMachine, Wanted, default_workers, environment_of, parse_workers


def test_workers_as_they_are_written() -> None:
    assert parse_workers("cpu:14,gpu:2") == [Wanted("cpu", 14), Wanted("gpu", 2)]
    assert parse_workers(" cpu:2x4 , opencl") == [Wanted("cpu", 2, 4), Wanted("opencl", 1)]
    assert parse_workers("cpu:0,gpu:1") == [Wanted("gpu", 1)]
    assert [str(wanted) for wanted in parse_workers("cpu:2x4,gpu:2")] == ["cpu:2x4", "gpu:2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found '', expected KIND:COUNT"),
        ("cpu:x", "found 'cpu:x'"),
        ("cpu:-1", "found 'cpu:-1'"),
        ("cpu:1,,gpu:1", "found ''"),
        ("cpu:1,cpu:2", "found cpu twice"),
        ("cpu:0", "expected at least one worker"),
        ("cpu:99999", "expected 0 to 4096 workers"),
        ("cpu:1x0", "1 to 4096 cores"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_workers(text)


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> ThisMachine:
    """A machine of eight cores, two GPUs and no OpenCL device."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    devices = {"gpu": ((0, "T4"), (3, "A100"))}
    monkeypatch.setattr("dovetail.mapping.places.devices_here", lambda kind: devices.get(kind, ()))
    monkeypatch.setattr("dovetail.mapping.places._cpu_model", lambda: "EPYC")
    return ThisMachine()


def test_every_worker_gets_cores_of_its_own_while_there_are_any(eight: ThisMachine) -> None:
    places = eight.take(parse_workers("cpu:2x3,gpu:2"))
    assert [place.cores for place in places] == [(0, 1, 2), (3, 4, 5), (6,), (7,)]
    more = eight.take(parse_workers("cpu:7,gpu:2"))
    assert [place.cores for place in more] == [(i % 8,) for i in range(9)]


def test_gpu_workers_go_round_the_devices_that_there_are(eight: ThisMachine) -> None:
    places = eight.take(parse_workers("gpu:3"))
    assert [(p.index, p.device, p.model) for p in places] == [(0, 0, "T4"), (1, 3, "A100"), (2, 0, "T4")]


def test_where_there_are_none_worker_i_gets_number_i(eight: ThisMachine) -> None:
    places = eight.take(parse_workers("opencl:2"))
    assert [(p.device, p.model) for p in places] == [(0, ""), (1, "")]


def test_classes_and_counts(eight: ThisMachine) -> None:
    assert dict(eight.free_counts(["gpu", "opencl"])) == {"cpu": 8, "gpu": 2, "opencl": 0}
    assert str(eight.take(parse_workers("cpu"))[0].device_class) == "cpu:EPYC"


def test_by_default_every_device_and_every_core_left() -> None:
    assert default_workers(["cpu", "gpu"], 16, {"gpu": 2}) == [Wanted("cpu", 14), Wanted("gpu", 2)]
    assert default_workers(["cpu"], 16, {"gpu": 2}) == [Wanted("cpu", 16)]
    assert default_workers(["gpu"], 16, {"gpu": 2}) == [Wanted("gpu", 2)]
    assert default_workers(["cpu", "gpu"], 1, {"gpu": 0}) == [Wanted("cpu", 1)]
    assert default_workers(["gpu"], 4, {}) == []


def test_what_a_gpu_worker_finds() -> None:
    env = environment_of(Place("gpu", 2, (5,), 1), {}, ["cpu", "gpu"])
    assert env["DOVETAIL_DEVICE"] == "gpu:1"
    assert env["CUDA_VISIBLE_DEVICES"] == "1"
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (env["OMP_NUM_THREADS"], env["DOVETAIL_CORES"], env["DOVETAIL_WORKER"]) == ("1", "5", "gpu:2")


def test_gpus_are_counted_among_those_that_we_see() -> None:
    outer = {"CUDA_VISIBLE_DEVICES": "4,GPU-abc"}
    assert environment_of(Place("gpu", 0, (0,), 1), outer, ["gpu"])["CUDA_VISIBLE_DEVICES"] == "GPU-abc"


def test_a_cpu_worker_sees_no_gpu_where_others_have_them() -> None:
    both = environment_of(Place("cpu", 0, (0, 1)), {}, ["cpu", "gpu"])
    assert both["CUDA_VISIBLE_DEVICES"] == ""
    assert both["OMP_NUM_THREADS"] == "2"
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(Place("cpu", 0, (0,)), {}, ["cpu"])


def test_an_opencl_worker_stays_on_its_cores() -> None:
    env = environment_of(Place("opencl", 0, (1,), 0, "pocl"), {}, ["cpu", "opencl"])
    assert (env["POCL_MAX_PTHREAD_COUNT"], env["POCL_AFFINITY"], env["POCL_DEVICES"]) == ("1", "0", "pthread")
    assert env["DOVETAIL_DEVICE"] == "opencl:0"
