"""``dovetail queue``, ``info``, ``nodes``: what a service does now."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.cli import options as opt
from dovetail.cli.service import (
    describe_interval,
    format_clock,
    format_span,
    jobs_meant,
    memory_words,
    open_service,
    print_json,
    show_rows,
)
from dovetail.cli.wait import paused_words
from dovetail.errors import InputError
from dovetail.files.sentences import make_printable, show_value, suggest_closest
from dovetail.files.streams import print_note

PATIENCE = 2.0
"""Seconds that a new forecast may take, else an older one is shown."""
SHORT = 120.0
"""Seconds below which an interval is shown as its point."""
COLUMNS = ("id", "name", "user", "state", "submitted", "start", "end", "where", "reason")


@opt.takes_options("queue")
def queue(
    jobs: list[str] | None,
    state: list[str] | None,
    user: str | None,
    name: str | None,
    ended: bool,
    failed: bool,
    since: float | None,
    columns: str | None,
    limit: int,
    at: str | None,
    as_json: bool,
    parsable: bool,
) -> int:
    """Show the queue: what runs, then what waits, with predicted starts and ends (~) and the reason."""
    states = [text.upper() for text in state] if state else None
    chosen_columns = COLUMNS if columns is None else columns_of(columns)
    if failed:
        states = [*(states or ()), *FAILED]
    ended = ended or failed or since is not None
    # By the clock of this machine; a service elsewhere may differ by a little, which hours and days outweigh.
    after = None if since is None else time.time() - since
    with open_service(at) as service:
        chosen = ",".join(jobs) if jobs else None
        if ended and chosen is None:
            found = service.get("/api/v1/ended", state=states, user=user, name=name, since=after, limit=limit)
        else:
            query = {"state": states, "user": user, "name": name, "limit": limit, "patience": PATIENCE}
            found = service.get("/api/v1/jobs", jobs=chosen, **query)
        about = service.get("/api/v1/info")
    now = about["now"]
    if about["blocked"] and not (ended or as_json or parsable):
        print_note(about["blocked"])
    if about.get("paused") and not (ended or as_json or parsable):
        print_note(paused_words(about["paused"]))
    rows = found["jobs"]
    # Chosen jobs come whatever their state, so the rest of the filters is applied here.
    if ended and chosen is not None:
        rows = [row for row in _ended_rows(rows, states, user, name) if (row["end"] or 0.0) >= (after or 0.0)]
    if as_json:
        print_json(rows)
        return 0
    if not rows and not parsable:
        print(_explain_empty(about, ended=ended, chosen=bool(chosen or states or user or name or after)))
        return 0
    show_rows(chosen_columns, [queue_row(row, now, whole=parsable) for row in rows], parsable=parsable)
    waits = {row["reason"] for row in rows if row["state"] == "PENDING"}
    for holder in () if parsable else about.get("elsewhere", ()):
        # The column of reasons has no room for who, since when and until when.
        if any(holder["who"] in reason for reason in waits):
            print_note(holder_words(holder, now))
    # The total is of all jobs in the queue, not of those that were chosen.
    left = 0 if ended and chosen is not None else found.get("total", len(rows)) - len(rows)
    if left > 0 and not parsable:
        print_note(f"and {left} more (--limit)")
    age = found.get("forecast_age")
    # Under a second it is as good as fresh.
    predicted = any(row["start"] is None and row["predicted_start"] is not None for row in rows)
    if age is not None and age >= 1 and predicted and not parsable:
        print_note(f"predicted starts are as of {format_span(age)} ago")
    if not parsable and any(start_interval(row, now) for row in rows if row["start"] is None):
        print_note("a start ~A..B lies between A and B nine times in ten")
    unknown = found.get("forecast_unknown")
    if unknown and not parsable and any(row["start"] is None and row["predicted_start"] for row in rows):
        print_note(of_unknown_length(unknown))
    return 0


def holder_words(holder: Mapping[str, Any], now: float) -> str:
    """Another Dovetail that holds some of the machine: who, what, since when, until when."""
    since, until = (format_clock(holder[name], now) for name in ("since", "until"))
    when = (f" since {since}" if since else "") + (f", until about {until}" if until else "")
    return f"{make_printable(holder['who'])} holds {', '.join(holder['units'])}{when}"


def _ended_rows(
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


def _explain_empty(about: Mapping[str, Any], *, ended: bool, chosen: bool) -> str:
    """Who submitted a moment ago and finds no job learns how they ended."""
    if chosen:
        return (
            f"No such job {'has ended' if ended else 'runs or waits (--ended lists those that have ended)'}."
        )
    if not about["ended"]:
        return "No job has ended." if ended else "The queue is empty."
    counts = ", ".join(f"{count} {state}" for state, count in sorted(about["ended"].items()))
    return f"The queue is empty; ended: {counts} ('dovetail queue --ended' lists them)."


FAILED = ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
"""States of jobs that have failed."""
MOST_COMMAND = 40
"""Characters of a command in the place of a name."""
LETTERS: Mapping[str, str] = {
    "A": "id", "C": "cores", "D": "node_count", "L": "left", "M": "took", "N": "nodes", "P": "partition",
    "Q": "priority", "R": "reason", "S": "start", "T": "state", "V": "submitted", "b": "devices", "e": "end",
    "i": "id", "j": "name", "l": "walltime", "o": "command", "p": "priority", "r": "reason", "t": "state",
    "u": "user",
}  # fmt: skip
"""Columns by the letters of ``squeue --format``."""
OTHERS = (
    "app", "attempts", "command", "cores", "detail", "devices", "exit_code", "gpu_memory", "gpu_use",
    "implementation", "left", "node_count", "nodes",
    "partition", "priority", "took", "walltime",
)  # fmt: skip
"""Columns that are only shown where they are named."""


_LETTER = re.compile(r"%\.?[0-9]*([A-Za-z])")


def columns_of(text: str) -> list[str]:
    """Columns by their names, ``id,name``, or by the letters of squeue, ``%.18i %j``, whose widths are ours.

    Raises `InputError`.
    """
    names: list[str] = _LETTER.findall(text)
    # squeue's widths are dropped: columns here are as wide as they need to be.
    if names and not _LETTER.sub("", text).strip(" |,"):
        unknown = [letter for letter in names if letter not in LETTERS]
        if unknown:
            expected = " ".join(f"%{letter}" for letter in LETTERS)
            raise InputError(f"found %{unknown[0]}, expected some of {expected}", where="--columns")
        return list(dict.fromkeys(LETTERS[letter] for letter in names))
    names = [name.strip().lower() for name in text.split(",")]
    known = (*COLUMNS, *OTHERS)
    for name in names:
        if name not in known:
            raise InputError(f"found {show_value(name)}{suggest_closest(name, known)}", where="--columns")
    # Each once, or the table would have two columns of one name.
    return list(dict.fromkeys(names))


def name_or_command(row: Mapping[str, Any], *, whole: bool = False) -> str:
    """What a row is known by: the name that its user gave it, else its command, shortened in the middle."""
    name, command = str(row["name"]), str(row.get("command") or "")
    if name != row["app"] or not command:
        return name
    return command if whole or len(command) <= MOST_COMMAND else shorten_text(command, MOST_COMMAND)


def shorten_text(text: str, width: int) -> str:
    """A text of at most ``width`` characters, cut out of its middle.

    >>> shorten_text("python train.py --rows 1e6 data.csv", 20)
    'python tr…6 data.csv'
    """
    if len(text) <= width:
        return text
    end = width // 2
    return f"{text[: width - end - 1].rstrip()}…{text[-end:].lstrip()}"


def queue_row(row: Mapping[str, Any], now: float, *, whole: bool = False) -> dict[str, str]:
    """A row of the API as people see it; ``~`` marks what is predicted. ``whole``: no command is cut."""
    start = (
        format_clock(row["start"], now)
        or start_interval(row, now)
        or _predicted_text(row["predicted_start"], now)
    )
    end = format_clock(row["end"], now) or _end_text(row, now)
    where = ",".join(row["devices"]) or row["nodes"]
    reason = row["reason"]
    if row["exit_code"] and row["state"] == "FAILED" and not reason:
        reason = f"exit code {row['exit_code']}"
    if reason == "begins later" and row.get("begin") is not None:
        reason = f"begins {format_clock(row['begin'], now)}"
    return {
        "id": row["id"],
        "name": name_or_command(row, whole=whole),
        "user": row["user"] or "",
        "state": row["state"],
        "submitted": format_clock(row["submit"], now),
        "start": start,
        "end": end,
        "where": where,
        "reason": reason,
        "app": row["app"],
        "attempts": str(row["attempts"]),
        "command": str(row.get("command") or row["name"]),
        "cores": "; ".join(f"{node}: {','.join(map(str, ids))}" for node, ids in row["cores"].items()),
        "detail": row["detail"] or "",
        "devices": ",".join(row["devices"]),
        "exit_code": "" if row["exit_code"] is None else str(row["exit_code"]),
        "gpu_memory": "" if row.get("gpu_memory") is None else f"{row['gpu_memory'] / 1e9:.1f} GB",
        "gpu_use": "" if row.get("gpu_use") is None else f"{100 * row['gpu_use']:.0f} %",
        "implementation": row["implementation"] or "",
        "left": _left_text(row, now),
        "node_count": str(len(row["cores"]) or ""),
        "nodes": row["nodes"] or "",
        "partition": row["partition"] or "",
        "priority": f"{row['priority']:g}",
        "took": "" if row["start"] is None else format_span((row["end"] or now) - row["start"]),
        "walltime": format_span(row["walltime"]),
    }


def _end_text(row: Mapping[str, Any], now: float) -> str:
    """When a job ends; of one that runs longer than expected by when nine in ten do, or that it is overdue.

    Too few runs show no such bound: past a guess nothing is known.
    """
    expected, by = row["predicted_end"], row.get("predicted_end_by")
    if row["start"] is None or expected is None or expected >= now:
        return _predicted_text(expected, now)
    if by is None:
        return "unknown"
    return "overdue" if by < now else f"by {_predicted_text(by, now)}"


def start_interval(row: Mapping[str, Any], now: float) -> str:
    """``~14:10..16:30``: between when and when it starts; empty where that is unknown, or minutes alike."""
    low, high = row.get("predicted_start_low"), row.get("predicted_start_high")
    if low is None or high is None or high - low < SHORT:
        return ""
    # Years and seconds are left out, as a range has to fit into one column.
    first, last = (
        re.sub(r"^[0-9]{4}-|(?<=:[0-9]{2}):[0-9]{2}$", "", format_clock(at, now)) for at in (low, high)
    )
    return f"~{first}..{last}"


def _left_text(row: Mapping[str, Any], now: float) -> str:
    """How long a job may still run; empty where it has no walltime, or has ended."""
    if row["walltime"] is None or row["end"] is not None:
        return ""
    spent = 0.0 if row["start"] is None else now - row["start"]
    return format_span(max(row["walltime"] - spent, 0.0))


def _predicted_text(when: float | None, now: float) -> str:
    # Not earlier than now: the forecast is a little older than this moment.
    return f"~{format_clock(max(when, now), now)}" if when is not None else ""


@opt.takes_options("info")
def info(job: str | None, at: str | None, as_json: bool) -> int:
    """Show how the service stands, or all of a job; of several (a name, an array) one after the other."""
    with open_service(at) as service:
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
    from dovetail.driver.gpu_hours import describe_window
    from dovetail.report.wording import count_things  # a plain look at the queue does not wait for it

    jobs, up = found["jobs"], format_span(found["now"] - found["since"])
    nodes, cpus, devices = (count_things(found[f"{thing}s"], thing) for thing in ("node", "cpu", "device"))
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
    if found.get("kept") is not None:
        lines |= _kept_lines(found["kept"], found["now"])
    if found.get("elsewhere"):
        lines["elsewhere"] = "; ".join(holder_words(one, found["now"]) for one in found["elsewhere"])
    if found.get("draining"):
        lines["draining"] = "starts nothing more, and ends when what runs has ended"
    if found.get("blocked"):
        lines["blocked"] = found["blocked"]
    for key, value in lines.items():
        print(f"{key + ':':<11}{value}")
    if (hours := found.get("gpu_hours")) is not None:
        window = describe_window(hours["window"])
        print(f"gpu hours: at most {hours['limit']:g} for each user in {window}; most first")
        for one in hours["users"]:
            claims = f", and {one['claimed']:.4g} that jobs may still use" if one["claimed"] else ""
            back = f"; some come back by {format_clock(one['back'], found['now'])}" if one["back"] else ""
            print(f"           {make_printable(one['user'] or 'no user')}: {one['used']:.4g}{claims}{back}")
    if found.get("fair") is not None:
        print(
            f"usage:     of the whole machine, halved every "
            f"{format_span(found['fair']['half_life'])}; least first"
        )
        for one in found["fair"]["users"]:
            share = "" if one["share"] == 1 else f", share {one['share']:g}"
            print(f"           {make_printable(one['user'] or 'no user')}: {format_span(one['used'])}{share}")


def _kept_lines(kept: Mapping[str, Any], now: float) -> dict[str, str]:
    """What is on disk, and how long it stays after a job's end."""
    from dovetail.report.wording import count_things

    since = f" since {format_clock(kept['since'], now)}" if kept["since"] is not None else ""
    days = {name: kept[name] / 86_400 for name in ("forget_after", "keep_output")}
    stays = {name: f" (for {count_things(round(n, 1), 'day')})" if n else "" for name, n in days.items()}
    jobs, files = count_things(kept["jobs"], "job"), count_things(kept["output_files"], "file")
    return {
        "kept": f"{jobs}{since}, {_format_megabytes(kept['ledger_bytes'])}{stays['forget_after']}",
        "output": f"{files}, {_format_megabytes(kept['output_bytes'])}{stays['keep_output']}",
    }


def _format_megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def _print_job(found: Mapping[str, Any]) -> None:
    now = found["submit"]
    names = ("id", "name", "app", "user", "state", "reason", "detail", "priority", "partition", "depends")
    lines: dict[str, Any] = {name: found[name] for name in names}
    for name in ("submit", "start", "end", "predicted_start", "predicted_end"):
        words = describe_interval(found, name, found["submit"]) if name.startswith("predicted") else ""
        lines[name.replace("_", " ")] = ", ".join(filter(None, (format_clock(found[name], now), words)))
    if found["state"] == "PENDING" and found["predicted_start"] is None:
        lines["predicted start"] = "unknown"
    lines["predicted"] = format_span(found["predicted"])
    if found["start"] is not None and found["end"] is not None:
        lines["took"] = format_span(found["end"] - found["start"])
    lines["walltime"] = format_span(found["walltime"])
    lines["begin"] = format_clock(found["begin"], now)
    lines |= {name: value for name, value in found["options"].items() if value}
    lines["where"] = ", ".join(found["devices"]) or found["nodes"]
    lines["cores"] = "; ".join(f"{node}: {','.join(map(str, ids))}" for node, ids in found["cores"].items())
    for name, words in found["commands"].items():
        lines[f"command ({name})"] = " ".join(words)
    for one in found["memory"]:
        if one["reserved"] or one["expected"] is not None:
            lines[f"memory ({one['implementation']})"] = memory_words(one)
    if found.get("gpu_memory") is not None:
        lines["gpu memory"] = f"{found['gpu_memory'] / 1e9:.1f} GB at its peak"
    if found.get("gpu_use") is not None:
        lines["gpu use"] = f"{100 * found['gpu_use']:.0f} %"
    lines |= {"folder": found["folder"], "stdout": found["stdout"], "stderr": found["stderr"]}
    lines |= {"exit code": found["exit_code"], "attempts": found["attempts"]}
    if found["state"] in ("PENDING", "RUNNING"):  # of a job that runs again, what came of it before
        lines = {"last attempt" if key == "detail" else key: value for key, value in lines.items()}
    for key, value in lines.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        if shown not in (None, ""):
            print(f"{key + ':':<17} {make_printable(str(shown))}")


@opt.takes_options("nodes")
def nodes(at: str | None, as_json: bool, parsable: bool) -> int:
    """Show the nodes of the service's cluster and what runs there."""
    with open_service(at) as service:
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
    for line in () if parsable else idle_lines(found):
        print(line)
    return 0


def idle_lines(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which devices jobs hold without using them."""
    return [
        f"{device['name']} on {node['name']} is held by {make_printable(idle['user'] or 'an unknown user')} "
        f"(job {make_printable(idle['job'])}), 0 % busy for {format_span(idle['seconds'])}"
        for node in nodes
        for device in node["devices"]
        if (idle := device.get("idle")) is not None
    ]
