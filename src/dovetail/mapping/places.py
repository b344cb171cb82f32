"""Workers as they are asked for (``cpu:14,gpu:2``), and what each is bound to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.errors import InputError
from dovetail.executors.environment import THREAD_COUNTS, vendor, visible_name
from dovetail.files.sentences import shown
from dovetail.model import CPU, Device, DeviceClass

__all__ = ["Place", "Wanted", "default_workers", "environment_of", "parse_workers"]

_WORKERS = re.compile(r"([A-Za-z][\w-]*)(?::(\d+)(?:x(\d+))?)?")
MOST = 4096


@dataclass(frozen=True, slots=True)
class Wanted:
    """So many workers of a kind, each with so many cores."""

    kind: str
    count: int = 1
    cores: int = 1

    def __str__(self) -> str:
        return f"{self.kind}:{self.count}" + (f"x{self.cores}" if self.cores != 1 else "")


@dataclass(frozen=True, slots=True)
class Place:
    """What one worker is bound to.

    ``index`` counts the workers of its kind. ``device`` is the number of its device among those of the
    kind: what DOVETAIL_DEVICE says; ``model`` is the device's (or CPU's) model, empty where there is none.
    """

    kind: str
    index: int
    cores: tuple[int, ...]
    device: int = 0
    model: str = ""

    @property
    def name(self) -> str:
        """``cpu 3``, for people."""
        return f"{self.kind} {self.index}"

    @property
    def device_class(self) -> DeviceClass:
        """What the history keeps its times under."""
        return DeviceClass(self.kind, self.model)


def parse_workers(text: str) -> list[Wanted]:
    """``KIND[:COUNT[xCORES]]``, joined by commas: ``cpu:14,gpu:2``, ``cpu:2x4``. Raises `InputError`."""
    found: dict[str, Wanted] = {}
    for word in text.split(","):
        match = _WORKERS.fullmatch(word.strip())
        if match is None:
            raise InputError(
                f"found {shown(word)}, expected KIND:COUNT joined by commas, e.g. cpu:14,gpu:2",
                where="workers",
            )
        kind, count, cores = match[1], int(match[2] or 1), int(match[3] or 1)
        if kind in found:
            raise InputError(f"found {kind} twice, expected each kind once", where="workers")
        if not 0 <= count <= MOST or not 1 <= cores <= MOST:
            raise InputError(
                f"found {shown(word)}, expected 0 to {MOST} workers of 1 to {MOST} cores", where="workers"
            )
        found[kind] = Wanted(kind, count, cores)
    kept = [wanted for wanted in found.values() if wanted.count]
    if not kept:
        raise InputError(f"found {shown(text)}, expected at least one worker", where="workers")
    return kept


def environment_of(place: Place, outer: Mapping[str, str], kinds: Sequence[str]) -> dict[str, str]:
    """Variables to set for a worker over ``outer``, our own; ``kinds`` are those of all workers of the map.

    DOVETAIL_DEVICE is kind and number of its device, ``gpu:1``; of a CPU worker its own number. A worker
    sees its own GPU only (numbers count among those that we ourselves see), a CPU worker sees none.
    """
    threads = str(len(place.cores) or 1)
    env = dict.fromkeys(THREAD_COUNTS, threads)
    env["DOVETAIL_DEVICE"] = f"{place.kind}:{place.device}"
    env["DOVETAIL_CORES"] = ",".join(map(str, place.cores))
    env["DOVETAIL_WORKER"] = place.name.replace(" ", ":")
    for kind in kinds:
        maker = vendor(Device(kind))
        if maker is None:
            continue
        variable = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES"}[maker]
        if place.kind == kind:
            env[variable] = visible_name(variable, place.device, outer)
        elif place.kind == CPU:
            env[variable] = ""
        if maker == "nvidia":
            env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if place.kind == "opencl":
        env["POCL_MAX_PTHREAD_COUNT"] = threads
        env["POCL_AFFINITY"] = "0"  # it would override the worker's cores
        if "POCL_DEVICES" not in outer and "pocl" in place.model.lower():
            env["POCL_DEVICES"] = "pthread"
    return env


def default_workers(kinds: Sequence[str], cores: int, devices: Mapping[str, int]) -> list[Wanted]:
    """What is used where nothing is asked for: a worker for each device, and one for each core left.

    ``kinds`` are those that have an implementation; a kind without a device gets no worker.
    """
    others = [Wanted(kind, devices[kind]) for kind in kinds if kind != CPU and devices.get(kind)]
    left = max(1, cores - sum(wanted.count for wanted in others))
    return ([Wanted(CPU, left)] if CPU in kinds else []) + others
