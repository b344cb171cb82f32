"""What the jobs of one file wait for: names resolved, circles refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from graphlib import CycleError, TopologicalSorter

from dovetail.errors import InputError
from dovetail.files.sentences import suggest_closest
from dovetail.model import Dependency, Job, JobId
from dovetail.records import dataclass


@dataclass(slots=True)
class EntryJobs:
    """The jobs of one entry of a file, and what they all wait for, as it is written there.

    ``name`` is the entry's id, which stands for all its copies; ``where`` begins a sentence about it.
    """

    where: str
    name: str | None
    jobs: list[Job] = field(default_factory=list)
    depends: Sequence[Dependency] = ()


@dataclass(frozen=True, slots=True)
class EntryNames:
    """The ids of one entry's jobs, and what they all wait for; see `EntryJobs`."""

    where: str
    name: str | None
    ids: Sequence[JobId]
    depends: Sequence[Dependency] = ()


def resolve_dependencies(entries: Sequence[EntryJobs]) -> list[Job]:
    """All jobs in file order, each with the jobs that it waits for.

    ``afterok:ID`` names a job, or all copies of an entry. Raises `InputError` for a job that is not there
    and for jobs that wait for each other. Linear in jobs and dependencies.
    """
    jobs = [job for entry in entries for job in entry.jobs]
    if not any(entry.depends for entry in entries):
        return jobs
    names = [EntryNames(one.where, one.name, [job.id for job in one.jobs], one.depends) for one in entries]
    return [
        replace(job, depends=depends) if depends else job
        for entry, depends in zip(entries, resolve_names(names), strict=True)
        for job in entry.jobs
    ]


def resolve_names(entries: Sequence[EntryNames]) -> list[tuple[Dependency, ...]]:
    """What the jobs of each entry wait for, by their ids. Raises `InputError`, as `resolve_dependencies`."""
    entry_of = {id: number for number, entry in enumerate(entries) for id in entry.ids}
    copies: dict[str, Sequence[JobId]] = {}
    for entry in entries:
        if entry.name is not None and entry.name not in entry_of:
            copies[entry.name] = entry.ids
    waits: list[tuple[Dependency, ...]] = [_find_dependencies(entry, entry_of, copies) for entry in entries]
    _refuse_circles(entries, [sorted({entry_of[one.job] for one in each}) for each in waits])
    return waits


def _find_dependencies(
    entry: EntryNames, entry_of: Mapping[JobId, int], copies: Mapping[str, Sequence[JobId]]
) -> tuple[Dependency, ...]:
    found: dict[Dependency, None] = {}
    for wanted in entry.depends:
        ids = [wanted.job] if wanted.job in entry_of else copies.get(wanted.job)
        if ids is None:
            known = [*copies, *entry_of]
            raise InputError(
                f"depends: found {str(wanted)!r}, a job that is not "
                f"there{suggest_closest(wanted.job, known)}",
                where=entry.where,
            )
        found.update(dict.fromkeys(replace(wanted, job=id) for id in ids))
    return tuple(found)


def _refuse_circles(entries: Sequence[EntryNames], edges: Sequence[Sequence[int]]) -> None:
    try:
        TopologicalSorter(dict(enumerate(edges))).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]  # each waits for the next
        names = " waits for ".join(_entry_label(entries[at]) for at in circle[:8])
        raise InputError(
            f"depends: found a circle ({names}), expected none", where=entries[circle[0]].where
        ) from None


def _entry_label(entry: EntryNames) -> str:
    return repr(entry.name or (entry.ids[0] if entry.ids else "?"))
