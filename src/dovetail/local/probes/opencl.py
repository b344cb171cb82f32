"""Lists OpenCL devices of every platform, and runs a kernel on each."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from importlib.util import find_spec
from typing import IO, Any

SOURCE = "__kernel void count(__global int *a) { a[get_global_id(0)] = get_global_id(0); }"
ITEMS = 16


def probe() -> dict[str, Any]:
    """Devices, or the reason why there are none.

    A driver may end the process that it is in (PoCL does where it finds no linker): devices are tried in a
    child, and a child that ends so costs its device alone.
    """
    if find_spec("pyopencl") is None:
        return {"devices": [], "why": "the Python package pyopencl is not installed"}
    failed: dict[int, str] = {}
    while True:
        with tempfile.TemporaryFile("w+") as answers, tempfile.TemporaryFile("w+") as words:
            number = _ended_by(answers, words, failed)
            answers.seek(0)
            words.seek(0)
            lines, last = answers.read().splitlines(), words.read().strip().splitlines()[-1:]
        found = json.loads(lines[-1]) if lines else None
        if isinstance(found, dict):
            return found
        by = last[0].strip() if last else signal.strsignal(number) if number else ""
        if found is None or found in failed:
            return {"devices": [], "why": f"its driver crashed the probe ({by or 'no answer'})"}
        failed[found] = f"its driver ends the process: {by}"


def _ended_by(answers: IO[str], words: IO[str], failed: Mapping[int, str]) -> int:
    """The signal that ended a child, which writes its answers there: the device that it tries, then all."""
    # A fork, since PoCL calls exit() where it finds no linker; the parent lives on to name the device.
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    status = 1
    try:
        os.dup2(words.fileno(), 2)
        print(json.dumps(_list_devices(answers, failed)), file=answers, flush=True)
        status = 0
    finally:
        if status:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(status)


def _list_devices(answers: IO[str], failed: Mapping[int, str]) -> dict[str, Any]:
    import pyopencl as cl

    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        return {"devices": [], "why": f"no OpenCL platform is installed: {error}"}
    devices: list[dict[str, Any]] = []
    notes: list[str] = []
    for platform in platforms:
        try:
            found = platform.get_devices()
        except cl.Error as error:
            notes.append(f"platform {platform.name} has no device: {error}")
            continue
        for device in found:
            index = len(devices)
            # On disk before the device is tried: after a crash the last number is the culprit's.
            print(index, file=answers, flush=True)
            devices.append(
                {
                    "index": index,
                    "model": device.name.strip(),
                    "platform": platform.name.strip(),
                    "vendor": device.vendor.strip(),
                    "memory": int(device.global_mem_size),
                    "driver": device.driver_version.strip(),
                    "units": int(device.max_compute_units),
                    "type": "cpu" if device.type & cl.device_type.CPU else "gpu",
                    "unusable": failed[index] if index in failed else _unusable_reason(cl, device),
                }
            )
    why = "" if devices else "; ".join(notes) or "no OpenCL platform has a device"
    return {"devices": devices, "why": why}


def _unusable_reason(cl: Any, device: Any) -> str:
    """Why the device runs no kernel; empty if it does. Drivers may be older than CPUs, or lack a linker."""
    import numpy as np

    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context)
        counted = np.zeros(ITEMS, np.int32)
        held = cl.Buffer(context, cl.mem_flags.READ_WRITE, counted.nbytes)
        cl.Program(context, SOURCE).build().count(queue, (ITEMS,), None, held)
        cl.enqueue_copy(queue, counted, held)
    except cl.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip().startswith("error")]
        return lines[0] if lines else "its compiler failed"
    return "" if counted.tolist() == list(range(ITEMS)) else "its results are wrong"


if __name__ == "__main__":
    print(json.dumps(probe()))
