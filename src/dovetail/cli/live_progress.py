"""What a live run shows while it goes: a table by device on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

from dovetail.engine.state.core import Engine
from dovetail.files.sentences import make_printable
from dovetail.files.streams import print_note
from dovetail.model import Placed, State

if TYPE_CHECKING:  # away from a terminal nothing is drawn
    from rich.live import Live
    from rich.table import Table

MOST_UNITS = 24


class LiveProgress:
    """Shows what runs on each device, its predicted end, and what waits; on standard error."""

    def __init__(self, *, hidden: bool = False, file: TextIO | None = None) -> None:
        self._file = file or sys.stderr
        self._hidden = hidden
        self._live: Live | None = None
        self._engine: Engine | None = None
        self._began = 0.0
        self._started: set[tuple[str, int]] = set()  # attempts: a job may start again
        self._ended: set[tuple[str, int]] = set()

    def __enter__(self) -> LiveProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def changed(self, engine: Engine) -> None:
        """The engine's state after an instant."""
        if self._hidden:
            return
        if self._engine is None:
            self._engine = engine
            # The engine's time 0 by our clock, so that "for" counts on between two instants.
            self._began = time.monotonic() - engine.view.now
            if self._file.isatty():
                from rich.console import Console
                from rich.live import Live

                console = Console(file=self._file, highlight=False)
                if console.is_terminal:
                    self._live = Live(
                        get_renderable=self._progress_table,
                        console=console,
                        refresh_per_second=5,
                        transient=True,
                    )
                    self._live.start()
        if self._live is None:
            self._print_ended(engine)

    def _print_ended(self, engine: Engine) -> None:
        now = engine.view.now
        for placed in engine.changes.ended:
            attempt = placed.job.id, placed.attempt
            # A job may be in the changes of several instants; each attempt has one line.
            if attempt in self._ended or placed.job.foreign:
                continue
            self._ended.add(attempt)
            record = engine.records[placed.job.id]
            took = now - placed.start_time if record.took is None else record.took
            predicted = "" if placed.predicted is None else f", predicted {placed.predicted:.3g} s"
            state = "" if record.state is State.COMPLETED else f" {record.state}"
            # It waits again, so the record has no end: the last attempt is among the earlier ones.
            if record.earlier and record.state in (State.PENDING, State.RUNNING):
                took = record.earlier[-1].end - record.earlier[-1].start
                state = f" {record.earlier[-1].state}, and is tried again,"
            self._print_line(
                now if record.end is None else record.end,
                f"{placed.job.id} ended{state} after {took:.3g} s{predicted}",
            )
        for placed in engine.changes.started:
            attempt = placed.job.id, placed.attempt
            if attempt not in self._started and not placed.job.foreign:
                self._started.add(attempt)
                self._print_line(now, f"{placed.job.id} starts on {_place_names(placed, engine)}")

    def _print_line(self, now: float, text: str) -> None:
        print_note(f"[{now:8.2f} s] {text}")

    def _progress_table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        engine = self._engine
        assert engine is not None
        now = time.monotonic() - self._began
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("DEVICE", "RUNS", "FOR", "PREDICTED", "ENDS IN", "FIFO"):
            table.add_column(name, justify="left" if name in ("DEVICE", "RUNS") else "right")
        for unit in engine.cluster.units[:MOST_UNITS]:
            placed = engine.view.occupant(unit)
            fifo = str(len(engine.device_queues.get(unit.index, ()))) if engine.device_queues else ""
            device = Text(make_printable(unit.name))
            if placed is None:
                table.add_row(device, Text("idle", style="dim"), "", "", "", fifo)
                continue
            spent, job = now - placed.start_time, Text(make_printable(placed.job.id))
            if placed.predicted is None:
                who = placed.job.name if placed.job.foreign else placed.job.id
                shown = Text(make_printable(who or ""))
                table.add_row(device, shown, f"{spent:.1f} s", "?", "", fifo)
                continue
            left = placed.predicted - spent
            style = "" if left >= 0 else "yellow"
            ends = Text(f"{left:.1f} s" if left >= 0 else "late", style=style)
            table.add_row(device, job, f"{spent:.1f} s", f"{placed.predicted:.1f} s", ends, fifo)
        own = [record for record in engine.records.values() if not record.job.foreign]
        done = sum(record.end is not None for record in own)
        table.caption = f"{done} of {len(own)} ended, {len(engine.queue)} wait"
        table.caption_justify = "left"
        return table


def _place_names(placed: Placed, engine: Engine) -> str:
    names = placed.allocation.device_names(engine.cluster) or placed.allocation.node_names(engine.cluster)
    return ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
