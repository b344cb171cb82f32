"""``dovetail model``: what was learned of an app's run time, how good it is, and a picture of it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli import options as opt
from dovetail.cli.history import inputs_columns, matching_groups, open_history
from dovetail.errors import InputError
from dovetail.files.sentences import make_printable
from dovetail.history import Group, SqliteHistory
from dovetail.history.base import InputsKey, RequestKey, canonical_inputs, request_key
from dovetail.model import DeviceClass, Run
from dovetail.records import dataclass
from dovetail.report import tables, wording
from dovetail.spec.values import DEFAULT_MODEL

if TYPE_CHECKING:
    from dovetail.runtimes.base import HistoryModel, Query
    from dovetail.runtimes.evaluation import HeldOut
    from dovetail.runtimes.fits import Fit

model_app = opt.command_group("Look at what was learned of run times, and how good it is.")


@dataclass(frozen=True, slots=True)
class ModelledPlace:
    """One implementation on one class under the request that ran most, and the inputs that ran last."""

    implementation: str
    device: DeviceClass
    request: RequestKey
    inputs: InputsKey
    runs: int

    def make_query(self, app: str, inputs: InputsKey | None = None) -> Query:
        """A query of this place."""

        from dovetail.runtimes.base import Query

        inputs = self.inputs if inputs is None else inputs
        return Query(app, self.implementation, self.device, self.request, inputs)


def _modelled_places(store: SqliteHistory, app: str, groups: Sequence[Group]) -> list[ModelledPlace]:
    from dovetail.runtimes.base import MAX_RUNS

    found: list[ModelledPlace] = []
    for name, device in dict.fromkeys((g.implementation, g.device_class) for g in groups if g.completed):
        here = [g for g in groups if (g.implementation, g.device_class) == (name, device)]
        request = max(here, key=lambda group: group.completed).request
        last = [r for r in store.recent(app, name, device, MAX_RUNS) if request_key(r) == request]
        inputs = canonical_inputs(last[-1].inputs) if last else ()
        found.append(ModelledPlace(name, device, request, inputs, sum(g.completed for g in here)))
    return found


def _fit_place(predictor: HistoryModel, place: ModelledPlace, app: str) -> Fit | None:
    from dovetail.runtimes.learned import LearnedModel

    return predictor.fit(place.make_query(app)) if isinstance(predictor, LearnedModel) else None


@opt.takes_options("model list", model_app)
def list_models(history: Path | None, as_json: bool) -> None:
    """List apps and device classes with the law that the learned model chose."""
    from dovetail.runtimes import make_model

    rows: list[dict[str, Any]] = []
    with open_history(history) as store:
        predictor = make_model(DEFAULT_MODEL, store)
        for app in dict.fromkeys(group.app for group in store.list_groups()):
            # One row for each place that runs differ by: implementation, class and request.
            for place in _modelled_places(store, app, store.list_groups(app)):
                fit = _fit_place(predictor, place, app)
                rows.append(_model_row(app, place, fit, predictor))
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        print("The history is empty.")
        return
    tables.print_table(
        tables.name_cells("App", (r["app"] for r in rows)),
        tables.name_cells("Device class", (r["device"] for r in rows)),
        tables.name_cells("Implementation", (r["implementation"] for r in rows), 3),
        tables.name_cells("Law", (r["law"] or "-" for r in rows)),
        tables.name_cells("Seconds", (r["formula"] or "-" for r in rows), 2),
        tables.Cells("Inputs", [str(r["keys"]) for r in rows], rank=1),
        tables.Cells("Runs", [wording.format_count(r["runs"]) for r in rows]),
    )


def _model_row(
    app: str, place: ModelledPlace, fit: Fit | None, predictor: HistoryModel | None = None
) -> dict[str, Any]:
    from dovetail.runtimes.describe import law_formula, law_shares
    from dovetail.runtimes.learned import LearnedModel

    # Only the learned model converts between wall-clock and CPU time.
    route = predictor.choose_route(place.make_query(app)) if isinstance(predictor, LearnedModel) else None
    return {
        "app": app,
        "implementation": place.implementation,
        "device": str(place.device),
        "runs": place.runs,
        "keys": len(fit.cells) if fit else 0,
        "law": law_shares(fit)[0][0] if fit else None,
        "formula": law_formula(fit) if fit else None,
        "shares": dict(law_shares(fit)) if fit else {},
        "run_noise": fit.run_noise if fit else None,
        "left_out_error": _left_out_error(fit) if fit else None,
        "wall_over_cpu": None if route is None else math.exp(route.ratio),
    }


def _left_out_error(fit: Fit) -> float | None:
    """Median relative error of each input predicted from the others, as the fit itself sees it."""
    import numpy as np

    # With fewer inputs each left-out fit would rest on a line through two points.
    if len(fit.cells) < 4:
        return None
    return float(
        np.median([abs(math.expm1(fit.predict_without(i)[0] - c.y)) for i, c in enumerate(fit.cells)])
    )


@opt.takes_options("model starts", model_app)
def show_starts(service: str | None, as_json: bool) -> None:
    """Show how many intervals of the service's forecasts of starts held, week by week."""
    from dovetail.client.folder import ServiceFolder
    from dovetail.forecasts.intervals import FILE, coverage_by_week, kept_outcomes

    weeks = coverage_by_week(kept_outcomes(ServiceFolder(service).path / FILE))
    if as_json:
        print(json.dumps(weeks, indent=2))
        return
    if not weeks:
        print("No job has started that was forecast.")
        return
    errors = [one["median_abs_error"] for one in weeks]
    tables.print_table(
        tables.Cells("Week of", [time.strftime("%Y-%m-%d", time.localtime(one["week"])) for one in weeks]),
        tables.Cells("Forecasts", [wording.format_count(one["forecasts"]) for one in weeks]),
        tables.Cells("In 90 %", [f"{one['coverage']:.1%}" for one in weeks]),
        tables.Cells("Median error (s)", [f"{one['ours']:,.0f}" for one in errors]),
        tables.Cells("The plan's (s)", [f"{one['plan']:,.0f}" for one in errors]),
    )


@opt.takes_options("model show", model_app)
def show(
    app: str,
    device: str | None,
    implementation: str | None,
    model: str,
    plot: Path | None,
    history: Path | None,
    as_json: bool,
) -> None:
    """Show what was learned of an app: law, formula, runs, error on inputs left out; draw it."""
    from dovetail.runtimes import make_model

    with open_history(history) as store:
        found = _modelled_places(store, app, matching_groups(store, app, device, implementation))
        predictor = make_model(model, store)
        rows = [_model_row(app, place, _fit_place(predictor, place, app), predictor) for place in found]
        samples = [_sample_rows(store, predictor, place, app) for place in found]
        if plot is not None:
            _draw_times(app, predictor, store, found, plot)
    if as_json:
        about = {"app": app, "model": model}
        devices = [row | {"samples": sample} for row, sample in zip(rows, samples, strict=True)]
        print(json.dumps(about | {"devices": devices}, indent=2))
        return
    console = tables.make_console()
    for row, sample in zip(rows, samples, strict=True):
        head = f"{row['device']}, {row['implementation']}: {wording.count_things(row['runs'], 'run')}"
        console.print(make_printable(head), style="bold")
        if row["law"]:
            print(f"  seconds = {row['formula']}")
            words = [f"{name} {share:.0%}" for name, share in row["shares"].items() if share >= 0.01]
            print(f"  laws: {', '.join(words)}")
        if row["wall_over_cpu"] is not None:
            print(
                f"  predicted by CPU time: run times are {row['wall_over_cpu']:.2f} times it, "
                "longer while other programs run"
            )
        if row["left_out_error"] is not None:
            print(f"  median error of an input predicted from the others: {row['left_out_error']:.1%}")
        between = [
            f"{wording.spell_seconds(s['lower'])} and {wording.spell_seconds(s['upper'])}" for s in sample
        ]
        tables.print_table(
            *inputs_columns([dict(s["inputs"]) for s in sample]),
            tables.Cells("Runs", [wording.format_count(s["count"]) for s in sample]),
            tables.Cells("Mean", [wording.spell_seconds(s["mean"]) for s in sample]),
            tables.Cells("Predicted", [wording.spell_seconds(s["expected"]) for s in sample]),
            tables.Cells("90 % between", between, rank=1),
        )
        print()
    if plot is not None:
        print(f"Plot: {plot}")


def _sample_rows(
    store: SqliteHistory, predictor: HistoryModel, place: ModelledPlace, app: str
) -> list[dict[str, Any]]:
    """Measured and predicted times of the inputs of this place, by inputs."""
    rows: list[dict[str, Any]] = []
    for a in store.list_aggregates(app, place.implementation, place.device, 200):
        if not a.count or a.request != place.request:
            continue
        answer = predictor.ask(place.make_query(app, a.inputs))
        rows.append(
            {
                "inputs": dict(a.inputs),
                "count": a.count,
                "mean": a.mean,
                "expected": answer.expected if answer else None,
                "lower": answer.lower if answer else None,
                "upper": answer.upper if answer else None,
                "basis": answer.basis if answer else None,
            }
        )
    return sorted(rows, key=lambda row: [(k, isinstance(v, str), v) for k, v in row["inputs"].items()])


@opt.takes_options("model error", model_app)
def error(
    app: str,
    device: str | None,
    implementation: str | None,
    model: list[str] | None,
    history: Path | None,
    as_json: bool,
) -> None:
    """Compare the models' errors on inputs held out one at a time."""
    from dovetail.runtimes import MODELS
    from dovetail.runtimes.evaluation import held_out

    names = model or [name for name in MODELS if name != "user-estimate"]
    with open_history(history) as store:
        kept = [
            (p.implementation, p.device)
            for p in _modelled_places(store, app, matching_groups(store, app, device, implementation))
        ]
        found = held_out(store, app, names, kept)
    if as_json:
        print(json.dumps([_error_form(row) for row in found], indent=2))
        return
    if not found:
        print(f"{app} has run with fewer than two different inputs on each device: nothing to hold out.")
        return
    tables.print_table(
        tables.name_cells("Device class", (row.device for row in found)),
        tables.name_cells("Implementation", (row.implementation for row in found), 2),
        tables.name_cells("Model", (row.model for row in found)),
        tables.Cells("Inputs", [str(row.keys) for row in found], rank=1),
        tables.Cells("Median error", [wording.format_percent(row.median_error) for row in found]),
        tables.Cells("Mean error", [wording.format_percent(row.mean) for row in found]),
        tables.Cells("In 90 % interval", [wording.format_percent(row.covered) for row in found]),
        tables.Cells("Unpredicted", [wording.format_count(row.unpredicted) for row in found], rank=1),
    )


def _error_form(row: HeldOut) -> dict[str, Any]:
    return {
        "model": row.model,
        "implementation": row.implementation,
        "device": str(row.device),
        "keys": row.keys,
        "runs": len(row.errors),
        "median_error": row.median_error if row.errors else None,
        "mean_error": row.mean if row.errors else None,
        "covered": row.covered if row.errors else None,
        "unpredicted": row.unpredicted,
    }


def _draw_times(
    app: str, predictor: HistoryModel, store: SqliteHistory, found: Sequence[ModelledPlace], path: Path
) -> None:
    """Draw run times over the first numeric input that varies; the others stay as in the last run.

    Where none does, runs stand one after the other, each with what is predicted for its inputs.
    """
    from dovetail.report import drawing, plots

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"found {path.suffix or 'no ending'!r}, expected .png, .svg or .pdf", where="--plot")
    runs_of = {place: _newest_runs(store, place, app) for place in found}
    axis = next((name for place in found if (name := _varying_input(place, runs_of[place]))), "")
    learned = []
    for place, runs in runs_of.items():
        if axis:
            measured = [(size, run.seconds) for run in runs if (size := _input_size(run, axis)) > 0]
            points = _sizes_around(place, [size for size, _ in measured], axis)
        else:
            measured = [(float(i), run.seconds) for i, run in enumerate(runs, 1)]
            points = [(float(i), run.inputs) for i, run in enumerate(runs, 1)]
        answers = [
            (x, predictor.ask(place.make_query(app, canonical_inputs(inputs)))) for x, inputs in points
        ]
        predicted = [(x, a.expected, max(a.lower, a.expected * 1e-3), a.upper) for x, a in answers if a]
        learned.append(plots.Learned(f"{place.device}, {place.implementation}", measured, predicted))
    drawing.save_drawing(plots.run_times(app, axis, learned), path)


def _newest_runs(store: SqliteHistory, place: ModelledPlace, app: str) -> list[Run]:
    """The newest runs of the place, oldest first."""
    from dovetail.runtimes.base import MAX_RUNS

    recent = store.recent(app, place.implementation, place.device, MAX_RUNS)
    return [run for run in recent if request_key(run) == place.request]


def _input_size(run: Run, name: str) -> float:
    """A numeric input of a run; nan if it has none of that name."""
    value = run.inputs.get(name)
    return float(value) if isinstance(value, int | float) else math.nan


def _varying_input(place: ModelledPlace, runs: Sequence[Run]) -> str | None:
    """The first numeric input that took more than one value above 0."""
    for name, value in place.inputs:
        sizes = {size for run in runs if (size := _input_size(run, name)) > 0}
        if not isinstance(value, str) and len(sizes) > 1:
            return name
    return None


def _sizes_around(
    place: ModelledPlace, sizes: Sequence[float], name: str
) -> list[tuple[float, Mapping[str, float | str]]]:
    """Sizes about those measured, each with the inputs that have it."""
    import numpy as np

    if not sizes:
        return []
    every = np.geomspace(min(sizes) / 1.5, max(sizes) * 1.5, 60).tolist()
    return [(size, dict(place.inputs) | {name: size}) for size in every]
