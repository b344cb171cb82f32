"""Loading a workload, whatever form it has.

    published:NAME?option=value    a workload of one of the papers
    synthetic:KIND?option=value    a workload drawn from a model
    FORMAT:PATH                    a file in that format, whatever its name
    *.toml                         a job file
    *.swf, *.swf.gz, …             a trace whose suffix names its format
    any other text                 commands, one a line; accounting where its first line is sacct's header

Formats are the entry points of ``dovetail.workloads``: each names a `WorkloadReader`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dovetail.errors import InputError
from dovetail.files.arrays import np
from dovetail.files.sentences import file_name, show_value, suggest_closest
from dovetail.files.streams import STDIN
from dovetail.model import Cluster, Workload
from dovetail.plugins import is_usual, load_named, registered_entries
from dovetail.spec.jobs import PartialSpec
from dovetail.workloads.partitions import warn_of_unmapped

if TYPE_CHECKING:  # a trace waits for no reader of commands
    from dovetail.workloads.commands import Cpus

Reader = Callable[..., Workload]

_PARTITIONED = ("sacct", "json")
"""Formats in which a job's queue is a partition of nodes."""
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
    each: Sequence[str] = (),
    cpus: Cpus = None,
    part: Mapping[str, Any] | None = None,
    **options: Any,
) -> Workload:
    """The workload of a file, of standard input (``-``), or of a name such as ``published:gregg-table2``.

    ``on`` are the kinds of device for commands, ``cpus`` the CPUs that each requests; ``app``, ``drop`` and
    ``add`` change what commands are taken for; ``each`` repeats them over values (``NAME=VALUES``, see
    `load_commands`). ``part`` of a `JobSpec` is laid over each job of a job file or a list. ``lenient``
    skips and counts malformed lines of traces. ``options`` go to the reader of a trace
    (``cpus_per_node=4``); ``None`` leaves its default. With a ``seed``, a published or synthetic workload
    that is drawn at random is drawn with it, and in any other the jobs that are submitted together are
    shuffled; without one, nothing is. Raises `InputError`.
    """
    if isinstance(cluster, str):
        cluster = Cluster.parse(cluster)
    options = {key: value for key, value in options.items() if value is not None}
    if isinstance(spec, Workload):
        _no_options("a workload", part or {}, spec.name)
        workload = spec
    elif os.fspath(spec).startswith("published:"):
        from dovetail.workloads.published import load_published, takes_seed

        text = os.fspath(spec)
        _no_options("a published workload", {**options, **(part or {})}, text)
        workload = load_published(text, seed=seed)
        if takes_seed(text):
            return workload
    elif os.fspath(spec).startswith("synthetic:"):
        # A list of commands waits for neither.
        from dovetail.workloads.synthetic import synthesize_workload

        _no_options("a synthetic workload", {**options, **(part or {})}, os.fspath(spec))
        return synthesize_workload(os.fspath(spec), cluster, seed=seed)
    else:
        commands = {"on": on, "app": app, "drop": drop, "add": add, "each": each, "cpus": cpus}
        workload = _from_file(os.fspath(spec), cluster, options, commands, part or {}, lenient=lenient)
    if seed is None:
        return workload
    from dovetail.workloads.edit import shuffle_together

    return shuffle_together(workload, np.random.Generator(np.random.PCG64(seed)))


def read_parts(
    path: str, part: Mapping[str, Any], **options: Any
) -> tuple[list[dict[str, Any]], list[PartialSpec]]:
    """(apps, jobs) of a job file or of a list of commands, for a service: jobs as parts of a `JobSpec`.

    ``part`` is laid over each, ``options`` are those of `CommandOptions`. Raises `InputError`.
    """
    if path != STDIN and _file_suffix(path) == ".toml":
        from dovetail.workloads.jobfile import jobfile_parts

        return jobfile_parts(path, part)
    if path != STDIN and (is_trace(path) or path.startswith(("published:", "synthetic:"))):
        raise InputError("found a trace, expected a job file or a list of commands", where=file_name(path))
    _check_list_name(path, bool(options.get("on")))
    from dovetail.workloads.commands import list_parts

    return [], list_parts(path, part, **options)


def _check_list_name(path: str, on: bool) -> None:
    """Refuse what is no list of commands by its name; ``on``: kinds of devices make it one. `InputError`."""
    suffix = "" if path == STDIN else _file_suffix(path)
    if suffix not in _LISTS and not (on and os.path.exists(path)):
        raise InputError(
            f"found a file name that ends in {show_value(suffix)}, expected .toml (a job file), "
            f".txt (commands), "
            f"published:NAME, or FORMAT:PATH with one of {', '.join(trace_formats())}",
            where=file_name(path),
        )


def is_trace(spec: object) -> bool:
    """Whether what is named so would be read by one of the readers of traces."""
    if not isinstance(spec, str | os.PathLike):
        return False
    text = os.fspath(spec)
    prefix, colon, _ = text.partition(":")
    return (
        bool(colon and _is_format(prefix))
        or _is_format(_file_suffix(text)[1:])
        or (_file_suffix(text) in _LISTS and _is_accounting(text))
    )


def trace_formats() -> list[str]:
    """Names of all trace formats, those of plugins included."""
    return list(registered_entries("dovetail.workloads"))


def _is_format(name: str) -> bool:
    # The most frequent first: to look up all that is installed takes 15 to 50 ms.
    return is_usual("dovetail.workloads", name) or name in trace_formats()


def _from_file(
    spec: str,
    cluster: Cluster | None,
    options: Mapping[str, Any],
    commands: Mapping[str, Any],
    part: Mapping[str, Any],
    *,
    lenient: bool,
) -> Workload:
    of_lists = {name: commands[name] for name in ("each", "cpus") if commands[name]}  # they mean nothing else
    of_jobs = {**of_lists, **part}
    prefix, colon, rest = spec.partition(":")
    suffix = "" if spec == STDIN else _file_suffix(spec)
    if colon and _is_format(prefix):
        _no_options("a trace", of_jobs, spec)
        return _read_trace(prefix, rest, cluster, lenient, options)
    if suffix == ".toml":
        _no_options("a job file", {**options, **of_lists}, spec)
        from dovetail.workloads.jobfile import load_jobfile  # and pydantic

        return load_jobfile(spec, part)
    if _is_format(suffix[1:]):
        _no_options("a trace", of_jobs, spec)
        return _read_trace(suffix[1:], spec, cluster, lenient, options)
    if colon and not os.path.exists(spec) and prefix.isidentifier():
        choices = ["published", "synthetic", *trace_formats()]
        raise InputError(
            f"found the unknown format {prefix!r}{suggest_closest(prefix, choices)}", where=file_name(spec)
        )
    _check_list_name(spec, bool(commands["on"]))
    # A pipe can be read once: accounting from one must be named sacct:PATH, and is refused otherwise.
    if not commands["on"] and _is_accounting(spec):
        _no_options("a trace", of_jobs, spec)
        return _read_trace("sacct", spec, cluster, lenient, options)
    _no_options("a list of commands", options, spec)
    from dovetail.workloads.commands import load_commands

    return load_commands(spec, part, **commands)


def _read_trace(
    name: str, path: str, cluster: Cluster | None, lenient: bool, options: Mapping[str, Any]
) -> Workload:
    reader = cast(Reader, load_named("dovetail.workloads", name, "trace format"))
    known = inspect.signature(reader).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
    for key in options:
        if key not in known and not takes_any:
            raise InputError(f"found the option {key!r}, which the format {name} does not take", where=path)
    workload = reader(path, cluster, lenient=lenient, **options)
    if workload.skipped and not workload.jobs and not workload.rejected:
        found = f"found no well-formed line among {workload.skipped:,}, expected at least one"
        raise InputError(found, where=file_name(path))
    if name in _PARTITIONED:
        warn_of_unmapped(file_name(path), (job.queue for job in workload.jobs), cluster)
    return workload


def _is_accounting(path: str) -> bool:
    # A command alone needs no reader of traces.
    from dovetail.workloads.slurm_accounting import is_sacct

    return os.path.isfile(path) and is_sacct(path)


def _file_suffix(spec: str) -> str:
    path = Path(spec)
    return (Path(path.stem).suffix if path.suffix.lower() in _COMPRESSED else path.suffix).lower()


def _no_options(what: str, options: Mapping[str, Any], where: str) -> None:
    if options:
        raise InputError(
            f"found the option {next(iter(options))!r}, which {what} does not take", where=file_name(where)
        )
