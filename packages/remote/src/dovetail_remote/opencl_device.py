"""Which OpenCL device a name means."""

from __future__ import annotations

import os
from typing import Any

from dovetail.errors import InputError
from dovetail.extras import needing_extra


def load_pyopencl() -> Any:
    """The module pyopencl. Raises `InputError`."""
    # PoCL starts one thread per core of the machine, also of cores that this process may not use.
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(len(os.sched_getaffinity(0))))
    with needing_extra("device 'opencl'"):
        import pyopencl
    return pyopencl


def choose_device(cl: Any, which: str = "") -> Any:
    """The device whose name, or whose platform's, has ``which`` in it, in any case.

    Among several the first GPU is taken, else the first accelerator, else the first one. Raises `InputError`.
    """
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        raise InputError(f"device 'opencl' is not there: {error}") from error
    fit = [d for d in found if which.lower() in f"{d.platform.name} {d.name}".lower()]
    if not fit:
        names = ", ".join(d.name.strip() for d in found) or "none"
        wanted = f"opencl:{which}" if which else "opencl"
        raise InputError(f"device {wanted!r} is not there; OpenCL devices found: {names}")
    for kind in (cl.device_type.GPU, cl.device_type.ACCELERATOR):
        for device in fit:
            if device.type & kind:
                return device
    return fit[0]
