"""Options of reports: a cut, break-downs, a reference, the energy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from dovetail.model import Result
from dovetail.records import dataclass
from dovetail.report.energy import Watts
from dovetail.report.metrics import TrimmedTrace

Case = tuple[str, int | None, int, float | None]
"""Cluster, seed, replicate and load: what a result has in common with that of the reference policy."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """``cut`` leaves out warm-up and cool-down, ``by`` names break-downs, ``watts`` gives the energy.

    ``command`` is the command that made the results, for pages; with ``drift`` intervals hold what the months
    of a trace differ by (`dovetail.report.drift`).
    """

    cut: TrimmedTrace | None = None
    by: Sequence[str] = ()
    watts: Watts | None = None
    command: str = ""
    references: Mapping[Case, Result] = field(default_factory=dict)
    drift: bool = False

    def with_references(self, references: Iterable[Result]) -> ReportOptions:
        """The same, with the results of the reference policy."""
        return replace(self, references={_result_case(result): result for result in references})

    def reference(self, result: Result) -> Result | None:
        """The reference policy's result on the same cluster, with the same seed, replicate and load."""
        return self.references.get(_result_case(result))


def _result_case(result: Result) -> Case:
    return result.cluster.label, result.seed, result.replicate.number, result.load
