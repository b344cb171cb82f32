"""What came out: metrics, tables, charts, pages. `Report` is what the Python API returns."""

from dovetail.report.intervals import Interval, Paired, interval, label, paired
from dovetail.report.json_form import dumps, to_json
from dovetail.report.metrics import Cut, breakdown, later_than, metrics
from dovetail.report.report import Comparison, Jobs, Report

__all__ = [
    "Comparison",
    "Cut",
    "Interval",
    "Jobs",
    "Paired",
    "Report",
    "breakdown",
    "dumps",
    "interval",
    "label",
    "later_than",
    "metrics",
    "paired",
    "to_json",
]
