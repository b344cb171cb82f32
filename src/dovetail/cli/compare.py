"""``dovetail compare``: several policies, draws and loads side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import options as opt
from dovetail.errors import InputError, UnsupportedWorkload
from dovetail.files.garbage import collect_rarely
from dovetail.files.streams import print_note
from dovetail.spec.values import Bootstrap, Breakdown, Compilation, Knowledge, Overrun

if TYPE_CHECKING:
    from dovetail.model import Result


@opt.takes_options("compare")
def compare(
    file: str,
    policy: str,
    cluster: list[str] | None,
    seed: int | None,
    seeds: int | None,
    replicates: int | None,
    jitter: float | None,
    bootstrap: Bootstrap | None,
    drift: bool,
    loads: str | None,
    workers: int | None,
    live: bool,
    knowledge: Knowledge | None,
    model: str,
    history: Path | None,
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
    as_json: bool,
    report: Path | None,
    html: Path | None,
    summary: Path | None,
    verbose: bool,
    quiet: bool,
) -> int:
    """Run or simulate a workload under several policies and put them side by side."""
    collect_rarely()  # before hundreds of modules are imported
    from dovetail import api
    from dovetail.cli.output import check_targets, show_comparison, this_command
    from dovetail.comparison import compare as simulated
    from dovetail.model import State
    from dovetail.report.options import ReportOptions
    from dovetail.report.progress import Bar

    policies = _check_policies(policy)
    file = opt.or_journal(file)
    if seed is not None and seeds is not None:
        raise InputError("found --seed and --seeds, expected one of them")
    if seeds is not None and replicates is not None:
        raise InputError("found --seeds and --replicates, expected one of them")
    if drift and seeds is not None:
        raise InputError("found --drift and --seeds, expected one of them")
    check_targets(html, summary, folder=report)
    options = ReportOptions(opt.read_trim(warmup, cooldown), by or (), command=this_command())
    if html is not None and loads is not None and "," in loads:
        raise InputError(
            "found several loads, expected one; --report FOLDER makes a page for each", where="--html"
        )
    if reference is not None:
        api.policy_label(reference)  # a wrong name fails before anything runs
    common: dict[str, Any] = {
        "model": model,
        "history": history,
        "overrun": overrun,
        "on": opt.read_kinds(on),
        **opt.reader_options(cpus_per_node=cpus_per_node, fields=fields, each=each, cpus=opt.read_cpus(cpus)),
    }
    clusters = opt.read_machines(cluster, partition)
    hidden = quiet or as_json
    if live:
        if loads is not None:
            raise InputError("found --loads with --live, expected it in simulation only")
        for name, given in (("replicates", replicates), ("jitter", jitter), ("bootstrap", bootstrap)):
            if given is not None:
                raise InputError(f"found --{name} with --live, expected it in simulation only")
        if drift:
            raise InputError("found --drift with --live, expected it in simulation only")
        if len(clusters) > 1:
            raise InputError("found several clusters with --live, expected one: they are run for real")
        common |= {
            "cluster": clusters[0] if clusters else None,
            "default_walltime": opt.read_walltime(default_walltime, simulated=False),
        }
        all_seeds = [seed] if seeds is None else list(range(1, seeds + 1))
        results = _run_live(policies, all_seeds, file, common, hidden)
        options = options.with_references(_those_of(reference, results)) if reference is not None else options
    else:
        common |= {} if seed is None else {"seed": seed}
        with Bar("comparing", hidden=hidden) as bar:
            found = simulated(
                file,
                policies,
                cluster=clusters or None,
                seeds=seeds,
                replicates=replicates,
                jitter=jitter,
                bootstrap=bootstrap,
                drift=drift,
                loads=_parse_loads(loads),
                reference=reference,
                workers=workers,
                progress=bar.tell,
                default_walltime=opt.read_walltime(default_walltime, simulated=True),
                knowledge=knowledge,
                rates=rates,
                compiled=compiled,
                lenient=lenient,
                **common,
            )
        results = found.results
        options = replace(options, references=found.options.references, drift=drift)
    show_comparison(
        results, as_json=as_json, folder=report, html=html, summary=summary, options=options, verbose=verbose
    )
    ends = (State.FAILED, State.TIMEOUT, State.OUT_OF_MEMORY)
    failed = live and any(r.state in ends for result in results for r in result.records)
    return 1 if failed else 0


def _check_policies(text: str) -> list[str]:
    """Names, each checked before anything runs; raises `InputError`."""
    from dovetail import api

    names = [name.strip() for name in text.split(",")]
    labels: set[str] = set()
    for name in names:
        known = api.policy_label(name)
        if known in labels:
            raise InputError(f"found {known} twice, expected each policy once", where="--policy")
        labels.add(known)
    return names


def _parse_loads(text: str | None) -> list[float] | None:
    if text is None:
        return None
    loads: list[float] = []
    for part in text.split(","):
        try:
            load = float(part)
        except ValueError:
            load = math.nan
        if not (math.isfinite(load) and load > 0):
            raise InputError(
                f"found {part.strip()!r}, expected loads above 0 joined by commas, e.g. 0.8,0.9,1.0",
                where="--loads",
            )
        if load in loads:
            raise InputError(f"found {load:g} twice, expected each load once", where="--loads")
        loads.append(load)
    return loads


def _run_live(
    policies: Sequence[str],
    seeds: Sequence[int | None],
    file: str,
    common: Mapping[str, Any],
    hidden: bool,
) -> list[Result]:
    """Run the workload under each policy, seed by seed; results by policy, then seed."""
    from dovetail import api
    from dovetail.comparison import left_out
    from dovetail.model import State

    found: dict[tuple[str, int | None], Result] = {}
    refused: dict[str, UnsupportedWorkload] = {}
    for seed in seeds:
        for policy in policies:
            if policy in refused:
                continue
            if not hidden:
                print_note(f"running under {policy}" + ("" if seed is None else f", seed {seed}"))
            try:
                result = api.run(file, policy=policy, seed=seed, **common).result
            except UnsupportedWorkload as refusal:  # raised before anything runs
                refused[policy] = refusal
                continue
            # A cancelled job means Ctrl-C: the comparison ends, too, instead of going on to the next policy.
            if any(r.state is State.CANCELLED for r in result.records):
                raise KeyboardInterrupt
            found[policy, seed] = result
    # A policy that refused on one seed is left out on all, or means would be over different draws.
    left = left_out(policies, refused)
    return [found[policy, seed] for policy in policies if policy not in left for seed in seeds]


def _those_of(reference: str, results: Sequence[Result]) -> list[Result]:
    """The results of the reference policy, which must be one of those that were run."""
    from dovetail import api
    from dovetail.report.intervals import policy_label

    name = api.policy_label(reference)
    found = [result for result in results if policy_label(result) == name]
    if not found:
        raise InputError("with --live expected one of the policies that are compared", where="--reference")
    return found
