"""A twin's result beside the engine's: every record, count, metric, line and row is the same."""

from __future__ import annotations

from dovetail.model import Result
from dovetail.report.evalys_csv import to_evalys_csv
from dovetail.report.json_form import text_of, to_json
from dovetail.report.metrics import break_down, compute_metrics

__all__ = ["check_same", "check_same_reports"]


def check_same(twin: Result, engine: Result) -> None:
    """What was simulated."""
    assert list(twin.records) == engine.records
    assert twin.records[:3] == engine.records[:3]
    assert twin.records[len(engine.records) - 1] == engine.records[-1]
    assert (twin.promises_broken, twin.broken_by_overrun) == (
        engine.promises_broken,
        engine.broken_by_overrun,
    )
    assert (twin.rejected, twin.default_walltime, twin.best) == (
        engine.rejected,
        engine.default_walltime,
        engine.best,
    )
    assert twin.makespan == engine.makespan


def check_same_reports(twin: Result, engine: Result) -> None:
    """What is told of it."""
    found, expected = compute_metrics(twin), compute_metrics(engine)
    assert found == expected
    assert to_evalys_csv(twin) == to_evalys_csv(engine)
    assert to_json(twin) == to_json(engine)
    assert text_of(to_json(twin)) == text_of(to_json(engine))
    for by in ("user", "size"):
        assert break_down(twin, by) == break_down(engine, by)
