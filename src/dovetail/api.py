"""Simulations and live runs from names, paths or objects: what the command line and the Python API share."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from dovetail.engine.core import Engine
from dovetail.engine.journal import JournalWriter
from dovetail.engine.live import LiveOptions, LiveRun
from dovetail.engine.simulate import SimulationOptions
from dovetail.engine.simulate import simulate as _simulate
from dovetail.errors import DovetailError, InputError
from dovetail.executors.discovery import discover
from dovetail.executors.local import LocalExecutor
from dovetail.executors.recovery import Recovery, link, recover, unlink, unsettled
from dovetail.history.memory import MemoryHistory
from dovetail.history.sqlite import SqliteHistory, default_history_path
from dovetail.interfaces import History, Planner, Policy, RateModel
from dovetail.model import Cluster, Result, Seconds, Workload
from dovetail.plugins import LoadedPolicy, load_policy, load_rates, obeys_priorities
from dovetail.policies.follow_plan import FollowPlan
from dovetail.report import Comparison, Report
from dovetail.runtimes.expected import with_expected_times
from dovetail.runtimes.perfect import PerfectModel
from dovetail.runtimes.registry import DEFAULT_MODEL, make_model
from dovetail.workloads.edit import scale
from dovetail.workloads.load import load_workload

__all__ = [
    "Leftover",
    "compare",
    "default_runs_folder",
    "recover_left_behind",
    "run",
    "simulate",
    "simulate_result",
]

PathLike = str | os.PathLike[str]
Knowledge = Literal["perfect", "learned"]


def _cluster(cluster: Cluster | PathLike | None) -> Cluster:
    if cluster is None:
        return discover()
    return cluster if isinstance(cluster, Cluster) else Cluster.parse(cluster)


def _jobs(workload: Any, cluster: Cluster, on: str | Sequence[str], **options: Any) -> Workload:
    """The jobs, from a path, a name or as they are; ``on`` may be written as on the command line."""
    if not isinstance(workload, Workload | str | os.PathLike) or workload == "":
        raise InputError(f"workload: found {workload!r}, expected a Workload, a path or a name")
    return load_workload(workload, cluster, on=_listed(on, "on"), **options)


def _listed(names: Any, what: str) -> list[str]:
    """Names as a list, or as one text with commas between them."""
    found = names.split(",") if isinstance(names, str) else names
    if not isinstance(found, Sequence):
        raise InputError(f"{what}: found {names!r}, expected names")
    wrong = [name for name in found if not (isinstance(name, str) and name.strip())]
    if wrong:
        raise InputError(f"{what}: found {names!r}, expected names")
    return [name.strip() for name in found]


def _one_of(name: str, found: object, allowed: Sequence[object]) -> None:
    if found not in allowed:
        expected = ", ".join("None" if one is None else repr(one) for one in allowed)
        raise InputError(f"{name}: found {found!r}, expected one of {expected}")


def _whole(name: str, found: object, least: int) -> None:
    if isinstance(found, bool) or not isinstance(found, int | np.integer) or found < least:
        raise InputError(f"{name}: found {found!r}, expected a whole number of at least {least}")


def _check_load(load: object) -> None:
    if load is not None and not (isinstance(load, int | float) and 0 < load < math.inf):
        raise InputError(f"load: found {load!r}, expected a number above 0")


def _check_options(seed: object, overrun: object, walltime: object, instead: str | None) -> None:
    """Refuse what types alone would not stop; ``instead`` may stand for a default walltime."""
    _one_of("overrun", overrun, ("kill", "run"))
    if seed is not None:
        _whole("seed", seed, 0)
    number = isinstance(walltime, int | float) and math.isfinite(walltime) and walltime > 0
    if walltime != instead and not number:
        expected = "a number of seconds above 0" + ("" if instead is None else f" or {instead!r}")
        raise InputError(f"default_walltime: found {walltime!r}, expected {expected}")


def simulate(
    workload: Workload | PathLike,
    *,
    cluster: Cluster | PathLike | None = None,
    policy: str | Policy | Planner = "history",
    seed: int | None = None,
    knowledge: Knowledge | None = None,
    model: str = DEFAULT_MODEL,
    history: PathLike | None = None,
    learn: bool = False,
    overrun: Literal["kill", "run"] = "kill",
    default_walltime: Seconds | Literal["actual"] = "actual",
    rates: str | RateModel | None = None,
    journal: PathLike | None = None,
    lenient: bool = False,
    on: str | Sequence[str] = (),
    load: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    **reader: Any,
) -> Report:
    """Simulate a workload under a policy.

    ``workload`` is a path, a name such as ``published:gregg-table2``, or a `Workload`; ``cluster`` a
    file, a short form (``16x8cpu+1gpu``), a `Cluster`, or this machine. ``knowledge`` is ``perfect`` where
    every job gives its times, else ``learned``: predictions then rest on ``history`` (a file; where there
    is none, nothing) and on what ends during the simulation. Jobs that give no times take as long as
    ``history`` expects; of which it knows nothing, they are rejected. Only ``learn`` writes to the file, or
    to the default history if none is named. ``load``
    scales the workload to that offered load (all gaps between submissions by one factor). Times are
    seconds. Raises `InputError` (`UnsupportedWorkload` where the policy cannot place the jobs).
    """
    _one_of("knowledge", knowledge, (None, "perfect", "learned"))
    _check_options(seed, overrun, default_walltime, "actual")
    _check_load(load)
    machine = _cluster(cluster)
    loaded = load_policy(policy)
    jobs = _jobs(workload, machine, on, lenient=lenient, seed=seed, **reader)
    if load is not None:
        jobs = scale(jobs, load, machine)
    perfect = knowledge == "perfect" or (knowledge is None and jobs.fully_timed)
    with ExitStack() as stack:
        store: SqliteHistory | None = None
        timed = jobs.fully_timed
        if learn:
            store = stack.enter_context(SqliteHistory(history))
        elif history is not None and os.path.exists(history) and not (perfect and timed):
            store = stack.enter_context(SqliteHistory(history, must_exist=True))
        observe: History = store if learn and store is not None else MemoryHistory(base=store)
        runtimes: Any = make_model(model, observe)
        if store is not None and not timed:
            jobs = with_expected_times(jobs, machine, runtimes)
        if perfect:
            runtimes = PerfectModel(jobs.truth)
        sink = None
        if journal is not None:
            sink = _journal(journal, machine, loaded)
            stack.callback(sink.close)
        result = _simulate(
            jobs,
            machine,
            loaded.policy,
            runtimes,
            rates=_rates(rates),
            observe=observe if learn or not perfect else None,
            journal=sink,
            follow=FollowPlan(),
            options=SimulationOptions(
                overrun=overrun,
                default_walltime=default_walltime,
                placement=getattr(loaded.policy, "placement", "pack"),
                seed=seed,
                knowledge="perfect" if perfect else "learned",
                policy_name=loaded.name,
                policy_options=dict(loaded.options),
                keep_considered=len(jobs.jobs) <= 10_000,
                timer=time.perf_counter,
                progress=progress,
            ),
        )
    return Report(replace(result, load=load, ignores_priorities=_ignored(jobs, loaded)))


def simulate_result(workload: Workload | PathLike, **options: Any) -> Result:
    """As `simulate`, with its options, but returns the `Result` (which can be sent between processes)."""
    return simulate(workload, **options).result


def _rates(rates: str | RateModel | None) -> RateModel | None:
    if isinstance(rates, str):
        return cast(RateModel, load_rates(rates))
    if rates is not None and not hasattr(rates, "changed"):
        raise InputError(f"rates: found {rates!r}, expected a rate model or its name")
    return rates


def _ignored(jobs: Workload, loaded: LoadedPolicy) -> bool:
    """Whether jobs have priorities that the policy does not look at."""
    return not obeys_priorities(loaded.policy) and any(job.priority for job in jobs.jobs)


def _journal(path: PathLike, cluster: Cluster, loaded: LoadedPolicy, **about: Any) -> JournalWriter:
    try:
        return JournalWriter(
            Path(path),
            cluster,
            policy=loaded.label,
            placement=getattr(loaded.policy, "placement", "pack"),
            about=about,
        )
    except FileExistsError:
        raise InputError("the file exists already; a journal is never overwritten", where=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def compare(
    workload: Workload | PathLike,
    *,
    policies: str | Sequence[str | Policy | Planner],
    cluster: Cluster | PathLike | None = None,
    seeds: int | None = None,
    **options: Any,
) -> Comparison:
    """Simulate the workload under several policies, over seeds 1 to ``seeds`` if given.

    ``policies`` is a list of names or policies, or one text with commas between names. Takes the options of
    `simulate`. Results are in order of policy, then seed. Raises `InputError`.
    """
    machine = _cluster(cluster)
    compared = _listed(policies, "policies") if isinstance(policies, str) else policies
    if not compared:
        raise InputError("policies: found none, expected at least one")
    if seeds is not None:
        _whole("seeds", seeds, 1)
    all_seeds: list[int | None] = [None] if seeds is None else list(range(1, seeds + 1))
    return Comparison(
        simulate_result(workload, cluster=machine, policy=policy, seed=seed, **options)
        for policy in compared
        for seed in all_seeds
    )


# ------------------------------------------------------------------------------------------------- live


def default_runs_folder() -> Path:
    """Where live runs keep their files: beside the default history, in the XDG state folder."""
    return default_history_path().parent / "runs"


@dataclass(frozen=True, slots=True)
class Leftover:
    """What an earlier run left behind when its Dovetail was killed."""

    recovery: Recovery
    recorded: int

    @property
    def still_running(self) -> int:
        """Jobs that run on, with nobody to schedule around them."""
        return len(self.recovery.running)


def recover_left_behind(folder: PathLike | None = None, *, stop: bool = False) -> list[Leftover]:
    """Find runs whose Dovetail was killed: record what ended, report (or ``stop``) what still runs.

    Looks under ``folder`` (default: `default_runs_folder`, where run folders elsewhere are linked). Runs are
    recorded in the history that they belonged to; their unique ids make that idempotent.
    """
    found: list[Leftover] = []
    for run_dir in unsettled(default_runs_folder() if folder is None else folder):
        recovery = recover(run_dir)
        if recovery.in_use:
            continue
        if stop and recovery.running:
            recovery = recovery.stop()
        recorded = 0
        where = _history_of(run_dir)
        if where is not None and recovery.ended:
            with SqliteHistory(where) as history:
                recorded = history.record_many([job.run for job in recovery.ended if job.started])
        recovery.settle()
        if recorded or recovery.running or recovery.lost:
            found.append(Leftover(recovery, recorded))
    return found


def _history_of(run_dir: Path) -> str | None:
    try:
        about = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast("str | None", about.get("history"))


def run(
    workload: Workload | PathLike,
    *,
    cluster: Cluster | PathLike | None = None,
    policy: str | Policy | Planner = "history",
    history: PathLike | None = None,
    model: str = DEFAULT_MODEL,
    seed: int | None = None,
    on: str | Sequence[str] = (),
    overrun: Literal["kill", "run"] = "kill",
    default_walltime: Seconds | None = None,
    run_dir: PathLike | None = None,
    cwd: PathLike | None = None,
    grace: Seconds = 5.0,
    changed: Callable[[Engine], None] | None = None,
    started: Callable[[LiveRun, LocalExecutor], None] | None = None,
    **reader: Any,
) -> Report:
    """Run a workload on this machine, for real, and learn from it.

    ``history`` is the SQLite file (default: in the XDG state folder). Outputs, journal and spawn log go
    to ``run_dir`` (default: a new folder beside the history). ``grace`` is the time between TERM and KILL.
    Ctrl-C and SIGTERM stop what runs and cancel what waits; the report shows both. Raises `InputError`.
    """
    _check_options(seed, overrun, default_walltime, None)
    machine = _cluster(cluster)
    loaded = load_policy(policy)
    jobs = _jobs(workload, machine, on, seed=seed, **reader)
    _check_commands(jobs)
    if cwd is None:
        _check_here()
    recover_left_behind()
    history_path = default_history_path() if history is None else Path(history)
    run_uid = uuid.uuid4().hex
    folder = default_runs_folder() / run_uid if run_dir is None else _new_folder(Path(run_dir))
    with ExitStack() as stack:
        store = stack.enter_context(SqliteHistory(history_path))
        executor = LocalExecutor(machine, folder, cwd=cwd, grace=grace, run_uid=run_uid)
        with suppress(OSError):  # a state folder that cannot be written: then only its own name leads there
            link(default_runs_folder(), executor.run_dir, run_uid)
        _write_about(folder, history_path, jobs, loaded)
        journal = _journal(folder / "journal.jsonl", machine, loaded, run=run_uid, workload=jobs.name)
        stack.callback(journal.close)

        async def main() -> Result:
            live = LiveRun(
                jobs,
                machine,
                loaded.policy,
                make_model(model, store),
                executor,
                history=store,
                journal=journal,
                follow=FollowPlan(),
                options=LiveOptions(
                    kill_overruns=overrun == "kill",
                    default_walltime=default_walltime,
                    placement=getattr(loaded.policy, "placement", "pack"),
                    seed=seed,
                    policy_name=loaded.name,
                    policy_options=dict(loaded.options),
                    run_uid=run_uid,
                    epoch=time.time(),
                    timer=time.perf_counter,
                    changed=changed,
                ),
            )
            if started is not None:
                started(live, executor)
            _handle_signals(live)
            return await live.run()

        result = _run_async(main)
    if executor.settle():  # the history is closed: all that ended is in it
        with suppress(OSError):
            unlink(default_runs_folder(), run_uid)
    return Report(replace(result, ignores_priorities=_ignored(jobs, loaded)))


def _new_folder(path: Path) -> Path:
    """The folder that the user named for this run; refused if it holds one, or cannot be made."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(path)) from error
    if (path / "spawn.log").exists():
        raise InputError("found another run in the folder, expected a new one", where=str(path))
    return path


def _run_async(main: Callable[[], Any]) -> Result:
    """Run to the end, also where a loop runs already (notebooks): then in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return cast(Result, asyncio.run(main()))
    with ThreadPoolExecutor(1) as pool:
        return cast(Result, pool.submit(lambda: asyncio.run(main())).result())


def _handle_signals(live: LiveRun) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, live.interrupt)


def _check_here() -> None:
    try:
        os.getcwd()
    except OSError as error:
        raise InputError(f"the current folder cannot be used: {error.strerror}") from error


def _check_commands(workload: Workload) -> None:
    for job in workload.jobs:
        for choice in job.choices:
            if choice.implementation.command is None:
                name = f"app {job.app.name}, implementation {choice.implementation.name}"
                raise InputError(
                    f"{name} has no command, which a live run needs", where=os.path.basename(workload.name)
                )


def _write_about(folder: Path, history: Path, jobs: Workload, loaded: LoadedPolicy) -> None:
    about = {"history": str(history.absolute()), "workload": jobs.name, "policy": loaded.label}
    path = folder / "run.json"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(about, file)
    except OSError as error:
        raise DovetailError(f"{path}: cannot be written: {error.strerror}") from error
