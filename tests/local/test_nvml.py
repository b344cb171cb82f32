"""NVIDIA's library as boxes have it: functions that fail, memory that is not known, MIG in both layouts."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu_box import GB, LOST, GpuBox

from dovetail.local.device_watch import DeviceWatch, Snapshot
from dovetail.local.discovery import Inventory, take_inventory
from dovetail.local.probes.nvidia import GONE, UNREADABLE, near_of
from dovetail.model import FRACTION_UNITS, Request
from dovetail.model.fitting import units_taken
from dovetail.model.node import NVLINK, SWITCH

HERE = os.getpid()


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuBox:
    found = GpuBox(tmp_path / "box")
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return found


def found() -> Inventory:
    return take_inventory(60.0, ["nvidia"])


def seen() -> Snapshot:
    watch = DeviceWatch("nvidia")
    try:
        snapshot = watch.take_snapshot(60.0)
    finally:
        watch.close()
    assert snapshot is not None, watch.trouble
    return snapshot


@pytest.mark.parametrize(
    "functions",
    [
        ["nvmlSystemGetDriverVersion", "nvmlDeviceGetName", "nvmlDeviceGetComputeMode"],
        ["nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount"],
        ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetProcessUtilization"],
        ["nvmlEventSetCreate"],
        ["nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlShutdown"],
    ],
)
@pytest.mark.parametrize("status", [3, 4, 13])
def test_what_a_driver_does_not_have_costs_no_device(box: GpuBox, functions: list[str], status: int) -> None:
    uuid = box.add(16 * GB, "Tesla T4")
    box.occupy(uuid, HERE, 3 * GB)
    box.fail(*functions, status=status)
    (device,) = found().devices
    assert (device.used, device.uuid, device.memory) == (True, uuid, 16 * GB)
    assert [(one.pid, one.memory) for one in device.processes] == [(HERE, 3 * GB)]
    state = seen().device(uuid)
    assert state is not None
    assert (state.fault, state.used, len(state.processes)) == ("", 3 * GB, 1)


def test_memory_that_is_not_told_is_not_limited(box: GpuBox) -> None:
    uuid = box.add(16 * GB, "NVIDIA GB10")
    box.fail("nvmlDeviceGetMemoryInfo", status=3)
    (device,) = found().devices
    assert (device.used, device.memory, device.memory_used) == (True, 0, None)
    assert found().cluster().nodes[0].devices[0].memory is None
    state = seen().device(uuid)
    assert state is not None
    assert (state.fault, state.used) == ("", None)


@pytest.mark.parametrize("mode", [1, 3])
def test_a_gpu_on_which_one_program_at_a_time_computes_is_not_shared(box: GpuBox, mode: int) -> None:
    box.add(16 * GB)
    box.devices[0]["mode"] = mode
    box.write()
    inventory = found()
    assert "EXCLUSIVE" in inventory.devices[0].note
    (device,) = inventory.cluster().nodes[0].devices
    assert (device.exclusive, device.memory) == (True, 16 * GB)
    for request in (
        Request(1, 0, (("gpu", 0.25),)),
        Request(1, 0, (("gpu", 1.0),), gpu_memory=GB),
        Request(1, 0, (("gpu", 1.0),), sharing=True, gpu_memory=GB),
    ):
        assert units_taken(request, device) == FRACTION_UNITS


def test_a_driver_that_lists_no_processes_is_noted(box: GpuBox) -> None:
    box.add(16 * GB)
    box.fail("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    (device,) = found().devices
    assert device.used
    assert "does not list its processes" in device.note


@pytest.mark.parametrize("status", [1, 15, 16, 999])
def test_a_gpu_that_does_not_answer_is_none(box: GpuBox, status: int) -> None:
    box.add(16 * GB)
    second = box.add(16 * GB)
    box.devices[0]["fault"] = status
    box.write()
    assert [one.used for one in found().devices] == [False, True]
    assert "NVML cannot read it" in found().devices[0].note
    snapshot = seen()
    assert [bool(one.fault) for one in snapshot.devices] == [True, False]
    assert (snapshot.device(second) or snapshot.devices[0]).fault == ""


@pytest.mark.parametrize("function", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetName"])
def test_what_no_job_needs_may_fail_in_any_way(box: GpuBox, function: str) -> None:
    uuid = box.add(16 * GB)
    box.fail(function, status=999)
    assert [one.used for one in found().devices] == [True]
    state = seen().device(uuid)
    assert state is not None
    assert state.fault == ""


def test_a_gpu_that_is_taken_out_gets_no_job(box: GpuBox) -> None:
    """NVML takes its handle for an invalid argument; later its number may be another GPU's."""
    first, second = box.add(16 * GB), box.add(40 * GB)
    watch = DeviceWatch("nvidia")
    for fault, words in ((0, ""), (2, GONE), (LOST, f"{UNREADABLE}: GPU is lost")):
        box.devices[0]["fault"] = fault
        box.write()
        snapshot = watch.take_snapshot(60.0)
        assert snapshot is not None
        assert [one.fault for one in snapshot.devices] == [words, ""]
    del box.devices[0]
    box.write()
    snapshot = watch.take_snapshot(60.0)
    watch.close()
    assert snapshot is not None
    assert [(one.name, bool(one.fault)) for one in snapshot.devices] == [(first, True), (second, True)]
    assert snapshot.devices[0].fault == GONE


def test_a_gpu_on_which_mig_is_switched_on_gets_no_job(box: GpuBox) -> None:
    uuid = box.add(40 * GB, mig=0)
    watch = DeviceWatch("nvidia")
    assert watch.take_snapshot(60.0) is not None
    box.devices[0]["mig"] = 1
    box.write()
    snapshot = watch.take_snapshot(60.0)
    watch.close()
    assert snapshot is not None
    assert [(one.name, one.fault) for one in snapshot.devices] == [(uuid, "MIG was switched on since")]


def test_a_library_that_counts_no_gpus_says_why(box: GpuBox) -> None:
    box.add(16 * GB)
    box.fail("nvmlDeviceGetCount_v2", status=999)
    assert found().devices == []
    assert found().missing[0].reason == "NVML does not list its GPUs: Unknown Error"


def test_an_older_driver_lists_processes_in_its_own_way(box: GpuBox) -> None:
    uuid = box.add(16 * GB)
    box.occupy(uuid, HERE, 3 * GB)
    box.fail("nvmlDeviceGetComputeRunningProcesses_v3")
    (device,) = found().devices
    assert [(one.pid, one.memory) for one in device.processes] == [(HERE, 3 * GB)]
    assert device.note == ""


def test_processes_that_have_ended_or_are_hidden_are_named_as_far_as_known(box: GpuBox) -> None:
    uuid = box.add(16 * GB)
    (box.folder / "ghosts").touch()
    for pid in (0, 3_999_999):
        box.occupy(uuid, pid, GB)
    (device,) = found().devices
    assert [(one.pid, one.user, one.name, one.memory) for one in device.processes] == [
        (0, "", "", GB),
        (3_999_999, "", "", GB),
    ]
    assert "of another container (process 0)" in device.processes[0].process_label


@pytest.mark.parametrize("on_parent", [False, True])
def test_processes_on_mig_instances_are_found_in_both_layouts(box: GpuBox, on_parent: bool) -> None:
    first, second = box.cut([("3g.20gb", 20 * GB), ("3g.20gb", 20 * GB)])
    if on_parent:
        (box.folder / "on_parent").touch()
    box.occupy(second, HERE, 3 * GB)
    for held in (
        {one.uuid: one.processes for one in found().devices},
        {o.name: o.processes for o in seen().devices},
    ):
        assert [len(held[first]), len(held[second])] == [0, 1]
        assert held[second][0].memory == 3 * GB


def test_an_instance_that_goes_takes_no_other_with_it(box: GpuBox) -> None:
    first, second = box.cut([("3g.20gb", 20 * GB), ("1g.5gb", 5 * GB)])
    watch = DeviceWatch("nvidia")
    assert watch.take_snapshot(60.0) is not None
    del box.slices[0]
    box.write()
    snapshot = watch.take_snapshot(60.0)
    watch.close()
    assert snapshot is not None
    faults = {one.name: one.fault for one in snapshot.devices}
    assert (faults[first], faults[second]) == ("its MIG instance is gone", "")


def test_every_form_of_a_name_chooses_devices(box: GpuBox, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = box.add(40 * GB)
    first, second = box.cut([("3g.20gb", 20 * GB), ("3g.20gb", 20 * GB)])
    parent = str(box.devices[1]["uuid"])
    for setting, expected in {
        "0": [whole],
        whole: [whole],
        whole[:12]: [whole],
        "1": [first, second],
        parent: [first, second],
        first: [first],
        f"MIG-{parent}/2/0": [second],
        f"{second},{whole}": [second, whole],
        f"MIG-{parent}/9/0": [],
        "-1": [],
        "": [],
    }.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
        assert [one.uuid for one in found().devices if one.used] == expected, setting


def test_an_older_driver_names_instances_by_their_numbers(box: GpuBox) -> None:
    box.cut([("3g.20gb", 20 * GB)])
    parent = str(box.devices[0]["uuid"])
    box.slices[0]["uuid"] = f"MIG-{parent}/1/0"
    box.slices[0]["name"] = str(box.devices[0]["name"])
    box.write()
    instance = found().devices[1]
    assert (instance.used, instance.parent, instance.address) == (True, parent, f"nvidia:MIG-{parent}/1/0")
    assert instance.model.endswith(" MIG 19gb")


def test_which_gpus_are_close_to_each_other_and_to_which_cores(box: GpuBox) -> None:
    uuids = [box.add(16 * GB, "Tesla V100") for _ in range(4)]
    cores = sorted(os.sched_getaffinity(0))
    box.join([(0, 2, "nvlink"), (1, 2, "switch")], {0: [cores[0]], 2: cores})
    inventory = found()
    assert [one.links for one in inventory.devices] == [
        {uuids[2]: "nvlink"}, {uuids[2]: "switch"}, {uuids[0]: "nvlink", uuids[1]: "switch"}, {},
    ]  # fmt: skip
    assert [one.near for one in inventory.devices] == [(cores[0],), (), tuple(cores), ()]
    devices = inventory.cluster().nodes[0].devices
    assert [one.links for one in devices] == [((2, NVLINK),), ((2, SWITCH),), ((0, NVLINK), (1, SWITCH)), ()]
    assert [one.near for one in devices] == [(cores[0],), (), (), ()], "all cores: none is preferred"


def test_the_links_of_a_gpu_that_is_left_out_are_left_out(
    box: GpuBox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        box.add(16 * GB, "Tesla V100")
    box.join([(0, 1, "nvlink"), (1, 2, "nvlink")])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    assert [one.links for one in found().cluster().nodes[0].devices] == [((1, NVLINK),), ((0, NVLINK),)]


def test_the_kernel_names_the_numa_node_of_a_gpu(tmp_path: Path) -> None:
    class Library:
        NVMLError = RuntimeError

        @staticmethod
        def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
            return index

        @staticmethod
        def nvmlDeviceGetPciInfo(handle: int) -> object:  # noqa: N802
            return SimpleNamespace(busId=b"00000000:3B:00.0")

    folder = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text("1\n")
    (folder / "local_cpulist").write_text("4-6,12\n")
    assert near_of(Library, 0, tmp_path) == {"numa": 1, "near": [4, 5, 6, 12]}
    (folder / "numa_node").write_text("-1\n")
    assert near_of(Library, 0, tmp_path) == {"near": [4, 5, 6, 12]}
