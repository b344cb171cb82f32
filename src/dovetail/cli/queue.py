"""``dovetail queue``, ``info``, ``nodes``: what a service does now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.cli import options as opt
from dovetail.cli.service import clock, jobs_meant, memory_words, opened, print_json, show_rows, span
from dovetail.files.sentences import printable
from dovetail.files.streams import note

PATIENCE = 2.0
"""Seconds that a new forecast may take, else an older one is shown."""
COLUMNS = ("id", "name", "user", "state", "submitted", "start", "end", "where", "reason")


@opt.takes("queue")
def queue(
    jobs: list[str] | None,
    state: list[str] | None,
    user: str | None,
    name: str | None,
    ended: bool,
    limit: int,
    at: str | None,
    as_json: bool,
    parsable: bool,
) -> int:
    """Show the queue: what runs, then what waits, with predicted starts and ends (~) and the reason."""
    states = [text.upper() for text in state] if state else None
    with opened(at) as service:
        chosen = ",".join(jobs) if jobs else None
        if ended and chosen is None:
            found = service.get("/api/v1/ended", state=states, user=user, name=name, limit=limit)
        else:
            asked = {"state": states, "user": user, "name": name, "limit": limit, "patience": PATIENCE}
            found = service.get("/api/v1/jobs", jobs=chosen, **asked)
        about = service.get("/api/v1/info")
    now = about["now"]
    if about["blocked"] and not (ended or as_json or parsable):
        note(about["blocked"])
    rows = found["jobs"]
    if ended and chosen is not None:
        rows = _ended(rows, states, user, name)
    if as_json:
        print_json(rows)
        return 0
    if not rows and not parsable:
        print(_nothing(about, ended=ended, chosen=bool(chosen or states or user or name)))
        return 0
    show_rows(COLUMNS, [queue_row(row, now) for row in rows], parsable=parsable)
    left = 0 if ended and chosen is not None else found.get("total", len(rows)) - len(rows)
    if left > 0 and not parsable:
        note(f"and {left} more (--limit)")
    age = found.get("forecast_age")
    if age is not None and age >= 1 and not parsable:
        note(f"predicted starts are as of {span(age)} ago")
    unknown = found.get("forecast_unknown")
    if unknown and not parsable and any(row["start"] is None and row["predicted_start"] for row in rows):
        note(of_unknown_length(unknown))
    return 0


def _ended(
    rows: Sequence[Mapping[str, Any]], states: Sequence[str] | None, user: str | None, name: str | None
) -> list[Mapping[str, Any]]:
    """Of the jobs that were chosen those that have ended, the last one first."""
    over = [
        row
        for row in rows
        if row["state"] not in ("PENDING", "RUNNING")
        and (states is None or row["state"] in states)
        and (user is None or row["user"] == user)
        and (name is None or row["name"] == name)
    ]
    return sorted(over, key=lambda row: row["end"] or 0.0, reverse=True)


def of_unknown_length(count: int) -> str:
    """What a forecast rests on that had to guess."""
    which = (
        "1 job it is not known how long it takes"
        if count == 1
        else f"{count} jobs it is not known how long they take"
    )
    return f"of {which}: starts behind that are guesses"


def _nothing(about: Mapping[str, Any], *, ended: bool, chosen: bool) -> str:
    """Who submitted a moment ago and finds no job learns how they ended."""
    if chosen:
        return (
            f"No such job {'has ended' if ended else 'runs or waits (--ended lists those that have ended)'}."
        )
    if not about["ended"]:
        return "No job has ended." if ended else "The queue is empty."
    counts = ", ".join(f"{count} {state}" for state, count in sorted(about["ended"].items()))
    return f"The queue is empty; ended: {counts} ('dovetail queue --ended' lists them)."


def queue_row(row: Mapping[str, Any], now: float) -> dict[str, str]:
    """A row of the API as people see it; ``~`` marks what is predicted."""
    start = clock(row["start"], now) or _predicted(row["predicted_start"], now)
    expected = row["predicted_end"]
    late = row["start"] is not None and expected is not None and expected < now
    end = clock(row["end"], now) or ("overdue" if late else _predicted(expected, now))
    where = ",".join(row["devices"]) or row["nodes"]
    reason = row["reason"]
    if row["exit_code"] and row["state"] == "FAILED" and not reason:
        reason = f"exit code {row['exit_code']}"
    return {
        "id": row["id"],
        "name": row["name"],
        "user": row["user"] or "",
        "state": row["state"],
        "submitted": clock(row["submit"], now),
        "start": start,
        "end": end,
        "where": where,
        "reason": reason,
    }


def _between(row: Mapping[str, Any], name: str, now: float) -> str:
    """`` (between 14:10 and 16:30, 90 %)`` of a predicted time, empty where there is no interval."""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    if low is None or high is None:
        return ""
    return f", between {clock(low, now)} and {clock(high, now)} ({100 * row['confidence']:.0f} %)"


def _predicted(when: float | None, now: float) -> str:
    return f"~{clock(max(when, now), now)}" if when is not None else ""


@opt.takes("info")
def info(job: str | None, at: str | None, as_json: bool) -> int:
    """Show how the service stands, or all of a job; of several (a name, an array) one after the other."""
    with opened(at) as service:
        if job is None:
            found = [service.get("/api/v1/info")]
        else:
            meant = jobs_meant(service, job)
            found = [service.get(f"/api/v1/jobs/{one['id']}") for one in meant]
    if as_json:
        print_json(found[0] if len(found) == 1 else found)
    elif job is None:
        _print_service(found[0])
    else:
        for number, one in enumerate(found):
            if number:
                print()
            _print_job(one)
    return 0


def _print_service(found: Mapping[str, Any]) -> None:
    from dovetail.report.wording import many  # who only asks for the queue does not wait for it

    jobs, up = found["jobs"], span(found["now"] - found["since"])
    nodes, cpus, devices = (many(found[f"{thing}s"], thing) for thing in ("node", "cpu", "device"))
    used = f"{nodes}, {cpus.replace('cpu', 'CPU')} ({found['cpus_used']} used), {devices}"
    lines = {
        "service": f"process {found['pid']}, Dovetail {found['version']}, up {up}",
        "folder": found["folder"],
        "cluster": f"{found['cluster']}: {used}",
        "policy": found["policy"],
        "executor": found["executor"],
        "jobs": f"{jobs['running']} running, {jobs['waiting']} waiting, {jobs['held']} held back",
        "ended": ", ".join(f"{count} {state}" for state, count in sorted(found["ended"].items()))
        or "none yet",
    }
    for one in found["elsewhere"]:
        since, until = (clock(one[name], found["now"]) for name in ("since", "until"))
        when = (f" since {since}" if since else "") + (f", until about {until}" if until else "")
        lines["elsewhere"] = (
            lines.get("elsewhere", "") and lines["elsewhere"] + "; "
        ) + f"{printable(one['who'])} holds {', '.join(one['units'])}{when}"
    if found["draining"]:
        lines["draining"] = "starts nothing more, and ends when what runs has ended"
    if found["blocked"]:
        lines["blocked"] = found["blocked"]
    for key, value in lines.items():
        print(f"{key + ':':<10}{value}")
    if found["fair"] is not None:
        print(f"usage:    of the whole machine, halved every {span(found['fair']['half_life'])}; least first")
        for one in found["fair"]["users"]:
            share = "" if one["share"] == 1 else f", share {one['share']:g}"
            print(f"          {printable(one['user'] or 'nobody')}: {span(one['used'])}{share}")


def _print_job(found: Mapping[str, Any]) -> None:
    now = found["submit"]
    names = ("id", "name", "app", "user", "state", "reason", "detail", "priority", "partition", "depends")
    lines: dict[str, Any] = {name: found[name] for name in names}
    for name in ("submit", "start", "end", "predicted_start", "predicted_end"):
        lines[name.replace("_", " ")] = clock(found[name], now) + _between(found, name, now)
    lines["predicted"] = span(found["predicted"])
    if found["start"] is not None and found["end"] is not None:
        lines["took"] = span(found["end"] - found["start"])
    lines["walltime"] = span(found["walltime"])
    lines["begin"] = clock(found["begin"], now)
    lines |= {name: value for name, value in found["options"].items() if value}
    lines["where"] = ", ".join(found["devices"]) or found["nodes"]
    lines["cores"] = "; ".join(f"{node}: {','.join(map(str, ids))}" for node, ids in found["cores"].items())
    for name, words in found["commands"].items():
        lines[f"command ({name})"] = " ".join(words)
    for one in found["memory"]:
        if one["reserved"] or one["expected"] is not None:
            lines[f"memory ({one['implementation']})"] = memory_words(one)
    lines |= {"folder": found["folder"], "stdout": found["stdout"], "stderr": found["stderr"]}
    lines |= {"exit code": found["exit_code"], "attempts": found["attempts"]}
    for key, value in lines.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        if shown not in (None, ""):
            print(f"{key + ':':<17} {printable(str(shown))}")


@opt.takes("nodes")
def nodes(at: str | None, as_json: bool, parsable: bool) -> int:
    """Show the nodes of the service's cluster and what runs there."""
    with opened(at) as service:
        found = service.get("/api/v1/nodes")["nodes"]
    if as_json:
        print_json(found)
        return 0
    rows = []
    for node in found:
        devices = [
            f"{d['name']} ({','.join(d['jobs'])})" if d["jobs"] else d["name"] for d in node["devices"]
        ]
        rows.append(
            {
                "node": node["name"],
                "state": node["state"],
                "cpus": f"{node['cpus_used']}/{node['cpus']}",
                "devices": ", ".join(devices),
                "partitions": ",".join(node["partitions"]),
                "jobs": ",".join(node["jobs"][:8]) + (" …" if len(node["jobs"]) > 8 else ""),
            }
        )
    show_rows(("node", "state", "cpus", "devices", "partitions", "jobs"), rows, parsable=parsable)
    return 0
