"""Table 2 of a machine: its devices by runs of the apps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from dovetail.model import CPU, Seconds
from dovetail.runtimes.registry import make_model
from dovetail.spec.values import DEFAULT_MODEL
from dovetail_lab.apps.bench.accuracy import predict_run
from dovetail_lab.apps.bench.measured import MeasuredRun, to_history

STEPS = 64
"""Sizes between the least and the greatest at which predictions are compared."""


@dataclass(frozen=True, slots=True)
class OnDevice:
    """Runs of one app and size on one device class; ``transfer_share`` is of the mean time."""

    device: str
    runs: int
    mean: Seconds
    least: Seconds
    most: Seconds
    transfer_share: float


@dataclass(frozen=True, slots=True)
class Row:
    """An app at one size, on every device where it completed."""

    app: str
    role: str
    n: int
    devices: tuple[OnDevice, ...]

    @property
    def best_device(self) -> OnDevice:
        """The device with the least mean time."""
        return min(self.devices, key=lambda d: d.mean)

    def speedup_on(self, device: str) -> float | None:
        """Mean time on the CPU over that on ``device``: above 1, the device is the better place."""
        by_name = {d.device: d.mean for d in self.devices}
        if CPU not in by_name or device not in by_name or by_name[device] <= 0:
            return None
        return by_name[CPU] / by_name[device]


@dataclass(frozen=True, slots=True)
class Change:
    """From size ``n`` on, ``device`` is predicted to be the fastest."""

    n: int
    device: str


def speed_table(measured: Iterable[MeasuredRun]) -> list[Row]:
    """Runs by app and size, in the order in which they first appear; sizes ascending in an app. O(runs)."""
    groups: dict[str, dict[tuple[float, ...], dict[str, list[MeasuredRun]]]] = {}
    for m in measured:
        inputs = tuple(m.inputs.values())
        groups.setdefault(m.app, {}).setdefault(inputs, {}).setdefault(m.device, []).append(m)
    rows = []
    for app, sizes in groups.items():
        for (n, *_), devices in sorted(sizes.items()):
            role = next(iter(devices.values()))[0].role
            rows.append(Row(app, role, int(n), tuple(_on_device(d, runs) for d, runs in devices.items())))
    return rows


def _on_device(device: str, runs: Sequence[MeasuredRun]) -> OnDevice:
    times = [run.seconds for run in runs]
    mean = fmean(times)
    moved = fmean(run.transfer_seconds for run in runs)
    return OnDevice(device, len(runs), mean, min(times), max(times), moved / mean if mean > 0 else 0.0)


def fastest_changes(measured: Sequence[MeasuredRun], model: str = DEFAULT_MODEL) -> dict[str, list[Change]]:
    """For each app the devices predicted to be the fastest, by size, within the measured sizes.

    The first entry is at the least size; each further one is where the preferred device changes. Apps that
    ran on one device only have one entry. Runs with more than the usual iterations are left out.
    """
    measured = [m for m in measured if m.role != "iterations"]
    made = make_model(model, to_history(measured))
    found: dict[str, list[Change]] = {}
    for app in dict.fromkeys(m.app for m in measured):
        own = [m for m in measured if m.app == app]
        one_of = {m.device: m for m in own}
        sizes = sorted({m.n for m in own})

        def fastest_device(n: int, one_of: dict[str, MeasuredRun] = one_of) -> str:
            times = {}
            for device, run in one_of.items():
                wanted = MeasuredRun(run.app, device, run.role, n, run.seconds, 0.0, 0.0)
                predicted = predict_run(made, wanted)
                times[device] = math.inf if predicted is None else predicted.expected
            return min(times, key=lambda device: times[device])

        grid = _logarithmic_grid(sizes[0], sizes[-1])
        list_of = [Change(grid[0], fastest_device(grid[0]))]
        for before, after in itertools.pairwise(grid):
            device = fastest_device(after)
            if device != list_of[-1].device:
                list_of.append(Change(_find_change(before, after, fastest_device, device), device))
        found[app] = list_of
    return found


def _logarithmic_grid(least: int, most: int) -> list[int]:
    """Whole sizes from the least to the greatest, evenly spaced on a logarithmic scale."""
    if least >= most:
        return [least]
    ratio = (most / least) ** (1 / STEPS)
    return sorted({least, most, *(round(least * ratio**i) for i in range(1, STEPS))})


def _find_change(before: int, after: int, fastest: Callable[[int], str], device: str) -> int:
    """The least size in (before, after] at which ``device`` is the fastest, by bisection."""
    while after - before > 1:
        middle = (before + after) // 2
        if fastest(middle) == device:
            after = middle
        else:
            before = middle
    return after
