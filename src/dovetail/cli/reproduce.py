"""``dovetail reproduce``: studies that set the papers' figures beside ours."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import options as opt

__all__ = ["reproduce_app"]

reproduce_app = typer.Typer(help="Set the papers' figures beside ours.", no_args_is_help=True)

_STUDIES: tuple[tuple[str, str], ...] = (
    ("gregg", "dovetail.reproduce.gregg"),
    ("wrong-predictions", "dovetail.reproduce.wrong_predictions"),
    ("ravi-single", "dovetail.reproduce.ravi_single"),
    ("ravi-multi", "dovetail.reproduce.ravi_multi"),
)
"""Name and module of each study; the module's ``command`` takes the options."""

for _name, _module in _STUDIES:
    reproduce_app.command(_name)(importlib.import_module(_module).command)


@reproduce_app.command("aupy")
def aupy(
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Random instances of each set.")] = 10,
    spread: Annotated[
        float, typer.Option(min=1, metavar="RATIO", help="Longest over shortest sequential time.")
    ] = 10.0,
    full_range: Annotated[
        bool, typer.Option("--full-range", help="Draw sizes from the whole range that the paper names.")
    ] = False,
    as_json: opt.Json = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the figures (SVG) and the points (JSON) there."),
    ] = None,
) -> None:
    """Aupy 2013, Figures 2 to 5 and Table 1: packs of moldable tasks; the paper's claims and ours."""
    from dovetail.reproduce.aupy import run

    run(seeds=seeds, spread=spread, full_range=full_range, as_json=as_json, out=out)
