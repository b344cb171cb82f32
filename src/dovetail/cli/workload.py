"""``dovetail workload``: look at traces and job files, convert, cut and scale them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import typer

from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail.files.reading import read_bytes
from dovetail.files.sentences import file_name
from dovetail.files.writing import write_text
from dovetail.records import dataclass

if TYPE_CHECKING:
    from dovetail.model import Cluster, Workload

workload_app = opt.command_group("Look at traces and job files; convert, cut and scale them.")

SWF = (".swf", ".swf.gz")
JOBFILE = (".toml",)


@dataclass(frozen=True, slots=True)
class LoadedWorkload:
    """A workload, where it is from, and the cluster that was named, or that the log's header gives.

    ``log`` is the text of an SWF file, whose lines can be kept as they are.
    """

    spec: str
    workload: Workload
    cluster: Cluster | None
    log: bytes | None = None


def _load_with_machine(
    spec: str,
    cluster: str | None,
    lenient: bool,
    cpus_per_node: int | None,
    partitions: Sequence[str] | None = None,
) -> LoadedWorkload:
    from dovetail.workloads.load import load_workload
    from dovetail.workloads.swf import swf_cluster, swf_workload
    from dovetail.workloads.swf_arrays import parse_swf

    machine = opt.read_machine(cluster, partitions)
    if not (spec.startswith("swf:") or spec.lower().endswith(SWF)):
        options = opt.reader_options(cpus_per_node=cpus_per_node)
        found = load_workload(spec, machine, lenient=lenient, **options)
        return LoadedWorkload(spec, found, found.machine if machine is None else machine)
    path = spec.removeprefix("swf:")
    per_node = cpus_per_node or 1
    log = read_bytes(path, "SWF text")  # once: it may be a pipe
    arrays = parse_swf(log, file_name(path), lenient=lenient)
    if machine is None:
        machine = swf_cluster(arrays, per_node)
    workload = swf_workload(arrays, machine, name=path, cpus_per_node=per_node)
    return LoadedWorkload(spec, workload, machine, log)


@opt.takes_options("workload describe", workload_app)
def describe(
    file: str,
    cluster: str | None,
    lenient: bool,
    cpus_per_node: int | None,
    partition: list[str] | None,
    as_json: bool,
) -> None:
    """Jobs, span, load, sizes, run times, users. Without --cluster, an SWF log's own machine is taken."""
    from dovetail.workloads.describe import describe_workload as summary_of

    loaded = _load_with_machine(file, cluster, lenient, cpus_per_node, partition)
    found = summary_of(loaded.workload, loaded.cluster)
    if as_json:
        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        print("\n".join(_summary_lines(found)))


def _summary_lines(found: Mapping[str, Any]) -> list[str]:
    """The summary for people."""
    from dovetail.files.sentences import make_printable

    # "not defined" for one instant: a load needs a span of time.
    load = "unknown without --cluster" if found["cluster"] is None else "not defined"
    if found["load"] is not None:
        load = f"{found['load']:.4g} of the {found['resources']} of {found['cluster']}"
    lines = [
        f"workload   {make_printable(found['workload'])}",
        f"jobs       {found['jobs']}",
        f"rejected   {len(found['rejected'])}",
        f"skipped    {found['skipped']} malformed lines",
        f"span       {found['span']:.0f} s ({found['span'] / 86400:.1f} days)",
        f"load       {load}",
        "",
        f"{'':<12}{'count':>9}{'min':>12}{'median':>12}{'mean':>12}{'p95':>12}{'max':>12}",
    ]
    for name, unit in (("sizes", found["resources"]), ("runtimes", "s"), ("walltimes", "s"), ("gaps", "s")):
        row = found[name]
        cells = "".join(
            f"{'-' if row[key] is None else format(row[key], '.6g'):>12}"
            for key in ("min", "median", "mean", "p95", "max")
        )
        lines.append(f"{name:<12}{row['count']:>9}{cells} {unit}")
    lines.append("")
    for name in ("users", "groups", "queues", "apps"):
        most = ", ".join(
            f"{make_printable(who)} {jobs}" for who, jobs in list(found[name]["jobs"].items())[:5]
        )
        lines.append(f"{name:<10} {found[name]['count']}" + (f" ({most})" if most else ""))
    lines += [
        f"rejected   {count} × {make_printable(reason)}"
        for reason, count in found["rejected_reasons"].items()
    ]
    return lines


def _as_swf(loaded: LoadedWorkload, workload: Workload) -> str:
    from dovetail.workloads.swf_writer import workload_as_swf

    try:
        return workload_as_swf(workload, loaded.cluster)
    except InputError as error:
        raise InputError(str(error), where=loaded.spec) from None


def _write_workload(loaded: LoadedWorkload, workload: Workload, out: str) -> None:
    """Write by suffix; a part of an SWF log keeps its lines as they are."""
    from dovetail.workloads.jobfile_writer import dump_jobfile
    from dovetail.workloads.swf_writer import edited_swf

    if out.lower().endswith(SWF):
        # Its own lines, where there are any: comments and unknown fields of a log survive.
        if loaded.log is not None:
            write_text(out, edited_swf(loaded.log, workload))
        else:
            write_text(out, _as_swf(loaded, workload))
    elif out.lower().endswith(JOBFILE):
        write_text(out, dump_jobfile(replace(workload, machine=loaded.cluster)))
    else:
        raise InputError(
            f"found {Path(out).name!r}, expected a name that ends in .swf, .swf.gz or .toml", where="OUT"
        )
    # To standard error, since OUT may be /dev/stdout.
    left_out = len(loaded.workload.rejected)
    notes = f", {left_out} rejected jobs left out" if left_out else ""
    notes += f", {workload.skipped} malformed lines skipped" if workload.skipped else ""
    typer.echo(f"{out}: {len(workload.jobs)} jobs{notes}", err=True)


@opt.takes_options("workload convert", workload_app)
def convert(file: str, out: str, cluster: str | None, lenient: bool, cpus_per_node: int | None) -> None:
    """Write a workload in another format, which the suffix of OUT names."""
    loaded = _load_with_machine(file, cluster, lenient, cpus_per_node)
    _write_workload(loaded, loaded.workload, out)


@opt.takes_options("workload cut", workload_app)
def cut(
    file: str,
    out: str,
    begin: float | None,
    end: float | None,
    jobs: int | None,
    cluster: str | None,
    lenient: bool,
    cpus_per_node: int | None,
) -> None:
    """Write a part of a workload, by time or number. Of an SWF log the lines stay as they are."""
    from dovetail.workloads import edit

    if begin is None and end is None and jobs is None:
        raise InputError("found neither --from, --to nor --jobs, expected at least one of them")
    loaded = _load_with_machine(file, cluster, lenient, cpus_per_node)
    _write_workload(loaded, edit.cut_workload(loaded.workload, begin=begin, end=end, jobs=jobs), out)


@opt.takes_options("workload scale", workload_app)
def scale(
    file: str, out: str, load: float, cluster: str | None, lenient: bool, cpus_per_node: int | None
) -> None:
    """Write the same jobs at another load: all gaps between submissions change by one factor."""
    from dovetail.workloads import edit

    loaded = _load_with_machine(file, cluster, lenient, cpus_per_node)
    if loaded.cluster is None:
        raise InputError("the load depends on the machine, expected --cluster")
    _write_workload(loaded, edit.scale_load(loaded.workload, load, loaded.cluster), out)


@opt.takes_options("workload export", workload_app)
def export(file: str, cluster: str | None, lenient: bool, cpus_per_node: int | None) -> None:
    """Print a workload as a job file."""
    from dovetail.workloads.jobfile_writer import dump_jobfile

    print(dump_jobfile(_load_with_machine(file, cluster, lenient, cpus_per_node).workload), end="")


@opt.takes_options("workload nodes", workload_app)
def nodes(file: str) -> None:
    """Print the node list that comes with a trace as a cluster file."""
    from dovetail.model.cluster_file import cluster_as_toml
    from dovetail.workloads.tables import read_node_list

    print(cluster_as_toml(read_node_list(file)), end="")


@opt.takes_options("workload pack-nodes", workload_app)
def pack_nodes(
    file: str, cluster: str, placement: str, demand: float | None, lenient: bool, as_json: bool
) -> None:
    """Place jobs in order, none ever leaving: how much GPU capacity ends up unusable."""
    from dovetail.engine.capacity.free import Placement
    from dovetail.model import Cluster
    from dovetail.report.fragmentation import fill_cluster
    from dovetail.workloads.load import load_workload

    rules = [rule.strip() for rule in placement.split(",")]
    for rule in rules:
        if rule not in get_args(Placement):
            raise InputError(
                f"found {rule!r}, expected some of {', '.join(get_args(Placement))}", where="--placement"
            )
    machine = Cluster.parse(cluster)
    workload = load_workload(file, machine, lenient=lenient)
    found = [fill_cluster(workload, machine, cast(Placement, rule), demand=demand) for rule in rules]
    if as_json:
        print(json.dumps([asdict(packing) for packing in found], indent=1, allow_nan=False))
        return
    print(f"{workload.name}: {found[0].jobs} jobs request {found[0].asked:g} of {found[0].gpus} GPUs\n")
    print(f"{'':<10}{'placed':>9}{'in use':>10}{'free':>10}{'unusable':>12}{'lost':>10}  first refused at")
    for packing in found:
        rest = packing.waste
        first = packing.first_refused
        cells = f"{packing.placed:>9}{packing.held:>10.1f}{rest.free:>10.1f}"
        cells += f"{rest.fragments / packing.gpus:>12.1%}{rest.lost / packing.gpus:>10.1%}"
        print(f"{packing.placement:<10}{cells}  {'-' if first is None else f'{first / packing.gpus:.1%}'}")
    print(
        "\nIn GPUs and shares of all GPUs. Unusable: free, but not for the typical job of this workload"
        "\n(Weng 2023); lost: free, but for no job of it."
    )
