"""``dovetail simulate``: what would happen, in virtual time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dovetail.cli import options as opt
from dovetail.errors import UnsupportedWorkload
from dovetail.files.garbage import collect_rarely
from dovetail.files.streams import print_note
from dovetail.spec.values import Breakdown, Compilation, Knowledge, Overrun


@opt.takes_options("simulate")
def simulate(
    file: str,
    cluster: str | None,
    policy: str | None,
    seed: int | None,
    knowledge: Knowledge | None,
    model: str,
    history: Path | None,
    learn: bool,
    overrun: Overrun,
    default_walltime: str | None,
    rates: str | None,
    compiled: Compilation,
    cpus_per_node: int | None,
    fields: int | None,
    partition: list[str] | None,
    on: str | None,
    each: list[str] | None,
    cpus: str | None,
    lenient: bool,
    by: list[Breakdown] | None,
    warmup: str | None,
    cooldown: str | None,
    reference: str | None,
    strict: bool,
    as_json: bool,
    csv: Path | None,
    gantt: Path | None,
    perfetto: Path | None,
    report: Path | None,
    journal: Path | None,
    idle_watts: float | None,
    busy_watts: float | None,
    verbose: bool,
    quiet: bool,
) -> int:
    """Simulate a workload under a policy, on any cluster, in virtual time."""
    collect_rarely()  # before hundreds of modules are imported
    from dovetail import api
    from dovetail.cli.output import check_targets, note_rejected, show_report, this_command, watts_of
    from dovetail.report.options import ReportOptions
    from dovetail.report.progress import Bar

    if history is not None and not learn and not history.exists():
        print_note(f"dovetail: history {history}: no such file; nothing is known from it")
    file = opt.or_journal(file)
    watts = watts_of(idle_watts, busy_watts)
    check_targets(csv, perfetto, gantt=gantt, folder=report)
    options = ReportOptions(opt.read_trim(warmup, cooldown), by or (), watts, this_command())
    if reference is not None:
        api.policy_label(reference)  # a wrong name fails before anything runs
    simulated = partial(
        api.simulate,
        file,
        cluster=opt.read_machine(cluster, partition),
        seed=seed,
        knowledge=knowledge,
        model=model,
        history=history,
        overrun=overrun,
        default_walltime=opt.read_walltime(default_walltime, simulated=True) or "actual",
        rates=rates,
        compiled=compiled,
        lenient=lenient,
        on=opt.read_kinds(on),
        **opt.reader_options(cpus_per_node=cpus_per_node, fields=fields, each=each, cpus=opt.read_cpus(cpus)),
    )
    if reference is not None:  # before the simulation itself, which may add to the history
        with Bar(f"simulating {reference}", hidden=quiet or as_json) as progress:
            other = simulated(policy=reference, progress=progress.progress_callback).result
        options = options.with_references([other])
    with Bar("simulating", hidden=quiet or as_json) as progress:
        run = partial(simulated, learn=learn, journal=journal, progress=progress.progress_callback)
        try:
            found = run(policy=policy)
        except UnsupportedWorkload as error:
            if policy is not None or api.DEFAULT_POLICY not in str(error):
                raise
            print_note(f"{error}: simulated under {api.FOR_GANGS}; --policy chooses another")
            found = run(policy=api.FOR_GANGS)
    if perfetto is not None:
        from dovetail.files.writing import write_text
        from dovetail.report.perfetto import to_perfetto

        write_text(perfetto, to_perfetto(found.result))
    show_report(found, as_json=as_json, csv=csv, gantt=gantt, folder=report, options=options, verbose=verbose)
    return 2 if strict and note_rejected(found.result, file) else 0
