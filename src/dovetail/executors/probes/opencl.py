"""Lists OpenCL devices of every platform."""

from __future__ import annotations

import json
from typing import Any


def probe() -> dict[str, Any]:
    """Devices, or the reason why there are none."""
    try:
        import pyopencl as cl
    except ImportError:
        return {"devices": [], "why": "the Python package pyopencl is not installed"}
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
            devices.append(
                {
                    "index": len(devices),
                    "model": device.name.strip(),
                    "platform": platform.name.strip(),
                    "vendor": device.vendor.strip(),
                    "memory": int(device.global_mem_size),
                    "driver": device.driver_version.strip(),
                    "units": int(device.max_compute_units),
                    "type": "cpu" if device.type & cl.device_type.CPU else "gpu",
                    "unusable": _unusable(cl, device),
                }
            )
    why = "" if devices else "; ".join(notes) or "no OpenCL platform has a device"
    return {"devices": devices, "why": why}


def _unusable(cl: Any, device: Any) -> str:
    """Why the device builds no program; empty if it does. Drivers may be older than CPUs."""
    try:
        cl.Program(cl.Context([device]), "__kernel void nothing(__global int *a) { a[0] = 1; }").build()
    except cl.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip().startswith("error")]
        return lines[0] if lines else "its compiler failed"
    return ""


if __name__ == "__main__":
    print(json.dumps(probe()))
