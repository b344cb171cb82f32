"""``dovetail cancel``, ``hold``, ``release``, ``requeue``, ``wait``: what people want of jobs."""

from __future__ import annotations

import time

from dovetail.cli import options as opt
from dovetail.cli.service import joined, opened, print_json
from dovetail.files.streams import note
from dovetail.service.client import Connection

PATIENCE = 30.0
"""Seconds of one question; the service is asked again after that."""


def _act(action: str, past: str, jobs: list[str], at: str | None, as_json: bool) -> int:
    with opened(at) as service:
        done = service.post(f"/api/v1/{action}", {"jobs": joined(jobs)})["jobs"]
    if as_json:
        print_json({"jobs": done})
    else:
        shown = ", ".join(done[:10]) + (f" and {len(done) - 10} more" if len(done) > 10 else "")
        print(f"{past}: {shown}" if done else f"None of these can be {past.lower()}.")
    return 0 if done else 1


@opt.takes("cancel")
def cancel(jobs: list[str], at: str | None, as_json: bool) -> int:
    """Cancel jobs that wait, stop those that run; exit status 1 if there was none."""
    return _act("cancel", "Cancelled", jobs, at, as_json)


@opt.takes("hold")
def hold(jobs: list[str], at: str | None, as_json: bool) -> int:
    """Keep waiting jobs back."""
    return _act("hold", "Held", jobs, at, as_json)


@opt.takes("release")
def release(jobs: list[str], at: str | None, as_json: bool) -> int:
    """Let jobs go that were held back."""
    return _act("release", "Released", jobs, at, as_json)


@opt.takes("requeue")
def requeue(jobs: list[str], at: str | None, as_json: bool) -> int:
    """Run jobs again: ended ones now, running ones after they were stopped."""
    return _act("requeue", "Requeued", jobs, at, as_json)


@opt.takes("wait")
def wait(jobs: list[str], timeout: float | None, at: str | None, as_json: bool) -> int:
    """Wait until jobs have ended: exit status 0 if all are COMPLETED, else 1."""
    with opened(at) as service:
        return wait_for(service, joined(jobs), timeout, as_json=as_json)


def wait_for(
    service: Connection, jobs: str, timeout: float | None, *, as_json: bool = False, quiet: bool = False
) -> int:
    """Wait for jobs; the exit status that says how they ended."""
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
                note(f"job {one['id']}: {one['state']}")
    if found["left"]:
        return 124
    return int(any(one["state"] != "COMPLETED" for one in found["jobs"]))
