"""Loading a workload, whatever form it has.

    published:NAME?option=value    a workload of one of the papers
    synthetic:KIND?option=value    a workload drawn from a model
    FORMAT:PATH                    a file in that format, whatever its name
    *.toml                         a job file
    *.swf, *.swf.gz, …             a trace whose suffix names its format
    any other text                 commands, one a line; accounting where its first line is sacct's header

Formats are those of `TRACES`, and the entry points ``dovetail.workloads``: each names a `WorkloadReader`.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import InputError
from dovetail.model import Cluster, Workload
from dovetail.model.files import closest, file_name, shown
from dovetail.workloads.commands import load_commands
from dovetail.workloads.jobfile import load_jobfile
from dovetail.workloads.order import shuffled
from dovetail.workloads.published import load_published, takes_seed
from dovetail.workloads.slurm_accounting import is_sacct
from dovetail.workloads.synthetic import synthesize

__all__ = ["TRACES", "formats", "load_workload"]

Reader = Callable[..., Workload]

TRACES: Mapping[str, str] = {
    "swf": "dovetail.workloads.swf:read_swf",
    "aaic": "dovetail.workloads.aaic:read_aaic",
    "philly": "dovetail.workloads.philly:read_philly",
    "openb": "dovetail.workloads.openb:read_openb",
    "eagle": "dovetail.workloads.eagle:read_eagle",
    "sacct": "dovetail.workloads.slurm_accounting:read_sacct",
    "csv": "dovetail.workloads.tables:read_table",
    "json": "dovetail.workloads.slurm_accounting:read_sacct_json",
}
"""Formats of traces and their readers, imported when they are first used."""

_COMPRESSED = (".gz", ".xz", ".bz2", ".zst")
_LISTS = ("", ".txt", ".list", ".lst", ".cmd", ".cmds", ".commands", ".sh")


def load_workload(
    spec: str | os.PathLike[str] | Workload,
    cluster: Cluster | str | None = None,
    *,
    on: Sequence[str] = (),
    lenient: bool = False,
    seed: int | None = None,
    app: str | None = None,
    drop: Sequence[str] = (),
    add: Sequence[str] = (),
    **options: Any,
) -> Workload:
    """The workload of a file, or of a name such as ``published:gregg-table2``.

    ``on`` are the kinds of device for commands; ``app``, ``drop`` and ``add`` change what commands are
    taken for. ``lenient`` skips and counts malformed lines of traces. ``options`` go to the reader of a
    trace (``cpus_per_node=4``); ``None`` leaves its default. With a ``seed``, a published or synthetic
    workload that is drawn at random is drawn with it, and in any other the jobs that are submitted
    together are shuffled; without one, nothing is. Raises `InputError`.
    """
    if isinstance(cluster, str):
        cluster = Cluster.parse(cluster)
    options = {key: value for key, value in options.items() if value is not None}
    if isinstance(spec, Workload):
        workload = spec
    elif os.fspath(spec).startswith("published:"):
        text = os.fspath(spec)
        _no_options("a published workload", options, text)
        workload = load_published(text, seed=seed)
        if takes_seed(text):
            return workload
    elif os.fspath(spec).startswith("synthetic:"):
        _no_options("a synthetic workload", options, os.fspath(spec))
        return synthesize(os.fspath(spec), cluster, seed=seed)
    else:
        workload = _from_file(
            os.fspath(spec), cluster, options, on=on, lenient=lenient, app=app, drop=drop, add=add
        )
    if seed is None:
        return workload
    return shuffled(workload, np.random.Generator(np.random.PCG64(seed)))


def formats() -> list[str]:
    """Names of all trace formats, those of plugins included."""
    return sorted({*TRACES, *_plugins()})


def _plugins() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="dovetail.workloads")}


def _reader(name: str) -> Reader:
    entry = _plugins().get(name)
    if entry is not None:
        found: Reader = entry.load()
        return found
    module, _, function = TRACES[name].partition(":")
    reader: Reader = getattr(importlib.import_module(module), function)
    return reader


def _from_file(
    spec: str,
    cluster: Cluster | None,
    options: Mapping[str, Any],
    *,
    on: Sequence[str],
    lenient: bool,
    app: str | None,
    drop: Sequence[str],
    add: Sequence[str],
) -> Workload:
    known = formats()
    prefix, colon, rest = spec.partition(":")
    if colon and prefix in known:
        return _trace(prefix, rest, cluster, lenient, options)
    suffix = _suffix(spec)
    if suffix == ".toml":
        _no_options("a job file", options, spec)
        return load_jobfile(spec)
    if suffix[1:] in known:
        return _trace(suffix[1:], spec, cluster, lenient, options)
    if colon and not os.path.exists(spec) and prefix.isidentifier():
        choices = ["published", "synthetic", *known]
        raise InputError(
            f"found the unknown format {prefix!r}{closest(prefix, choices)}", where=file_name(spec)
        )
    if suffix not in _LISTS and not (on and os.path.exists(spec)):
        raise InputError(
            f"found a file name that ends in {shown(suffix)}, expected .toml (a job file), .txt (commands), "
            f"published:NAME, or FORMAT:PATH with one of {', '.join(known)}",
            where=file_name(spec),
        )
    if not on and is_sacct(spec):
        return _trace("sacct", spec, cluster, lenient, options)
    _no_options("a list of commands", options, spec)
    return load_commands(spec, on=on, app=app, drop=drop, add=add)


def _trace(
    name: str, path: str, cluster: Cluster | None, lenient: bool, options: Mapping[str, Any]
) -> Workload:
    reader = _reader(name)
    known = inspect.signature(reader).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
    for key in options:
        if key not in known and not takes_any:
            raise InputError(f"found the option {key!r}, which the format {name} does not take", where=path)
    return reader(path, cluster, lenient=lenient, **options)


def _suffix(spec: str) -> str:
    path = Path(spec)
    return (Path(path.stem).suffix if path.suffix.lower() in _COMPRESSED else path.suffix).lower()


def _no_options(what: str, options: Mapping[str, Any], where: str) -> None:
    if options:
        raise InputError(
            f"found the option {next(iter(options))!r}, which {what} does not take", where=file_name(where)
        )
