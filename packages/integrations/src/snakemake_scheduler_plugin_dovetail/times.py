"""Learned times of Snakemake's jobs, and the longest chain of jobs behind each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.history import SqliteHistory, default_history_path
from dovetail.history.base import canonical_inputs
from dovetail.runtimes import make_model
from dovetail.runtimes.base import HistoryModel, Query
from snakemake_executor_plugin_dovetail import rule_features

__all__ = ["LearnedTimes", "rank_jobs"]


class LearnedTimes:
    """Times of jobs by a history file; without a path by this account's, where there is one.

    Raises `InputError`, `HistoryError`.
    """

    def __init__(self, path: str | None) -> None:
        self._history: SqliteHistory | None = None
        self._model: HistoryModel | None = None
        self._known: dict[tuple[Any, str], float | None] = {}
        if path or Path(default_history_path()).exists():
            self._history = SqliteHistory(Path(path) if path else None, must_exist=True)
            self._model = make_model("learned", self._history)

    def expected_seconds(self, job: Any, kind: str) -> float:
        """Of a job, or of a group of jobs one after the other, on a kind of device; O(1) the second time.

        Where nothing is known it is the mean of all jobs of which something is.
        """
        found = self._known_seconds(job, kind)
        if found is not None:
            return found
        times = [seconds for seconds in self._known.values() if seconds is not None]
        return sum(times) / len(times) if times else 1.0

    def _known_seconds(self, job: Any, kind: str) -> float | None:
        if (job, kind) not in self._known:
            parts = job.jobs if job.is_group() else [job]
            times = [self._predict_seconds(part, kind) for part in parts]
            known = [seconds for seconds in times if seconds is not None]
            self._known[job, kind] = sum(known) if len(known) == len(times) else None
        return self._known[job, kind]

    def _predict_seconds(self, job: Any, kind: str) -> float | None:
        if self._history is None or self._model is None:
            return None
        # The executor's runs are under the first name, those of benchmark files under the other.
        for app in (f"snakemake.{job.rule.name}", job.rule.name):
            groups = [group for group in self._history.list_groups(app) if group.device_class.kind == kind]
            for group in sorted(groups, key=lambda group: -group.completed):
                inputs = canonical_inputs(rule_features(job))
                query = Query(app, group.implementation, group.device_class, group.request, inputs)
                answer = self._model.ask(query)
                if answer is not None:
                    return float(answer.expected)
        return None


def rank_jobs(
    jobs: Sequence[Any],
    dependencies: Callable[[Any], Iterable[Any]],
    seconds_of: Callable[[Any], float],
) -> Mapping[Any, float]:
    """The upward rank of each job: its time, and that of the longest chain of jobs that wait for it.

    O(jobs + dependencies). Jobs of a cycle, which Snakemake refuses, would be left out.
    """
    behind: dict[Any, list[Any]] = {job: [] for job in jobs}
    waits: dict[Any, int] = {}
    for job in jobs:
        before = [one for one in set(dependencies(job)) if one in behind]
        waits[job] = len(before)
        for one in before:
            behind[one].append(job)
    order = [job for job in jobs if not waits[job]]
    for job in order:
        for one in behind[job]:
            waits[one] -= 1
            if not waits[one]:
                order.append(one)
    ranks: dict[Any, float] = {}
    for job in reversed(order):
        ranks[job] = seconds_of(job) + max((ranks[one] for one in behind[job]), default=0.0)
    return ranks
