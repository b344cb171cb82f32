"""``scancel``: cancel jobs, or send them a signal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from dovetail_slurm.shims import jobs as of
from dovetail_slurm.shims.jobs import Job
from dovetail_slurm.shims.options import (
    Given,
    Options,
    Wrong,
    has_option,
    last_value,
    listed_values,
    outlive_our_job,
    write_complaint,
)
from dovetail_slurm.shims.service import Refused, Service

OPTIONS = Options(
    "scancel",
    "account=A batch!b .clusters=M .cluster= .ctld! full!f help! .hurry!H interactive!i name=n jobname= me! "
    "nodelist=w partition=p qos=q quiet!Q reservation=R .sibling= signal=s state=t usage! user=u verbose!v "
    "version!V wckey= .cron!",
)
_FILTERS = (
    "account",
    "name",
    "jobname",
    "me",
    "nodelist",
    "partition",
    "qos",
    "state",
    "user",
    "wckey",
    "reservation",
)


def run(words: list[str], place: str) -> int:
    """Cancel, or signal; exit status 1 where something was refused."""
    given, rest = OPTIONS.read(words)
    if has_option(given, "help", "usage"):
        print(f"Usage: scancel [OPTIONS] [job_id[_array_id][.step_id]]\n{' '.join(OPTIONS.values)}")
        return 0
    ids = _read_ids(rest)
    number = _signal_number(given)
    states = _wanted_states(given)
    # Without a job or a filter all of the user's jobs would be meant: scancel refuses that as well.
    if not ids and not has_option(given, *_FILTERS):
        raise Wrong("scancel: error: No job identification provided")
    if has_option(given, "interactive"):
        raise Wrong("scancel: error: --interactive: found, expected a list of jobs without questions")
    service = Service("scancel", place)
    found = _choose_jobs(given, ids, states, service)
    to = "first" if has_option(given, "batch") else "all" if has_option(given, "full") else "others"
    # A signal cannot reach what does not run, and is no reason for a message.
    if number is not None and not has_option(given, "state"):
        found = [job for job in found if not job.waits]
    if not found:
        return 0
    if has_option(given, "verbose"):
        what = "Terminating job" if number is None else f"Signal {number} to job"
        write_complaint(*(f"scancel: {what} {job.id}" for job in found))
    # A job may cancel itself: the answer must still arrive.
    outlive_our_job()
    form: dict[str, Any] = {"jobs": ",".join(str(job["id"]) for job in found)}
    if number is not None:
        form |= {"signal": str(number), "to": to}
    try:
        answer = service.post_form("/api/v1/cancel", form)
    except Refused as error:
        raise Wrong(
            f"scancel: error: Kill job error on job id {found[0].id}: {_slurm_wording(error)}"
        ) from None
    if not has_option(given, "quiet"):
        # scancel is silent about jobs that are over, since it was too late for them in any case.
        for job, why in answer["refused"].items():
            if why not in ("it has ended", "it does not run"):
                write_complaint(f"scancel: error: Kill job error on job id {job}: {why}")
    return 0


def _slurm_wording(error: Refused) -> str:
    return "Access/permission denied" if error.status == 403 else error.text


def _read_ids(rest: Sequence[str]) -> list[str]:
    found = []
    for text in (part for word in rest for part in of.split_list(word)):
        try:
            id, step = of.parse_selector(text)
        except ValueError:
            raise of.wrong_id("scancel", text) from None
        if step and step != "batch":
            raise Wrong(f"scancel: error: {text}: Dovetail keeps no record of the steps of its jobs")
        found.append(id)
    return found


def _signal_number(given: Sequence[Given]) -> int | None:
    """The number of the signal; ``None``: cancel."""
    text = last_value(given, "signal")
    if text is None:
        return None
    import signal

    bare = text.strip().upper().removeprefix("SIG")
    try:
        number = int(bare) if bare.isdecimal() else signal.Signals[f"SIG{bare}"].value
        signal.Signals(number)
    except (KeyError, ValueError):
        raise Wrong(f"Unknown job signal: {text}") from None
    # KILL to a whole job is its end, with all that follows from it.
    return None if number == signal.SIGKILL else number


def _wanted_states(given: Sequence[Given]) -> list[str]:
    texts = listed_values(given, "state")
    try:
        found = of.state_names(texts)
        if not set(found) <= {"PENDING", "RUNNING", "SUSPENDED"}:
            raise ValueError(texts[0])
    except ValueError as error:
        raise Wrong(
            f"Invalid job state specified: {error}", "Valid job states are PENDING, RUNNING, and SUSPENDED"
        ) from None
    return [one for one in found if one in of.OPEN] or ([] if texts else list(of.OPEN))


def _choose_jobs(
    given: Sequence[Given], ids: Sequence[str], states: list[str], service: Service
) -> list[Job]:
    if not states or has_option(given, "reservation"):
        return []
    users = of.user_names(listed_values(given, "user"))
    # Only root may mean the jobs of all users by a filter.
    if has_option(given, "me") or (not users and not ids and os.geteuid() != 0):
        users = [of.account_name()]
    names = listed_values(given, "name", "jobname")
    found = of.load_jobs(service, jobs=",".join(ids) or None, state=states, user=users, name=names)
    for name, value in (
        ("account", lambda job: str(job.option.get("account") or "")),
        ("partition", lambda job: job.partition),
        ("qos", lambda job: str(job.option.get("qos") or "normal")),
        ("wckey", lambda job: str(job.option.get("wckey") or "")),
    ):
        wanted = listed_values(given, name)
        if wanted:
            found = [job for job in found if value(job) in wanted]
    nodes = last_value(given, "nodelist")
    if nodes:
        from dovetail.model.hostlist import expand_hostlist

        places = set(expand_hostlist(nodes))
        found = [job for job in found if places & set(expand_hostlist(job["nodes"] or ""))]
    return found
