"""``dovetail explain``: what was considered for each job, what was predicted, and the reason."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from dovetail.cli import options as opt
from dovetail.cli.service import jobs_meant, memory_words, open_service
from dovetail.cli.tested import sooner_lines
from dovetail.client.connection import VARIABLE
from dovetail.client.folder import ServiceFolder
from dovetail.driver.companions import CompanyBook
from dovetail.engine.state.suspensions import Suspensions
from dovetail.errors import InputError
from dovetail.files.sentences import make_printable
from dovetail.history.memory import MemoryHistory
from dovetail.history.sqlite import SqliteHistory, default_history_path
from dovetail.model import (
    CPU,
    Adopted,
    Allocation,
    App,
    Cluster,
    Companions,
    DeviceClass,
    Ended,
    Enqueue,
    Intend,
    Job,
    JobId,
    Placed,
    Prediction,
    Seconds,
    Start,
    Started,
    Submit,
    Submitted,
    Wait,
    Workload,
    bit_indices,
    class_of,
    classes_for,
    ways,
)
from dovetail.model.strangers import barred_devices, device_kinds
from dovetail.records import dataclass
from dovetail.report import tables
from dovetail.running.folder import SHORT, default_runs_folder, journal_of, run_folders

if TYPE_CHECKING:
    from dovetail.engine.journal.journal import Journal


TOO_WIDE = 20.0
"""Where an interval ends at so many times what is expected, it shows only that too few runs are known."""
Way = tuple[str, int, DeviceClass]
"""An implementation, on so many nodes, of a device class."""


@dataclass(slots=True)
class JobStory:
    """The story of one job in a journal. ``busy`` holds the classes that were all in use when it started."""

    job: Job
    ways: frozenset[Way] = frozenset()
    predictions: dict[Way, Prediction | None] = field(default_factory=dict)
    untried: set[tuple[str, DeviceClass]] = field(default_factory=set)
    busy: frozenset[DeviceClass] = frozenset()
    chosen: Way | None = None
    where: str = ""
    bound_at: Seconds | None = None
    start: Seconds | None = None
    end: Seconds | None = None
    measured: Seconds | None = None  # by the backend
    state: str = "PENDING"
    waited_for: str = ""
    planned: str = ""
    handed_over: str = ""  # why so
    beside: Companions | None = None
    suspended: str = ""  # what it could not use when it was placed, or cannot use now

    @property
    def measured_seconds(self) -> Seconds | None:
        """Measured seconds."""
        if self.measured is not None:
            return self.measured
        return None if self.start is None or self.end is None else self.end - self.start

    # The backend's time where there is one: the engine's includes starting the process.

    def reason(self) -> str:
        """Why it went where it did, in a few words."""
        if self.handed_over:
            return self.handed_over
        if self.chosen is None:
            return self.suspended or self.planned or self.waited_for or "it has not started"
        name, _, device = self.chosen
        if self.suspended:
            return self.suspended
        # Only ways that were looked at count: others were impossible here.
        others = self.ways - {self.chosen}
        if (name, device) in self.untried:
            return f"explored: {name} had never completed on {device}"
        if not others:
            return "the only way to run it here"
        mine = self.predictions.get(self.chosen)
        known = {k: p.expected for k in others if (p := self.predictions.get(k)) is not None}
        if mine is None or not known:
            # Without two numbers there was no comparison, whatever was known otherwise.
            return self._without_comparison(others)
        fastest = min(known, key=lambda k: known[k])
        waited = ""
        # It waited although something else was free: the time is what the prediction was worth.
        if self.start is not None and self.bound_at is not None and self.start > self.bound_at:
            waited = f", worth waiting {self.start - self.bound_at:.3g} s for it"
        if mine.expected <= known[fastest]:
            against = f"{mine.expected:.3g} s against {known[fastest]:.3g} s on {fastest[2]}"
            return f"fastest there ({against}){waited}"
        return (
            f"slower there ({mine.expected:.3g} s against {known[fastest]:.3g} s), "
            f"but free before {fastest[2]} was predicted to be"
        )

    def _without_comparison(self, others: Set[Way]) -> str:
        """Why it went there, where no run time was set against another."""
        assert self.chosen is not None
        elsewhere = {other for _, _, other in others if other != self.chosen[2]}
        classes = " and ".join(sorted(map(str, elsewhere)))
        # The others were all in use, so there was no choice to compare.
        if elsewhere and elsewhere <= self.busy:
            return f"free when {classes} {'were' if len(elsewhere) > 1 else 'was'} busy"
        if elsewhere and not others & self.predictions.keys():
            return f"not compared with {classes}"
        return "nothing is known of its other choices"


@opt.takes_options("explain")
def explain(
    context: typer.Context,
    target: str | None,
    job: list[str] | None,
    cluster: str | None,
    policy: str,
    on: str | None,
    app: str | None,
    drop: list[str] | None,
    add: list[str] | None,
    each: list[str] | None,
    cpus: str | None,
    history: Path | None,
    model: str,
    at: str | None,
    as_json: bool,
) -> int:
    """Show of each job the devices that were considered, the predictions and the reason.

    Of a run that has been: from its journal, predicted beside actual. Of jobs that have not run: what
    they are taken for (app, features), and what the history predicts.
    """
    from dovetail.local.discovery import discover_cluster
    from dovetail.plugins import load_policy
    from dovetail.workloads.commands import command_workload
    from dovetail.workloads.load import load_workload

    # Refused early, with the list of names, rather than after reading a large journal.
    load_policy(policy)  # refuses a name that is not there; what it would decide depends on run times
    command = list(context.obj or [])
    of_service = target is not None and not command and _is_of_service(target, at)
    journal = None if command or of_service else _find_journal(target)
    if of_service:
        assert target is not None
        rows = _of_service(target, at)
    elif journal is not None:
        stories = _read_stories(journal)
        rows = [_past_row(story) for story in stories.values() if not job or story.job.id in job]
        _add_items(rows, target)
    else:
        reader = opt.reader_options(
            on=opt.read_kinds(on), app=app, drop=drop, add=add, each=each, cpus=opt.read_cpus(cpus)
        )
        if command:
            workload = command_workload(command, **reader)
        else:
            assert target is not None
            workload = load_workload(target, cluster, **reader)
        machine = discover_cluster() if cluster is None else Cluster.parse(cluster)
        rows = list(_future_rows(workload, machine, history, model, job))
    if job and not rows:
        raise InputError(f"found no job {', '.join(job)}", where=target or "the last run")
    if as_json:
        print(json.dumps(rows, indent=2))
    elif rows:
        _print_stories(rows)
    else:
        print("No job was submitted yet.")
    return 0


def _add_items(rows: Sequence[dict[str, Any]], target: str | None) -> None:
    """To the job that is a map: which workers did its items, and why some were suspended."""
    from dovetail.mapping.items import read_items

    path = _newest_journal() if target is None else journal_of(target) or Path(target)
    items = read_items(path.parent)
    row = None if items is None else next((row for row in rows if row["id"] == items["job"]), None)
    if row is None or items is None:
        return
    # A map that was killed could not write its own end.
    if row["state"] == "RUNNING" and not items["alive"]:
        row["state"], row["reason"] = "NODE_FAIL", "its Dovetail was killed"
    row["map"] = {key: value for key, value in items.items() if key not in ("job", "alive")}


def _newest_journal() -> Path:
    """Of the run that was begun last. Raises `InputError` where nothing has run."""
    # By the time of writing: folders of runs are not named in their order.
    runs = sorted(default_runs_folder().glob("*/journal.jsonl"), key=lambda path: path.stat().st_mtime)
    if not runs:
        raise InputError("there is no run to explain yet; expected a journal or a file of jobs")
    return runs[-1]


def _is_of_service(target: str, at: str | None) -> bool:
    """Whether the target names jobs of a service: a number, a job's name, ``last`` or ``all``, and no file.

    Where no service runs, ``last`` is the last run; a run's id may happen to have digits only.
    """
    # A file of that name wins: a path is never taken for a job.
    if os.path.exists(target):
        return False
    if at is not None or target == "all":
        return True
    # A run's id may consist of digits, and then the run is meant.
    if len(target) >= SHORT and any(run.name.startswith(target) for run in run_folders()):
        return False
    if re.fullmatch(r"[0-9][0-9_,-]*", target):
        return True
    if not (os.environ.get(VARIABLE) or ServiceFolder(None).is_locked()):
        return False
    if re.fullmatch(r"[\w-]+", target):
        return True
    with open_service(at) as service:  # perhaps a job is called as a file may be: train.py
        return service.ask("GET", "/api/v1/jobs", query={"jobs": target, "limit": 1}).status == 200


def _of_service(target: str, at: str | None) -> list[dict[str, Any]]:
    """The stories of a service's jobs, with the reason in the words of a journal's."""
    rows = []
    with open_service(at) as service:
        meant = jobs_meant(service, target)
        for job in meant:
            answer = service.get(f"/api/v1/jobs/{job['id']}/explain")
            story = JobStory(Job(answer["id"], App(answer["app"], ()), ()), state=answer["state"])
            story.waited_for = answer["reason"]
            # The service sends the numbers of its own decision: predicting here could differ.
            for option in answer["considered"]:
                name, model = option["implementation"], option["model"]
                key = (name, option["nodes"], DeviceClass(option["kind"], model))
                upper = float("inf") if option["upper"] is None else option["upper"]
                known = option["predicted"] is not None
                basis, samples = option["basis"], option["samples"]
                story.predictions[key] = (
                    Prediction(option["predicted"], upper, samples, basis, option["lower"]) if known else None
                )
                if option["chosen"]:
                    story.chosen = key
                elif option["suspended"] and answer["state"] in ("PENDING", "RUNNING"):
                    story.suspended = option["suspended"]
            story.start, story.end = answer["start"], answer["end"]
            features = {k: float(v) if isinstance(v, int) else v for k, v in answer["inputs"].items()}
            waits = story.suspended or answer["reason"]
            rows.append(
                {
                    **{k: answer[k] for k in ("id", "app", "state", "submit", "start", "implementation")},
                    "features": features,
                    "considered": answer["considered"],
                    "memory": answer["memory"],
                    "where": ",".join(answer["devices"]) or answer["nodes"] or None,
                    "predicted": answer["predicted"],
                    "actual": story.measured_seconds,
                    "reason": waits if answer["state"] == "PENDING" else story.reason(),
                }
            )
            # Of one job only: each other request is a round of roll-outs of its own.
            if answer["state"] == "PENDING" and len(meant) == 1:
                with suppress(InputError):  # it has started meanwhile
                    sooner = service.get(f"/api/v1/jobs/{job['id']}/sooner")
                    if sooner["sooner"]:
                        rows[-1]["sooner"] = sooner
    return rows


def _find_journal(target: str | None) -> Journal | None:
    """The journal that the target names; ``None`` if it names jobs."""
    from dovetail.engine.journal.journal import read_journal

    if target is None:
        # The service gives the reason for a waiting job itself; for others the same words as a journal's are
        # made here.
        return read_journal(_newest_journal())
    path = journal_of(target) or Path(target)
    return read_journal(path) if path.suffix == ".jsonl" else None


def _read_stories(journal: Journal) -> dict[JobId, JobStory]:
    """One pass over the journal; predictions are those that were known when the job was placed."""
    stories: dict[JobId, JobStory] = {}
    runs: dict[tuple[str, str, DeviceClass], int] = {}
    running: dict[JobId, Allocation] = {}
    cluster = journal.cluster
    suspensions = Suspensions()
    company = CompanyBook()
    # Foreign jobs are no part of the run, but explain why devices were not there.
    others: dict[JobId, Placed] = {}  # foreign jobs, which hold devices that others use
    for batch in journal.batches:
        runs |= {
            (question[1], question[2], question[3]): question[4]
            for question in batch.asked
            if question[0] == "runs"
        }
        for event in batch.events:
            if isinstance(event, Submitted):
                stories[event.job.id] = JobStory(event.job, _all_ways(cluster, event.job))
            elif isinstance(event, Adopted) and stories[event.job].job.foreign:
                others[event.job] = _make_placed(stories[event.job].job, event)
            elif isinstance(event, Ended) and event.job in stories:
                running.pop(event.job, None)
                others.pop(event.job, None)
                story = stories[event.job]
                story.end, story.state = batch.now, event.state.value
                alone = story.predictions.get(story.chosen) if story.chosen else None
                story.beside = company.ended(event.job, batch.now, None if alone is None else alone.expected)
                _weigh_end(suspensions, story, event, batch.now, runs)
                if event.usage is not None:
                    story.measured = event.usage.wall_time
                if event.started_at is not None and event.ended_at is not None and story.handed_over:
                    story.start = batch.now - (event.ended_at - event.started_at)
            elif isinstance(event, Started):
                _begin_elsewhere(stories[event.job], event, batch.now, cluster)
        for question in batch.asked:
            # Only what was predicted before its start counts: later predictions know the run itself.
            if question[0] == "predict" and stories[question[1]].start is None:
                stories[question[1]].predictions[question[2], question[3], question[4]] = question[5]
        # As the engine does before it decides, or a suspension that ended at this instant would still be
        # named.
        suspensions.lapse_suspensions(batch.now)
        for decision in batch.decisions:
            if isinstance(decision, Enqueue):
                story = stories[decision.job]
                story.bound_at = batch.now
                story.untried = _untried_ways(story.job, runs)
            elif isinstance(decision, Start):
                story = stories[decision.job]
                if story.bound_at is None:
                    story.untried = _untried_ways(story.job, runs)
                implementation = story.job.app.implementation(decision.implementation)
                allocation = decision.allocation
                device = class_of(cluster, implementation, allocation)
                story.chosen = (decision.implementation, allocation.request.nodes, device)
                story.suspended = _suspended_ways(suspensions, story)
                suspensions.started((story.job.app.name, decision.implementation, device), story.job.id)
                # What was busy for this job: without itself, so before it joins `running`.
                story.busy = _busy_classes(cluster, running.values())
                running[decision.job] = allocation
                placed = Placed(story.job, implementation, allocation, batch.now, None, float("inf"))
                company.started(placed, batch.now, _expected_slowdown(story, company.apps_beside(placed)))
                names = allocation.device_names(cluster) or allocation.node_names(cluster)
                story.where, story.start, story.state = ",".join(names), batch.now, "RUNNING"
            elif isinstance(decision, Intend):
                stories[decision.job].planned = decision.why
            elif isinstance(decision, Submit):
                story = stories[decision.job]
                story.handed_over, story.state = decision.reason, "PENDING"
                device = DeviceClass(story.job.app.implementation(decision.implementation).kind)
                story.chosen = (decision.implementation, decision.request.nodes, device)
                story.where = decision.target
            elif isinstance(decision, Wait):
                stories[decision.job].waited_for = decision.reason
    for story in stories.values() if suspensions.active else ():
        if story.start is None:
            story.suspended = _suspended_ways(suspensions, story)
    for story in stories.values() if others else ():
        if story.start is None and story.state == "PENDING" and not story.job.foreign:
            kinds = device_kinds(choice.implementation.kind for choice in story.job.choices)
            story.suspended = story.suspended or barred_devices(others.values(), cluster, kinds)
    return {id: story for id, story in stories.items() if not story.job.foreign}


def _expected_slowdown(story: JobStory, others: Sequence[str]) -> float | None:
    """How many times as long a job was expected to take beside the first of these apps."""
    if story.chosen is None or not others:
        return None
    name, nodes, device = story.chosen
    alone = story.predictions.get(story.chosen)
    found = story.predictions.get((name, nodes, device.beside(others[0])))
    return None if alone is None or found is None or not alone.expected else found.expected / alone.expected


def _make_placed(job: Job, event: Adopted) -> Placed:
    implementation = job.app.implementation(event.implementation)
    return Placed(job, implementation, event.allocation, event.start_time, None, float("inf"))


def _weigh_end(
    suspensions: Suspensions,
    story: JobStory,
    event: Ended,
    now: Seconds,
    runs: Mapping[tuple[str, str, DeviceClass], int],
) -> None:
    """Take an end into account as the engine did; see `dovetail.engine.state.suspensions`."""
    if story.chosen is None or story.start is None:
        return
    (name, _, device), app = story.chosen, story.job.app.name
    suspensions.ended(
        (app, name, device),
        story.job.id,
        event.state,
        now - story.start,
        now,
        known=lambda: any(n for (of, _, other), n in runs.items() if of == app and other != device),
        elsewhere=lambda: any(other != device for *_, other in story.ways),
    )


def _suspended_ways(suspensions: Suspensions, story: JobStory) -> str:
    """Which ways to run the job are suspended now, and why."""
    app = story.job.app.name
    ways = sorted(
        {(app, name, device) for name, _, device in story.ways if suspensions.is_blocked((app, name, device))}
    )
    return "; ".join(map(suspensions.reason, ways))


def _all_ways(cluster: Cluster, job: Job) -> frozenset[Way]:
    """All ways to run the job on the cluster."""
    return frozenset(
        (choice.implementation.name, choice.request.nodes, device)
        for choice in job.choices
        for device in classes_for(cluster, choice)
    )


def _busy_classes(cluster: Cluster, running: Iterable[Allocation]) -> frozenset[DeviceClass]:
    """The classes of which every CPU pool or device is in use."""
    used = {
        (node, device)
        for allocation in running
        for part in allocation.parts
        for node in bit_indices(part.nodes)
        for device in (*part.devices, *((None,) if part.cpus else ()))
    }
    idle = {unit.device_class for unit in cluster.units if (unit.node, unit.device) not in used}
    return frozenset(set(cluster.classes) - idle)


def _begin_elsewhere(story: JobStory, event: Started, now: Seconds, cluster: Cluster) -> None:
    """An outside scheduler has started the job, on nodes that the event may name."""
    if story.start is not None:
        return
    story.start, story.state = now, "RUNNING"
    if event.allocation is not None and event.allocation.parts:
        allocation = event.allocation
        story.where = ",".join(allocation.device_names(cluster) or allocation.node_names(cluster))
    if story.chosen is not None and event.device_class is not None:
        story.chosen = (*story.chosen[:2], event.device_class)


def _untried_ways(job: Job, runs: Mapping[tuple[str, str, DeviceClass], int]) -> set[tuple[str, DeviceClass]]:
    return {
        (name, device) for (app, name, device), count in runs.items() if app == job.app.name and not count
    }


def _past_row(story: JobStory) -> dict[str, Any]:
    mine = story.predictions.get(story.chosen) if story.chosen else None
    return {
        "id": story.job.id,
        "app": story.job.app.name,
        "features": dict(story.job.inputs),
        "considered": [_option_row(*key, found) for key, found in story.predictions.items()],
        "where": story.where or None,
        "implementation": story.chosen[0] if story.chosen else None,
        "state": story.state,
        "submit": story.job.submit_time,
        "start": story.start,
        "predicted": mine.expected if mine else None,
        "actual": story.measured_seconds,
        "plan": story.planned or None,
        "shared": None if story.beside is None else story.beside.words(story.measured_seconds) or None,
        "reason": story.reason(),
    }


def _option_row(name: str, nodes: int, device: DeviceClass, found: Prediction | None) -> dict[str, Any]:
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


def _future_rows(
    workload: Workload, cluster: Cluster, history: Path | None, model: str, wanted: Sequence[str] | None
) -> Iterator[dict[str, Any]]:
    from dovetail.runtimes.registry import make_model

    path = default_history_path() if history is None else history
    with ExitStack() as stack:
        store: Any = MemoryHistory()
        # Without a history file none is created by looking at it.
        if path.exists():
            store = stack.enter_context(SqliteHistory(path, must_exist=True))
        foresight = ways.ModelOn(cluster, make_model(model, store).predict)
        for job in workload.jobs:
            if wanted and job.id not in wanted:
                continue
            considered = []
            for choice in job.choices:
                for device, found in ways.considered_predictions(foresight, job, choice):
                    considered.append(
                        _option_row(choice.implementation.name, choice.request.nodes, device, found)
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


def spell_interval(option: Mapping[str, Any]) -> str:
    """The interval of a prediction, as a row of ``explain`` has it."""
    upper, expected = option["upper"], option["predicted"]
    if upper is None or upper > TOO_WIDE * expected:
        return "a guess: too few runs for an interval"
    return f"{option['lower']:.3g} to {upper:.3g}"


def _print_stories(rows: Sequence[Mapping[str, Any]]) -> None:
    from dovetail.mapping.items import worker_sentences as map_sentences

    console = tables.make_console()

    def print_line(text: str | Text) -> None:
        console.print(text, soft_wrap=True)

    for row in rows:
        features = ", ".join(
            f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in row["features"].items()
        )
        head = Text(make_printable(row["id"]), "bold")
        head.append(f"  {make_printable(row['app'])}", "not bold")
        if features:
            head.append(f"  {make_printable(features)}", "not bold dim")
        print_line(head)
        for option in row["considered"]:
            chosen = option["implementation"] == row.get("implementation")
            mark = "→" if chosen else " "
            nodes = f" on {option['nodes']} nodes" if option["nodes"] > 1 else ""
            words = "no history"
            if option["predicted"] is not None:
                words = f"{option['predicted']:.3g} s ({spell_interval(option)}), {option['basis']}"
            name = option["implementation"] + (f" on {option['device']}" if option["device"] != CPU else "")
            print_line(f"  {mark} {name}{nodes}: {words}")
        for memory in row.get("memory", ()):
            print_line(f"    memory of {memory['implementation']}: {memory_words(memory)}")
        if row.get("where"):
            actual = row["actual"]
            took = "still runs" if actual is None else f"took {actual:.3g} s"
            print_line(f"    {row['state']} on {row['where']}, {took}: {row['reason']}")
            if row.get("shared"):
                print_line(f"    {make_printable(row['shared'])}")
            for sentence in map_sentences(row["map"]) if "map" in row else ():
                print_line(f"    {make_printable(sentence)}")
            if row.get("plan"):  # a service has none
                print_line(f"    {row['plan']}")
        else:
            print_line(f"    {row['state']}: {row['reason']}")
            for line in sooner_lines(row["sooner"]) if "sooner" in row else ():
                print_line(f"    {line}")
