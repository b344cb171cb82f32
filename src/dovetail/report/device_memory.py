"""Memory of devices over time: what jobs were given of it, and the peaks that were measured of them.

Of a job its peak counts for the whole of its time: when it was reached is not on record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dovetail.model import Allocation, Result, bit_indices
from dovetail.model.fitting import memory_taken
from dovetail.records import dataclass
from dovetail.report.columns import StepFunction
from dovetail.report.tables import Cell, Cells, Table

MOST_DRAWN = 16
"""Devices of a chart and its table: those of which most was given for longest."""
MOST_PLACES = 200_000
"""Jobs above which a page does without: it would take longer than all the rest of it."""
GB = 1e9
_Held = tuple[float, float, int, int | None]
"""From when to when a job was on a device, the bytes that it was given, and its peak."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device: its name (``n0/gpu1``), model, bytes, and how many jobs there were.

    ``given`` are the bytes that jobs hold by the scheduler's account, ``measured`` the sum of their peaks;
    ``None`` where no job's peak is known.
    """

    name: str
    model: str
    size: int
    jobs: int
    given: StepFunction
    measured: StepFunction | None

    @property
    def byte_seconds(self) -> float:
        """Bytes given times how long."""
        times, values = self.given.times, self.given.values
        return float((values[:-1] * np.diff(times)).sum())


def device_memories(result: Result) -> list[DeviceMemory]:
    """The devices whose memory is known and that some job was on, in the cluster's order.

    Empty too where there are more than `MOST_PLACES` jobs. O(n log n) in what jobs held.
    """
    cluster = result.cluster
    known = any(device.memory for group in cluster.groups for device in group.node.devices)
    if not known or len(result.records) > MOST_PLACES:
        return []
    found: dict[tuple[int, int], list[_Held]] = {}
    for start, end, allocation, peak in _held_intervals(result):
        for part in allocation.parts:
            for n in bit_indices(part.nodes) if part.devices and end > start else ():
                for d in part.devices:
                    size = cluster.nodes[n].devices[d].memory
                    if size:
                        taken = memory_taken(size, part.units, part.gpu_memory)
                        found.setdefault((n, d), []).append((start, end, min(taken, size), peak))
    return [_device_memory(result, n, d, found[n, d]) for n, d in sorted(found)]


def _held_intervals(result: Result) -> Iterator[tuple[float, float, Allocation, int | None]]:
    """What each job held from when to when, and its measured peak, where that is of this try."""
    for record in result.records:
        peak = None if record.usage is None else record.usage.gpu_memory
        for span in record.earlier:
            # The peak on record is that of the last try; what has only moved since is the same try.
            yield span.start, span.end, span.allocation, peak if span.state is None else None
        if record.allocation is not None and record.start is not None and record.end is not None:
            since = record.start if record.since is None else record.since
            yield since, record.end, record.allocation, peak


def _device_memory(result: Result, n: int, d: int, held: Sequence[_Held]) -> DeviceMemory:
    node = result.cluster.nodes[n]
    device = node.devices[d]
    starts, ends = (np.array([one[k] for one in held], float) for k in (0, 1))
    given = np.array([one[2] for one in held], float)
    known = any(one[3] is not None for one in held)
    peaks = np.array([one[3] or 0 for one in held], float)
    measured = StepFunction.of(starts, ends, peaks) if known else None
    steps = StepFunction.of(starts, ends, given)
    return DeviceMemory(
        f"{node.name}/{device.name}", device.model, device.memory or 0, len(held), steps, measured
    )


def drawn_devices(found: Sequence[DeviceMemory]) -> list[DeviceMemory]:
    """Those that a page shows: at most `MOST_DRAWN`, in their order."""
    most = sorted(found, key=lambda one: -one.byte_seconds)[:MOST_DRAWN]
    return [one for one in found if any(one is other for other in most)]


def device_memory_table(found: Sequence[DeviceMemory], span: tuple[float, float]) -> Table:
    """Of each device its memory, what was given of it in the mean and at most, and what jobs took at most."""
    shown = drawn_devices(found)
    edges = np.array(span, float)
    means = [float(one.given.mean(edges)[0]) for one in shown]
    given = [float(one.given.values.max(initial=0.0)) for one in shown]
    taken = [None if one.measured is None else float(one.measured.values.max(initial=0.0)) for one in shown]
    above = [m is not None and m > one.size for one, m in zip(shown, taken, strict=True)]
    notes = [
        "Given: by the scheduler's account. Measured: the sum of the peaks of jobs that were there at once."
    ]
    if len(found) > len(shown):
        notes.append(f"The {len(shown)} of {len(found)} devices of which most was given.")
    if any(above):
        notes.append(
            "Peaks of jobs that were there at once need not have been at once: their sum may be above."
        )
    return Table(
        [
            Cells("device", [one.name for one in shown], right=False),
            Cells("model", [one.model or "-" for one in shown], right=False, rank=2),
            Cells("jobs", [Cell(f"{one.jobs:,}", one.jobs) for one in shown]),
            Cells("memory\n(GB)", [_gigabytes(one.size) for one in shown]),
            Cells("mean\ngiven", [_gigabytes(mean) for mean in means], rank=1),
            Cells("most\ngiven", [_gigabytes(most) for most in given]),
            Cells("most\nmeasured", [_gigabytes(most) for most in taken]),
        ],
        notes=notes,
    )


def _gigabytes(size: float | None) -> Cell:
    return Cell("-") if size is None else Cell(f"{size / GB:,.1f}", size / GB)
