"""Ravi 2012, Fig. 2: three applications on 2, 4 and 8 nodes, and the mixes of 32 jobs drawn from them.

Every job is moldable: on its N nodes, on N/2 and on N/4, as far as that leaves a node, each with the CPUs,
the GPU or both. One-node times are not printed; they continue the table's own scaling,
T(1) = T(2)² / T(4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from dovetail.errors import InputError
from dovetail.model import App, Choice, Implementation, Job, Seconds, TableTruth, Workload, request_for

KINDS = ("cpu", "gpu", "cpu+gpu")


class Size(NamedTuple):
    """An application with one data set; seconds by number of nodes, in the order of `KINDS`."""

    app: str
    data: float  # bytes
    times: Mapping[int, tuple[Seconds, Seconds, Seconds]]


class Row(NamedTuple):
    """A line of the table: what a job is drawn from."""

    size: Size
    nodes: int

    @property
    def both(self) -> Seconds:
        """Seconds with the CPUs and the GPU on the requested nodes."""
        return self.size.times[self.nodes][2]


FIG_2: tuple[Size, ...] = (
    Size("GK", 680e6, {2: (314, 311, 221), 4: (179, 173, 123), 8: (103, 99, 65)}),
    Size("GK", 2.7e9, {2: (1280, 1152, 703), 4: (638, 591, 370), 8: (338, 301, 188)}),
    Size("EM", 450e6, {2: (109, 39, 37), 4: (55, 19, 18), 8: (28, 9, 8)}),
    Size("EM", 900e6, {2: (215, 74, 73), 4: (106, 36, 33), 8: (54, 18, 16)}),
    Size("PR", 900e6, {2: (6.5, 1.1, 0.9), 4: (3.3, 0.6, 0.5), 8: (1.8, 0.3, 0.38)}),
    Size("PR", 3.6e9, {2: (26, 4.1, 3.4), 4: (13, 2.3, 1.8), 8: (8.2, 1.3, 1.2)}),
)
"""As printed: Gridding Kernel, Expectation Maximization, PageRank."""

POOL: tuple[Row, ...] = tuple(Row(size, nodes) for size in FIG_2 for nodes in (2, 4, 8))
"""The 18 jobs, in table order."""

MIXES: dict[str, tuple[str, float]] = {
    "75sj25lj": ("len", 0.75),
    "50sj50lj": ("len", 0.5),
    "25sj75lj": ("len", 0.25),
    "75sr25lr": ("size", 0.75),
    "50sr50lr": ("size", 0.5),
    "25sr75lr": ("size", 0.25),
}
"""By name: what divides the jobs, and the share of the short (SJ) or small (SR) ones."""

_MEDIAN = float(np.median([row.both for row in POOL]))
READINGS: dict[str, tuple[Callable[[Row], bool], Callable[[Row], bool]]] = {
    "len": (lambda row: row.size.app != "GK", lambda row: row.size.app == "GK"),
    "len2": (lambda row: row.both < _MEDIAN, lambda row: row.both >= _MEDIAN),
    "size": (lambda row: row.nodes == 2, lambda row: row.nodes == 8),
    "size3": (lambda row: row.nodes < 8, lambda row: row.nodes == 8),
}
"""The paper does not define short or small jobs. ``len``: EM and PR are short, GK is long. ``len2``:
split at the median of the times with both. ``size``: 2 nodes are small, 8 large. ``size3``: 2 and 4."""


def ravi_multi(
    mix: str = "25sj75lj",
    jobs: int = 32,
    batch: int = 8,
    interarrival: Seconds = 30.0,
    seed: int = 1,
    reading: str = "",
) -> Workload:
    """Ravi 2012, section IV.D: moldable jobs on several nodes, drawn with replacement, in batches.

    The first batch comes at t = 0, the others after exponentially distributed times of the given mean.
    ``reading`` chooses what short or small means: len2 or size3 instead of len or size.
    """
    if mix not in MIXES:
        raise InputError(f"mix: found {mix!r}, expected one of {', '.join(MIXES)}")
    by, share = MIXES[mix]
    if reading and (reading not in READINGS or not reading.startswith(by)):
        names = [name for name in READINGS if name.startswith(by)]
        raise InputError(f"reading: found {reading!r}, expected for {mix} one of {', '.join(names)}")
    _check_options(jobs, batch)
    less, more = READINGS[reading or by]
    small = [row for row in POOL if less(row)]
    large = [row for row in POOL if more(row)]
    rng = np.random.Generator(np.random.PCG64(seed))
    arrivals = np.random.Generator(np.random.PCG64([seed, 1]))
    count = round(jobs * share)
    drawn = [small[i] for i in rng.integers(len(small), size=count)]
    drawn += [large[i] for i in rng.integers(len(large), size=jobs - count)]
    gaps = arrivals.exponential(interarrival, size=(jobs - 1) // batch)
    starts = [0.0, *np.cumsum(gaps).tolist()]
    rows = ((drawn[j], starts[i // batch]) for i, j in enumerate(rng.permutation(jobs)))
    return _make_workload("published:ravi-multi", rows)


def ravi_multi_table(jobs: int = 32, batch: int = 8, interval: Seconds = 30.0) -> Workload:
    """Ravi 2012, Fig. 2, in table order, repeated to so many jobs, in batches at fixed intervals."""
    _check_options(jobs, batch)
    rows = ((POOL[i % len(POOL)], i // batch * interval) for i in range(jobs))
    return _make_workload("published:ravi-multi-table", rows)


def _check_options(jobs: int, batch: int) -> None:
    if not 1 <= jobs <= 1_000_000:
        raise InputError(f"jobs: found {jobs}, expected 1 to 1000000")
    if batch < 1:
        raise InputError(f"batch: found {batch}, expected at least 1")


def _seconds_by_kind(size: Size, nodes: int) -> tuple[Seconds, Seconds, Seconds]:
    """Seconds by kind; on one node by the rule in the module's docstring."""
    if nodes > 1:
        return size.times[nodes]
    (c2, g2, b2), (c4, g4, b4) = size.times[2], size.times[4]
    return c2 * c2 / c4, g2 * g2 / g4, b2 * b2 / b4


def _make_workload(name: str, rows: Iterable[tuple[Row, Seconds]]) -> Workload:
    forms = tuple(Implementation(kind, kind, request_for(kind)) for kind in KINDS)
    apps = {size.app: App(size.app, forms) for size in FIG_2}
    counts = dict.fromkeys(apps, 0)
    choices = {
        n: tuple(
            Choice(form, form.request.on(nodes)) for form in forms for nodes in (n // 4, n // 2, n) if nodes
        )
        for n in (2, 4, 8)
    }
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], Seconds] = {}
    for index, ((size, nodes), submit) in enumerate(rows):
        counts[size.app] += 1
        id = f"{size.app}-{counts[size.app]}"
        jobs.append(
            Job(
                id,
                apps[size.app],
                choices[nodes],
                index=index,
                submit_time=submit,
                inputs={"bytes": size.data},
                nodes=nodes,
            )
        )
        for n in (nodes, nodes // 2, nodes // 4):
            for kind, seconds in zip(KINDS, _seconds_by_kind(size, n), strict=True) if n else ():
                table[id, kind, n] = float(seconds)
    return Workload(name, jobs, TableTruth(table))
