"""Profiles of moldable tasks from what Dovetail measured: runs of an app on 1, 2, 4 ... processors."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from dovetail.cli.history import inputs_words, matching_groups
from dovetail.errors import InputError
from dovetail.history import Aggregate, SqliteHistory
from dovetail.model import CPU, WHOLE_POOL
from dovetail_lab.packing.files import Instance
from dovetail_lab.packing.profiles import describe_repairs, fit_times, repair_times


def instance_from_history(
    history: SqliteHistory,
    apps: Sequence[str],
    *,
    processors: int | None = None,
    width: Literal["cores", "nodes"] | None = None,
    device: str | None = None,
) -> tuple[Instance, tuple[str, ...]]:
    """One task for every app and inputs that have completed on CPUs; and remarks for a person.

    A run's width is its nodes times its CPUs on each, or its nodes (``width``; by default nodes where
    every run had whole nodes, whose cores the history does not count). The times on one width are
    averaged over implementations, each run counting once; between and beyond the widths a profile is
    fitted (``profiles.fit_times``) and repaired. Without ``processors``: the widest run's.

    Raises ``InputError`` where an app has no completed run on CPUs, has run on several classes of them,
    or gives its width in whole nodes only while others count cores.
    """
    if processors is not None and processors < 1:
        raise InputError(f"found {processors}, expected at least 1", where="--processors")
    names = list(dict.fromkeys(apps)) or sorted(
        {group.app for group in history.list_groups() if group.device_class.kind == CPU}
    )
    if not names:
        raise InputError("found no run on CPUs, expected some to fit profiles from", where=str(history.path))
    runs = [aggregate for app in names for aggregate in _completed_averages(history, app, device)]
    whole = [a.request[1] == WHOLE_POOL for a in runs]
    width = width or ("nodes" if all(whole) else "cores")
    if width == "cores" and any(whole):
        app = runs[whole.index(True)].app
        raise InputError(
            f"runs of app {app!r} had all CPUs of their nodes, which the history does not count; "
            "expected --width nodes, or runs that request a number of CPUs",
            where=str(history.path),
        )
    observed: dict[tuple[str, str], dict[int, tuple[float, int]]] = {}
    for a in runs:
        count = a.request[0] * (1 if width == "nodes" else a.request[1])
        by_width = observed.setdefault((a.app, inputs_words(dict(a.inputs))), {})
        seconds, seen = by_width.get(count, (0.0, 0))
        by_width[count] = (seconds + a.mean * a.count, seen + a.count)
    processors = processors or max(count for by_width in observed.values() for count in by_width)
    return _fit_tasks(observed, processors, str(history.path))


def write_profile(path: Path, instance: Instance) -> None:
    """Write an instance in the form that ``dovetail pack FILE`` reads: JSON, or CSV by its suffix."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            if path.suffix.lower() == ".csv":
                writer = csv.writer(file)
                writer.writerow(["name", *range(1, instance.processors + 1)])
                for name, row in zip(instance.names, instance.times.tolist(), strict=True):
                    writer.writerow([name, *row])
                return
            form = {"processors": instance.processors, "names": list(instance.names)}
            json.dump(form | {"times": instance.times.tolist()}, file, indent=1)
            file.write("\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def _completed_averages(history: SqliteHistory, app: str, device: str | None) -> list[Aggregate]:
    """The averages of an app's completed runs on one class of CPUs."""
    groups = [
        group for group in matching_groups(history, app, device, None) if group.device_class.kind == CPU
    ]
    classes = sorted({group.device_class for group in groups if group.completed})
    if not classes:
        raise InputError(
            f"found no completed run of app {app!r} on CPUs, expected at least one", where=str(history.path)
        )
    if len(classes) > 1:
        raise InputError(
            f"app {app!r} has run on {', '.join(map(str, classes))}; expected --device with one of them",
            where=str(history.path),
        )
    implementations = dict.fromkeys(group.implementation for group in groups)
    return [
        aggregate
        for implementation in implementations
        for aggregate in history.list_aggregates(app, implementation, classes[0])
        if aggregate.count
    ]


def _fit_tasks(
    observed: dict[tuple[str, str], dict[int, tuple[float, int]]], processors: int, where: str
) -> tuple[Instance, tuple[str, ...]]:
    rows, names, single = [], [], []
    for (app, inputs), by_width in sorted(observed.items()):
        name = app if inputs == "-" else f"{app} {inputs}"
        pairs = [(count, total / seen) for count, (total, seen) in sorted(by_width.items())]
        try:
            rows.append(fit_times(pairs, processors))
        except InputError as error:
            raise InputError(f"{name}: {error}", where=where) from error
        names.append(name)
        if len(pairs) == 1 and processors > 1:
            single.append(f"{name} ({pairs[0][0]})")
    times, repairs = repair_times(np.array(rows))
    notes: tuple[str, ...] = ()
    if single:
        shown = ", ".join(single[:5]) + (f" and {len(single) - 5} more" if len(single) > 5 else "")
        notes = (f"measured on one number of processors only, taken not to gain from more: {shown}",)
    return Instance(times, tuple(names), describe_repairs(repairs, names)), notes
