"""Lists NVIDIA GPUs through NVML, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID; with ``--watch`` often.

An instance of a GPU that MIG has cut stands after its GPU, as a device of its own with its ``parent``. With
``--watch`` every line on standard input is answered with one JSON line: what the devices hold now.
"""

from __future__ import annotations

import glob
import json
import sys
from contextlib import suppress
from typing import Any

HARD_XIDS = frozenset((48, 62, 64, 74, 79, 92, 94, 95, 119, 120))
"""Errors of the device, the bus or its firmware; others are mostly those of programs."""
UNREADABLE = "NVML cannot read it"


def text(value: bytes | str) -> str:
    """NVML's strings are bytes in older versions."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def probe() -> dict[str, Any]:
    """Devices, or the reason why there are none."""
    loaded = glob.glob("/proc/driver/nvidia/gpus/*")
    try:
        import pynvml
    except ImportError:
        seen = f"the NVIDIA driver lists {len(loaded)} GPUs, but " if loaded else ""
        return {"devices": [], "why": f"{seen}the Python package nvidia-ml-py is not installed"}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"devices": [], "why": f"NVML does not start: {error}"}
    driver = text(pynvml.nvmlSystemGetDriverVersion())
    devices: list[dict[str, Any]] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        devices += describe(pynvml, index, driver)
    pynvml.nvmlShutdown()
    return {"devices": devices, "why": "" if devices else "NVML finds no GPU"}


def describe(nvml: Any, index: int, driver: str) -> list[dict[str, Any]]:
    """One GPU and its MIG instances; ``unusable`` is why no job can run on it."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        about = {"index": index, "model": text(nvml.nvmlDeviceGetName(handle)), "driver": driver}
        about |= {"uuid": text(nvml.nvmlDeviceGetUUID(handle)), **state_of(nvml, handle)}
    except nvml.NVMLError as error:
        return [{"index": index, "model": "", "driver": driver, "unusable": f"{UNREADABLE}: {error}"}]
    try:
        if nvml.nvmlDeviceGetComputeMode(handle) == nvml.NVML_COMPUTEMODE_PROHIBITED:
            about["unusable"] = "its compute mode is PROHIBITED"
    except nvml.NVMLError:
        about["note"] = "its compute mode is not known"
    if not is_cut(nvml, handle):
        return [about]
    slices = [
        {"index": index, "driver": driver, "parent": about["uuid"], **describe_slice(nvml, instance, about)}
        for instance in instances(nvml, handle)
    ]
    if "unusable" not in about:
        about["unusable"] = (
            f"cut by MIG: its {len(slices)} instances are devices"
            if slices
            else "MIG is on, without instances"
        )
    return [about, *slices]


def is_cut(nvml: Any, handle: Any) -> bool:
    """Whether MIG is on: then programs run on its instances alone."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False  # a GPU without MIG


def instances(nvml: Any, handle: Any) -> list[Any]:
    """Handles of the MIG instances of a GPU."""
    found: list[Any] = []
    try:
        for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
            except nvml.NVMLError:
                continue  # a number that no instance has
    except nvml.NVMLError:
        return found
    return found


def describe_slice(nvml: Any, handle: Any, parent: dict[str, Any]) -> dict[str, Any]:
    """One MIG instance: model (``… MIG 3g.20gb``), UUID and state."""
    try:
        model = text(nvml.nvmlDeviceGetName(handle))
        about = {"uuid": text(nvml.nvmlDeviceGetUUID(handle)), **state_of(nvml, handle)}
        if " MIG " not in model:  # older drivers call it as its GPU
            shape = nvml.nvmlDeviceGetAttributes(handle)
            size = round(shape.memorySizeMB / 1024)
            model = f"{parent['model']} MIG {shape.gpuInstanceSliceCount}g.{size}gb"
    except nvml.NVMLError as error:
        return {"model": f"{parent['model']} MIG", "unusable": f"{UNREADABLE}: {error}"}
    return {"model": model, **about}


def state_of(nvml: Any, handle: Any) -> dict[str, Any]:
    """Bytes of memory, in all and in use, utilisation from 0 to 1 where it is known, and compute processes.

    Raises NVML's error where the device does not answer.
    """
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    found: dict[str, Any] = {
        "memory": int(memory.total),
        "memory_used": int(memory.used),
        "utilisation": None,
    }
    with suppress(nvml.NVMLError):  # MIG instances do not know theirs
        found["utilisation"] = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        running = []
    busy = busy_parts(nvml, handle) if running else {}
    found["processes"] = [
        {"pid": int(p.pid), "memory": None if p.usedGpuMemory is None else int(p.usedGpuMemory),
         "utilisation": busy.get(int(p.pid))}
        for p in running
    ]  # fmt: skip
    return found


def busy_parts(nvml: Any, handle: Any) -> dict[int, float]:
    """How busy each process keeps the device, from 0 to 1, of those of which that is known."""
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    except nvml.NVMLError:
        return {}
    newest: dict[int, tuple[int, float]] = {}
    for one in samples:
        known = newest.get(int(one.pid), (-1, 0.0))
        newest[int(one.pid)] = max(known, (int(one.timeStamp), one.smUtil / 100))
    return {pid: share for pid, (_, share) in newest.items()}


class Watcher:
    """The devices of this machine, found once, and queried again and again."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        nvml.nvmlInit()
        self.found = [
            about for index in range(nvml.nvmlDeviceGetCount()) for about in describe(nvml, index, "")
        ]
        self.events = self._events()

    def _events(self) -> Any:
        """Where the driver reports errors; ``None`` where it cannot."""
        nvml = self.nvml
        try:
            events = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                kind = getattr(nvml, "nvmlEventTypeXidCriticalError", 8)
                nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(index), kind, events)
        except nvml.NVMLError:
            return None
        return events

    def look(self) -> list[dict[str, Any]]:
        """The state of every device and instance; ``fault`` is why one can run nothing now."""
        faults = self._faults()
        answer: list[dict[str, Any]] = []
        for index, known in self._by_index().items():
            try:
                handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
                slices = instances(self.nvml, handle) if len(known) > 1 else []
                for about, one in zip(known, [handle, *slices], strict=False):
                    answer.append(self._state(about, one))
                lost = known[1 + len(slices) :]
                answer += [{**_named(about), "fault": "its MIG instance is gone"} for about in lost]
            except self.nvml.NVMLError as error:
                answer += [{**_named(about), "fault": f"{UNREADABLE}: {error}"} for about in known]
        for about in answer:
            fault = faults.get(about["uuid"] or "") or faults.get(about["parent"] or "")
            if fault:
                about["fault"] = fault
        return answer

    def _by_index(self) -> dict[int, list[dict[str, Any]]]:
        """Each GPU with its instances, in order; one that was not to be read is described anew."""
        found: dict[int, list[dict[str, Any]]] = {}
        for about in self.found:
            found.setdefault(about["index"], []).append(about)
        for index, known in found.items():
            if "uuid" not in known[0]:
                found[index] = describe(self.nvml, index, "")
        return found

    def _state(self, about: dict[str, Any], handle: Any) -> dict[str, Any]:
        try:
            return {**_named(about), **state_of(self.nvml, handle)}
        except self.nvml.NVMLError as error:
            return {**_named(about), "fault": f"{UNREADABLE}: {error}"}

    def _faults(self) -> dict[str, str]:
        """Errors of devices that the driver has reported since the last look."""
        nvml = self.nvml
        found: dict[str, str] = {}
        for _ in range(64 if self.events is not None else 0):
            try:
                event = nvml.nvmlEventSetWait(self.events, 0)
            except nvml.NVMLError:
                break  # none is left
            number = int(event.eventData)
            if number in HARD_XIDS:
                try:
                    uuid = text(nvml.nvmlDeviceGetUUID(event.device))
                except nvml.NVMLError:
                    continue  # its own state shows that
                found[uuid] = f"the driver reports error Xid {number}"
        return found


def _named(about: dict[str, Any]) -> dict[str, Any]:
    return {name: about.get(name) for name in ("index", "uuid", "parent")}


def watch() -> None:
    """Answer every line of standard input until it ends."""
    import pynvml

    watcher = Watcher(pynvml)
    for _ in sys.stdin:
        print(json.dumps({"devices": watcher.look()}), flush=True)


if __name__ == "__main__":
    if "--watch" in sys.argv:
        watch()
    else:
        print(json.dumps(probe()))
