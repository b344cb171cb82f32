from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from dovetail.files.sentences import make_printable
from dovetail.model import Cluster, Plan, Record, Rejected, Result, State
from dovetail.report import tables, wording
from dovetail.report.compared import comparison_remarks, comparison_table, paired_tables
from dovetail.report.metrics import TrimmedTrace
from dovetail.report.outcome import breakdown_table, fairness_table, job_table, outcome_summary
from dovetail.report.tables import Cell, Cells, Table, clip_text

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
    text = tables.render_plain(outcome_summary(mixed))
    assert "history  jobs.toml, on 2x8cpu+1gpu, simulated with perfect knowledge" in text
    assert "4: 1 pending, 2 completed, 1 failed, 1 rejected" in text
    assert "Makespan" in text
    assert "90.00 s" in text
    assert "optimal in 200.0 ms, bound 90.00 s, gap 0.0 %" in text
    assert "Promises broken" in text
    assert "was given its actual run time" in text
    assert "Rejected: huge (asks for 3 nodes of 2)." in text
    assert "3 malformed lines" in text
    cut = tables.render_plain(outcome_summary(mixed, cut=TrimmedTrace(1.0)))
    assert "Means are over 2 jobs" in cut


def test_job_table_says_where(mixed: Result) -> None:
    text = tables.render_plain(job_table(mixed))
    rows = {line.split()[0]: line for line in text.splitlines() if line[:1].isalpha()}
    assert "n0/cpu" in rows["a"]
    assert "n0/gpu0" in rows["b"]
    assert "n[0-1]" in rows["gang"]
    assert "FAILED" in rows["gang"]
    assert "PENDING" in rows["late"]


def test_job_table_of_the_first_jobs(make_record: Make, make_result: Build) -> None:
    result = make_result([make_record(f"j{i}", start=i, end=i + 1) for i in range(1200)])
    text = tables.render_plain(job_table(result, limit=5))
    assert "j4" in text
    assert "j5" not in text
    assert "and 1,195 more" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_asked_and_no_figure_is_cut(
    mixed: Result, make_result: Build, width: int
) -> None:
    long = make_result(mixed.records, mixed.cluster, policy="easy", options={"order": "largest"}, seed=1)
    for part in (job_table(mixed), comparison_table([mixed, long]), breakdown_table(mixed, "user")):
        text = tables.render_plain(part, width=width)
        assert max(map(cell_len, text.splitlines())) <= width
        for column in part.columns:
            if column.right and column.rank == 0:
                for cell in column:
                    assert cell.text.strip() in text


def test_a_table_that_matters_goes_on_below(mixed: Result, make_result: Build) -> None:
    long = make_result(mixed.records, mixed.cluster, policy="easy", options={"order": "largest"}, seed=1)
    made = comparison_table([mixed, long])
    text = tables.render_plain(made, width=40)
    for column in made.columns:
        assert column.header.split("\n")[0].strip() in text
    assert sum(line.startswith("history") for line in text.splitlines()) > 1


def test_names_are_cut_before_figures_and_the_least_important_column_goes_first() -> None:
    made = Table(
        [
            Cells("job", ["a-very-long-name-of-a-job-1", "b"], right=False, keep_end=True),
            Cells("important", [Cell("1,234,567", 1234567.0), "-"]),
            Cells("less", ["12", "13"], rank=1),
            Cells("least", ["x", "y"], rank=2),
            Cells("says nothing", ["-", "-"], rank=1),
        ]
    )
    wide, narrow, least = (tables.render_plain(made, width=width) for width in (80, 38, 24))
    assert "least" in wide
    assert "says nothing" not in wide
    assert "a-very-long-name-of-a-job-1" in wide
    assert ("less" in narrow, "least" in narrow) == (True, True)
    assert "…" in narrow
    assert ("less" in least, "least" in least) == (False, False)
    assert "1,234,567" in least
    assert "…" in least


@pytest.mark.parametrize("name", ["[/]", "[bold red]x", ":smile:", "\x1b[31mred", "two\nlines", "日本" * 30])
def test_names_are_only_text(make_record: Make, make_result: Build, name: str) -> None:
    """What jobs, policies and devices are called never is markup, never moves the cursor."""
    results = [
        make_result([make_record(name, user=name, app=name)], policy=policy) for policy in (name, "easy")
    ]
    out = io.StringIO()
    console = tables.make_console(out, width=80)
    parts = (job_table(results[0]), comparison_table(results), breakdown_table(results[0], "user"))
    for part in parts:
        console.print(part.text(80))
    console.print(outcome_summary(results[0]))
    assert "\x1b" not in out.getvalue()
    assert make_printable(name)[:6] in out.getvalue()
    assert max(map(cell_len, out.getvalue().splitlines())) <= 80


def test_comparison_marks_the_best(make_record: Make, make_result: Build) -> None:
    results = [
        make_result([make_record("a", end=end)], policy=policy) for policy, end in (("x", 20), ("y", 10))
    ]
    text = tables.render_plain(comparison_table(results))
    x, y = (line for line in text.splitlines() if line[:1] in "xy" and line[1:2] == " ")
    assert "20.00" in x
    assert "2.00x" in x
    assert "10.00 *" in y
    assert "* best" in text


def test_comparison_over_seeds_gives_intervals(make_record: Make, make_result: Build) -> None:
    results = [
        make_result([make_record("a", end=end + seed)], policy=policy, seed=seed)
        for policy, end in (("x", 200), ("y", 300))
        for seed in (1, 2, 3)
    ]
    text = tables.render_plain(comparison_table(results))
    assert "202.0 ± 2.5 *" in text  # t(0.975, 2) = 4.303; s = 1
    assert "interval of the mean of 3 seeds" in text
    pairs = tables.render_plain(paired_tables(results)[0])
    assert "+100.0 ± 0.0" in pairs
    assert "0 of 3" in pairs
    assert "clear" in pairs


def seeded(make_record: Make, make_result: Build, ends: dict[str, list[float]]) -> list[Result]:
    return [
        make_result([make_record("a", end=end)], policy=policy, seed=seed)
        for policy, values in ends.items()
        for seed, end in enumerate(values, 1)
    ]


def test_seeds_that_change_nothing_are_said_to(make_record: Make, make_result: Build) -> None:
    same = seeded(make_record, make_result, {"x": [5.0, 5.0, 5.0], "y": [7.0, 7.0, 7.0]})
    text = tables.render_plain(comparison_table(same))
    assert "±" not in text
    assert paired_tables(same) == []
    assert comparison_remarks(same)[0].startswith("Seeds 1 to 3 change nothing here")
    partly = seeded(make_record, make_result, {"x": [5.0, 5.0, 5.0], "y": [7.0, 8.0, 9.0]})
    wide = tables.render_plain(comparison_table(partly), width=200).splitlines()
    x, y = (line for line in wide if line[:2] in ("x ", "y "))
    assert "±" not in x
    assert "8.000 ± 2.484" in y
    assert comparison_remarks(partly) == ["The seeds change nothing under x: one run is shown."]
    assert len(paired_tables(partly)) == 3


def test_two_seeds_say_little(make_record: Make, make_result: Build) -> None:
    two = seeded(make_record, make_result, {"x": [5.0, 6.0], "y": [70.0, 71.0]})
    assert comparison_remarks(two)[-1].startswith("Two seeds are few")
    text = tables.render_plain(comparison_table(two), width=200)
    assert "5.50 (0.00 to 11.85)" in text  # no makespan is below 0
    assert "70.50 ± 6.35" in text


def test_what_a_walltime_ended_is_counted(make_record: Make, make_result: Build) -> None:
    results = [
        make_result([make_record("a", state=State.TIMEOUT), make_record("b")], policy="x"),
        make_result([make_record("a"), make_record("b")], policy="y"),
    ]
    text = tables.render_plain(comparison_table(results), width=120)
    assert "walltime" in text
    assert [line.split()[-1] for line in text.splitlines() if line[:2] in ("x ", "y ")] == ["1", "0"]
    assert "walltime" not in tables.render_plain(comparison_table(results[1:]))


def test_fairness_table(make_record: Make, make_result: Build) -> None:
    ours = make_result([make_record("a", end=5), make_record("b", end=7)])
    reference = make_result([make_record("a", end=5), make_record("b", end=4)], policy="best-device")
    text = tables.render_plain(fairness_table(ours, reference))
    assert "1 of 2 jobs end later than under best-device" in text
    assert "No job ends later" in tables.render_plain(fairness_table(reference, ours))


def test_breakdown_keeps_those_that_used_most(make_record: Make, make_result: Build) -> None:
    records = [make_record(f"j{i}", end=i + 1.0, user=f"u{i:02}") for i in range(30)]
    text = tables.render_plain(breakdown_table(make_result(records), "user", limit=3))
    assert "u29" in text
    assert "u26" not in text
    assert "and 27 more" in text


def test_no_colours_away_from_a_terminal(mixed: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    out = io.StringIO()
    tables.make_console(out).print(outcome_summary(mixed))
    assert "\x1b" not in out.getvalue()


def test_no_color_is_heeded_on_a_terminal(mixed: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def shown() -> str:
        out = Terminal()
        tables.make_console(out, width=80).print(job_table(mixed).text(80))
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
        (90.0, "90.00 s"),
        (1203.0, "20.1 min (1,203 s)"),
        (7200.0, "2.0 h (7,200 s)"),
        (27_432.5, "7.6 h (27,432 s)"),
        (200_000.0, "2.3 days (200,000 s)"),
        (None, "-"),
        (float("inf"), "-"),
    ],
)
def test_seconds_in_words(value: float | None, text: str) -> None:
    assert wording.spell_seconds(value) == text


@pytest.mark.parametrize(
    ("values", "spelt"),
    [
        ([0.0, 0.5], ["0.0", "500.0"]),
        ([5.0, 9_999.0], ["5", "9,999"]),
        ([5.0, 10_000.0, None], ["0:05", "2:46:40", "-"]),
        ([-3700.0, 86_400.0 * 3], ["-1:01:40", "3-00:00:00"]),
    ],
)
def test_times_of_jobs_keep_their_seconds(values: list[float | None], spelt: list[str]) -> None:
    _, spell = wording.clock_of(values)
    assert [spell(value) for value in values] == spelt


def test_long_ids_keep_the_end_that_tells_them_apart() -> None:
    assert clip_text("python:dovetail.apps-1", 24, keep_end=True) == "python:dovetail.apps-1"
    shown = [clip_text(f"python:benchmarks/large/train.py-{i}", 24, keep_end=True) for i in (1, 2)]
    assert shown[0].endswith("train.py-1")
    assert shown[1].endswith("train.py-2")
    assert max(map(len, shown)) == 24
