"""Instances of the packing problem as files: a table, a model, or observations for each task.

JSON: ``{"processors": 4, "times": [[60, 32, 24, 20], ...], "names": [...]}``, or instead of ``times``
a list ``tasks``, each with one of

- ``"times": [60, 32, 24, 20]``, seconds on 1 to p processors;
- ``"observed": {"1": [60, 61], "4": 20}``, seconds by count, fitted (``profiles.fit_times``);
- ``"sequential": 3e4`` with ``"serial_fraction"``, ``"overhead"``, ``"size"`` and
  ``"cores_per_processor"``, the model of Aupy 2013, section 6 (``synthetic.model_times``).

CSV: a header ``name,1,2,4,...`` of processor counts, one line a task; counts that are missing and cells
that are empty are fitted.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.files.reading import read_text
from dovetail.files.sentences import file_name, show_value
from dovetail.files.units import LONGEST
from dovetail_lab.packing.profiles import (
    SHORTEST,
    check_row,
    check_times,
    describe_repairs,
    fit_times,
    repair_times,
)
from dovetail_lab.packing.synthetic import CORES_PER_PROCESSOR, model_times

Floats = NDArray[np.float64]

MOST_PROCESSORS = 100_000

_KEYS = {"processors", "times", "tasks", "names"}
_MODEL_KEYS = {"sequential", "serial_fraction", "overhead", "size", "cores_per_processor"}


@dataclass(frozen=True, slots=True)
class Instance:
    """Tasks with their times, which satisfy Equations 1 and 2; ``warning`` lists what was repaired."""

    times: Floats
    names: tuple[str, ...]
    warning: str | None = None

    @property
    def processors(self) -> int:
        """p, the processors of the machine."""
        return int(self.times.shape[1])


def read_instance(path: Path) -> Instance:
    """Read a JSON or (by its suffix) CSV file.

    Raises ``InputError``, naming file and task, for anything that is not an instance.
    """
    text = read_text(path, "times by task, as JSON or CSV")
    read = _read_csv if path.suffix.lower() == ".csv" else _read_json
    times, names = read(text, file_name(path))
    # Repaired after reading, so that the warning can name tasks as the file does.
    repaired, repairs = repair_times(times)
    return Instance(repaired, names, describe_repairs(repairs, names))


def _read_json(text: str, where: str) -> tuple[Floats, tuple[str, ...]]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{at}: found a fault in the JSON ({error.msg})", where=where) from None
    except (ValueError, RecursionError):  # a number of thousands of digits, hundreds of nested brackets
        raise InputError("found a number or a nesting beyond all bounds in the JSON", where=where) from None
    # Unknown keys are refused, since a misspelt one would silently take its default.
    if not isinstance(data, dict):
        raise InputError(
            f"found {_kind_of_value(data)}, expected an object with processors and times", where=where
        )
    if unknown := sorted(set(data) - _KEYS):
        raise InputError(f"unknown key {unknown[0]!r}, expected {', '.join(sorted(_KEYS))}", where=where)
    processors = data.get("processors")
    # bool is a whole number to Python.
    if (
        isinstance(processors, bool)
        or not isinstance(processors, int)
        or not 1 <= processors <= MOST_PROCESSORS
    ):
        raise InputError(
            f"found {show_value(processors)}, expected a whole number of 1 to {MOST_PROCESSORS}",
            where=f"{where}: processors",
        )
    if ("times" in data) == ("tasks" in data):
        found = "both" if "times" in data else "neither"
        raise InputError(f"found {found} of times and tasks, expected one of them", where=where)
    names = data.get("names")
    if "times" in data:
        times = check_times(data["times"], processors=processors, where=f"{where}: times")
    else:
        times, own = _read_tasks(data["tasks"], processors, f"{where}: tasks")
        # Names at the top are the user's last word; those within tasks are only their usual place.
        names = own if names is None else names
    n = times.shape[0]
    if names is None:
        names = [str(i) for i in range(n)]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) != n:
        raise InputError(f"expected {n} strings, one for each task", where=f"{where}: names")
    return times, tuple(names)


def _read_tasks(entries: Any, processors: int, where: str) -> tuple[Floats, list[str]]:
    if not isinstance(entries, list) or not entries:
        raise InputError("expected a non-empty list, one object for each task", where=where)
    rows, names = [], []
    for i, entry in enumerate(entries):
        at = f"{where}: task {i}"
        if not isinstance(entry, dict):
            raise InputError(f"found {_kind_of_value(entry)}, expected an object", where=at)
        fields = dict(entry)
        name = fields.pop("name", str(i))
        if not isinstance(name, str):
            raise InputError(f"name is {name!r}, expected a string", where=at)
        rows.append(_within_bounds(_read_profile(fields, processors, at), at))
        names.append(name)
    return np.array(rows), names


def _read_profile(fields: Mapping[str, Any], processors: int, at: str) -> Floats:
    """The times of one task, by whichever of the three forms it has."""
    if set(fields) == {"times"}:
        return np.array(check_row(fields["times"], processors=processors, where=at))
    if set(fields) == {"observed"}:
        return _fit_profile(_read_observations(fields["observed"], at), processors, at)
    if "sequential" in fields and set(fields) <= _MODEL_KEYS:
        numbers = {key: value for key, value in fields.items() if key != "overhead"}
        for key, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{key} is {value!r}, expected a number", where=at)
        cores = fields.get("cores_per_processor", CORES_PER_PROCESSOR)
        if not 1 <= cores <= MOST_PROCESSORS or cores != int(cores):
            raise InputError(
                f"cores_per_processor is {show_value(cores)}, expected a whole number of at least 1", where=at
            )
        try:
            return model_times(
                float(fields["sequential"]),
                float(fields.get("serial_fraction", 0.0)),
                str(fields.get("overhead", "none")),
                processors,
                size=float(fields.get("size", 1024.0)),
                cores_per_processor=int(cores),
            )
        except InputError as error:
            raise InputError(str(error), where=at) from error
    raise InputError(
        f"found {', '.join(sorted(fields)) or 'nothing'}, expected times, observed, or sequential with "
        f"{', '.join(sorted(_MODEL_KEYS - {'sequential'}))}",
        where=at,
    )


def _within_bounds(times: Floats, at: str) -> Floats:
    if not (times.min() >= SHORTEST and times.max() <= LONGEST):
        raise InputError(
            f"found {times.min():g} to {times.max():g} seconds, expected {SHORTEST:g} to {LONGEST:g}",
            where=at,
        )
    return times


def _read_observations(table: Any, at: str) -> list[tuple[int, float]]:
    if not isinstance(table, dict) or not table:
        raise InputError("observed: expected an object of seconds by number of processors", where=at)
    found = []
    for count, seconds in table.items():
        # Nine digits are beyond any machine, and converting thousands of them takes quadratic time.
        if not count.isdecimal() or len(count) > 9:
            raise InputError(f"observed: {count!r} is not a number of processors", where=at)
        for value in seconds if isinstance(seconds, list) else [seconds]:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"observed: {value!r} on {count} processors, expected seconds", where=at)
            found.append((int(count), float(value)))
    return found


def _fit_profile(observations: list[tuple[int, float]], processors: int, at: str) -> Floats:
    try:
        return fit_times(observations, processors)
    except InputError as error:
        raise InputError(str(error), where=at) from error


def _read_csv(text: str, where: str) -> tuple[Floats, tuple[str, ...]]:
    numbered = enumerate(csv.reader(text.splitlines()), start=1)
    lines = [(number, row) for number, row in numbered if any(map(str.strip, row))]
    if len(lines) < 2:
        raise InputError("expected a header name,1,2,... and one line for each task", where=where)
    header = [cell.strip() for cell in lines[0][1]]
    counts = [int(cell) for cell in header[1:] if cell.isdecimal() and len(cell) <= 9]
    ascending = bool(counts) and counts == sorted(set(counts))
    if len(counts) != len(header) - 1 or not ascending or not 1 <= counts[0] <= counts[-1] <= MOST_PROCESSORS:
        raise InputError(
            f"header is {show_value(','.join(header))}, expected name and ascending numbers of processors, "
            f"1 to {MOST_PROCESSORS}",
            where=f"{where}: line {lines[0][0]}",
        )
    rows: list[Floats] = []
    names: list[str] = []
    for number, row in lines[1:]:
        at = f"{where}: line {number}"
        if len(row) != len(header):
            raise InputError(f"has {len(row)} cells, expected {len(header)}", where=at)
        values = [_read_cell(cell, at) for cell in row[1:]]
        # With all counts present there is nothing to fit: the times are taken as they are.
        complete = counts == list(range(1, counts[-1] + 1)) and None not in values
        if complete:
            rows.append(np.array(check_row(values, where=at)))
        else:
            pairs = [(count, value) for count, value in zip(counts, values, strict=True) if value is not None]
            rows.append(_within_bounds(_fit_profile(pairs, counts[-1], at), at))
        names.append(row[0].strip() or str(len(names)))
    return np.array(rows), tuple(names)


def _read_cell(cell: str, at: str) -> float | None:
    if not cell.strip():
        return None
    try:
        return float(cell)
    except ValueError as error:
        raise InputError(f"found {cell.strip()!r}, expected seconds", where=at) from error


def _kind_of_value(value: object) -> str:
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), f"{value!r}")
