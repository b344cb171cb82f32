"""The report of one result, and of several: what the Python API returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from dovetail.errors import InputError
from dovetail.extras import need_module, needing_extra
from dovetail.files.writing import write_text
from dovetail.model import Result, Seconds
from dovetail.report import outcome, tables, wording
from dovetail.report.intervals import Paired, compare_paired, group_variants, policy_label
from dovetail.report.json_form import text_of, to_json, to_plain_json
from dovetail.report.metrics import TrimmedTrace, compute_metrics
from dovetail.report.options import ReportOptions

if TYPE_CHECKING:
    import pandas as pd

FIGURES = (".svg", ".png", ".pdf")


class Jobs(list[dict[str, Any]]):
    """Jobs as dicts, in the fields of the JSON form."""

    def to_pandas(self) -> pd.DataFrame:
        """A data frame, one row a job, indexed by job id; with ``wait`` and ``run`` in seconds.

        Raises `InputError` where pandas is missing.
        """
        frame = _make_frame(self)
        if not len(frame):
            return frame
        start = frame["start"].astype(float)
        frame.insert(frame.columns.get_loc("end") + 1, "wait", start - frame["submit"])
        frame.insert(frame.columns.get_loc("wait") + 1, "run", frame["end"].astype(float) - start)
        return frame.set_index("id")


def _make_frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    with needing_extra("to_pandas"):
        import pandas as pd

    return pd.DataFrame(list(rows))


class _Written:
    """Results as a page, and as a folder with everything."""

    results: list[Result]
    options: ReportOptions

    def html(self, path: str | Path | None = None, *, cut: TrimmedTrace | None = None) -> str:
        """One self-contained page; written to ``path`` and that returned, or the page itself.

        ``cut`` leaves a warm-up and a cool-down out of the means.
        """
        from dovetail.report import html

        page = html.report_page(self.results, replace(self.options, cut=cut))
        if path is None:
            return page
        write_text(path, page)
        return str(path)

    def save(self, folder: str | Path, *, cut: TrimmedTrace | None = None) -> str:
        """Write page, JSON, CSVs and charts into a folder, which is made; returns the path of the page.

        Of several loads there is a folder for each. Raises `InputError` where something cannot be written.
        """
        from dovetail.report.folder import write_folder

        write_folder(self.results, Path(folder), replace(self.options, cut=cut))
        return str(Path(folder) / "index.html")


class Report(_Written):
    """What came of a simulation or a live run. ``result`` holds everything that it is made from."""

    def __init__(self, result: Result) -> None:
        self.result, self.results, self.options = result, [result], ReportOptions()

    @property
    def policy(self) -> str:
        """The policy, as it is registered."""
        return self.result.policy

    @property
    def makespan(self) -> Seconds:
        """First submission to last end; NaN where too little is known."""
        return self.result.makespan

    @cached_property
    def metrics(self) -> dict[str, float | None]:
        """Every metric by name (docs/reference/metrics.md)."""
        found: dict[str, float | None] = to_plain_json(compute_metrics(self.result))
        return found

    @cached_property
    def jobs(self) -> Jobs:
        """The jobs, in file order, as dicts of the JSON form."""
        return Jobs(self.to_json()["jobs"])

    @property
    def notes(self) -> list[str]:
        """What a reader should know: what was assumed, left out, or not known."""
        return outcome.outcome_notes(self.result)

    @property
    def known(self) -> bool:
        """Whether enough is known to give a schedule; if not, ``notes`` name what is missing."""
        return self.result.known

    @property
    def rejected(self) -> list[str]:
        """Ids of the jobs that could not run here."""
        return [r.id for r in self.result.rejected]

    def to_json(self) -> dict[str, Any]:
        """The JSON form (docs/reference/output.md)."""
        return to_json(self.result)

    def json(self) -> str:
        """The JSON form as text."""
        return text_of(self.to_json())

    def gantt(self, path: str | Path | None = None, *, width: int = 80) -> str:
        """Draw the schedule: to an SVG, PNG or PDF file, or, without a path, as text.

        Returns the path, or the text. Raises `InputError` for another ending.
        """
        if path is None:
            from dovetail.report.gantt.terminal import terminal_chart

            return tables.render_plain(terminal_chart(self.result, width=width), width=width)
        check_figure(path)
        from dovetail.report import drawing
        from dovetail.report.gantt import figure

        drawing.save_drawing(figure.draw_gantt(self.result), path)
        return str(path)

    def __str__(self) -> str:
        return tables.render_plain(outcome.outcome_summary(self.result)).rstrip("\n")

    def __repr__(self) -> str:
        return f"Report({self.policy!r}, {len(self.result.records)} jobs, makespan={self.makespan:g})"

    def _repr_html_(self) -> str:
        from dovetail.report import html

        return html.notebook_fragment(self.result)


class Comparison(_Written, Sequence[Report]):
    """Reports of several policies, clusters, seeds or loads, side by side.

    ``options`` hold the results of a reference policy, if there is one.
    """

    def __init__(self, results: Iterable[Result], options: ReportOptions | None = None) -> None:
        self.results = list(results)
        self.options = options or ReportOptions()
        self._reports = [Report(result) for result in self.results]

    def __len__(self) -> int:
        return len(self._reports)

    def __getitem__(self, index: Any) -> Any:
        return self._reports[index]

    @property
    def policies(self) -> list[str]:
        """What is compared, in order: policies as they are written on the command line."""
        return list(group_variants(self.results))

    def paired(self, a: str, b: str, metric: str = "makespan") -> Paired:
        """Policy ``a`` minus policy ``b`` on the same draws. Raises `InputError` for unknown policies."""
        groups = group_variants(self.results)
        for name in (a, b):
            if name not in groups:
                raise InputError(f"no results of {name!r} to compare: expected one of {', '.join(groups)}")
        return compare_paired(groups[a], groups[b], metric)

    def summary(self) -> dict[str, dict[str, dict[str, Any]]]:
        """By metric and policy: difference from the first policy, interval, ratio, verdict and its reason.

        With ``drift`` the figures of every policy, too, with intervals that hold it.
        """
        from dovetail.report.verdicts import summary_of

        return summary_of(self.results, self.options.cut, drift=self.options.drift)

    def to_json(self) -> list[dict[str, Any]]:
        """The list of JSON forms."""
        return [to_json(result, self.options) for result in self.results]

    def json(self) -> str:
        """The list of JSON forms as text."""
        return text_of(self.to_json())

    def to_pandas(self) -> pd.DataFrame:
        """A data frame, one row a result: policy, cluster, seed, replicate, load, and every metric by name.

        Raises `InputError` where pandas is missing.
        """
        return _make_frame(
            [
                {
                    "policy": policy_label(result),
                    "cluster": wording.machine_name(result.cluster),
                    "seed": result.seed,
                    "replicate": result.replicate.number,
                    "load": result.load,
                    **compute_metrics(result, cut=self.options.cut, reference=self.options.reference(result)),
                }
                for result in self.results
            ]
        )

    def plot(self, path: str | Path) -> str:
        """Bars with confidence intervals, to an SVG, PNG or PDF file. Returns the path."""
        from dovetail.report import drawing, plots

        check_figure(path)
        drawing.save_drawing(plots.draw_comparison(self.results, drift=self.options.drift), path)
        return str(path)

    def __str__(self) -> str:
        drift = self.options.drift
        from dovetail.report import compared

        notes = [Text(line) for line in compared.comparison_remarks(self.results, drift=drift)]
        table = compared.comparison_table(self.results, drift=drift)
        return tables.render_plain(table, *notes).rstrip("\n")

    def _repr_html_(self) -> str:
        from dovetail.report import html

        return html.comparison_fragment(self.results, drift=self.options.drift)


def check_figure(path: str | Path) -> None:
    """That the name's ending is a form to draw in, and that it can be drawn. Raises `InputError`."""
    if Path(path).suffix.lower() not in FIGURES:
        raise InputError(f"cannot draw to {str(path)!r}: expected a name that ends in {', '.join(FIGURES)}")
    if Path(path).suffix.lower() != ".svg":
        need_module("matplotlib", "a chart as PNG or PDF")
