"""What each metric is called, what it is, and of what kind its values are: one entry a metric."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """``title`` and ``short`` are its name in words, ``about`` is for those who point at it.

    A share is between 0 and 1 where ``more`` of it is better, and so is an index; errors have no end.
    """

    title: str
    short: str = ""
    about: str = ""
    kind: Literal["seconds", "share", "slowdown", "index", "count"] = "seconds"
    more: bool = False


METRICS = {
    "makespan": Metric("Makespan", "makespan", "From the first submission to the last end."),
    "mean_wait": Metric("Mean wait", "wait", "Mean of start minus submission."),
    "median_wait": Metric("Median wait"),
    "p95_wait": Metric("95 % wait at most", "p95 wait", "95 of 100 jobs wait no longer."),
    "max_wait": Metric("Longest wait"),
    "mean_response": Metric("Mean response", "response", "Mean of end minus submission."),
    "median_response": Metric("Median response"),
    "p95_response": Metric("95 % respond within"),
    "max_response": Metric("Longest response"),
    "mean_bounded_slowdown": Metric(
        "Mean bounded slowdown",
        "slowdown",
        "Mean of (end - submission) / run time; run times below 10 s count as 10 s.",
        "slowdown",
    ),
    "median_bounded_slowdown": Metric("Median bounded slowdown", kind="slowdown"),
    "p95_bounded_slowdown": Metric("95 % slowed at most", kind="slowdown"),
    "max_bounded_slowdown": Metric("Largest bounded slowdown", kind="slowdown"),
    "utilisation": Metric(
        "CPU utilisation",
        "CPU",
        "CPU-seconds that jobs held, over those that the CPU pools offered within the makespan.",
        "share",
        more=True,
    ),
    "gpu_utilisation": Metric(
        "Device utilisation",
        "GPU",
        "Device-seconds that jobs held, over those offered within the makespan.",
        "share",
        more=True,
    ),
    "anl": Metric(
        "ANL, lost to a slower choice",
        "ANL",
        "Average node loss (Ravi 2012): how much longer a job ran than on the best of its "
        "implementations, in the mean. 0 where there is but one.",
    ),
    "aql": Metric("AQL, lost to waiting", "AQL", "Average queue loss (Ravi 2012): the mean wait."),
    "mit": Metric(
        "MIT, most idle resource",
        "MIT",
        "Maximum idle time (Ravi 2012): of all CPU pools and devices, the longest time that one was idle "
        "within the makespan.",
    ),
    "decision_seconds_mean": Metric(
        "Decision time, mean", "decision", "Seconds that one call of the policy takes, in the mean."
    ),
    "decision_seconds_p99": Metric(
        "Decision time, p99",
        "decision p99",
        "Seconds within which 99 of 100 calls of the policy are done.",
    ),
    "prediction_error_median": Metric(
        "Prediction error, median",
        about="|predicted - actual| / actual: half of the jobs are off by less.",
        kind="share",
    ),
    "prediction_error_p90": Metric(
        "Prediction error, p90",
        about="|predicted - actual| / actual: 90 of 100 jobs are off by less.",
        kind="share",
    ),
    "prediction_coverage": Metric(
        "Predicted range held",
        about="Share of jobs whose run time lay within the predicted 90 % interval.",
        kind="share",
        more=True,
    ),
    "fairness_users": Metric(
        "Fairness between users (Jain)",
        about="Jain's index over the users' mean bounded slowdowns: 1 if all users fare alike.",
        kind="index",
        more=True,
    ),
    "node_failures": Metric("Failures of nodes", kind="count"),
    "availability": Metric(
        "Nodes up",
        about="Node-seconds that failures left, over all, from the first submission to the last end.",
        kind="share",
        more=True,
    ),
    "restarts": Metric("Restarts after failures", kind="count"),
    "preemptions": Metric("Jobs preempted", kind="count"),
    "suspensions": Metric("Jobs suspended", kind="count"),
    "lost_cpu_seconds": Metric("CPU-seconds lost", about="Held by runs whose work came to nothing."),
    "overhead_cpu_seconds": Metric("CPU-seconds for checkpoints", about="Written, and taken up again."),
    "goodput": Metric(
        "Goodput",
        about="CPU-seconds of work of jobs that completed, over those that all jobs held.",
        kind="share",
        more=True,
    ),
    "later_jobs": Metric("Jobs later than the reference", kind="count"),
    "later_mean": Metric("Later by, mean"),
    "later_max": Metric("Later by, at most"),
    "promises_broken": Metric("Promises broken", kind="count"),
    "broken_by_overrun": Metric("of these, by an overrun", kind="count"),
}
"""Those that are shown, in their order."""

MAIN = ("makespan", "mean_wait", "mean_bounded_slowdown", "utilisation", "gpu_utilisation")
"""Those that characterise a schedule best: in charts, and at the head of pages."""

HIGHER_IS_BETTER = frozenset({"jobs_completed", *(name for name, one in METRICS.items() if one.more)})
"""Metrics of which more is better; of all others less is."""


def metric_named(name: str) -> Metric:
    """What is known of a metric; of one that has no entry its name decides the kind."""
    kind: Literal["seconds", "count"] = (
        "count" if name.startswith("jobs") or "decrease" in name else "seconds"
    )
    return METRICS.get(name) or Metric(name.replace("_", " "), kind=kind)
