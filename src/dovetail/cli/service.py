"""What the commands that talk to a service have in common."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.client.connection import Connection, open_connection
from dovetail.files.sentences import make_printable
from dovetail.files.streams import print_note


def open_service(at: str | None, *, start: bool = False) -> Connection:
    """The service; ``start`` one where none runs."""
    return open_connection(at, start=print_note if start else None)


MOST_MEANT = 1000
"""Jobs of which one command shows all that is known."""


def jobs_meant(service: Connection, jobs: str) -> list[dict[str, Any]]:
    """The rows of the jobs that a text selects, `MOST_MEANT` at most; more are counted in a note."""
    found: list[dict[str, Any]] = service.get("/api/v1/jobs", jobs=jobs, limit=MOST_MEANT)["jobs"]
    if len(found) == MOST_MEANT:
        print_note(f"the first {MOST_MEANT:,} jobs of {jobs}; numbers choose others")
    return found


def print_json(found: Any) -> None:
    """JSON alone on standard output."""
    print(json.dumps(found, indent=2))


def format_clock(when: float | None, now: float) -> str:
    """A moment as people write it: the time today, the date on other days."""
    if when is None:
        return ""
    at, today = time.localtime(when), time.localtime(now)
    same = at[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M", at)


SOON = 1.0
"""Seconds within which a predicted start is one at once."""


def describe_interval(row: Mapping[str, Any], name: str, now: float) -> str:
    """``between 14:10:00 and 16:30:00 (90 %)`` of a predicted time; empty where there is no interval."""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    if low is None or high is None:
        return ""
    # What is predicted for the past is due now: the forecast is from a moment ago.
    return (
        f"between {format_clock(max(low, now), now)} and {format_clock(high, now)} "
        f"({100 * row['confidence']:.0f} %)"
    )


def start_words(row: Mapping[str, Any], now: float) -> str:
    """When a waiting job starts: between when and when, at once, at about a point, or unknown."""
    words, point = describe_interval(row, "predicted_start", now), row["predicted_start"]
    if words:
        soon = row["predicted_start_high"] < now + SOON
        return f"at once ({100 * row['confidence']:.0f} %)" if soon else words
    return "at a time that is unknown" if point is None else f"at about {format_clock(max(point, now), now)}"


def format_span(seconds: float | None) -> str:
    """A length of time: 4.2 s, 3:07, 2:15:00, 3 d 04:00."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours:02d}:{minutes:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def show_rows(columns: Sequence[str], rows: Sequence[Mapping[str, str]], *, parsable: bool = False) -> None:
    """A table on lines that never break; with ``parsable`` one line a row, with all of it."""
    if parsable:
        for row in rows:
            # A bar within a name would add a column.
            print("|".join(make_printable(row[name]).replace("|", "\\|") for name in columns))
        return
    _print_rows(columns, rows)


FLEXIBLE = (
    "name",
    "where",
    "reason",
    "where/reason",
    "workload",
    "jobs",
    "devices",
    "partitions",
    "command",
    "detail",
)
"""Columns that are cut where a line would be too long; all others are whole, or not there."""
DISPENSABLE = ("user", "submitted", "policy", "partitions")
"""Columns that go first, in this order, where there is no room for them."""
WHEN = {"submitted", "start", "end", "started"}
GAP = 2
LEAST, ENOUGH = 10, 20
"""Columns of text below which nothing is cut, and to which all is cut before a column goes."""


def table_of(columns: Sequence[str], rows: Sequence[Mapping[str, str]], width: int) -> Any:
    """Rows as a table that is at most ``width`` wide, if states, numbers and times let it be.

    Where a job runs and why it does not share a column: a row has one of them.
    """
    from rich.cells import cell_len
    from rich.table import Table as Rich
    from rich.text import Text

    from dovetail.report.tables import clip_text

    shown = [name for name in columns if name != "reason"] if "where" in columns else list(columns)
    shown = ["where/reason" if name == "where" else name for name in shown]
    texts = {
        name: [
            make_printable(row["reason"] or row["where"] if name == "where/reason" else row[name])
            for row in rows
        ]
        for name in shown
    }
    widths = {name: max(map(cell_len, [name, *texts[name]])) for name in shown}
    if _total_width(widths, ENOUGH) > width:  # the year of what is still in the queue is known
        for name in WHEN & widths.keys():
            texts[name] = [re.sub(r"[0-9]{4}-(?=[0-9]{2}-)", "", text) for text in texts[name]]
            widths[name] = max(map(cell_len, [name, *texts[name]]))
    for name in DISPENSABLE:
        if _total_width(widths, ENOUGH) > width:
            widths.pop(name, None)
    over = _total_width(widths) - width
    while over > 0:
        # From the widest, a column at a time, so that texts lose evenly.
        longest = max((n for n in widths if n in FLEXIBLE), key=widths.__getitem__, default="")
        if not longest or widths[longest] <= LEAST:
            break
        widths[longest] -= 1
        over -= 1
    table = Rich(
        box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0), width=_total_width(widths)
    )
    for name, wide in widths.items():
        table.add_column(name.upper().replace("_", " "), no_wrap=True, min_width=wide)
    for i in range(len(rows)):
        table.add_row(*(Text(clip_text(texts[n][i], w, keep_end=n == "name")) for n, w in widths.items()))
    return table


def _total_width(widths: Mapping[str, int], most: int = 1 << 30) -> int:
    """The width of a line whose flexible columns are cut to ``most``."""
    cut = sum(min(wide, most) if name in FLEXIBLE else wide for name, wide in widths.items())
    return cut + GAP * (len(widths) - 1)


def _print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> None:
    from dovetail.report import tables

    table = table_of(columns, rows, tables.make_console().width)
    # A table that cannot be made narrow enough is wider than the terminal: a broken line reads worse than a
    # cut one.
    tables.make_console(width=max(tables.make_console().width, table.width)).print(table)


def memory_words(memory: Mapping[str, Any]) -> str:
    """What a way to run a job reserves, and what is known of its peak."""
    if memory["expected"] is None:
        known = memory["basis"]
    else:
        expected, low, high = (f"{memory[key] / 1e6:,.0f}" for key in ("expected", "lower", "upper"))
        known = f"peak {expected} MB ({low} to {high}), {memory['basis']}"
    return f"reserves {memory['reserved'] / 1e6:,.0f} MB; {known}"
