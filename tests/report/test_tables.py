from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from dovetail.model import Cluster, Plan, Record, Rejected, Result, State
from dovetail.report import tables, wording
from dovetail.report.metrics import Cut

Make = Callable[..., Record]
Build = Callable[..., Result]


@pytest.fixture
def mixed(make_record: Make, make_result: Build) -> Result:
    records = [
        make_record("a", end=10, cpus=8, user="u1"),
        make_record("b", submit=2, start=10, end=12.5, cpus=0, devices=(0,), user="u2"),
        make_record("gang", submit=2, start=12.5, end=90, nodes=[0, 1], cpus=4, state=State.FAILED),
        make_record("late", start=None, end=None, state=State.PENDING),
    ]
    return make_result(
        records,
        Cluster.uniform(2, 8, 1),
        rejected=[Rejected("huge", "asks for 3 nodes of 2")],
        plan=Plan((), 90.0, "optimal", 90.0, 0.2),
        default_walltime="actual",
        promises_broken=2,
        skipped=3,
    )


def test_summary(mixed: Result) -> None:
    text = tables.render(tables.summary_table(mixed))
    assert "history  jobs.toml, on 2x8cpu+1gpu, simulated with perfect knowledge" in text
    assert "4: 1 pending, 2 completed, 1 failed, 1 rejected" in text
    assert "Makespan" in text
    assert "90.00 s" in text
    assert "optimal in 200.0 ms, bound 90.00 s, gap 0.0 %" in text
    assert "Promises broken" in text
    assert "was given its actual run time" in text
    assert "Rejected: huge (asks for 3 nodes of 2)." in text
    assert "3 malformed lines" in text
    cut = tables.render(tables.summary_table(mixed, cut=Cut(1.0)))
    assert "Means are over 2 jobs" in cut


def test_job_table_says_where(mixed: Result) -> None:
    text = tables.render(tables.job_table(mixed))
    rows = {line.split()[0]: line for line in text.splitlines() if line[:1].isalpha()}
    assert "n0/cpu" in rows["a"]
    assert "n0/gpu0" in rows["b"]
    assert "n[0-1]" in rows["gang"]
    assert "FAILED" in rows["gang"]
    assert "PENDING" in rows["late"]


def test_job_table_of_the_first_jobs(make_record: Make, make_result: Build) -> None:
    result = make_result([make_record(f"j{i}", start=i, end=i + 1) for i in range(1200)])
    text = tables.render(tables.job_table(result, limit=5))
    assert "j4" in text
    assert "j5" not in text
    assert "and 1,195 more jobs" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_asked(mixed: Result, make_result: Build, width: int) -> None:
    long = make_result(mixed.records, mixed.cluster, policy="easy", options={"order": "largest"}, seed=1)
    parts = [
        tables.job_table(mixed, width=width),
        tables.comparison_table([mixed, long], width=width),
        tables.breakdown_table(mixed, "user", width=width),
    ]
    for part in parts:
        text = tables.render(part, width=width)
        assert max(map(cell_len, text.splitlines())) <= width
        assert "…" not in text or width < 60


def test_comparison_marks_the_best(make_record: Make, make_result: Build) -> None:
    results = [
        make_result([make_record("a", end=end)], policy=policy) for policy, end in (("x", 20), ("y", 10))
    ]
    text = tables.render(tables.comparison_table(results))
    x, y = (line for line in text.splitlines() if line[:1] in "xy" and line[1:2] == " ")
    assert "20.000" in x
    assert "2.00x" in x
    assert "10.000 *" in y
    assert "* best" in text


def test_comparison_over_seeds_gives_intervals(make_record: Make, make_result: Build) -> None:
    results = [
        make_result([make_record("a", end=end + seed)], policy=policy, seed=seed)
        for policy, end in (("x", 200), ("y", 300))
        for seed in (1, 2, 3)
    ]
    text = tables.render(tables.comparison_table(results))
    assert "202.0 ± 2.5 *" in text  # t(0.975, 2) = 4.303; s = 1
    assert "interval of the mean of 3 seeds" in text
    pairs = tables.render(tables.paired_table(results, baseline="x"))
    assert "+100.0 ± 0.0" in pairs
    assert "0 of 3" in pairs


def test_fairness_table(make_record: Make, make_result: Build) -> None:
    ours = make_result([make_record("a", end=5), make_record("b", end=7)])
    reference = make_result([make_record("a", end=5), make_record("b", end=4)], policy="best-device")
    text = tables.render(tables.fairness_table(ours, reference))
    assert "1 of 2 jobs end later than under best-device" in text
    assert "No job ends later" in tables.render(tables.fairness_table(reference, ours))


def test_breakdown_keeps_those_that_used_most(make_record: Make, make_result: Build) -> None:
    records = [make_record(f"j{i}", end=i + 1.0, user=f"u{i:02}") for i in range(30)]
    text = tables.render(tables.breakdown_table(make_result(records), "user", limit=3))
    assert "u29" in text
    assert "u26" not in text
    assert "and 27 more" in text


def test_no_colours_away_from_a_terminal(mixed: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    out = io.StringIO()
    tables.console(out).print(tables.summary_table(mixed))
    assert "\x1b" not in out.getvalue()


def test_no_color_is_heeded_on_a_terminal(mixed: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def shown() -> str:
        out = Terminal()
        tables.console(out, width=80).print(tables.job_table(mixed))
        return out.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[31m" in shown()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in shown()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0 s"),
        (-1e-17, "0.0 s"),
        (0.041, "41.00 ms"),
        (0.0007, "700.0 µs"),
        (3.0186, "3.019 s"),
        (1203.0, "1,203 s (20.1 min)"),
        (7200.0, "7,200 s (2.0 h)"),
        (200_000.0, "200,000 s (2.3 days)"),
        (None, "-"),
        (float("inf"), "-"),
    ],
)
def test_seconds_in_words(value: float | None, text: str) -> None:
    assert wording.seconds(value) == text


def test_long_ids_keep_the_end_that_tells_them_apart() -> None:
    assert tables._clip_middle("python:dovetail.apps-1", 24) == "python:dovetail.apps-1"
    shown = [tables._clip_middle(f"python:benchmarks/large/train.py-{i}", 24) for i in (1, 2)]
    assert shown[0].endswith("train.py-1")
    assert shown[1].endswith("train.py-2")
    assert max(map(len, shown)) == 24
