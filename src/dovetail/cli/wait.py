"""``dovetail cancel``, ``hold``, ``release``, ``requeue``, ``wait``: what people want of jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.cli import options as opt
from dovetail.cli.service import describe_interval, open_service, print_json
from dovetail.client.connection import Connection
from dovetail.errors import InputError
from dovetail.files.streams import print_note, ring_bell
from dovetail.spec.jobs import as_form

MOST_REFUSED = 10
"""Reasons that are shown why something could not be done …"""
FEW = 5
"""… each with at most so many of its jobs."""
EVERYWHERE = "all"
"""Among the kinds that are paused: the whole queue."""
MOST_LOOKED_AT, LOOK = 1_000, 2.0
"""Jobs whose ends are looked at before they are waited for, and the seconds that a forecast may take."""
PATIENCE = 30.0
"""Seconds of one question; the next one follows after that."""


def _make_action(action: str, past: str, about: str) -> Callable[..., int]:
    """A command that does one thing to jobs; exit status 1 where it could be done to none."""

    def act_on_jobs(jobs: list[str], at: str | None, as_json: bool) -> int:
        with open_service(at) as service:
            found = service.post(f"/api/v1/{action}", {"jobs": ",".join(jobs)})
        return _show_answer(found, past, as_json=as_json)

    act_on_jobs.__name__, act_on_jobs.__doc__ = action, about
    return opt.takes_options(action)(act_on_jobs)


def _show_answer(found: Mapping[str, Any], past: str, *, as_json: bool) -> int:
    """Show of which jobs something is done, and why not of others; the exit status."""
    done, refused = found["jobs"], found.get("refused", {})  # which an older service does not name
    if as_json:
        print_json({"jobs": done, "refused": refused})
    else:
        shown = ", ".join(done[:10]) + (f" and {len(done) - 10} more" if len(done) > 10 else "")
        print(f"{past}: {shown}" if done else f"None of these can be {past.lower()}.")
    whys: dict[str, list[str]] = {}
    for job, why in refused.items():
        whys.setdefault(why, []).append(job)
    # A name may be that of a hundred jobs of which all but one have ended: a line for each reason.
    for why, jobs in list(whys.items())[:MOST_REFUSED]:
        left = f" and {len(jobs) - FEW} more" if len(jobs) > FEW else ""
        what = "job" if len(jobs) == 1 else "jobs"
        was = "was" if len(jobs) == 1 else "were"
        print_note(f"{what} {', '.join(jobs[:FEW])}{left} {was} not {past.lower()}: {why}")
    if len(whys) > MOST_REFUSED:
        print_note(f"and {sum(map(len, list(whys.values())[MOST_REFUSED:]))} more")
    return 0 if done else 1


@opt.takes_options("update")
def update(jobs: list[str], at: str | None, as_json: bool, **given: Any) -> int:
    """Change jobs that wait, and the walltime of those that run; what is not given stays."""
    nothing = given.get("depends") == ["none"]
    part = opt.part_of_options({**given, "depends": None} if nothing else given)
    if nothing:
        part["depends"] = []
    if not part:
        raise InputError(
            "found nothing to change, expected e.g. --walltime 2h or --priority 5", where="update"
        )
    # A singleton is a throttle by name, which the service sets together with the dependencies.
    if part.get("singleton"):
        part.setdefault("depends", [])
    with open_service(at) as service:
        found = service.post("/api/v1/update", {"jobs": ",".join(jobs), "changes": as_form(part)})
    return _show_answer(found, "Updated", as_json=as_json)


@opt.takes_options("move")
def move(job: str, first: bool, after: str | None, at: str | None, as_json: bool) -> int:
    """Give waiting jobs other places in the queue; priorities and fair shares go before places."""
    if first == (after is not None):
        many = "--first and --after" if first else "no place"
        raise InputError(f"found {many}, expected one of --first and --after JOB", where="move")
    with open_service(at) as service:
        found = service.post("/api/v1/move", {"job": job, "after": after})
    return _show_answer(found, "Moved", as_json=as_json)


@opt.takes_options("cancel")
def cancel(jobs: list[str], signal: str | None, at: str | None, as_json: bool) -> int:
    """Cancel jobs that wait, stop those that run; exit status 1 if there was none."""
    form = {"jobs": ",".join(jobs), **({} if signal is None else {"signal": signal})}
    with open_service(at) as service:
        found = service.post("/api/v1/cancel", form)
    return _show_answer(found, "Cancelled" if signal is None else "Signalled", as_json=as_json)


hold = _make_action("hold", "Held", "Hold waiting jobs.")
release = _make_action("release", "Released", "Let jobs go that were held back.")


@opt.takes_options("requeue")
def requeue(jobs: list[str] | None, failed: bool, at: str | None, as_json: bool) -> int:
    """Run jobs again: ended ones now, running ones after they were stopped; with --failed what failed."""
    if not (jobs or failed):
        raise InputError("found no job, expected numbers, a name, 'last', 'all' or --failed", where="requeue")
    form = {"jobs": ",".join(jobs) if jobs else None, **({"failed": True} if failed else {})}
    with open_service(at) as service:
        found = service.post("/api/v1/requeue", form)
    return _show_answer(found, "Requeued", as_json=as_json)


def _make_queue_action(action: str, about: str) -> Callable[..., int]:
    """A command that pauses the queue, or has it go on."""

    def change_queue(kind: str | None, at: str | None, as_json: bool) -> int:
        with open_service(at) as service:
            paused = service.post(f"/api/v1/queue/{action}", {"kinds": opt.read_kinds(kind)})["paused"]
        if as_json:
            print_json({"paused": paused})
        else:
            print(paused_words(paused) or "The queue is not paused: jobs start.")
        return 0

    change_queue.__name__, change_queue.__doc__ = action, about
    return opt.takes_options(action)(change_queue)


def paused_words(paused: Sequence[str]) -> str:
    """What is paused, as a sentence; empty where nothing is."""
    if not paused:
        return ""
    which = "" if EVERYWHERE in paused else f" for {', '.join(paused)}"
    return f"The queue is paused{which}: what runs goes on, what waits waits ('dovetail resume')."


pause = _make_queue_action("pause", "Pause the queue: jobs that wait go on waiting, those that run go on.")
resume = _make_queue_action("resume", "Start jobs again after a pause.")


@opt.takes_options("wait")
def wait(
    jobs: list[str], timeout: float | None, bell: bool, patience: float, at: str | None, as_json: bool
) -> int:
    """Wait until jobs have ended: exit status 0 if all are COMPLETED, else 1."""
    with open_service(at) as service:
        # A short timeout of the user's must not be stretched by the patience for a restart.
        service.be_patient(patience if timeout is None else min(patience, timeout), print_note)
        if not as_json:
            _show_expected(service, ",".join(jobs))
        status = wait_for(service, ",".join(jobs), timeout, as_json=as_json)
    if bell:
        ring_bell()
    return status


def _show_expected(service: Connection, jobs: str) -> None:
    """On a terminal: between when and when the last of the jobs ends that wait or run, where it is known."""
    # For people only: a script would have to parse it.
    if not sys.stderr.isatty():
        return
    rows = service.get("/api/v1/jobs", jobs=jobs, limit=MOST_LOOKED_AT, patience=LOOK)["jobs"]
    rows = [row for row in rows if row["end"] is None]
    # One unknown length leaves the end of all open.
    if rows and all(row["predicted_end_high"] is not None for row in rows):
        last = max(rows, key=lambda row: float(row["predicted_end_high"]))
        words = describe_interval(last, "predicted_end", time.time())
        print_note(f"{'job' if len(rows) == 1 else 'the last job,'} {last['id']} ends {words}")


def wait_for(
    service: Connection, jobs: str, timeout: float | None, *, as_json: bool = False, quiet: bool = False
) -> int:
    """Wait for jobs; the exit status shows how they ended."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = PATIENCE if deadline is None else max(0.0, min(PATIENCE, deadline - time.monotonic()))
        found = service.post("/api/v1/wait", {"jobs": jobs, "timeout": left})
        if not found["left"] or (deadline is not None and time.monotonic() >= deadline):
            break
    if as_json:
        print_json(found["jobs"])
    elif not quiet:
        for one in found["jobs"]:
            if one["state"] != "COMPLETED":
                print_note(f"job {one['id']}: {one['state']}")
    if found["left"]:
        return 124
    return int(any(one["state"] != "COMPLETED" for one in found["jobs"]))
