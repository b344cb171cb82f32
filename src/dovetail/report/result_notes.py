"""What a result leaves unknown: missing times, policies that could not do as they are named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dovetail.errors import InputError, NothingKnown
from dovetail.interfaces import traits_of
from dovetail.model import CPU, Cluster, Note, Record, Result, Workload
from dovetail.plugins import LoadedPolicy
from dovetail.report.wording import count_things

_HINT = "give times, run the jobs once, or name a history that knows them"


def check_some_ran(result: Result) -> None:
    """Raises `InputError` where there were jobs and every one is rejected."""
    if result.records or not result.rejected:
        return
    # One reason stands for all: they mostly share it, and a message has one line.
    first, count = result.rejected[0], len(result.rejected)
    every = "the only job is rejected" if count == 1 else f"all {count:,} jobs are rejected, the first"
    # Unknown times are no mistake of the input: an empty result, for comparisons, goes with the error.
    unknown = any("run time is unknown" in rejected.reason for rejected in result.rejected)
    if not unknown:
        raise InputError(f"{every}, {first.id}: {first.reason}", where=result.workload)
    sentence = f"{every}, {first.id}: {first.reason}; {_HINT}"
    note = Note(f"No time of any job is known: {_HINT}.", "unknown")
    empty = replace(result, known=False, notes=[*result.notes, note])
    raise NothingKnown(sentence, where=result.workload, result=empty)


def ignores_priorities(jobs: Workload, loaded: LoadedPolicy) -> bool:
    """Whether jobs have priorities that the policy does not look at."""
    return not traits_of(loaded.policy).priorities and any(job.priority for job in jobs.jobs)


def kinds_used(loaded: LoadedPolicy) -> Callable[[str], bool]:
    """Which kinds of device a policy goes to, by its name: all but for those that keep to some."""
    keeps = traits_of(loaded.policy).keeps_to
    return lambda kind: keeps not in ("cpu", "devices") or (kind == CPU) is (keeps == "cpu")


def unknown_result(
    jobs: Workload, machine: Cluster, loaded: LoadedPolicy, kinds: Sequence[str], notes: Sequence[Note]
) -> Result:
    """The result where nothing can be predicted, since nothing is known of such devices."""
    named = " or ".join(kinds)
    text = f"Unknown: no time of any job is known on {named}, where jobs would go; {_HINT}."
    # This note replaces those on single jobs.
    others = [note for note in notes if note.code != "unknown"]
    return Result(
        policy=loaded.name,
        options=dict(loaded.options),
        workload=jobs.name,
        cluster=machine,
        records=(),
        rejected=jobs.rejected,
        skipped=jobs.skipped,
        knowledge="learned",
        known=False,
        notes=[*others, Note(text, "unknown")],
    )


def not_as_named(result: Result, loaded: LoadedPolicy) -> list[Note]:
    """What a policy did that its name denies, for want of another choice."""
    keeps = traits_of(loaded.policy).keeps_to
    # A solver that stops at its time limit gives a good plan, and no proof.
    if keeps == "optimal" and result.plan is not None and result.plan.status != "optimal":
        text = f"{loaded.name}: the plan is the best that was found in time, not proven to be optimal."
        return [Note(text, "not_as_named")]
    if keeps not in ("cpu", "devices"):
        return []

    def elsewhere(record: Record) -> bool:
        one = record.implementation
        return one is not None and (one.kind == CPU) is (keeps == "devices")

    others = [record for record in result.records if elsewhere(record)]
    if not others:
        return []
    assert others[0].implementation is not None
    count = f"{len(others):,} of {count_things(len(result.records), 'job')}"
    first = f"{others[0].job.id} as {others[0].implementation.name}"
    why = "no time on a CPU is known of them" if keeps == "cpu" else "no time on another device is known"
    text = (
        f"{loaded.name} ran {count} elsewhere than its name promises (the first is {first}): {why}, or they "
    )
    return [Note(f"{text}cannot run there.", "not_as_named")]


def best_effort(jobs: Workload, loaded: LoadedPolicy) -> list[Note]:
    """What to know of promises that rest on expected times, where jobs are slowed beyond these."""
    if not traits_of(loaded.policy).slows:
        return []
    # A walltime is a bound that promises can rest on; without one they rest on expected times.
    without = sum(job.walltime is None for job in jobs.jobs)
    if not without:
        return []
    text = (
        f"{count_things(without, 'job')} without a walltime: promises of {loaded.name} are best "
        f"effort, since who "
        "borrows a GPU takes longer than expected."
    )
    return [Note(text, "best_effort")]
