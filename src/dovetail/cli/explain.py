"""``dovetail explain``: what was considered for each job, what was predicted, and the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from dovetail import api
from dovetail.cli import options as opt
from dovetail.engine.journal import Journal, read_journal
from dovetail.errors import InputError
from dovetail.executors.discovery import discover
from dovetail.history.memory import MemoryHistory
from dovetail.history.sqlite import SqliteHistory, default_history_path
from dovetail.model import (
    CPU,
    Cluster,
    DeviceClass,
    Ended,
    Enqueue,
    Job,
    JobId,
    Prediction,
    Seconds,
    Start,
    Submitted,
    Wait,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.report import tables, wording
from dovetail.runtimes.registry import DEFAULT_MODEL, make_model
from dovetail.workloads.commands import command_workload
from dovetail.workloads.load import load_workload

__all__ = ["explain"]


@dataclass(slots=True)
class Story:
    """What a journal tells of one job. Options are (implementation, node count, device class)."""

    job: Job
    predictions: dict[tuple[str, int, DeviceClass], Prediction | None] = field(default_factory=dict)
    untried: set[tuple[str, DeviceClass]] = field(default_factory=set)
    chosen: tuple[str, int, DeviceClass] | None = None
    where: str = ""
    bound_at: Seconds | None = None
    start: Seconds | None = None
    end: Seconds | None = None
    state: str = "PENDING"
    waited_for: str = ""

    @property
    def actual(self) -> Seconds | None:
        """Measured seconds."""
        return None if self.start is None or self.end is None else self.end - self.start

    def reason(self) -> str:
        """Why it went where it did, in a few words."""
        if self.chosen is None:
            return self.waited_for or "it has not started"
        name, _, device = self.chosen
        others = {k: p for k, p in self.predictions.items() if k != self.chosen}
        if (name, device) in self.untried:
            return f"explored: {name} had never completed on {device}"
        if not others:
            return "the only way to run it here"
        mine = self.predictions.get(self.chosen)
        known = {k: p.expected for k, p in others.items() if p is not None}
        if mine is None or not known:
            return "nothing is known of its other choices"
        fastest = min(known, key=lambda k: known[k])
        waited = ""
        if self.start is not None and self.bound_at is not None and self.start > self.bound_at:
            waited = f", worth waiting {self.start - self.bound_at:.3g} s for it"
        if mine.expected <= known[fastest]:
            against = f"{mine.expected:.3g} s against {known[fastest]:.3g} s on {fastest[2]}"
            return f"fastest there ({against}){waited}"
        return (
            f"slower there ({mine.expected:.3g} s against {known[fastest]:.3g} s), "
            f"but free before {fastest[2]} was predicted to be"
        )


def explain(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|JOURNAL|FILE", help="A run folder, a journal, or jobs. Default: the last run."
        ),
    ] = None,
    job: Annotated[list[str] | None, typer.Option("--job", metavar="ID", help="Only this job.")] = None,
    cluster: opt.Cluster = None,
    policy: opt.Policy = "history",
    on: opt.On = None,
    app: opt.App = None,
    drop: opt.Drop = None,
    add: opt.Feature = None,
    history: opt.HistoryFile = None,
    model: opt.Model = DEFAULT_MODEL,
    as_json: opt.Json = False,
) -> int:
    """Show of each job the devices that were considered, the predictions and the reason.

    Of a run that has been: from its journal, predicted beside actual. Of jobs that have not run: what
    they are taken for (app, features), and what the history predicts.
    """
    load_policy(policy)  # refuses a name that is not there; what it would decide depends on run times
    command = list(context.obj or [])
    journal = None if command else _journal(target)
    if journal is not None:
        stories = _stories(journal)
        rows = [_past(story) for story in stories.values() if not job or story.job.id in job]
    else:
        kinds = opt.kinds(on)
        if command:
            workload = command_workload(command, on=kinds, app=app, drop=drop or (), add=add or ())
        else:
            assert target is not None
            reader = opt.reader_options(on=kinds, app=app, drop=drop, add=add)
            workload = load_workload(target, cluster, **reader)
        machine = discover() if cluster is None else Cluster.parse(cluster)
        rows = list(_future(workload, machine, history, model, job))
    if job and not rows:
        raise InputError(f"found no job {', '.join(job)}", where=target or "the last run")
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        _print(rows)
    else:
        print("No job was submitted yet.")
    return 0


def _journal(target: str | None) -> Journal | None:
    """The journal that the target names; ``None`` if it names jobs."""
    if target is None:
        runs = sorted(
            api.default_runs_folder().glob("*/journal.jsonl"), key=lambda path: path.stat().st_mtime
        )
        if not runs:
            raise InputError("there is no run to explain yet; expected a journal or a file of jobs")
        return read_journal(runs[-1])
    path = Path(target)
    if path.is_dir():
        return read_journal(path / "journal.jsonl")
    return read_journal(path) if path.suffix == ".jsonl" else None


def _stories(journal: Journal) -> dict[JobId, Story]:
    """One pass over the journal; predictions are those that were known when the job was placed."""
    stories: dict[JobId, Story] = {}
    runs: dict[tuple[str, str, DeviceClass], int] = {}
    cluster = journal.cluster
    for batch in journal.batches:
        for event in batch.events:
            if isinstance(event, Submitted):
                stories[event.job.id] = Story(event.job)
            elif isinstance(event, Ended):
                story = stories[event.job]
                story.end, story.state = batch.now, event.state.value
        for asked in batch.asked:
            if asked[0] == "runs":
                runs[asked[1], asked[2], asked[3]] = asked[4]
            elif asked[0] == "predict" and stories[asked[1]].start is None:
                stories[asked[1]].predictions[asked[2], asked[3], asked[4]] = asked[5]
        for decision in batch.decisions:
            if isinstance(decision, Enqueue):
                story = stories[decision.job]
                story.bound_at = batch.now
                story.untried = _untried(story.job, runs)
            elif isinstance(decision, Start):
                story = stories[decision.job]
                if story.bound_at is None:
                    story.untried = _untried(story.job, runs)
                implementation = story.job.app.implementation(decision.implementation)
                allocation = decision.allocation
                node = cluster.nodes[allocation.first_node]
                part = allocation.part_on(allocation.first_node)
                on_device = part is not None and part.devices
                model = node.devices[part.devices[0]].model if part and on_device else node.cpu_model
                device = DeviceClass(implementation.kind, model)
                story.chosen = (decision.implementation, allocation.request.nodes, device)
                names = allocation.device_names(cluster) or allocation.node_names(cluster)
                story.where, story.start, story.state = ",".join(names), batch.now, "RUNNING"
            elif isinstance(decision, Wait):
                stories[decision.job].waited_for = decision.reason
    return stories


def _untried(job: Job, runs: Mapping[tuple[str, str, DeviceClass], int]) -> set[tuple[str, DeviceClass]]:
    return {
        (name, device) for (app, name, device), count in runs.items() if app == job.app.name and not count
    }


def _past(story: Story) -> dict[str, Any]:
    mine = story.predictions.get(story.chosen) if story.chosen else None
    return {
        "id": story.job.id,
        "app": story.job.app.name,
        "features": dict(story.job.inputs),
        "considered": [_option(*key, found) for key, found in story.predictions.items()],
        "where": story.where or None,
        "implementation": story.chosen[0] if story.chosen else None,
        "state": story.state,
        "submit": story.job.submit_time,
        "start": story.start,
        "predicted": mine.expected if mine else None,
        "actual": story.actual,
        "reason": story.reason(),
    }


def _option(name: str, nodes: int, device: DeviceClass, found: Prediction | None) -> dict[str, Any]:
    option: dict[str, Any] = {"implementation": name, "nodes": nodes, "device": str(device)}
    if found is None:
        return {**option, "predicted": None, "basis": "no history", "samples": 0}
    return {
        **option,
        "predicted": found.expected,
        "lower": found.lower,
        "upper": found.upper if found.upper != float("inf") else None,
        "basis": found.basis,
        "samples": found.samples,
    }


def _future(
    workload: Workload, cluster: Cluster, history: Path | None, model: str, wanted: Sequence[str] | None
) -> Iterator[dict[str, Any]]:
    path = default_history_path() if history is None else history
    with ExitStack() as stack:
        store: Any = MemoryHistory()
        if path.exists():
            store = stack.enter_context(SqliteHistory(path, must_exist=True))
        runtimes = make_model(model, store)
        for job in workload.jobs:
            if wanted and job.id not in wanted:
                continue
            considered = []
            for choice in job.choices:
                for device in cluster.device_classes(choice.implementation.kind):
                    found = runtimes.predict(job, choice.implementation, choice.request, device)
                    considered.append(
                        _option(choice.implementation.name, choice.request.nodes, device, found)
                    )
            reason = "has not run" if considered else "no device here can run it"
            yield {
                "id": job.id,
                "app": job.app.name,
                "features": dict(job.inputs),
                "considered": considered,
                "state": "PENDING",
                "reason": reason,
            }


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    console = tables.console()
    for row in rows:
        features = ", ".join(
            f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in row["features"].items()
        )
        head = Text(wording.printable(row["id"]), "bold")
        head.append(f"  {wording.printable(row['app'])}", "not bold")
        if features:
            head.append(f"  {wording.printable(features)}", "not bold dim")
        console.print(head, soft_wrap=True)
        for option in row["considered"]:
            chosen = option["implementation"] == row.get("implementation")
            mark = "→" if chosen else " "
            nodes = f" on {option['nodes']} nodes" if option["nodes"] > 1 else ""
            told = "no history"
            if option["predicted"] is not None:
                upper = "∞" if option["upper"] is None else f"{option['upper']:.3g}"
                told = f"{option['predicted']:.3g} s ({option['lower']:.3g} to {upper}), {option['basis']}"
            name = option["implementation"] + (f" on {option['device']}" if option["device"] != CPU else "")
            console.print(f"  {mark} {name}{nodes}: {told}", markup=False, soft_wrap=True)
        if row.get("where"):
            actual = row["actual"]
            took = "still runs" if actual is None else f"took {actual:.3g} s"
            console.print(
                f"    {row['state']} on {row['where']}, {took}: {row['reason']}", markup=False, soft_wrap=True
            )
        else:
            console.print(f"    {row['state']}: {row['reason']}", markup=False, soft_wrap=True)
