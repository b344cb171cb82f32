"""Runs of the apps that were measured: as values, as a file, as a history."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import InputError
from dovetail.history import MemoryHistory
from dovetail.model import CPU, DeviceClass, Run, Seconds
from dovetail_lab.apps.registry import APPS, RAVI, find_app

COLUMNS = ("app", "device", "role", "n", "seconds", "cpu_seconds", "transfer_seconds")


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One completed run: seconds of the whole process, its CPU time, and its copies to and from a device."""

    app: str
    device: str
    role: str
    n: int
    seconds: Seconds
    cpu_seconds: Seconds
    transfer_seconds: Seconds

    @property
    def inputs(self) -> dict[str, float]:
        """What the job was given: its size, and its iterations if it takes any."""
        return inputs_of(self.app, self.role, self.n)


def inputs_of(app: str, role: str, n: int) -> dict[str, float]:
    """The inputs of a job of the app; in the role ``iterations`` it has more than its usual number."""
    iterations = find_app(app).iterations
    if iterations is None:
        return {"n": float(n)}
    return {"n": float(n), "iterations": float(iterations[role == "iterations"])}


def check_writable(path: Path) -> None:
    """Raises `InputError` if a file of that name could not be written; makes none."""
    folder = path.resolve().parent
    if path.is_dir():
        why = "is a directory"
    elif not folder.is_dir():
        why = "its folder is not there"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        why = "permission denied"
    else:
        return
    raise InputError(f"cannot be written: {why}", where=str(path))


def write_measurements(measured: Iterable[MeasuredRun], path: Path) -> None:
    """Write one line a run (CSV); raises `InputError` if that cannot be done."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator=os.linesep)
            writer.writerow(COLUMNS)
            for m in measured:
                times = (f"{t:.4f}" for t in (m.seconds, m.cpu_seconds, m.transfer_seconds))
                writer.writerow((m.app, m.device, m.role, m.n, *times))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def read_measurements(text: str, where: str) -> list[MeasuredRun]:
    """Inverse of `write_measurements`; raises `InputError` with the line."""
    reader = csv.DictReader(text.splitlines())
    if tuple(reader.fieldnames or ()) != COLUMNS:
        columns = ", ".join(reader.fieldnames or ()) or "none"
        raise InputError(f"found the columns {columns}, expected {', '.join(COLUMNS)}", where=where)
    found = [_read_run(row, f"{where}: line {reader.line_num}") for row in reader]
    if not found:
        raise InputError("found no run below the header, expected one a line", where=where)
    return found


def _read_run(row: Mapping[str | None, str | list[str] | None], where: str) -> MeasuredRun:
    """One line; raises `InputError` with the column."""
    # The csv module files extra fields under None, and fills missing ones with it.
    if None in row or None in row.values():
        raise InputError(
            f"found {'more' if None in row else 'fewer'} than {len(COLUMNS)} fields", where=where
        )
    cells = {name: str(row[name]) for name in COLUMNS}
    known = {**APPS, **RAVI}
    if cells["app"] not in known:
        raise InputError(f"found {cells['app']!r}, expected one of {', '.join(known)}", where=f"{where}: app")
    for name in ("device", "role"):
        if not cells[name]:
            raise InputError("found nothing, expected a name", where=f"{where}: {name}")
    # isdecimal accepts digits of other scripts, which int would read.
    if not (
        cells["n"].isdecimal()
        and cells["n"].isascii()
        and 0 < int(cells["n"]) <= known[cells["app"]].largest_size
    ):
        expected = f"a whole number from 1 to {known[cells['app']].largest_size}"
        raise InputError(f"found {cells['n']!r}, expected {expected}", where=f"{where}: n")
    times = [_read_seconds(cells[name], f"{where}: {name}") for name in COLUMNS[4:]]
    return MeasuredRun(cells["app"], cells["device"], cells["role"], int(cells["n"]), *times)


def _read_seconds(text: str, where: str) -> Seconds:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise InputError(f"found {text!r}, expected a finite number of at least 0", where=where)
    return seconds


def to_history(measured: Iterable[MeasuredRun]) -> MemoryHistory:
    """The runs as a history, in their order, on device classes of their kind."""
    history = MemoryHistory()
    # Times of recording in order, as a live history has them.
    for when, m in enumerate(measured):
        history.record(run_of(m, float(when)))
    return history


def run_of(measured: MeasuredRun, when: Seconds = 0.0) -> Run:
    """One measurement as history keeps it."""
    # A split over core and device counts under the device.
    device = measured.device.removeprefix("cpu+")
    on_cpu = device == CPU
    return Run(
        measured.app,
        measured.device,
        DeviceClass(device),
        1,
        1 if CPU in measured.device else 0,
        0.0 if on_cpu else 1.0,
        measured.inputs,
        measured.seconds,
        when=when,
    )
