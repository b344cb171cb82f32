"""Memory of devices over time: what jobs were given, the peaks of what they took, and the page's chart."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import dovetail
from dovetail.model import (
    Allocation,
    App,
    Choice,
    Cluster,
    Device,
    Implementation,
    Job,
    Node,
    Part,
    Record,
    Request,
    Result,
    State,
    Usage,
)
from dovetail.model.record import Span
from dovetail.report.device_memory import MOST_DRAWN, device_memories, device_memory_table, drawn_devices
from dovetail.report.html import report_page

GB = 10**9
WAY = Implementation("gpu", "gpu", Request(1, 0, (("gpu", 1.0),)))


def held(device: int, units: int = 0, memory: int = 0) -> Allocation:
    return Allocation(WAY.request, (Part(1, 0, (device,), units, 0, memory),))


def record(id: str, start: float, end: float, place: Allocation, peak: int | None = None) -> Record:
    job = Job(id, App("a", (WAY,)), (Choice(WAY, WAY.request),))
    usage = None if peak is None else Usage(gpu_memory=peak)
    return Record(job, State.COMPLETED, WAY, place, start, end, usage=usage)


def result(*records: Record, count: int = 2) -> Result:
    devices = tuple(Device("gpu", "A100", d, memory=40 * GB) for d in range(count))
    cluster = Cluster((Node("n0", (0,), devices),))
    return Result("fcfs", "jobs", cluster, list(records))


def test_what_jobs_were_given_and_their_peaks_add_up() -> None:
    (first, second) = device_memories(
        result(
            record("a", 0.0, 10.0, held(0, 0, 6 * GB), 5 * GB),
            record("b", 5.0, 20.0, held(0, 250_000), 9 * GB),
            record("c", 0.0, 4.0, held(1, 1_000_000)),
        )
    )
    assert (first.name, first.jobs, second.name) == ("n0/gpu0", 2, "n0/gpu1")
    given = dict(zip(first.given.times.tolist(), first.given.values.tolist(), strict=True))
    assert given == {0.0: 6 * GB, 5.0: 16 * GB, 10.0: 10 * GB, 20.0: 0.0}
    assert first.measured is not None
    assert first.measured.values.tolist() == [5 * GB, 14 * GB, 9 * GB, 0.0]
    assert second.given.values.tolist() == [40 * GB, 0.0], "a job with a device to itself has all of it"
    assert second.measured is None


def test_an_earlier_try_counts_as_given_and_not_as_measured() -> None:
    last = record("a", 6.0, 9.0, held(1, 0, 8 * GB), 7 * GB)
    last.earlier = (Span(0.0, 5.0, held(0, 0, 4 * GB), WAY, State.OUT_OF_MEMORY),)
    first, second = device_memories(result(last))
    assert (first.given.values.max(), first.measured) == (4 * GB, None)
    assert second.measured is not None
    assert second.measured.values.max() == 7 * GB


def test_devices_of_unknown_memory_have_no_chart() -> None:
    plain = result(record("a", 0.0, 1.0, held(0, 1_000_000)))
    node = plain.cluster.nodes[0]
    unknown = Cluster((replace(node, devices=tuple(replace(d, memory=None) for d in node.devices)),))
    assert device_memories(replace(plain, cluster=unknown)) == []
    assert "Memory of devices" not in report_page([replace(plain, cluster=unknown)])


def test_the_page_shows_the_busiest_devices() -> None:
    many = result(
        *(record(f"j{d}", 0.0, 1.0 + d, held(d, 0, GB)) for d in range(MOST_DRAWN + 4)), count=MOST_DRAWN + 4
    )
    found = device_memories(many)
    shown = drawn_devices(found)
    assert [one.name for one in shown] == [f"n0/gpu{d}" for d in range(4, MOST_DRAWN + 4)]
    table = device_memory_table(found, (0.0, 20.0))
    assert any(f"The {MOST_DRAWN} of {MOST_DRAWN + 4} devices" in note for note in table.notes)
    page = report_page([many])
    section = page.partition("Memory of devices</h2>")[2].partition("</section>")[0]
    assert section.count("40 GB") == MOST_DRAWN
    assert "most\ngiven" not in section
    assert len(re.findall("<tr>", section)) == MOST_DRAWN + 1


@pytest.mark.parametrize("policy", ["history", "easy"])
def test_a_simulation_of_jobs_that_share_never_goes_above_a_device(tmp_path: Path, policy: str) -> None:
    lines = ["[[app]]", 'name = "a"', "[[app.implementation]]", 'name = "gpu"', 'gpu_memory = "13GB"']
    lines += ["time = 5.0", "[[job]]", 'app = "a"', "count = 9"]
    (tmp_path / "jobs.toml").write_text("\n".join(lines) + "\n")
    device = '{ kind = "gpu", model = "A100", memory = "40GB", count = 2 }'
    (tmp_path / "box.toml").write_text(f'[[node]]\nname = "n"\ncpus = 2\ndevices = [{device}]\n')
    report = dovetail.simulate(tmp_path / "jobs.toml", cluster=tmp_path / "box.toml", policy=policy)
    found = device_memories(report.result)
    assert [one.given.values.max() for one in found] == [39 * GB, 39 * GB]
    assert sum(one.jobs for one in found) == 9
    assert report_page([report.result]).count("Memory of devices</h2>") == 1
