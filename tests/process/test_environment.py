"""Cores and variables of a job, without any process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.engine.journal.codec import decode_cluster, encode_cluster
from dovetail.errors import InputError
from dovetail.interfaces import RunFolder
from dovetail.local.executor import LocalExecutor
from dovetail.model import (
    Allocation,
    App,
    Cluster,
    Command,
    Device,
    Implementation,
    Job,
    Node,
    Part,
    Placed,
    Request,
)
from dovetail.process import environment
from dovetail.process.environment import child_environment, cores_of, device_vendor, devices_of
from dovetail.testing.processes import CORES

NODE = Node(
    "n0",
    (0, 1, 2, 3),
    (
        Device("gpu", "NVIDIA T4", 0, (8,)),
        Device("gpu", "NVIDIA T4", 1, (9,)),
        Device("opencl", "pocl", 0, (5, 6)),
        Device("rocm", "MI250", 0),
    ),
)
CLUSTER = Cluster((NODE,))


def job(kind: str, parts: tuple[Part, ...], cores: dict[int, tuple[int, ...]], env: dict[str, str]) -> Placed:
    implementation = Implementation(kind, kind, Request(), Command(("x",), tuple(env.items())))
    what = Job("j", App("app", (implementation,)), ())
    return Placed(what, implementation, Allocation(Request(), parts, cores), 0.0, None, float("inf"))


def environment_of(
    kind: str,
    devices: tuple[int, ...] = (),
    cores: tuple[int, ...] = (),
    *,
    env: dict[str, str] | None = None,
    outer: dict[str, str] | None = None,
) -> dict[str, str]:
    placed = job(kind, (Part(1, len(cores), devices),), {0: cores} if cores else {}, env or {})
    return child_environment(placed, CLUSTER, cores_of(placed, CLUSTER), outer or {})


def test_cores_are_those_of_the_pool_and_of_the_devices() -> None:
    assert cores_of(job("cpu", (Part(1, 4),), {}, {}), CLUSTER) == [0, 1, 2, 3]
    assert cores_of(job("cpu", (Part(1, 2),), {0: (2, 1)}, {}), CLUSTER) == [1, 2]
    both = job("cpu+gpu", (Part(1, 1, (0, 2)),), {0: (3,)}, {})
    assert cores_of(both, CLUSTER) == [3, 5, 6, 8]
    assert [d.name for d in devices_of(both, CLUSTER)] == ["gpu0", "opencl0"]
    assert cores_of(job("rocm", (Part(1, 0, (3,)),), {}, {}), CLUSTER) == []


def test_every_job_sees_its_own_devices_and_no_others() -> None:
    gpu = environment_of("gpu", (1,))
    assert (gpu["CUDA_VISIBLE_DEVICES"], gpu["ROCR_VISIBLE_DEVICES"]) == ("1", "")
    assert gpu["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (gpu["DOVETAIL_DEVICES"], gpu["DOVETAIL_DEVICE"], gpu["DOVETAIL_NODES"]) == (
        "n0/gpu1",
        "cuda",
        "n0",
    )
    assert environment_of("gpu", (0, 1))["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert environment_of("cpu", (), (0,))["CUDA_VISIBLE_DEVICES"] == ""
    rocm = environment_of("rocm", (3,))
    assert (rocm["CUDA_VISIBLE_DEVICES"], rocm["ROCR_VISIBLE_DEVICES"]) == ("", "0")


def test_numbers_count_among_the_devices_that_we_may_see() -> None:
    outer = {"CUDA_VISIBLE_DEVICES": "GPU-aa, 5"}
    assert environment_of("gpu", (0, 1), outer=outer)["CUDA_VISIBLE_DEVICES"] == "GPU-aa,5"
    assert (
        environment_of("gpu", (0, 1), outer={"CUDA_VISIBLE_DEVICES": "7,3"})["CUDA_VISIBLE_DEVICES"] == "7,3"
    )


@pytest.mark.parametrize("setting", ["", "3", "0,0", "GPU-aa", "-1", "3,x,4", "MIG-a", "3,,4"])
def test_no_job_gets_a_device_that_the_user_has_hidden(setting: str) -> None:
    """As the drivers read the variable, fewer than two devices are left."""
    with pytest.raises(InputError, match=f"CUDA_VISIBLE_DEVICES={setting} leaves [01] of them"):
        environment_of("gpu", (1,), outer={"CUDA_VISIBLE_DEVICES": setting})


@pytest.mark.parametrize("setting", ["", "3", "0,0"])
def test_a_cluster_with_more_devices_than_the_user_left_is_refused_before_anything_runs(
    setting: str, tmp_path: Path
) -> None:
    two = Cluster((Node("n0", CORES[:1], (Device("gpu"), Device("gpu", "", 1))),))
    with pytest.raises(InputError, match=r"leaves [01] of them to Dovetail"):
        LocalExecutor(RunFolder(tmp_path / "run", environ={"CUDA_VISIBLE_DEVICES": setting}), two)
    assert not (tmp_path / "run").exists()


def test_each_maker_counts_its_own_devices() -> None:
    """With one NVIDIA and one AMD device the AMD job gets index 0, whatever its number on the node."""
    mixed = Cluster((Node("n0", (0,), (Device("gpu", "NVIDIA T4", 0), Device("gpu", "AMD MI210", 1))),))
    found = child_environment(job("gpu", (Part(1, 0, (1,)),), {}, {}), mixed, [0], {})
    assert (found["CUDA_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]) == ("", "0")
    assert found["HIP_VISIBLE_DEVICES"] == "0"


def test_a_device_keeps_its_drivers_own_name() -> None:
    """GPU 0 is broken: what is found as the first and second device are the driver's 1 and 2."""
    devices = (
        Device("gpu", "NVIDIA T4", 0, address="nvidia:GPU-1b"),
        Device("gpu", "NVIDIA T4", 1, address="nvidia:2"),
        Device("gpu", "MI210", 2, address="amd:3"),
    )
    cluster = Cluster((Node("n0", (0,), devices),))
    for outer in ({}, {"CUDA_VISIBLE_DEVICES": "1,2", "ROCR_VISIBLE_DEVICES": "3"}):
        found = child_environment(job("gpu", (Part(1, 0, (0, 1)),), {}, {}), cluster, [0], outer)
        assert found["CUDA_VISIBLE_DEVICES"] == "GPU-1b,2"
        assert found["NVIDIA_VISIBLE_DEVICES"] == "GPU-1b,2"
        assert found["DOVETAIL_CDI_DEVICES"] == "nvidia.com/gpu=GPU-1b,nvidia.com/gpu=2"
        found = child_environment(job("gpu", (Part(1, 0, (2,)),), {}, {}), cluster, [0], outer)
        assert (found["CUDA_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]) == ("", "3")
        # NVIDIA's container runtime takes an empty variable for one that is not set.
        assert (found["NVIDIA_VISIBLE_DEVICES"], found["DOVETAIL_CDI_DEVICES"]) == ("void", "")
    assert decode_cluster(json.loads(json.dumps(encode_cluster(cluster)))).nodes == cluster.nodes


def test_nodes_without_devices_leave_the_variables_alone() -> None:
    cluster = Cluster((Node("n0", (0,)),))
    found = child_environment(job("cpu", (Part(1, 1),), {}, {}), cluster, [0], {})
    assert not {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "POCL_DEVICES"} & found.keys()


def test_pocl_gets_as_many_threads_as_cores() -> None:
    found = environment_of("opencl", (2,))
    assert (found["POCL_DEVICES"], found["POCL_MAX_PTHREAD_COUNT"], found["OMP_NUM_THREADS"]) == (
        "pthread",
        "2",
        "2",
    )
    assert found["DOVETAIL_CORES"] == "5,6"
    assert "POCL_DEVICES" not in environment_of("opencl", (2,), outer={"POCL_DEVICES": "basic"})


def test_an_implementation_sets_its_threads_but_not_its_devices() -> None:
    asked = {"OMP_NUM_THREADS": "16", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "MINE": "x"}
    found = environment_of("gpu", (1,), env=asked)
    assert (found["OMP_NUM_THREADS"], found["CUDA_VISIBLE_DEVICES"], found["MINE"]) == ("16", "1", "x")
    assert found["MKL_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("kind", "model", "amd", "expected"),
    [
        ("gpu", "NVIDIA H200", True, "nvidia"),
        ("gpu", "AMD Instinct MI250", False, "amd"),
        ("gpu", "", False, "nvidia"),
        ("gpu", "", True, "amd"),
        ("cuda", "", True, "nvidia"),
        ("hip", "", False, "amd"),
        ("opencl", "pocl", True, None),
        ("tpu", "", False, None),
    ],
)
def test_makers(
    kind: str, model: str, amd: bool, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_amd_machine", lambda: amd)
    assert device_vendor(Device(kind, model)) == expected
