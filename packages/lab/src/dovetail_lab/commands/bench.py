"""``dovetail bench``: a suite of apps on this machine's devices, its own Table 2; ``bench-sharing``."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from dovetail.cli import options as opt
from dovetail.cli.live_progress import LiveProgress
from dovetail.errors import InputError
from dovetail.files.streams import print_note
from dovetail.files.writing import write_text
from dovetail.history.sqlite import default_history_path
from dovetail.model import CPU, Cluster, Record, State
from dovetail.report import tables
from dovetail.report.progress import Bar
from dovetail.report.wording import count_things, format_percent
from dovetail.workloads.jobfile_writer import dump_jobfile
from dovetail_lab.apps.bench.accuracy import Accuracy, compare_models
from dovetail_lab.apps.bench.drawn import draw_workload
from dovetail_lab.apps.bench.measured import (
    MeasuredRun,
    check_writable,
    read_measurements,
    write_measurements,
)
from dovetail_lab.apps.bench.sharing import PAIRS, Sharing, measure_pairs
from dovetail_lab.apps.bench.speeds import Change, Row, fastest_changes, speed_table
from dovetail_lab.apps.bench.suite import (
    Point,
    app_names,
    measure_suite,
    size_points,
    sizes_table,
    two_devices,
)
from dovetail_lab.apps.registry import find_app

SEED = 1
"""Of the order in which --accuracy runs its sizes."""


def bench(
    apps: Annotated[
        str | None, typer.Option(metavar="NAME,NAME…", help="Which of the suite; all by default.")
    ] = None,
    suite: Annotated[
        Literal["gregg", "ravi"],
        typer.Option(help="The sixteen of Gregg 2011, or the thirteen of Ravi 2012."),
    ] = "gregg",
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE,SIZE…", help="small, medium, large, iterations (ravi), or numbers (the apps' --n)."
        ),
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(min=1, help="Runs of each size on each device. Default: 2; 3 for accuracy.")
    ] = None,
    cluster: opt.Cluster = None,
    history: opt.HistoryFile = None,
    judge: Annotated[
        bool,
        typer.Option("--accuracy", help="Learn from some sizes, predict others: how good are the models?"),
    ] = False,
    measurements: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Run nothing: read the runs that --csv wrote."),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write one line a run.")] = None,
    workload: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a job file of jobs drawn from what was measured."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=100_000, help="How many jobs --workload draws.")] = 24,
    mix: Annotated[
        Literal["uniform", "cpu75", "gpu75"],
        typer.Option(help="Half of them, or 75 %, from those faster on the CPU, or on the device."),
    ] = "uniform",
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 1,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> int:
    """Run the benchmark apps on this machine's devices, show which device suits which, fill the history.

    Without a GPU the first two cores become two unlike devices: NumPy, and OpenCL (PoCL). A minute or two.
    Every run is kept in the history, so that later jobs of these apps are predicted from the start.
    """
    machine: Cluster | None = None
    undone: Sequence[Record] = ()
    for written in (csv, workload):
        if written is not None:
            check_writable(written)  # before minutes of measuring
    if measurements is not None:
        # Options of a run, beside one that runs nothing, are a mistake.
        for name, value in (("--sizes", sizes), ("--repeat", repeat)):
            if value is not None:
                raise InputError("found with --from, which runs nothing", where=name)
        done = _read_measurements(measurements, None if apps is None else app_names(apps, suite))
    else:
        machine = two_devices() if cluster is None else Cluster.parse(cluster)
        found = _choose_points(app_names(apps, suite), sizes, judge, suite)
        # Three for the study, whose errors are medians.
        times = repeat or (3 if judge else 2)
        if not quiet:
            print_note(
                f"{count_things(len(found), 'size')}, {count_things(times, 'time')} on "
                f"{', '.join(map(str, machine.classes))}; Ctrl-C stops"
            )
        rng = np.random.Generator(np.random.PCG64(SEED)) if judge else None
        with LiveProgress(hidden=quiet) as progress:
            done, undone = measure_suite(
                found, machine, repeat=times, history=history, changed=progress.changed, rng=rng
            )
    if csv is not None:
        write_measurements(done, csv)
    if workload is not None:
        write_text(workload, dump_jobfile(draw_workload(done, jobs, seed, mix)))
    judged = compare_models(done) if judge and done else []
    # What was read from a file is not this machine's, so it does not go into its history.
    kept = None if measurements is not None else history or default_history_path()
    if as_json:
        print(json.dumps(_json_form(done, undone, judged, machine, kept), indent=1))
    else:
        _show_results(done, judged, kept)
    return _exit_status(undone, quiet=quiet)


def _choose_points(chosen: list[str], sizes: str | None, judge: bool, suite: str) -> list[Point]:
    if judge and suite != "gregg":
        raise InputError(f"found --suite {suite}, expected gregg, whose sizes it has", where="--accuracy")
    if not judge:
        usual = "small,medium,large" if suite == "gregg" else "small,large,iterations"
        wanted = usual if sizes is None else sizes
        return size_points(chosen, [size.strip() for size in wanted.split(",")])
    if sizes is not None:
        raise InputError("found with --accuracy, which has its own table of sizes", where="--sizes")
    return [point for point in sizes_table() if point.app in chosen]


def _read_measurements(path: Path, apps: Sequence[str] | None) -> list[MeasuredRun]:
    """The runs in the file, of these apps if any are named."""
    try:
        found = read_measurements(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError("is no text, expected CSV in UTF-8", where=str(path)) from error
    kept = [run for run in found if apps is None or run.app in apps]
    if apps is not None and not kept:
        raise InputError(f"found no run of {', '.join(apps)}", where=str(path))
    return kept


def _exit_status(undone: Sequence[Record], *, quiet: bool) -> int:
    failed = [record for record in undone if record.state is not State.CANCELLED]
    for record in failed[:10]:
        why = record.detail or (f"exit code {record.exit_code}" if record.exit_code else "")
        print_note(f"{record.job.id}: {record.state}{': ' + why if why else ''}")
    if len(failed) < len(undone):
        if not quiet:
            print_note("interrupted: what was measured is shown and kept")
        return 130
    return 1 if failed else 0


def _json_form(
    done: Sequence[MeasuredRun],
    undone: Sequence[Record],
    judged: Sequence[Accuracy],
    machine: Cluster | None,
    history: Path | None,
) -> dict[str, Any]:
    rows = []
    for row in speed_table(done):
        devices = {d.device: {k: v for k, v in asdict(d).items() if k != "device"} for d in row.devices}
        speedups = {d.device: row.speedup_on(d.device) for d in row.devices if d.device != CPU}
        rows.append({"app": row.app, "size": row.role, "n": row.n, "devices": devices, "speedup": speedups})
    return {
        "machine": platform.machine(),
        "devices": [] if machine is None else [str(c) for c in machine.classes],
        "rows": rows,
        "preferred": {app: [asdict(c) for c in found] for app, found in fastest_changes(done).items()},
        "accuracy": [{k: _finite_or_none(v) for k, v in asdict(row).items()} for row in judged],
        "undone": [{"id": r.job.id, "state": str(r.state), "detail": r.detail} for r in undone],
        "history": None if history is None else str(history),
    }


def _finite_or_none(value: Any) -> Any:
    """JSON has no infinite numbers: what no model could predict has no error."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _show_results(done: Sequence[MeasuredRun], judged: Sequence[Accuracy], history: Path | None) -> None:
    console = tables.make_console()
    rows = speed_table(done)
    if not rows:
        console.print(Text("nothing was measured"))
        return
    devices = list(dict.fromkeys(d.device for row in rows for d in row.devices))
    console.print(_speed_table(rows, devices, fastest_changes(done)))
    others = [device for device in devices if device != CPU]
    if CPU in devices and others:
        console.print(Text("speedup: time on the CPU over that on the device; above 1, the device is better"))
    if judged:
        console.print(_accuracy_table(judged))
    if history is not None:
        console.print(
            Text(
                f"{count_things(len(done), 'run')} {'is' if len(done) == 1 else 'are'} in the "
                f"history {history}",
                overflow="fold",
            )
        )


def _speed_table(rows: Sequence[Row], devices: Sequence[str], preferred: dict[str, list[Change]]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    made.add_column("app", no_wrap=True)
    made.add_column("n", justify="right", no_wrap=True)
    for device in devices:
        both = device.startswith("cpu+")
        made.add_column("both s" if both else f"{device} s", justify="right", no_wrap=True)
    others = [device for device in devices if device.partition("+")[0] != CPU]
    iterating = any(find_app(row.app).iterations for row in rows)
    for device in others:
        made.add_column("speedup" if len(others) == 1 else f"speedup {device}", justify="right")
    for device in others if not iterating else ():
        made.add_column("transfer" if len(others) == 1 else f"transfer {device}", justify="right")
    made.add_column("best" if iterating else "preferred device")
    last = ""
    for row in rows:
        on = {d.device: d for d in row.devices}
        cells: list[str | Text] = []
        for device in devices:
            if device not in on:
                cells.append("-")
                continue
            best = len(on) > 1 and on[device] is row.best_device
            cells.append(Text(f"{on[device].mean:.3f}", style="bold" if best else ""))
        speedups = [row.speedup_on(device) for device in others]
        cells += ["-" if s is None else f"{s:.2f}" for s in speedups]
        if not iterating:
            cells += [format_percent(on[device].transfer_share) if device in on else "-" for device in others]
        first = row.app != last
        many = find_app(row.app).iterations if row.role == "iterations" else None
        n = f"{row.n:,}" if many is None else f"{row.n:,} × {many[1]}"
        words = row.best_device.device if iterating else _describe_change(preferred[row.app]) if first else ""
        made.add_row(row.app if first else "", n, *cells, words)
        last = row.app
    return made


def _describe_change(found: Sequence[Change]) -> str:
    """``cpu, from 1,234,567 opencl``."""
    return ", ".join([found[0].device, *(f"from {c.n:,} {c.device}" for c in found[1:])])


def _accuracy_table(judged: Sequence[Accuracy]) -> Table:
    made = Table(
        title="Sizes not learned from",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        title_justify="left",
    )
    made.add_column("model", no_wrap=True)
    for name in ("sizes", "median error", "90th percentile", "of one run", "in the 90 % interval"):
        made.add_column(name, justify="right")
    for row in judged:
        shares = (row.median_error, row.p90_error, row.run_error, row.coverage)
        made.add_row(row.model, str(row.sizes), *map(format_percent, shares))
    return made


# ---------------------------------------------------------------------------------------- bench-sharing


def bench_sharing(
    cpu_app: Annotated[
        str, typer.Option(metavar="NAME", help="The app on the CPUs, which is timed.")
    ] = "matmul",
    device_app: Annotated[str, typer.Option(metavar="NAME", help="The app on the device.")] = "sobel",
    figure_8: Annotated[
        bool,
        typer.Option("--figure-8", help="The three pairs of Ravi 2012, Fig. 8."),
    ] = False,
    device: Annotated[str, typer.Option(metavar="KIND", help="Its device: opencl, cuda.")] = "opencl",
    rounds: Annotated[int, typer.Option(min=1, help="Alone and beside, so many times each.")] = 5,
    repeat: Annotated[int, typer.Option(min=1, help="Repetitions of the timed work in a round.")] = 10,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Measure the sharing penalty of Ravi 2012, Fig. 8, here: two apps, pinned to cores and not."""
    pairs = [(p.cpu_app, p.device_app) for p in PAIRS] if figure_8 else [(cpu_app, device_app)]
    with Bar("sharing", hidden=quiet or as_json) as bar:
        found = measure_pairs(pairs, device=device, rounds=rounds, repeat=repeat, progress=bar.tell)
    if as_json:
        print(json.dumps([one.as_dict() for one in found], indent=1))
    else:
        _show_sharing(found)


def _show_sharing(found: Sequence[Sharing]) -> None:
    def interval_ends(one: Sharing) -> str:
        penalty = one.penalty
        if penalty is None or penalty.half_width is None:
            return "-"
        return f"{penalty.lower_end:+.1%} to {penalty.upper_end:+.1%}"

    console = tables.make_console()
    columns = [
        tables.Cells("On the CPUs", [one.cpu_app for one in found], right=False),
        tables.Cells(f"On {found[0].device}", [one.device_app for one in found], right=False),
        tables.Cells("Cores", ["own" if one.pinned else "shared" for one in found], right=False),
        tables.Cells("Alone s", [f"{fmean(one.alone):.3f}" for one in found]),
        tables.Cells("Beside s", [f"{fmean(one.beside):.3f}" for one in found]),
        tables.Cells("Penalty", [f"{one.mean_penalty:+.1%}" for one in found]),
        tables.Cells("95 % interval", [interval_ends(one) for one in found]),
        tables.Cells(
            "Control", ["-" if (n := one.control_cost) is None else f"{n.mean:+.1%}" for one in found]
        ),
    ]
    console.print(tables.Table(columns).text(console.width))
    console.print(Text("\nControl: beside a process that sleeps, which shares nothing."))
    if not all(one.shows_effect for one in found):
        console.print(
            Text("This machine cannot show Fig. 8: its device is its cores, or the control costs too.")
        )
    printed = ", ".join(f"{p.paper_cpu_app} beside {p.paper_device_app} {p.penalty:+.1%}" for p in PAIRS)
    console.print(Text(f"\nRavi 2012, Fig. 8, with a GPU: {printed}."))
    measured = ",".join(
        f"{one.cpu_app}/{one.device_app}:{max(0.0, one.mean_penalty):.3f}" for one in found if one.pinned
    )
    console.print(Text("In simulation:"))
    console.print(Text(f"  --rates 'sharing-penalty?pairs={measured}'"), soft_wrap=True)
