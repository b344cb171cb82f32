"""Whether a kernel of OpenCL runs here: where none does, its tests skip, since PoCL ends the process then."""

from __future__ import annotations

from functools import cache

import pytest

from dovetail.local.discovery import take_inventory

__all__ = ["need_opencl"]


@cache
def _problem() -> str:
    found = take_inventory(120.0, ("opencl",))
    if any(not device.broken for device in found.devices):
        return ""
    return "; ".join([*(device.note for device in found.devices), *(probe.reason for probe in found.missing)])


def need_opencl() -> None:
    """Skip the test, or what a fixture is for, where OpenCL runs no kernel."""
    if _problem():
        pytest.skip(f"OpenCL: {_problem()}")
