"""What came out: metrics, tables, charts, pages. `Report` is what the Python API returns.

Parts are imported when they are first used: who only prints a table waits for no arrays.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.report.intervals import Interval, Paired, interval, label, paired
    from dovetail.report.json_form import dumps, to_json
    from dovetail.report.metrics import TrimmedTrace, breakdown, later_than
    from dovetail.report.report import Comparison, Jobs, Report

__all__ = [
    "Comparison",
    "Interval",
    "Jobs",
    "Paired",
    "Report",
    "TrimmedTrace",
    "breakdown",
    "dumps",
    "interval",
    "label",
    "later_than",
    "paired",
    "to_json",
]

_PARTS = {
    "intervals": ("Interval", "Paired", "interval", "label", "paired"),
    "json_form": ("dumps", "to_json"),
    "metrics": ("TrimmedTrace", "breakdown", "later_than"),
    "report": ("Comparison", "Jobs", "Report"),
}


def __getattr__(name: str) -> Any:
    for part, names in _PARTS.items():
        if name in names:
            return getattr(import_module(f"dovetail.report.{part}"), name)
    raise AttributeError(f"module 'dovetail.report' has no attribute {name!r}")
