"""``dovetail memory``: what the jobs of a run reserved, used and wasted."""

from __future__ import annotations

import json
from pathlib import Path

from dovetail.cli import options as opt
from dovetail.report import tables


@opt.takes_options("memory")
def memory(run: str, svg: Path | None, as_json: bool) -> None:
    """Show what jobs reserved, used and wasted of memory over time, and what --mem auto would have."""
    from dovetail.engine.journal.journal import read_journal
    from dovetail.report.memory_use import memory_use, text_chart, tries_of
    from dovetail.running.folder import journal_of

    journal = read_journal(journal_of(run) or Path(run))
    machine = max((group.node.memory or 0 for group in journal.cluster.groups), default=0)
    use = memory_use(tries_of(journal), machine)
    if svg is not None:
        from dovetail.report import drawing, plots

        drawing.save_drawing(plots.draw_memory(use), svg)
    if as_json:
        print(json.dumps(use.as_dict()))
        return
    apart = f", {use.unmeasured:,} without a reservation or a peak" if use.unmeasured else ""
    print(f"{use.tries:,} tries{apart}; {use.kills:,} killed for memory.")
    print(f"Reserved {use.reserved:,.3g} GB h, used {use.used:,.3g}, wasted {use.wasted:,.3g}.")
    print(f"With --mem auto, from no history: wasted {use.auto_wasted:,.3g} GB h, {use.auto_kills:,} killed.")
    print(text_chart(use, tables.make_console().width))
