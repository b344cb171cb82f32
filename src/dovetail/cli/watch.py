"""``dovetail top``, ``whatif``, ``dashboard``: looking at a service for longer, or further."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dovetail.cli import options as opt
from dovetail.cli.queue import COLUMNS, idle_lines, of_unknown_length, queue_row, start_interval
from dovetail.cli.service import format_clock, format_span, open_service, print_json, show_rows, table_of
from dovetail.cli.tested import sooner_lines
from dovetail.client.connection import Connection
from dovetail.errors import InputError
from dovetail.files.sentences import make_printable
from dovetail.files.streams import print_note
from dovetail.report import tables

SHOWN = 40


@opt.takes_options("top")
def top(at: str | None) -> int:
    """Show the service as it goes, until Ctrl-C: what runs where, what waits. Off a terminal, once."""
    with open_service(at) as service:
        console = tables.make_console()
        if not console.is_terminal:
            console.print(_draw_screen(service, console.width))
            return 0
        # A stream of its own, as its answer never ends: other questions need another connection.
        with open_service(at) as stream, Live(console=console, screen=True, auto_refresh=False) as live:
            for _ in stream.events():
                live.update(_draw_screen(service, console.width), refresh=True)
    return 0


def _draw_screen(service: Connection, width: int) -> RenderableType:
    info = service.get("/api/v1/info")
    nodes = service.get("/api/v1/nodes")["nodes"]
    jobs = service.get("/api/v1/jobs", limit=SHOWN)
    counts = info["jobs"]
    ended = ", ".join(f"{count} {state}" for state, count in sorted(info["ended"].items()))
    head = (
        f"{counts['running']} running, {counts['waiting']} waiting, {counts['held']} held back"
        f"{'; ' + ended if ended else ''}   CPUs {info['cpus_used']}/{info['cpus']}   {info['policy']}"
    )
    idle = [Text(line) for line in idle_lines(nodes)]
    table = _job_table(jobs, info["now"], width)
    return Group(Text(head, style="bold"), Text(), _node_table(nodes), *idle, Text(), table)


def _node_table(nodes: list[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("NODE", "CPUS", "DEVICES"):
        table.add_column(name)
    for node in nodes[:SHOWN]:
        share = node["cpus_used"] / node["cpus"] if node["cpus"] else 0.0
        bar = "█" * round(share * 20)
        used = sum(bool(device["jobs"]) for device in node["devices"])
        devices = f"{used}/{len(node['devices'])}" if node["devices"] else ""
        # Only where a driver reports memory: zeros would look like an idle device.
        held = sum(device.get("memory_used") or 0 for device in node["devices"])
        if held:
            devices += f", {held / 1e9:.1f} of {sum(d['memory'] or 0 for d in node['devices']) / 1e9:.1f} GB"
        table.add_row(
            Text(make_printable(node["name"])), f"{bar:<20} {node['cpus_used']}/{node['cpus']}", devices
        )
    return table


def _job_table(found: Mapping[str, Any], now: float, width: int) -> Table:
    table: Table = table_of(COLUMNS, [queue_row(row, now) for row in found["jobs"]], width)
    left = found["total"] - len(found["jobs"])
    if left > 0:
        table.caption, table.caption_justify = f"and {left} more", "left"
    return table


@opt.takes_options("whatif")
def whatif(policy: str, job: str | None, cluster: str | None, at: str | None, as_json: bool) -> int:
    """Show when the jobs of this moment would start and end under another policy, or on another cluster.

    With --job show what would start one waiting job sooner: each other request with its interval.
    """
    if job is not None and (policy or cluster):
        raise InputError("found --job beside --policy or --cluster, expected one of them", where="whatif")
    with open_service(at) as service:
        if job is not None:
            sooner = service.get(f"/api/v1/jobs/{quote(job, safe='')}/sooner")
            if as_json:
                print_json(sooner)
            else:
                print("\n".join(sooner_lines(sooner)))
            return 0
        info = service.get("/api/v1/info")
        # Under its own policy too, so that both columns come from one model and one moment.
        usual = service.post("/api/v1/whatif", {"policy": info["policy"]})
        form = {"policy": policy or info["policy"], **({"cluster": cluster} if cluster else {})}
        found = service.post("/api/v1/whatif", form)
    if as_json:
        jobs = {id: _predicted_job(id, found) for id in found["jobs"]}
        counts = {name: found[name] for name in ("left_out", "unknown")}
        print_json({"policy": form["policy"], "cluster": cluster, "at": found["at"], "jobs": jobs, **counts})
        return 0
    if not found["jobs"] and not found["left_out"]:
        print("Nothing runs or waits.")
        return 0
    rows = []
    now = found["at"]
    for id, (start, end) in found["jobs"].items():
        _, before = usual["jobs"].get(id, (None, None))
        rows.append(
            {
                "id": id,
                "start": start_interval(_predicted_job(id, found), now) or format_clock(start, now),
                "end": format_clock(end, now) or "unknown",
                "end now": format_clock(before, now),
                "change": _change_text(end - now, before - usual["at"]) if end and before else "",
            }
        )
    if rows:
        show_rows(("id", "start", "end", "end now", "change"), rows[:SHOWN])
    if len(rows) > SHOWN:
        print_note(f"and {len(rows) - SHOWN} more (--json has all)")
    for line in _summary_lines(found, usual):
        print(line)
    return 0


def _predicted_job(id: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Start and end of a job, and between when and when each lies where that is known."""
    start, end = found["jobs"][id]
    spans = found.get("spans", {}).get(id) or (None,) * 4
    names = ("predicted_start_low", "predicted_start_high", "predicted_end_low", "predicted_end_high")
    return {"start": start, "end": end, **dict(zip(names, spans, strict=True))}


def _change_text(then: float, now: float) -> str:
    difference = then - now
    return "" if abs(difference) < 1 else f"{'+' if difference > 0 else '-'}{format_span(abs(difference))}"


def _summary_lines(found: Mapping[str, Any], usual: Mapping[str, Any]) -> Iterator[str]:
    """The last end and the mean end, of both; of what nothing is known."""
    unknown, left_out, jobs = found["unknown"], found["left_out"], found["jobs"]
    # Sums over the same jobs on both sides: a job that only one of them can predict would shift the mean.
    known = [id for id, (_, end) in jobs.items() if end and usual["jobs"].get(id, (0, 0))[1]]

    def ends_of(one: Mapping[str, Any]) -> tuple[float, float]:
        ends = [one["jobs"][id][1] - one["at"] for id in known]
        return max(ends), sum(ends) / len(ends)

    if known:
        (last, mean), (last_now, mean_now) = ends_of(found), ends_of(usual)
        who = "all" if len(known) == len(jobs) else f"{len(known)} of {len(jobs)}"
        yield (
            f"{who} done in {format_span(last)} (as it is: {format_span(last_now)}), mean "
            f"{format_span(mean)} ({format_span(mean_now)})"
        )
    if unknown:
        yield of_unknown_length(unknown)
    if left_out:
        yield f"no forecast for {left_out}: held back, too far behind, or no run time to go by"


@opt.takes_options("dashboard")
def dashboard(browse: bool, at: str | None, as_json: bool) -> int:
    """Open the dashboard: an address on this machine that lets a browser in once."""
    with open_service(at, start=True) as service:
        url = service.post("/api/v1/dashboard")["url"]
    if as_json:
        print_json({"url": url})
        return 0
    print(url)
    if browse and sys.stdout.isatty():
        webbrowser.open(url)
    return 0
