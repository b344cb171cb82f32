"""``dovetail bench-sharing``: what a job on the CPUs loses here beside a job on a device."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from dovetail.cli import options as opt
from dovetail.report import tables
from dovetail.reproduce.ravi_sharing import Sharing, measure_sharing
from dovetail.reproduce.study_pool import StudyProgress

__all__ = ["bench_sharing"]


def bench_sharing(
    cpu_app: Annotated[
        str, typer.Option(metavar="NAME", help="The app on the CPUs, which is timed.")
    ] = "matmul",
    device_app: Annotated[str, typer.Option(metavar="NAME", help="The app on the device.")] = "sobel",
    device: Annotated[str, typer.Option(metavar="KIND", help="Its device: opencl, cuda.")] = "opencl",
    rounds: Annotated[int, typer.Option(min=1, help="Alone and beside, so many times each.")] = 5,
    repeat: Annotated[int, typer.Option(min=1, help="Repetitions of the timed work in a round.")] = 10,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Measure the sharing penalty of Ravi 2012, Fig. 8, here: two apps, pinned to cores and not."""
    with StudyProgress("sharing", hidden=quiet or as_json) as progress:
        found = measure_sharing(
            cpu_app, device_app, device=device, rounds=rounds, repeat=repeat, tell=progress.tell
        )
    if as_json:
        print(json.dumps([_form(one) for one in found], indent=1))
        return
    plain: Any = {"box": box.SIMPLE_HEAD, "pad_edge": False, "show_edge": False, "title_justify": "left"}
    table = Table(title=f"{cpu_app} on the CPUs beside {device_app} on {device}", **plain)
    table.add_column("cores")
    for name in ("alone, s", "beside, s", "penalty", "95 % interval"):
        table.add_column(name, justify="right")
    for one in found:
        penalty = one.penalty
        half = None if penalty is None else penalty.half_width
        table.add_row(
            "each its own" if one.pinned else "all for both",
            f"{sum(one.alone) / len(one.alone):.3f}",
            f"{sum(one.beside) / len(one.beside):.3f}",
            f"{one.mean_penalty:+.1%}",
            "-" if penalty is None or half is None else f"{penalty.low:+.1%} to {penalty.high:+.1%}",
        )
    console = tables.console()
    console.print(table)
    pinned = found[0]
    console.print(
        f"\nPaper: +2.4 % to +6.8 %. In simulation: --rates "
        f"'sharing-penalty?pairs={cpu_app}/{device_app}:{max(0.0, pinned.mean_penalty):.3f}'",
        highlight=False,
        soft_wrap=True,
    )


def _form(one: Sharing) -> dict[str, Any]:
    return asdict(one) | {"penalty": one.mean_penalty}
