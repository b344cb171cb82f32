"""``dovetail compare``: several policies, seeds and workloads side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from dovetail import api
from dovetail.cli import options as opt
from dovetail.cli.output import note, show_comparison
from dovetail.errors import InputError
from dovetail.model import Result, State
from dovetail.plugins import load_policy
from dovetail.report import Comparison
from dovetail.runtimes.registry import DEFAULT_MODEL

__all__ = ["compare"]

Task = tuple[str, dict[str, Any]]


def compare(
    file: Annotated[
        str, typer.Argument(metavar="FILE|published:NAME", help="Job file, trace or published workload.")
    ],
    policy: Annotated[
        str, typer.Option(metavar="A,B,…", help="Policies, joined by commas.")
    ] = "history,best-device",
    cluster: opt.Cluster = None,
    seed: opt.Seed = None,
    seeds: Annotated[int | None, typer.Option(min=1, metavar="N", help="Seeds 1 to N.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = min(2, os.cpu_count() or 1),
    live: Annotated[bool, typer.Option("--live", help="Really run, one policy after the other.")] = False,
    knowledge: Annotated[opt.Knowledge | None, typer.Option(help="What policies know of run times.")] = None,
    model: opt.Model = DEFAULT_MODEL,
    history: opt.HistoryFile = None,
    overrun: Annotated[
        opt.Overrun, typer.Option(help="At its walltime a job is killed, or runs on.")
    ] = opt.Overrun.kill,
    default_walltime: opt.DefaultWalltime = None,
    rates: Annotated[str | None, typer.Option(metavar="NAME", help="Rate model of sharing.")] = None,
    cpus_per_node: Annotated[
        int | None, typer.Option(min=1, help="Of a trace that counts processors.")
    ] = None,
    on: opt.On = None,
    lenient: opt.Lenient = False,
    as_json: opt.Json = False,
    report: opt.ReportFolder = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one HTML page.")] = None,
    quiet: opt.Quiet = False,
) -> int:
    """Run or simulate a workload under several policies and put them side by side."""
    policies = [name.strip() for name in policy.split(",")]
    for name in policies:
        load_policy(name)  # a wrong name is said before anything runs
    if seed is not None and seeds is not None:
        raise InputError("found --seed and --seeds, expected one of them")
    all_seeds: list[int | None] = [seed] if seeds is None else list(range(1, seeds + 1))
    common: dict[str, Any] = {
        "cluster": cluster,
        "model": model,
        "history": history,
        "overrun": overrun.value,
        "on": opt.kinds(on),
        **opt.reader_options(cpus_per_node=cpus_per_node),
    }
    hidden = quiet or as_json
    if live:
        common["default_walltime"] = opt.walltime(default_walltime, simulated=False)
        tasks = [(file, {**common, "policy": p, "seed": s}) for s in all_seeds for p in policies]
        results = list(_live(tasks, hidden))
        order = {p: i for i, p in enumerate(policies)}
        results.sort(key=lambda r: order.get(r.policy, 0))
    else:
        common |= {
            "default_walltime": opt.walltime(default_walltime, simulated=True),
            "knowledge": None if knowledge is None else knowledge.value,
            "rates": rates,
            "lenient": lenient,
        }
        tasks = [(file, {**common, "policy": p, "seed": s}) for p in policies for s in all_seeds]
        results = _simulated(tasks, workers, hidden)
    show_comparison(Comparison(results), as_json=as_json, folder=report, html=html)
    failed = live and any(
        r.state in (State.FAILED, State.TIMEOUT) for result in results for r in result.records
    )
    return 1 if failed else 0


def _simulate(task: Task) -> Result:
    return api.simulate_result(task[0], **task[1])


@contextmanager
def _bar(total: int, hidden: bool) -> Iterator[Any]:
    console = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = not hidden and console.is_terminal and total > 1
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("comparing", total=total)
        yield lambda: progress.advance(task)


def _simulated(tasks: list[Task], workers: int, hidden: bool) -> list[Result]:
    with _bar(len(tasks), hidden) as advance:
        if workers == 1 or len(tasks) == 1:
            results = []
            for task in tasks:
                results.append(_simulate(task))
                advance()
            return results
        found: dict[int, Result] = {}
        with ProcessPoolExecutor(min(workers, len(tasks)), mp_context=get_context("forkserver")) as pool:
            futures = {pool.submit(_simulate, task): i for i, task in enumerate(tasks)}
            try:
                for future in as_completed(futures):
                    found[futures[future]] = future.result()
                    advance()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [found[i] for i in range(len(tasks))]


def _live(tasks: list[Task], hidden: bool) -> Iterator[Result]:
    for file, options in tasks:
        if not hidden:
            seed = "" if options["seed"] is None else f", seed {options['seed']}"
            note(f"running under {options['policy']}{seed}")
        report = api.run(file, **options)
        yield report.result
        if any(r.state is State.CANCELLED for r in report.result.records):
            raise KeyboardInterrupt
