"""Lists NVIDIA GPUs through NVML, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID; with ``--watch`` often.

An instance of a GPU that MIG has cut stands after its GPU, as a device of its own with its ``parent``. With
``--watch`` every line on standard input is answered with one JSON line: what the devices hold now.
"""

from __future__ import annotations

import glob
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HARD_XIDS = frozenset((48, 62, 64, 74, 79, 92, 94, 95, 119, 120))
"""Errors of the device, the bus or its firmware; others are mostly those of programs."""
UNREADABLE = "NVML cannot read it"
UNTOLD = frozenset((2, 3, 4, 6, 13, 25))
"""NVML's statuses of a function that a device or a driver does not have, or that we may not call: invalid
argument, not supported, no permission, not found, function not found, argument version mismatch."""
NO_INSTANCE = 0xFFFFFFFF
"""NVML's number of the MIG instance of a process that is on none."""
MOST_INSTANCES = 7
"""Of one GPU, where NVML does not give the most that there may be."""
MOST_CORES = 4096
"""Cores of a machine that are looked at."""
NVLINK_CAPS = 2
"""NVML's index for whether peers reach each other through NVLink."""
SAME_SWITCH = 20
"""NVML's level of GPUs with no host bridge between them, but one PCIe switch or more."""
EXCLUSIVE = (1, 3)
"""NVML's compute modes in which one program at a time computes on a GPU: per thread, and per process."""
ALONE = "its compute mode is EXCLUSIVE: jobs do not share it"
GONE = "the driver knows it no longer"
UNLISTED = "the driver does not list its processes: others on it are not seen"


def decode_text(value: bytes | str) -> str:
    """NVML's strings are bytes in older versions."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def read_nvml(nvml: Any, function: str, *arguments: Any) -> Any:
    """What a function of NVML answers; ``None`` where the device, the driver or the package has none of it.

    Raises NVML's other errors: the device does not work.
    """
    try:
        return getattr(nvml, function)(*arguments)
    except (AttributeError, getattr(nvml, "NVMLLibraryMismatchError", AttributeError)):
        # An older package, or an older driver.
        return None
    except nvml.NVMLError as error:
        if getattr(error, "value", None) in (None, *UNTOLD):
            return None
        raise


def read_aside(nvml: Any, function: str, *arguments: Any) -> Any:
    """What a function of NVML answers that no job needs; ``None`` where it fails, for whatever reason.

    Whether the device works shows in the others.
    """
    try:
        return read_nvml(nvml, function, *arguments)
    except nvml.NVMLError:
        return None


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
    try:
        driver = decode_text(read_nvml(pynvml, "nvmlSystemGetDriverVersion") or "")
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return {"devices": [], "why": f"NVML does not list its GPUs: {error}"}
    devices: list[dict[str, Any]] = []
    # NVML's numbers follow the bus; CUDA is set to that order for each job.
    for index in range(count):
        devices += [{**one, **near_of(pynvml, index)} for one in describe(pynvml, index, driver)]
    link_devices(pynvml, devices)
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()
    return {"devices": devices, "why": "" if devices else "NVML finds no GPU"}


def describe(nvml: Any, index: int, driver: str) -> list[dict[str, Any]]:
    """One GPU and its MIG instances; ``unusable`` is why no job can run on it."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        model = decode_text(read_aside(nvml, "nvmlDeviceGetName", handle) or "NVIDIA GPU")
        about = {"index": index, "model": model, "driver": driver}
        about |= {
            "uuid": decode_text(read_nvml(nvml, "nvmlDeviceGetUUID", handle) or ""),
            **state_of(nvml, handle),
        }
        mode = read_nvml(nvml, "nvmlDeviceGetComputeMode", handle)
        slices = mig_instances(nvml, handle) if is_cut(nvml, handle) else None
    except nvml.NVMLError as error:
        return [{"index": index, "model": "", "driver": driver, "unusable": f"{UNREADABLE}: {error}"}]
    notes = [UNLISTED] if about.pop("unlisted", False) else []
    if mode is None:
        notes.append("its compute mode is not known")
    elif mode == nvml.NVML_COMPUTEMODE_PROHIBITED:
        about["unusable"] = "its compute mode is PROHIBITED"
    elif mode in EXCLUSIVE:
        about["exclusive"] = True
        notes.append(ALONE)
    if notes:
        about["note"] = "; ".join(notes)
    if slices is None:
        return [about]
    if "unusable" not in about:
        about["unusable"] = (
            f"cut by MIG: its {len(slices)} instances are devices"
            if slices
            else "MIG is on, without instances"
        )
    known = {"index": index, "driver": driver, "parent": about["uuid"]}
    return [about, *({**known, **describe_slice(nvml, one, handle, about)} for one in slices)]


def near_of(nvml: Any, index: int, root: Path = Path("/")) -> dict[str, Any]:
    """The NUMA node of a GPU and its cores, where they are known: by the kernel, else by NVML.

    ``root`` stands for ``/`` in tests.
    """
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        bus = read_nvml(nvml, "nvmlDeviceGetPciInfo", handle)
        # NVML's domain has eight digits, the kernel's four.
        name = "" if bus is None else decode_text(bus.busId).lower().removeprefix("0000")
        folder = root / "sys/bus/pci/devices" / (name or "none")
        found: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            node = int((folder / "numa_node").read_text(encoding="ascii"))
            found |= {"numa": node} if node >= 0 else {}  # -1: the machine has no such nodes
        with suppress(OSError, ValueError):
            found["near"] = numbers_in((folder / "local_cpulist").read_text(encoding="ascii"))
        if "near" not in found:
            words = read_nvml(nvml, "nvmlDeviceGetCpuAffinity", handle, MOST_CORES // 64)
            near = [
                64 * w + bit for w, word in enumerate(words or ()) for bit in range(64) if word >> bit & 1
            ]
            found |= {"near": near} if near else {}
    except nvml.NVMLError:
        return {}
    return found


def numbers_in(text: str) -> list[int]:
    """The numbers of the kernel's form ``0-3,8``. Raises `ValueError`."""
    found: list[int] = []
    for part in text.strip().split(",") if text.strip() else ():
        low, _, high = part.partition("-")
        found += range(int(low), min(int(high or low), MOST_CORES) + 1)
    return found


def link_devices(nvml: Any, devices: list[dict[str, Any]]) -> None:
    """Note of each whole GPU which others NVLink joins to it, and which only one PCIe switch."""
    whole = [one for one in devices if one.get("uuid") and "parent" not in one]
    for one in whole:
        for other in whole:
            if one["index"] < other["index"]:
                link = _link_of(nvml, one["index"], other["index"])
                if link:
                    one.setdefault("links", {})[other["uuid"]] = link
                    other.setdefault("links", {})[one["uuid"]] = link


def _link_of(nvml: Any, first: int, second: int) -> str:
    """``nvlink``, ``switch``, or nothing: farther apart, or not known."""
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in (first, second)]
        if read_nvml(nvml, "nvmlDeviceGetP2PStatus", *handles, NVLINK_CAPS) == 0:
            return "nvlink"
        level = read_nvml(nvml, "nvmlDeviceGetTopologyCommonAncestor", *handles)
    except nvml.NVMLError:
        return ""
    return "switch" if level is not None and level <= SAME_SWITCH else ""


def is_cut(nvml: Any, handle: Any) -> bool:
    """Whether MIG is on: then programs run on its instances alone. A GPU without MIG has no such mode."""
    return bool((read_nvml(nvml, "nvmlDeviceGetMigMode", handle) or [0])[0])


def mig_instances(nvml: Any, handle: Any) -> list[Any]:
    """Handles of the MIG instances of a GPU."""
    found: list[Any] = []
    most = read_nvml(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle)
    for number in range(MOST_INSTANCES if most is None else most):
        one = read_nvml(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        # A number without an instance has no handle.
        if one is not None:
            found.append(one)
    return found


def numbers_of(nvml: Any, handle: Any) -> tuple[int, int] | None:
    """A MIG instance's numbers on its GPU, of the GPU instance and of the compute instance there."""
    gpu = read_nvml(nvml, "nvmlDeviceGetGpuInstanceId", handle)
    compute = read_nvml(nvml, "nvmlDeviceGetComputeInstanceId", handle)
    return None if gpu is None else (int(gpu), int(compute or 0))


def describe_slice(nvml: Any, handle: Any, gpu: Any, parent: dict[str, Any]) -> dict[str, Any]:
    """One MIG instance: model (``… MIG 3g.20gb``), UUID, the UUID's older form, and state."""
    try:
        model = decode_text(read_nvml(nvml, "nvmlDeviceGetName", handle) or "")
        numbers = numbers_of(nvml, handle)
        old = "" if numbers is None else f"MIG-{parent['uuid']}/{numbers[0]}/{numbers[1]}"
        uuid = decode_text(read_nvml(nvml, "nvmlDeviceGetUUID", handle) or old)
        about = {"uuid": uuid, "old_uuid": old, **state_of(nvml, handle, gpu, numbers)}
        # Older drivers call it as its GPU.
        if " MIG " not in model:
            shape = read_nvml(nvml, "nvmlDeviceGetAttributes", handle)
            size = round((about["memory"] >> 20 if shape is None else shape.memorySizeMB) / 1024)
            part = "" if shape is None else f"{shape.gpuInstanceSliceCount}g."
            model = f"{parent['model']} MIG {part}{size}gb"
    except nvml.NVMLError as error:
        return {"model": f"{parent['model']} MIG", "unusable": f"{UNREADABLE}: {error}"}
    return {"model": model, **about}


def state_of(
    nvml: Any, handle: Any, gpu: Any = None, numbers: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Bytes of memory, in all and in use, utilisation from 0 to 1 where it is known, and compute processes.

    ``unlisted``: the driver does not list the processes. Of a MIG instance with these numbers some
    drivers list the processes with it, some with its ``gpu``. Raises NVML's error where the device does not
    answer.
    """
    memory = read_nvml(nvml, "nvmlDeviceGetMemoryInfo", handle)
    # MIG instances do not know theirs.
    rates = read_aside(nvml, "nvmlDeviceGetUtilizationRates", handle)
    running = running_on(nvml, handle)
    # Some drivers list an instance's processes only with its GPU.
    if gpu is not None and not running:
        beside = running_on(nvml, gpu)
        if beside is not None:
            running = [one for one in beside if _is_on(one, numbers)]
    busy = busy_parts(nvml, handle) if running else {}
    found = {
        "memory": 0 if memory is None else int(memory.total),
        "memory_used": None if memory is None else int(memory.used),
        "utilisation": None if rates is None else min(1.0, max(0.0, rates.gpu / 100)),
        "processes": [
            {"pid": int(p.pid), "memory": None if p.usedGpuMemory is None else int(p.usedGpuMemory),
             "utilisation": busy.get(int(p.pid))}
            for p in running or ()
        ],
    }  # fmt: skip
    return {**found, "unlisted": True} if running is None else found


def running_on(nvml: Any, handle: Any) -> Any:
    """The compute processes of a device; ``None`` where the driver does not list them."""
    found = read_nvml(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
    return read_nvml(nvml, "nvmlDeviceGetComputeRunningProcesses_v2", handle) if found is None else found


def _is_on(process: Any, numbers: tuple[int, int] | None) -> bool:
    """Whether a process that a GPU lists is on its instance with these numbers."""
    gpu = getattr(process, "gpuInstanceId", NO_INSTANCE)
    compute = getattr(process, "computeInstanceId", NO_INSTANCE)
    return numbers is not None and gpu == numbers[0] and compute in (numbers[1], NO_INSTANCE)


def busy_parts(nvml: Any, handle: Any) -> dict[int, float]:
    """How busy each process keeps the device, from 0 to 1, of those of which that is known."""
    newest: dict[int, tuple[int, float]] = {}
    for one in read_aside(nvml, "nvmlDeviceGetProcessUtilization", handle, 0) or ():
        known = newest.get(int(one.pid), (-1, 0.0))
        newest[int(one.pid)] = max(known, (int(one.timeStamp), min(1.0, one.smUtil / 100)))
    return {pid: share for pid, (_, share) in newest.items()}


class Watcher:
    """The devices of this machine, found once, and queried again and again."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        nvml.nvmlInit()
        self.found = [
            about for index in range(nvml.nvmlDeviceGetCount()) for about in describe(nvml, index, "")
        ]
        self.events = self._open_events()
        self.handles: dict[int, Any] = {}  # of GPUs that answer

    def _open_events(self) -> Any:
        """Where the driver reports errors; ``None`` where it cannot."""
        nvml = self.nvml
        try:
            events = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                kind = getattr(nvml, "nvmlEventTypeXidCriticalError", 8)
                nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(index), kind, events)
        except (nvml.NVMLError, AttributeError):
            return None
        return events

    def read_states(self) -> list[dict[str, Any]]:
        """The state of every device and instance; ``fault`` is why one can run nothing now."""
        faults = self._read_faults()
        answer: list[dict[str, Any]] = []
        for index, known in self._by_index().items():
            try:
                if index not in self.handles:
                    self.handles[index] = self._handle_of(index, known[0].get("uuid"))
                states = self._gpu_states(self.handles[index], known)
                answer += states
                # What comes back after an error may have another handle.
                if any("fault" in state for state in states):
                    del self.handles[index]
            except (self.nvml.NVMLError, LookupError) as error:
                self.handles.pop(index, None)
                reason = GONE if isinstance(error, LookupError) else f"{UNREADABLE}: {error}"
                answer += [{**_identity_fields(about), "fault": reason} for about in known]
        for about in answer:
            fault = faults.get(about["uuid"] or "") or faults.get(about["parent"] or "")
            if fault:
                about["fault"] = fault
        return answer

    def _handle_of(self, index: int, uuid: str | None) -> Any:
        """The handle of a GPU. Raises NVML's error; `LookupError` where its number is another's now."""
        handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
        if uuid and decode_text(read_nvml(self.nvml, "nvmlDeviceGetUUID", handle) or uuid) != uuid:
            raise LookupError(uuid)
        return handle

    def _by_index(self) -> dict[int, list[dict[str, Any]]]:
        """Each GPU with its instances, in order; one that was not to be read is described anew."""
        found: dict[int, list[dict[str, Any]]] = {}
        for about in self.found:
            found.setdefault(about["index"], []).append(about)
        for index, known in found.items():
            if "uuid" not in known[0]:
                found[index] = describe(self.nvml, index, "")
        return found

    def _gpu_states(self, handle: Any, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A GPU and those of its instances that were found at the start. Raises NVML's error."""
        nvml, (gpu, *slices) = self.nvml, known
        states = [self._device_state(gpu, handle)]
        if not slices and "unusable" not in gpu and is_cut(nvml, handle):
            states[0]["fault"] = "MIG was switched on since"
        there: dict[str, Any] = {}
        for one in mig_instances(nvml, handle) if slices else ():
            numbers = numbers_of(nvml, one)
            old = "" if numbers is None else f"MIG-{gpu['uuid']}/{numbers[0]}/{numbers[1]}"
            there[decode_text(read_nvml(nvml, "nvmlDeviceGetUUID", one) or old)] = one
        for about in slices:
            found = there.get(about.get("uuid") or "")
            if found is None:
                states.append({**_identity_fields(about), "fault": "its MIG instance is gone"})
            else:
                states.append(self._device_state(about, found, handle, numbers_of(nvml, found)))
        return states

    def _device_state(self, about: dict[str, Any], *handles: Any) -> dict[str, Any]:
        try:
            found = state_of(self.nvml, *handles)
            # Of a device that was taken out NVML takes the handle for an invalid argument.
            if about.get("memory") and found["memory_used"] is None:
                found["fault"] = GONE
            return {**_identity_fields(about), **found}
        except self.nvml.NVMLError as error:
            return {**_identity_fields(about), "fault": f"{UNREADABLE}: {error}"}

    def _read_faults(self) -> dict[str, str]:
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
                    uuid = decode_text(nvml.nvmlDeviceGetUUID(event.device))
                except nvml.NVMLError:
                    continue  # its own state shows that
                found[uuid] = f"the driver reports error Xid {number}"
        return found


def _identity_fields(about: dict[str, Any]) -> dict[str, Any]:
    return {name: about.get(name) for name in ("index", "uuid", "old_uuid", "parent")}


def watch() -> None:
    """Answer every line of standard input until it ends."""
    import pynvml

    watcher = Watcher(pynvml)
    for _ in sys.stdin:
        began = time.monotonic()
        states = watcher.read_states()
        print(json.dumps({"devices": states, "took": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    if "--watch" in sys.argv:
        watch()
    else:
        print(json.dumps(probe()))
