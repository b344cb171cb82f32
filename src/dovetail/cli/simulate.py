"""``dovetail simulate``: what would happen, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dovetail.cli import options as opt
from dovetail.files.streams import note
from dovetail.spec.values import DEFAULT_MODEL

if TYPE_CHECKING:
    from dovetail.model import Result

__all__ = ["simulate"]


def simulate(
    file: opt.Source,
    cluster: opt.Cluster = None,
    policy: opt.Policy = "history",
    seed: opt.Seed = None,
    knowledge: opt.Known = None,
    model: opt.Model = DEFAULT_MODEL,
    history: opt.HistoryFile = None,
    learn: Annotated[bool, typer.Option("--learn", help="Write what ends into the history.")] = False,
    overrun: opt.AtWalltime = opt.Overrun.kill,
    default_walltime: opt.DefaultWalltime = None,
    rates: opt.Rates = None,
    compiled: opt.Compiled = opt.Compilation.auto,
    cpus_per_node: opt.CpusPerNode = None,
    fields: opt.Fields = None,
    partition: opt.Partition = None,
    on: opt.On = None,
    each: opt.Each = None,
    cpus: opt.Cpus = None,
    lenient: opt.Lenient = False,
    by: opt.Breakdowns = None,
    warmup: opt.Warmup = None,
    cooldown: opt.Cooldown = None,
    reference: opt.Reference = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 2 if a job was rejected.")] = False,
    as_json: opt.Json = False,
    csv: opt.Csv = None,
    gantt: opt.Gantt = None,
    perfetto: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Perfetto (Chrome) trace.")
    ] = None,
    report: opt.ReportFolder = None,
    journal: opt.JournalFile = None,
    idle_watts: opt.IdleWatts = None,
    busy_watts: opt.BusyWatts = None,
    verbose: opt.Verbose = False,
    quiet: opt.Quiet = False,
) -> int:
    """Simulate a workload under a policy, on any cluster, in virtual time."""
    from dovetail import api
    from dovetail.cli.garbage import collect_rarely
    from dovetail.cli.output import (
        Asked,
        check_targets,
        note_rejected,
        show,
        this_command,
        watts_of,
        write_text,
    )
    from dovetail.report.progress import Bar

    collect_rarely()
    if history is not None and not learn and not history.exists():
        note(f"dovetail: history {history}: no such file; nothing is known from it")
    file = opt.or_journal(file)
    watts = watts_of(idle_watts, busy_watts)
    check_targets(csv, perfetto, gantt=gantt, folder=report)
    asked = Asked(opt.cut(warmup, cooldown), [name.value for name in by or ()], watts, this_command())
    if reference is not None:
        api.policy_label(reference)  # a wrong name is said before anything runs
    common: dict[str, Any] = {
        "cluster": opt.machine(cluster, partition),
        "seed": seed,
        "knowledge": None if knowledge is None else knowledge.value,
        "model": model,
        "history": history,
        "overrun": overrun.value,
        "default_walltime": opt.walltime(default_walltime, simulated=True),
        "rates": rates,
        "compiled": compiled.value,
        "lenient": lenient,
        "on": opt.kinds(on),
        **opt.reader_options(cpus_per_node=cpus_per_node, fields=fields, each=each, cpus=opt.cpus(cpus)),
    }
    other: Result | None = None
    if reference is not None:  # before the simulation itself, which may add to the history
        with Bar(f"simulating {reference}", hidden=quiet or as_json) as progress:
            other = api.simulate_result(file, policy=reference, progress=progress.wanted, **common)
    with Bar("simulating", hidden=quiet or as_json) as progress:
        found = api.simulate(
            file, policy=policy, learn=learn, journal=journal, progress=progress.wanted, **common
        )
    if perfetto is not None:
        from dovetail.report.perfetto import to_perfetto

        write_text(perfetto, to_perfetto(found.result))
    if other is not None:
        asked = asked.against([other])
    show(found, as_json=as_json, csv=csv, gantt=gantt, folder=report, asked=asked, verbose=verbose)
    return 2 if strict and note_rejected(found.result, file) else 0
