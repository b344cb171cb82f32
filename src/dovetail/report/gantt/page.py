"""Gantt charts of pages: what is drawn, as data; the script of the page draws it when it is looked at.

As data a schedule takes a tenth of the room that it would take as a drawing, and what all schedules of a
page have in common, the jobs, is written once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import orjson

from dovetail.files.sentences import make_printable
from dovetail.model import Record, Result
from dovetail.report.gantt.lanes import (
    MOST_BARS,
    MOST_LANES,
    AppColours,
    Bar,
    Labels,
    Lanes,
    Span,
    bars_of,
    make_density,
    make_lanes,
    span_of,
)

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
WHOLE = 1000
"""The height of a lane."""


class PageCharts:
    """The charts of a page, on one axis of time, in the same colours."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.span: Span = span_of(results)
        self._results = results
        self._jobs: dict[str, int] = {}
        self._told: list[list[Any]] = []
        self._words: dict[str, int] = {}
        self._charts: list[dict[str, Any]] = []
        self._marked = False
        length = self.span[1] - self.span[0]
        self._digits = max(0, 6 - math.floor(math.log10(length))) if length > 0 else 0

    @cached_property
    def _app_colours(self) -> AppColours:
        """The colours of all jobs, needed where any are drawn one by one."""
        return AppColours(self._all_records)

    @cached_property
    def _job_labels(self) -> Labels:
        return Labels(self._all_records)

    @cached_property
    def _all_records(self) -> list[Record]:
        records = {r.job.id: r for result in self._results for r in result.records}
        return list(records.values())

    def add(self, result: Result, label: str, *, main: bool = False) -> str:
        """The element that shows a schedule; what it shows is in `script`. A ``main`` one can be saved."""
        if not any(r.run_time is not None for r in result.records):
            return "<p>Nothing has run.</p>"
        few = len(result.cluster.units) <= MOST_LANES and bars_of(result) <= MOST_BARS
        self._charts.append(self._lanes_data(result) if few else self._density_data(result))
        place = len(self._charts) - 1
        name = orjson.dumps(f"Schedule under {label}").decode().replace("<", "\\u003c").replace("'", "&#39;")
        mark = " data-save" if main else ""
        return f"<div class='chart gantt'{mark} data-chart='{place}' data-name='{name}'></div>"

    def script(self) -> str:
        """What all charts of the page show, as JSON in an element of its own; nothing without charts."""
        if not self._charts:
            return ""
        legend = self._app_colours.legend_entries() if any("lanes" in chart for chart in self._charts) else []
        data = {
            "span": self.span,
            "legend": [[make_printable(name), colour] for name, colour in legend],
            "marked": self._marked,
            "jobs": self._told,
            "words": list(self._words),
            "charts": self._charts,
        }
        text = orjson.dumps(data).decode().replace("<", "\\u003c")
        return f'<script type="application/json" id="charts">{text}</script>'

    def _lanes_data(self, result: Result) -> dict[str, Any]:
        made = make_lanes(result, self.span)
        self._marked = self._marked or made.failed
        named = zip(made.names, made.used, strict=True)
        names = [[make_printable(name), round(used, 4), made.rows(i)] for i, (name, used) in enumerate(named)]
        return {"lanes": names, "bars": self._bar_rows(made)}

    def _bar_rows(self, made: Lanes) -> list[list[Any]]:
        """For each job and place: its number, start, end, its details, its stretches of lanes."""
        found: dict[tuple[str, float], list[Any]] = {}
        for lane, bars in enumerate(made.bars):
            for bar in bars:
                known = found.setdefault((bar.record.job.id, bar.start), self._job_row(bar))
                for low, high in bar.shares:
                    known[-1] += [lane, round(low * WHOLE), round(high * WHOLE)]
        return list(found.values())

    def _job_row(self, bar: Bar) -> list[Any]:
        first, record = self.span[0], bar.record
        predicted = record.predicted
        return [
            self._job_number(record),
            self._round_time(bar.start - first),
            self._round_time(bar.end - first),
            self._word_number(str(record.state)),
            self._word_number(record.implementation.name if record.implementation else ""),
            None if predicted is None or not math.isfinite(predicted.expected) else predicted.expected,
            self._word_number(predicted.basis if predicted else ""),
            1 if bar.failed else 0,
            [],
        ]

    def _job_number(self, record: Record) -> int:
        """The number of a job, which is written once for all charts."""
        job = record.job
        place = self._jobs.setdefault(job.id, len(self._jobs))
        if place == len(self._told):
            names = self._job_labels.of(record)
            tone = self._app_colours.of(record)
            submit = self._round_time(job.submit_time - self.span[0])
            self._told.append([names, make_printable(job.app.name), submit, tone])
        return place

    def _word_number(self, text: str) -> int:
        return self._words.setdefault(make_printable(text), len(self._words))

    def _round_time(self, value: float) -> float | int:
        rounded = round(value, self._digits)
        return int(rounded) if rounded == int(rounded) else rounded

    def _density_data(self, result: Result) -> dict[str, Any]:
        chart = make_density(result, span=self.span)
        most = len(DIGITS) - 1
        rows = ["".join(DIGITS[round(share * most)] for share in row) for row in chart.share.tolist()]
        return {"groups": list(map(make_printable, chart.names)), "shares": rows}
