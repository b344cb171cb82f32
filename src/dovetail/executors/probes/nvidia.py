"""Lists NVIDIA GPUs through NVML, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID."""

from __future__ import annotations

import glob
import json
from typing import Any


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
    devices = [describe(pynvml, index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    pynvml.nvmlShutdown()
    return {"devices": devices, "why": "" if devices else "NVML finds no GPU"}


def describe(nvml: Any, index: int, driver: str) -> dict[str, Any]:
    """One GPU; ``unusable`` says why no job can run on it."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        about = {
            "index": index,
            "model": text(nvml.nvmlDeviceGetName(handle)),
            "uuid": text(nvml.nvmlDeviceGetUUID(handle)),
            "memory": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            "driver": driver,
        }
    except nvml.NVMLError as error:
        return {"index": index, "model": "", "driver": driver, "unusable": f"NVML cannot read it: {error}"}
    try:
        if nvml.nvmlDeviceGetComputeMode(handle) == nvml.NVML_COMPUTEMODE_PROHIBITED:
            about["unusable"] = "its compute mode is PROHIBITED"
    except nvml.NVMLError:
        about["note"] = "its compute mode is not known"
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0]:
            about["note"] = "MIG is on: describe its instances in a cluster file"
    except nvml.NVMLError:
        return about  # a GPU without MIG
    return about


if __name__ == "__main__":
    print(json.dumps(probe()))
