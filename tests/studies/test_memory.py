"""`dovetail reproduce memory`: traces with measured peaks, replayed under rules for reserving."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cli.main import status_of
from dovetail.runtimes import memory
from dovetail.testing.builders import full
from dovetail.workloads.nextflow import Task
from dovetail_lab.memory.replay import Attempt, Row, replay_tasks
from dovetail_lab.memory.rules import ROWS, Largest, Learned, make_rules
from dovetail_lab.memory.study import COLUMNS, Replayed, measured_tasks, replay_file

TRACES = Path(__file__).resolve().parents[2] / ".." / "shared" / "traces" / "memory"
NAMES = ("nfcore_eager.csv.gz", "nfcore_methylseq.csv.gz", "nfcore_rnaseq.csv.gz")
needs_traces = pytest.mark.skipif(
    not all((TRACES / name).exists() for name in NAMES), reason="the traces of nf-core are not there"
)
HEADER = "task_id,process,start,complete,rchar,peak_rss,memory,realtime,status"


ONCE = pytest.mark.xdist_group("replays")
"""Of tests that share what takes long to make."""


@pytest.fixture(scope="module")
def by_process() -> dict[tuple[str, str], Counter[str]]:
    """Bytes x seconds that the processes of a trace wasted under a rule; filled by `found`."""
    return {}


@pytest.fixture(scope="module")
def found(by_process: dict[tuple[str, str], Counter[str]]) -> Mapping[str, Replayed]:
    made = {}
    for name in NAMES:
        process = {task.id: task.process for task in measured_tasks(TRACES / name)}

        def note(row: str, attempt: Attempt, name: str = name, process: dict[str, str] = process) -> None:
            wasted = by_process.setdefault((name, row), Counter())
            wasted[process[attempt.task]] += int(attempt.wasted_amount)

        made[name] = replay_file(TRACES / name, note)
    return made


def warm(row: Row) -> float:
    return row.wasted_gb_hours - row.wasted_cold_gb_hours


@ONCE
@needs_traces
def test_learned_wastes_less_than_the_largest_peak_so_far_and_kills_no_more(
    found: Mapping[str, Replayed],
) -> None:
    ratios = []
    for each in found.values():
        learned, largest = each.rows["learned"], each.rows["largest"]
        ratios.append(warm(learned) / warm(largest))
        assert ratios[-1] <= 1.02
        assert learned.wasted_gb_hours <= 1.02 * largest.wasted_gb_hours
        assert learned.kills <= largest.kills
        assert learned.killed_twice == 0
    assert math.prod(ratios) ** (1 / 3) <= 0.80


@ONCE
@needs_traces
def test_without_what_is_read_learned_is_no_worse_than_the_largest_peak(
    found: Mapping[str, Replayed],
) -> None:
    for each in found.values():
        learned, largest = each.without["learned"], each.without["largest"]
        assert warm(learned) <= warm(largest)
        assert learned.wasted_gb_hours <= largest.wasted_gb_hours
        assert learned.kills <= largest.kills


@ONCE
@needs_traces
def test_nine_peaks_out_of_ten_are_inside_of_their_interval(found: Mapping[str, Replayed]) -> None:
    inside = asked = 0.0
    for name, each in found.items():
        coverage = each.rows["learned"].coverage
        assert coverage is not None
        tasks = len(measured_tasks(TRACES / name))
        inside, asked = inside + coverage * tasks, asked + tasks
    assert 0.88 <= inside / asked <= 0.95


@needs_traces
@pytest.mark.parametrize("name", NAMES)
def test_nobody_is_killed_twice_where_requests_are_half_of_what_they_were(name: str) -> None:
    tasks = [replace(task, requested=(task.requested or 0) // 2) for task in measured_tasks(TRACES / name)]
    assert replay_tasks(tasks, Learned(by_size=True)).killed_twice == 0


def a_task(number: int, start: float, seconds: float, peak: int, read: int, process: str) -> Task:
    return Task(
        str(number), process, start, start + seconds, seconds, peak, 8_000_000_000, read, 1, f"h{number}"
    )


tasks_of_two_processes = st.lists(
    st.builds(
        a_task,
        st.integers(0, 10**6),
        st.integers(0, 500).map(float),
        st.integers(1, 200).map(float),
        st.integers(10**6, 16 * 10**9),
        st.integers(1, 10**9),
        st.sampled_from(("align", "sort")),
    ),
    min_size=2,
    max_size=30,
)


@settings(max_examples=full(200, 25), deadline=None)
@given(tasks_of_two_processes, st.integers(0, 500), st.sampled_from(ROWS))
def test_what_starts_later_changes_nothing_that_was_reserved_before(
    tasks: list[Task], cut: int, name: str
) -> None:
    def told(of: list[Task]) -> list[Attempt]:
        attempts: list[Attempt] = []
        replay_tasks(of, make_rules(by_size=True)[name], attempts.append)
        return attempts

    before = told([task for task in tasks if task.start < cut])
    assert told(tasks)[: len(before)] == before


def test_the_protocol_by_hand() -> None:
    tasks = [
        a_task(1, 0.0, 3600.0, 2_000_000_000, 1, "a"),  # as requested: 6 GB h wasted
        a_task(2, 3600.0, 3600.0, 2_000_000_000, 1, "a"),  # the first ends now, not before: the same
        a_task(3, 3601.0, 3600.0, 3_000_000_000, 1, "a"),  # 2.2 GB: killed, then 8 GB: 2.2 + 5
    ]
    attempts: list[Attempt] = []
    row = replay_tasks(tasks, Largest(), attempts.append)
    assert [(a.task, a.number, a.reserved, a.killed) for a in attempts] == [
        ("1", 1, 8e9, False),
        ("2", 1, 8e9, False),
        ("3", 1, pytest.approx(2.2e9), True),
        ("3", 2, 8e9, False),
    ]
    assert row.wasted_gb_hours == row.wasted_cold_gb_hours == pytest.approx(6 + 6 + 2.2 + 5)
    assert (row.tasks, row.kills, row.killed_twice, row.coverage) == (3, 1, 0, None)
    at_limit = replay_tasks(tasks, Largest(), at_limit=True)
    assert at_limit.wasted_gb_hours == pytest.approx(6 + 6 + 2.2 * 2.2 / 3 + 5)


def written(folder: Path, rows: int = 12) -> Path:
    lines = [
        f"{i},p,{i * 10_000},{i * 10_000 + 9_000},{10**8 + i},{10**9 + i * 10**6},{4 * 10**9},9000,COMPLETED"
        for i in range(rows)
    ]
    lines.append(f"99,p,1,2,-,-,{4 * 10**9},9000,FAILED")
    path = folder / "trace.csv"
    path.write_text("\n".join([HEADER, *lines, ""]))
    return path


def test_json_and_csv_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, table = written(tmp_path), tmp_path / "attempts.csv"
    assert status_of(["reproduce", "memory", str(path), "--json", "--csv", str(table)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["cpu_seconds"] > 0
    (each,) = said["files"]
    assert each["file"] == str(path)
    assert set(each["rows"]) == set(each["rows_without_rchar"]) == set(ROWS)
    assert set(each["rows"]["learned"]) == {
        *("tasks", "wasted_gb_hours", "wasted_cold_gb_hours", "kills", "killed_twice", "coverage")
    }
    lines = list(csv.DictReader(table.read_text().splitlines()))
    assert tuple(lines[0]) == COLUMNS
    for name in ROWS:
        own = [line for line in lines if line["row"] == name]
        waste = sum(
            (float(line["reserved"]) - (0 if line["killed"] == "true" else int(line["peak"])))
            * float(line["seconds"])
            for line in own
        )
        assert waste / 3.6e12 == pytest.approx(each["rows"][name]["wasted_gb_hours"])
        assert len({line["task"] for line in own}) == each["rows"][name]["tasks"] == 12


def test_a_trace_without_requests_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace(str(4 * 10**9), "-"))
    assert status_of(["reproduce", "memory", str(path)]) == 2
    assert "task 0 has no memory, expected the bytes requested" in capsys.readouterr().err


@ONCE
@needs_traces
def test_the_account_leaves_the_laws_where_a_process_does_not_follow_them(
    found: Mapping[str, Replayed], by_process: Mapping[tuple[str, str], Counter[str]]
) -> None:
    """What processes waste beyond a twentieth above the largest peak is less than a thousandth of it all."""
    for name in found:
        learned, largest = by_process[name, "learned"], by_process[name, "largest"]
        excess = sum(max(0.0, learned[each] - 1.05 * waste) for each, waste in largest.items())
        assert excess <= 0.001 * largest.total()


def test_the_account_pays_where_a_program_follows_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run in four takes five times as much, whatever it reads."""
    tasks = [
        a_task(n, 100.0 * n, 50.0, (5 if n % 4 == 2 else 1) * 10**9, 10**6 * (n * 37 % 101 + 1), "align")
        for n in range(40)
    ]
    with_account = replay_tasks(tasks, Learned(by_size=True)).wasted_gb_hours
    monkeypatch.setattr(memory, "FEWEST_ACCOUNTED", len(tasks))
    assert with_account < replay_tasks(tasks, Learned(by_size=True)).wasted_gb_hours
