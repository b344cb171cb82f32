"""Figure 6: which GPU works for which job, under RQ and under MRQ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import dovetail
from dovetail.model import Allocation, Record, Result, bit_indices
from dovetail.report.drawing import MUTED, with_style
from dovetail_lab.figures import add_heading, clean_axes, styled_figure
from dovetail_lab.ravi.panels import COLOURS
from dovetail_lab.study import Chart, Prose

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLUSTER = "10x8cpu+3gpu"
JOBS = "published:markthub?jobs=40&nodes_mean=3&nodes_sd=2&gpu_calls=1e7&seed=4"
"""Ten nodes of three GPUs, as in the paper, which does not name the jobs."""


@dataclass(frozen=True, slots=True)
class Held:
    """A GPU (node · GPUs of a node + GPU) that works for a job, at home or lent, for some seconds."""

    gpu: int
    job: int
    start: float
    end: float
    lent: bool


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Every GPU's work under one policy."""

    policy: str
    makespan: float
    held: tuple[Held, ...]

    @property
    def lent(self) -> float:
        """The share of all GPU seconds that were lent."""
        total = sum(one.end - one.start for one in self.held)
        return sum(one.end - one.start for one in self.held if one.lent) / total


def compare_occupancy() -> tuple[list[Occupancy], Chart, Prose]:
    """Both policies on the same jobs, as numbers, as a picture and in words."""
    both = []
    for policy in ("rq", "mrq"):
        result = dovetail.simulate(JOBS, cluster=CLUSTER, policy=policy).result
        held = tuple(one for record in result.records for one in _held_intervals(record, result))
        both.append(Occupancy(policy, result.makespan, held))
    title = "Figure 6: GPU occupancy of the same jobs under RQ and MRQ"
    words = tuple(
        f"{one.policy}: done after {one.makespan:,.0f} s; {one.lent:.0%} of the GPU seconds were lent"
        for one in both
    )
    return both, Chart("markthub-figure-6", title, partial(_draw_occupancy, both)), Prose(title, words)


def _held_intervals(record: Record, result: Result) -> Iterator[Held]:
    width = max(len(node.devices) for node in result.cluster.nodes)
    spans = [(span.start, span.end, span.allocation) for span in record.earlier]
    assert record.allocation is not None
    assert record.start is not None
    assert record.end is not None
    spans.append((record.start if record.since is None else record.since, record.end, record.allocation))
    for start, end, allocation in spans:
        for gpu, lent in _held_gpus(allocation, width):
            yield Held(gpu, record.job.index, start, end, lent)


def _held_gpus(allocation: Allocation, width: int) -> Iterator[tuple[int, bool]]:
    for part in allocation.parts:
        for n in bit_indices(part.nodes):
            for device in part.devices:
                yield n * width + device, False
    for donor in allocation.donors:
        yield donor.donor * width + donor.device, True


@with_style
def _draw_occupancy(both: list[Occupancy]) -> Figure:
    """A row for each GPU, a colour for each job; what is lent is hatched."""
    fig = styled_figure(11.0, 7.0)
    add_heading(
        fig, "GPU occupancy", "a row is a GPU, three a node; a colour is a job; hatched: lent to another node"
    )
    # One axis of time for both, or the shorter schedule would look as long as the other.
    most = max(one.makespan for one in both)
    for i, one in enumerate(both):
        axes = fig.add_axes((0.06, 0.53 - 0.45 * i, 0.91, 0.36))
        clean_axes(axes)
        for held in one.held:
            axes.barh(
                held.gpu,
                held.end - held.start,
                left=held.start,
                height=0.9,
                color=COLOURS[held.job % len(COLOURS)],
                hatch="////" if held.lent else None,
                edgecolor="white",
                linewidth=0.2,
            )
        axes.set_xlim(0, most)
        axes.set_ylim(-1, 30)
        axes.set_yticks(range(1, 30, 3), [f"n{n}" for n in range(10)], fontsize=7)
        axes.tick_params(axis="y", length=0, labelcolor=MUTED)
        axes.set_title(one.policy, loc="left", fontsize=9.5, fontweight="bold")
    return fig
