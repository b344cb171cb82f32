"""``dovetail pack``: partition moldable tasks into packs, and show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail.files.streams import print_note

if TYPE_CHECKING:  # numba and scipy load when the command runs, not when the help is shown
    from dovetail.report.energy import Watts
    from dovetail_lab.packing.files import Instance
    from dovetail_lab.packing.registry import Options, Solution

COMPARE_SECONDS = 5.0  # for each algorithm of --compare, where --time-limit sets no other time
MOST_ROWS = 64  # processors that are drawn in the terminal


class Range(StrEnum):
    """Where random-proc draws processors from."""

    share = "share"
    full = "full"


class Width(StrEnum):
    """What a processor of the packs is, in runs of a history."""

    cores = "cores"
    nodes = "nodes"


class Formulation(StrEnum):
    """The integer program of ``ilp``."""

    strong = "strong"
    printed = "printed"


def pack(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Times by task: JSON or CSV; or --history.")
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="Most tasks in a pack; default: p.")] = None,
    algorithm: Annotated[str, typer.Option(metavar="NAME", help="See docs/reference/pack.md.")] = "auto",
    as_json: opt.Json = False,
    compare: Annotated[bool, typer.Option(help="Run all algorithms.")] = False,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0)] = 1,
    time_limit: Annotated[
        float | None, opt.duration_option("--time-limit", help="Wall time of the algorithm.")
    ] = None,
    draw: Annotated[
        Range, typer.Option("--range", help="random-proc: 1..floor(p/k) (share) or 1..p (full).")
    ] = Range.share,
    formulation: Annotated[
        Formulation, typer.Option(help="ilp: Theorem 4 made strong, or as printed.")
    ] = Formulation.strong,
    idle_watts: opt.IdleWatts = None,
    busy_watts: opt.BusyWatts = None,
    history: Annotated[
        Path | None, typer.Option(metavar="DB", help="Fit the times to runs in this history database.")
    ] = None,
    apps: Annotated[
        str | None, typer.Option(metavar="A,B", help="With --history: only these apps; default: all.")
    ] = None,
    processors: Annotated[
        int | None, typer.Option(metavar="P", help="With --history: default: the widest run's.")
    ] = None,
    width: Annotated[Width | None, typer.Option(help="With --history: what counts as a processor.")] = None,
    device: Annotated[
        str | None, typer.Option(metavar="CLASS", help="With --history: which class of CPUs.")
    ] = None,
    write_profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the times to a JSON or CSV file.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the schedule to an SVG or PNG file.")
    ] = None,
) -> None:
    """Partition moldable tasks into packs that run one after the other, so that they end soonest."""
    from dovetail.cli.output import watts_of
    from dovetail_lab.packing.registry import Options, solve

    watts = watts_of(idle_watts, busy_watts)
    # Before anything is solved, which may take minutes.
    if picture is not None and picture.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"found {str(picture)!r}, expected a file .svg or .png", where="--picture")
    if write_profile is not None and write_profile.suffix.lower() not in (".json", ".csv"):
        raise InputError(
            f"found {str(write_profile)!r}, expected a file .json or .csv", where="--write-profile"
        )
    only_history = {
        "--apps": apps,
        "--processors": processors,
        "--width": None if width is None else width.value,
        "--device": device,
    }
    instance, remarks = _read_instance(file, history, only_history)
    if write_profile is not None:
        from dovetail_lab.commands.pack_history import write_profile as write

        write(write_profile, instance)
    # Without a limit a pack may hold as many tasks as there are processors.
    k = instance.processors if k is None else k
    options = Options(
        seed=seed,
        time_limit=time_limit,
        full_range=draw is Range.full,
        literal=formulation is Formulation.printed,
    )
    if compare:
        _compare_algorithms(instance, k, options, as_json=as_json, watts=watts)
        _warn_remarks(file or history, remarks)
        return
    solution = solve(instance.times, k, algorithm, options)
    _warn_remarks(file or history, remarks)
    if picture is not None:
        from dovetail_lab.packing.picture import save_picture

        save_picture(
            picture, solution.schedule, instance.processors, instance.names, _solution_title(solution)
        )
    if as_json:
        print(json.dumps(to_json(solution, instance, watts), indent=1))
        return
    _show_solution(solution, instance, watts)


def _warn_remarks(source: Path | None, remarks: Sequence[str]) -> None:
    for remark in remarks:
        print_note(f"dovetail: warning: {source}: {remark}")


def _read_instance(
    file: Path | None, history: Path | None, only_history: dict[str, Any]
) -> tuple[Instance, tuple[str, ...]]:
    """The tasks, from the file or the history, and what a person should know of them."""
    notes: tuple[str, ...] = ()
    if (file is None) == (history is None):
        found = "neither a file of times nor --history" if file is None else f"both {file} and --history"
        raise InputError(f"found {found}, expected one of them")
    if file is not None:
        if given := [name for name, value in only_history.items() if value is not None]:
            raise InputError(f"{given[0]} goes with --history, not with a file of times")
        from dovetail_lab.packing.files import read_instance

        instance = read_instance(file)
    else:
        from dovetail.history import SqliteHistory
        from dovetail_lab.commands.pack_history import instance_from_history

        named = only_history["--apps"]
        apps = [] if named is None else [app.strip() for app in named.split(",")]
        with SqliteHistory(history, must_exist=True) as store:
            instance, notes = instance_from_history(
                store,
                apps,
                processors=only_history["--processors"],
                width=only_history["--width"],
                device=only_history["--device"],
            )
    return instance, notes if instance.warning is None else (*notes, instance.warning)


def to_json(solution: Solution, instance: Instance, watts: Watts | None) -> dict[str, Any]:
    """The JSON form of one solution (docs/reference/pack.md)."""
    from dovetail_lab.packing.schedule import Packing

    metrics = solution.metrics
    found: dict[str, Any] = {
        "algorithm": solution.algorithm,
        "k": solution.k,
        "processors": solution.processors,
        "cost": metrics.cost,
    }
    if isinstance(solution.schedule, Packing):
        found["packs"] = [
            [{"task": entry.task, "processors": entry.processors, "time": entry.time} for entry in members]
            for members in solution.schedule.packs
        ]
    else:
        found["schedule"] = [
            {"task": entry.task, "processors": entry.processors, "time": entry.time, "start": entry.start}
            for entry in solution.schedule.tasks
        ]
    return found | {
        "relative_cost": metrics.relative_cost,
        "packing_ratio": metrics.packing_ratio,
        "relative_response_time": metrics.relative_response_time,
        "lower_bound": solution.lower_bound,
        "gap": solution.gap,
        "proven_optimal": solution.proven_optimal,
        "seconds": solution.seconds,
        "busy_processor_seconds": metrics.busy,
        "idle_processor_seconds": metrics.idle,
        "energy": None if watts is None else metrics.energy_joules(watts.idle, watts.busy),
        "names": list(instance.names),
        "repaired": instance.warning,
        "notes": list(solution.notes),
    }


def _solution_title(solution: Solution) -> str:
    return f"{solution.algorithm}, k = {solution.k}, p = {solution.processors}: {solution.metrics.cost:.6g} s"


def _show_solution(solution: Solution, instance: Instance, watts: Watts | None) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(_solution_title(solution), style="bold"))
    width = max(20, min(console.width, 120) - 8)
    for line in draw_lines(solution, instance, width=width, colour=console.is_terminal):
        console.print(line)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in _solution_facts(solution, watts):
        table.add_row(name, value)
    console.print(table)
    for remark in solution.notes:
        console.print(Text(f"note: {remark}", style="dim"))


def _solution_facts(solution: Solution, watts: Watts | None) -> list[tuple[str, str]]:
    metrics = solution.metrics
    facts = [
        ("cost", f"{metrics.cost:.6g} s"),
        ("relative cost", f"{metrics.relative_cost:.4f}"),
        ("packing ratio", f"{metrics.packing_ratio:.4f}"),
        ("relative response", f"{metrics.relative_response_time:.4f}"),
        ("busy, idle", f"{metrics.busy:.6g}, {metrics.idle:.6g} processor-seconds"),
    ]
    if watts is not None:
        facts.append(("energy", f"{metrics.energy_joules(watts.idle, watts.busy):.6g} J"))
    if solution.lower_bound is not None:
        proven = " (proven optimal)" if solution.proven_optimal else ""
        facts.append(("lower bound", f"{solution.lower_bound:.6g} s, gap {solution.gap:.2%}{proven}"))
    facts.append(("computed in", f"{solution.seconds:.4f} s"))
    return facts


def draw_lines(solution: Solution, instance: Instance, *, width: int, colour: bool) -> list[Text]:
    """One line for each processor, time to the right; in colour with names, else with a character a task."""
    from dovetail_lab.packing.picture import PALETTE, task_bars, task_grid, task_symbol
    from dovetail_lab.packing.schedule import Packing

    p = solution.processors
    if p > MOST_ROWS:
        return [Text(f"({p} processors are too many to draw here: --picture FILE.svg)", style="dim")]
    cells = task_grid(task_bars(solution.schedule, p), p, width)
    ends = []
    if isinstance(solution.schedule, Packing):
        total = 0.0
        for cost in solution.schedule.pack_costs[:-1]:
            total += cost
            ends.append(min(width - 1, int(total / solution.schedule.total_cost * width)))
    named: set[int] = set()
    lines = []
    for row in range(p):
        line = Text(f"{row:>5} ", style="dim")
        column = 0
        while column < width:
            task = int(cells[row, column])
            stop = column + 1
            while stop < width and cells[row, stop] == task and stop not in ends:
                stop += 1
            room = stop - column
            if task < 0:
                line.append("·" * room, style="dim")
            elif colour:
                label = instance.names[task] if task not in named else ""
                named.add(task)
                label = label if len(label) <= room else task_symbol(task)
                line.append(label.ljust(room)[:room], style=f"black on {PALETTE[task % len(PALETTE)]}")
            else:
                line.append(task_symbol(task) * room)
            column = stop
        lines.append(line)
    ticks = [" "] * (width + 12)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = round(share * (width - 1))
        for offset, character in enumerate(f"{share * solution.metrics.cost:.4g}"):
            ticks[min(at + offset, len(ticks) - 1)] = character
    if ends:
        marks = [" "] * width
        for end in ends:
            marks[end] = "^"
        lines.append(Text("      " + "".join(marks).rstrip() + "  packs", style="dim"))
    lines.append(Text("      " + "".join(ticks).rstrip() + " s", style="dim"))
    return lines


def _compare_algorithms(
    instance: Instance, k: int, options: Options, *, as_json: bool, watts: Watts | None
) -> None:
    """All algorithms on one instance; those that do not take it give the reason."""
    from dataclasses import replace

    from dovetail_lab.packing.registry import ALGORITHMS, solve

    if k < 1:
        raise InputError(f"k is {k}, expected at least 1")
    if options.time_limit is None:
        options = replace(options, time_limit=COMPARE_SECONDS)
    solved: list[Solution] = []
    refused: dict[str, str] = {}
    for name in ALGORITHMS:
        try:
            solved.append(solve(instance.times, k, name, options))
        except InputError as error:
            refused[name] = str(error)
    if as_json:
        entries = [to_json(solution, instance, watts) for solution in solved]
        entries += [{"algorithm": name, "refused": why} for name, why in refused.items()]
        print(json.dumps(entries, indent=1))
        return
    packed = [solution for solution in solved if solution.algorithm != "list"]
    bound = max((s.lower_bound for s in packed if s.lower_bound is not None), default=None)
    console = Console(highlight=False, soft_wrap=True)
    title = f"{len(instance.names)} tasks, {instance.processors} processors, k = {k}"
    table = Table(
        title=title,
        title_style="bold",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("algorithm", no_wrap=True)
    for column in ("cost s", "relative", "packing", "response", "gap", "CPU s"):
        table.add_column(column, justify="right", no_wrap=True)
    for solution in sorted(solved, key=lambda entry: entry.metrics.cost):
        metrics = solution.metrics
        over = "" if bound is None else f"{metrics.cost / bound - 1:.2%}"
        table.add_row(
            solution.algorithm + (" *" if solution.proven_optimal else ""),
            f"{metrics.cost:.6g}",
            f"{metrics.relative_cost:.4f}",
            f"{metrics.packing_ratio:.4f}",
            f"{metrics.relative_response_time:.4f}",
            "no packs" if solution.algorithm == "list" else over,
            f"{solution.seconds:.4f}",
        )
    console.print(table)
    console.print(Text("* proven optimal; gap: cost over the best lower bound", style="dim"))
    free = next((s for s in solved if s.algorithm == "list"), None)
    if free is not None and packed:
        barrier = min(s.metrics.cost for s in packed) / free.metrics.cost - 1.0
        console.print(f"The pack barrier costs {barrier:.1%}: the best packs against list.")
    for name, why in refused.items():
        console.print(Text(why if why.startswith(name) else f"{name}: {why}", style="dim"))
