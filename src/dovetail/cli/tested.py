"""``dovetail submit --test``: when a job would start, and with what else of its own it would start sooner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dovetail.cli.service import format_span, print_json, start_words
from dovetail.client.connection import Connection
from dovetail.errors import InputError
from dovetail.files.streams import print_note
from dovetail.starts.comparing import starts_sooner

MOST_SHOWN = 10
"""Jobs of a test of which a line is printed."""


def test_jobs(service: Connection, form: Mapping[str, Any], *, as_json: bool) -> None:
    """Print when the jobs of a request would start if they were submitted now. Raises `InputError`."""
    found = service.post("/api/v1/jobs/test", form)
    rows: list[dict[str, Any]] = found["jobs"]
    drawn = [row.pop("draws") for row in rows]
    others = _alternative_rows(service, form, drawn[0]) if len(rows) == 1 and drawn[0] else []
    if as_json:
        print_json({**rows[0], "sooner": others} if len(rows) == 1 else rows)
        return
    print("Nothing is submitted. If it were now:")
    for row in rows[:MOST_SHOWN]:
        prefix = "" if len(rows) == 1 else f"job {row['id']} "
        print(f"{prefix}starts {start_words(row, found['at'])}")
    for other in others:
        print(other_start_words(other, found["at"]))
    if len(rows) > MOST_SHOWN:
        print_note(f"and {len(rows) - MOST_SHOWN} more (--json has all)")


def sooner_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Of a waiting job when it starts, and when with something else requested."""
    now = found["at"]
    yield f"starts {start_words(found['job'], now)}"
    if not found["sooner"]:
        yield "nothing else that it could request can be compared with that"
    for other in found["sooner"]:
        yield other_start_words({**other, "with": change_words(other["with"])}, now)


def other_start_words(other: Mapping[str, Any], now: float) -> str:
    """When a job would start that requests something else, and whether that can be called sooner."""
    note = "" if other["differs"] else " (later)" if other["later"] else " (no difference can be shown)"
    return f"with {other['with']}: {start_words(other['job'], now)}{note}"


def change_words(change: Mapping[str, Any]) -> str:
    """What is requested otherwise, as its owner would write it."""
    ((name, value),) = change.items()
    if name == "walltime":
        return f"a walltime of {format_span(value)}"
    if name == "nodes":
        return f"{value} node{'s' if value > 1 else ''}"
    return "half the memory" if name == "memory" else f"--{name} {value}"


def _alternative_rows(
    service: Connection, form: Mapping[str, Any], plain: Sequence[float]
) -> list[dict[str, Any]]:
    """What its owner could request instead, by the same draws of all other jobs."""
    names = {name for node in service.get("/api/v1/nodes")["nodes"] for name in node["partitions"]}
    found = []
    for words, job in job_alternatives(form["jobs"][0], sorted(names)):
        try:
            answer = service.post("/api/v1/jobs/test", {**form, "jobs": [job]})
        except InputError:  # it cannot run so
            continue
        (row,) = answer["jobs"]
        draws = row.pop("draws")
        if draws:
            later = starts_sooner(plain, draws)
            found.append({"with": words, "job": row, "differs": starts_sooner(draws, plain), "later": later})
    return found


def job_alternatives(job: Mapping[str, Any], partitions: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """A job of a request, with one thing changed that its owner has given."""
    found: list[tuple[str, dict[str, Any]]] = []
    kinds, walltime, nodes, memory = (job.get(name) for name in ("on", "walltime", "nodes", "memory"))
    if isinstance(kinds, list) and len(kinds) > 1:
        found += [(f"--on {kind}", {**job, "on": [kind]}) for kind in kinds]
    if isinstance(walltime, int | float):
        found += [
            (f"a walltime of {format_span(walltime / part)}", {**job, "walltime": walltime / part})
            for part in (2, 4)
        ]
    if job.get("partition"):
        found += [
            (f"--partition {name}", {**job, "partition": name})
            for name in partitions
            if name != job["partition"]
        ]
    if isinstance(nodes, int) and nodes > 1:
        found.append((f"{-(-nodes // 2)} nodes", {**job, "nodes": -(-nodes // 2)}))
    if isinstance(memory, int) and memory > 1:
        found.append(("half the memory", {**job, "memory": memory // 2}))
    return found
