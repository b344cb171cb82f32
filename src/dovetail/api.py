"""Simulations and live runs from names, paths or objects: what the command line and the Python API share."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, cast, get_args

from dovetail.errors import DovetailWarning, InputError, warn_caller
from dovetail.files.sentences import suggest_closest
from dovetail.files.units import SIZE, bytes_of, seconds_given
from dovetail.history.base import MeasuredHistory
from dovetail.interfaces import (
    ForecastsSharing,
    History,
    LearnsSharing,
    Planner,
    Policy,
    RateModel,
    RuntimeModel,
    traits_of,
)
from dovetail.model import Cluster, Note, Replicate, Result, Seconds, Workload
from dovetail.plugins import (
    LoadedPolicy,
    load_policy,
    load_rates,
    named_backend,
    policy_for,
)
from dovetail.policies.parts.one_node import refuse_gangs
from dovetail.report.result_notes import (
    best_effort,
    check_some_ran,
    ignores_priorities,
    kinds_used,
    not_as_named,
    unknown_result,
)
from dovetail.report.wording import count_things
from dovetail.spec.jobs import OF_RUNS, check_values, laid_over
from dovetail.spec.values import DEFAULT_MODEL, RECORDED, Compilation, Knowledge, Neighbourhood, Overrun
from dovetail.workloads.load import is_trace, load_workload

if TYPE_CHECKING:  # a run imports its reports once its jobs run, and a simulation nothing that runs any
    from dovetail.engine.journal.journal import JournalWriter
    from dovetail.engine.state.core import Engine
    from dovetail.engine.state.progress import Expectations
    from dovetail.report.report import Report
    from dovetail.running.session import Session

DEFAULT_POLICY, FOR_GANGS = "history", "easy"
"""The policy where none is given, and of a simulation whose jobs request several nodes."""
KNOWN_KINDS = ("cpu", "gpu", "opencl")
"""Kinds of device that are known wherever there are none."""

PathLike = str | os.PathLike[str]
SMALL = 10_000
"""Up to so many jobs it is kept of each what else was considered for it."""


def cluster_of(cluster: Cluster | PathLike | None) -> Cluster:
    """The cluster, from a file, a short form or as it is; this machine for ``None``."""
    if cluster is None:
        from dovetail.local.discovery import discover_cluster

        return discover_cluster()
    return cluster if isinstance(cluster, Cluster) else Cluster.parse(cluster)


def _load_jobs(workload: Any, cluster: Cluster | None, on: str | Sequence[str], **options: Any) -> Workload:
    """The jobs, from a path, a name or as they are; ``on`` may be written as on the command line."""
    if not isinstance(workload, Workload | str | os.PathLike) or workload == "":
        raise InputError(f"workload: found {workload!r}, expected a Workload, a path or a name")
    return load_workload(workload, cluster, on=split_names(on, "on"), **options)


def jobs_and_machine(
    workload: Any, cluster: Cluster | PathLike | None, on: str | Sequence[str], **options: Any
) -> tuple[Workload, Cluster]:
    """The jobs, and the cluster given, else the one that they name, else this machine.

    A synthetic workload names one by its ``nodes``; without them it is sized for the machine. A trace that
    names none gets a `DovetailWarning`: it is hardly from this machine.
    """
    # Where both are to be chosen, the one that is named decides the other: a synthetic workload is drawn for
    # a machine, any other one may bring its machine with it.
    drawn = isinstance(workload, str) and workload.startswith("synthetic:")  # sized for its cluster
    if cluster is not None or drawn:
        named = None
        if cluster is None:
            from dovetail.workloads.synthetic import named_machine  # only who draws jobs waits for it

            named = named_machine(workload)
        machine = named or cluster_of(cluster)
        return _load_jobs(workload, machine, on, **options), machine
    jobs = _load_jobs(workload, None, on, **options)
    if jobs.machine is not None:
        return jobs, jobs.machine
    here = cluster_of(None)
    # Not an error: a trace on this machine may be what is meant. `stacklevel` points to the caller of
    # `simulate`.
    if is_trace(workload):
        warnings.warn(
            f"{jobs.name}: the trace does not name its machine, this one is taken (--cluster names another)",
            DovetailWarning,
            stacklevel=3,
        )
    return jobs, here


def split_names(names: Any, what: str) -> list[str]:
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


def check_whole(name: str, found: object, least: int) -> None:
    """Raises `InputError` for anything but a whole number of at least ``least``."""
    if isinstance(found, bool) or not isinstance(found, SupportsIndex) or index(found) < least:
        raise InputError(f"{name}: found {found!r}, expected a whole number of at least {least}")


def _check_load(load: object) -> None:
    if load is not None and not (isinstance(load, int | float) and 0 < load < math.inf):
        raise InputError(f"load: found {load!r}, expected a number above 0")


def _default_walltime(seed: object, overrun: object, walltime: Any, instead: str | None) -> Any:
    """The seconds of a default walltime, for which ``instead`` may stand; refuses other odd options too."""
    _one_of("overrun", overrun, get_args(Overrun))
    if seed is not None:
        check_whole("seed", seed, 0)
    if walltime is None or walltime == instead:
        return instead
    try:
        return seconds_given(walltime, "default_walltime", above_zero=True)
    except InputError:
        expected = "a number of seconds above 0" + ("" if instead is None else f" or {instead!r}")
        raise InputError(
            f"default_walltime: found {walltime!r}, expected {expected}, or a duration such as 1h30m"
        ) from None


def simulate(
    workload: Workload | PathLike,
    *,
    cluster: Cluster | PathLike | None = None,
    policy: str | Policy | Planner | None = DEFAULT_POLICY,
    seed: int | None = None,
    knowledge: Knowledge | None = None,
    model: str | RuntimeModel = DEFAULT_MODEL,
    history: PathLike | MeasuredHistory | None = None,
    learn: bool = False,
    overrun: Overrun = "kill",
    default_walltime: Seconds | str = "actual",
    rates: str | RateModel | None = None,
    journal: PathLike | None = None,
    lenient: bool = False,
    on: str | Sequence[str] = (),
    load: float | None = None,
    replicate: Replicate | None = None,
    compiled: Compilation = "auto",
    progress: Callable[[int, int], None] | None = None,
    **reader: Any,
) -> Report:
    """Simulate a workload under a policy.

    ``workload`` is a path, a name such as ``published:gregg-table2``, or a `Workload`; ``cluster`` a
    file, a short form (``16x8cpu+1gpu``), a `Cluster`; by default the machine that the workload names, as
    the header of a trace does, else this one. ``policy`` is a name with options, a policy or a planner, or
    ``recorded``: then nothing is simulated, and the report is of the schedule of the log itself.
    ``None`` is ``history``, or ``easy`` where a job requests several nodes, and a `DovetailWarning`.

    ``knowledge`` is ``perfect`` where every job gives its times, else ``learned``: predictions then rest on
    ``history`` (a file; where there is none, nothing) and on what ends during the simulation. Jobs that give
    no times take as long as ``history`` expects, or, where none is named, the default one. A cluster that
    names no model of a kind (``1x4cpu``) has the one that it knows, if it knows one only. So it is with
    the ways in which the jobs of a run that has been (a journal) did not run. The notes of the result list
    which jobs nothing is known on which devices; where so it is of all jobs on a kind of device to
    which they would go, nothing is simulated, and the result is not ``known``. Only ``learn`` writes to the
    file, or to the default history if none is named. ``history`` may also be one that is open, such as a
    `MemoryHistory`, and ``model`` a runtime model of one's own: that one alone then predicts, as it is, and
    learns what ends only through a history that ``learn`` writes to.

    ``replicate`` draws another trace from the workload first (`dovetail.workloads.replicates`). ``load``
    scales the workload to that offered load (all gaps between submissions by one factor). Where the
    compiled stand-in models all that is requested, it takes the engine's
    place: the schedule is the same, and no decision is timed; ``compiled="off"`` never takes it. Times
    are seconds. Raises `InputError` (`UnsupportedWorkload` where the policy cannot place the jobs), also
    where every job is rejected.

    >>> report = simulate("published:gregg-table2", cluster="1x1cpu+1gpu", policy="best-device")
    >>> round(report.makespan, 3)
    4.054
    """
    # Imported here: a live run shares this module, and would wait for all that only simulations need.
    from dovetail.policies.follow_plan import FollowPlan
    from dovetail.rates.communication import with_communication
    from dovetail.report.report import Report
    from dovetail.runtimes.perfect import PerfectModel
    from dovetail.runtimes.true_times import never_ran, true_or_expected, unknown_kinds
    from dovetail.simulation.simulate import SimulationOptions
    from dovetail.simulation.simulate import simulate as simulated

    # Options are checked before anything is read: a trace may take minutes.
    if "policies" in reader:
        raise InputError("policies: found them for one simulation, expected policy=, or dovetail.compare")
    _one_of("knowledge", knowledge, (None, *get_args(Knowledge)))
    _one_of("compiled", compiled, get_args(Compilation))
    limit = _default_walltime(seed, overrun, default_walltime, "actual")
    _check_load(load)
    # `recorded` is no policy: the log's own schedule is shown, and nothing decides.
    loaded = None if policy == RECORDED else load_policy(DEFAULT_POLICY if policy is None else policy)
    if loaded is not None and traits_of(loaded.policy).submits:
        raise InputError(
            f"policy {loaded.name} hands jobs to another scheduler (`dovetail run --executor slurm-queue`), "
            "expected one that places them itself: a simulation has no other scheduler"
        )
    jobs, machine = jobs_and_machine(workload, cluster, on, lenient=lenient, seed=seed, **reader)
    conditions = machine.conditions
    # Only where no policy was given: one that was is to refuse the jobs itself, with its reason.
    if policy is None and (why := refuse_gangs(jobs.jobs)):
        loaded = load_policy(FOR_GANGS)
        suggested = why.partition("; ")[2].partition(" (")[0]
        text = f"{suggested}, and {DEFAULT_POLICY} is made for jobs on one node: simulated under {FOR_GANGS}"
        warnings.warn(f"{text}; --policy chooses another", DovetailWarning, stacklevel=2)
    _check_kinds(split_names(on, "on"), machine)
    # Drawn before it is scaled: a replicate moves submissions, and the load is meant for what is simulated.
    which = replicate or Replicate()
    if which.number:
        from dovetail.workloads.replicates import draw_replicate

        jobs = draw_replicate(jobs, machine, which)
    if loaded is None:
        return _as_recorded(jobs, machine, seed, load, which)
    if load is not None:
        from dovetail.workloads.edit import scale_load

        jobs = scale_load(jobs, load, machine)
    jobs, machine, shared = with_communication(jobs, machine, loaded.policy, _make_rates(rates))
    chance = None
    if conditions:
        from dovetail.simulation.operation import chance_of, check_conditions

        chance = chance_of(conditions, seed, which)
        check_conditions(conditions, loaded, rated=shared is not None, journal=journal is not None)
    named = isinstance(model, str)
    # Perfect where all times are given and the model is a name: one that the caller made is always called.
    perfect = knowledge == "perfect" or (knowledge is None and named and jobs.fully_timed)
    notes: list[Note] = []
    with ExitStack() as stack:
        store = _open_history_for(history, learn, jobs.fully_timed, perfect, stack)
        # What ends in the simulation goes to memory over the store, so that the file is changed by `learn`
        # alone.
        observe: History | None = None
        runtimes: Any = None if named else model
        # Else nothing would be looked up in it; and a name that is wrong is refused all the same.
        if store is not None or not perfect or model != DEFAULT_MODEL:
            from dovetail.history.memory import MemoryHistory
            from dovetail.runtimes.registry import make_model

            observe = store if learn and store is not None else MemoryHistory(base=store)
            runtimes = make_model(model, observe) if isinstance(model, str) else model
        small, used = len(jobs.jobs) <= SMALL, kinds_used(loaded)
        # A run that has been has true times for the ways in which its jobs ran, and none for the others; up
        # to `SMALL` jobs it is worth filling those in, too.
        if not jobs.fully_timed or (jobs.ran and small):
            names: list[Note] = []
            store_of = (
                store
                if store is not None or not jobs.ran
                else _open_history_for(history, False, False, False, stack)
            )
            if store_of is not None:
                from dovetail.runtimes.registry import make_model
                from dovetail.runtimes.unnamed import named_as_known

                machine, names = named_as_known(machine, store_of, jobs)
                # The runtime model is used as it is if it rests on this store, else one of its kind is made
                # over it.
                expects = runtimes if store_of is store else make_model(str(model), store_of)
                jobs, notes = true_or_expected(jobs, machine, expects, used)
            else:
                jobs, notes = true_or_expected(jobs, machine, None, used)
            notes = [*names, *notes] if any(note.code == "expected" for note in notes) else notes
        elif small:
            notes = never_ran(jobs, machine, used)
        # A simulation in which every time is a guess would only mislead: the result stays empty.
        hidden = unknown_kinds(jobs, machine, used) if small else []
        if hidden:
            unknown = unknown_result(jobs, machine, loaded, hidden, notes)
            return Report(replace(unknown, seed=seed, load=load, replicate=which))
        if perfect:
            runtimes = PerfectModel(jobs.truth)
        options = SimulationOptions(
            overrun=overrun,
            default_walltime=limit,
            placement=getattr(loaded.policy, "placement", "pack"),
            seed=seed,
            knowledge="perfect" if perfect else "learned",
            policy_name=loaded.name,
            policy_options=dict(loaded.options),
            keep_considered=small and _has_alternatives(jobs, machine),
            compiled=compiled,
            timer=time.perf_counter,
            progress=progress,
            clock=time.process_time,
        )
        forecast = _sharing_forecast(loaded, shared, machine)
        if isinstance(shared, LearnsSharing):
            shared.learn(store or _open_history_for(history, False, False, False, stack), machine)
        sink = None
        if journal is not None:
            # A replay makes the rate model again from the header.
            headers = (
                {} if forecast is None else {"forecast": cast(ForecastsSharing, forecast.rates).as_json()}
            )
            sink = _open_journal(journal, machine, loaded, **headers)
            stack.callback(sink.close)
        before = time.process_time()
        result = simulated(
            jobs,
            machine,
            loaded.policy,
            runtimes,
            rates=shared,
            forecast=forecast,
            # A model that the caller made learns through the caller's history, where `learn` writes to it.
            observe=observe if learn or (named and not perfect) else None,
            journal=sink,
            follow=FollowPlan(),
            options=options,
            conditions=conditions,
            chance=chance,
        )
        # The engine's own figure where it has one; else what this process has spent.
        spent = result.simulation_seconds or time.process_time() - before
    check_some_ran(result)
    notes += [*best_effort(jobs, loaded), *not_as_named(result, loaded)]
    ignored = ignores_priorities(jobs, loaded)
    return Report(
        replace(
            result,
            load=load,
            ignores_priorities=ignored,
            simulation_seconds=spent,
            notes=notes,
            replicate=which,
        )
    )


def _has_alternatives(jobs: Workload, machine: Cluster) -> bool:
    """Whether any job can run in several ways: else there is nothing to keep of what was considered."""
    table = jobs.table
    ways = (
        [choices for _, choices in table.forms] if table is not None else [job.choices for job in jobs.jobs]
    )
    if any(len(choices) > 1 for choices in ways):
        return True
    kinds = {choices[0].implementation.kind for choices in ways if choices}
    return any(len(machine.device_classes(kind)) > 1 for kind in kinds)


def _sharing_forecast(loaded: LoadedPolicy, rates: RateModel | None, machine: Cluster) -> Expectations | None:
    """Expectations about sharing for a policy that uses them, if the rate model of borrowed GPUs has any."""
    if not traits_of(loaded.policy).forecasts or not isinstance(rates, ForecastsSharing):
        return None
    from dovetail.engine.state.progress import Expectations

    return Expectations(rates.fresh(machine))


def _open_history_for(
    history: PathLike | MeasuredHistory | None, learn: bool, timed: bool, perfect: bool, stack: ExitStack
) -> MeasuredHistory | None:
    """The history to use: the one named; the default one where jobs lack times; none where all is known."""
    # The order matters: a history that is named goes before the default, and with perfect times none is read,
    # so that a simulation of a paper's workload does not depend on who runs it.
    if isinstance(history, MeasuredHistory):
        return history
    if history is None and timed and not learn:
        return None
    from dovetail.history.sqlite import SqliteHistory, default_history_path

    if learn:
        return stack.enter_context(SqliteHistory(history))
    path = history if history is not None or timed else default_history_path()
    if path is None or (perfect and timed) or not os.path.exists(path):
        return None
    # Never made by a simulation that does not learn.
    return stack.enter_context(SqliteHistory(path, must_exist=True))


def _as_recorded(
    jobs: Workload, machine: Cluster, seed: int | None, load: float | None, which: Replicate
) -> Report:
    from dovetail.report.report import Report
    from dovetail.simulation.recorded import replay_log

    if load is not None:
        raise InputError(
            f"found load {load:g}, expected none: a log has the load that it had", where=RECORDED
        )
    result = replay_log(jobs, machine)
    check_some_ran(result)
    return Report(replace(result, seed=seed, replicate=which))


def policy_label(policy: str | Policy | Planner) -> str:
    """A policy as it is called in results; raises `InputError` for one that is not there."""
    return RECORDED if policy == RECORDED else load_policy(policy).policy_label


def simulate_result(workload: Workload | PathLike, **options: Any) -> Result:
    """As `simulate`, with its options, but returns the `Result` (which can be sent between processes)."""
    return simulate(workload, **options).result


def _check_neighbourhood(mode: str) -> Neighbourhood:
    # A loop and no cast: the value that is returned is one of the literals.
    for known in get_args(Neighbourhood):
        if mode == known:
            return known  # type: ignore[no-any-return]
    raise InputError(f"found {mode!r}, expected avoid, memory or ignore", where="neighbours")


def _read_memory(memory: int | str | None) -> int | Literal["auto"] | None:
    """``auto``, or bytes. Raises `InputError`."""
    if memory is None or memory == "auto":
        return None if memory is None else "auto"
    try:
        found = bytes_of(str(memory))
    except ValueError:
        raise InputError(f"found {memory!r}, expected {SIZE}, or auto", where="memory") from None
    return int(found)


def _make_rates(rates: str | RateModel | None) -> RateModel | None:
    if isinstance(rates, str):
        return cast(RateModel, load_rates(rates))
    if rates is not None and not hasattr(rates, "changed"):
        raise InputError(f"rates: found {rates!r}, expected a rate model or its name")
    return rates


def _open_journal(path: PathLike, cluster: Cluster, loaded: LoadedPolicy, **about: Any) -> JournalWriter:
    from dovetail.engine.journal.journal import JournalWriter

    try:
        return JournalWriter(
            Path(path),
            cluster,
            policy=loaded.policy_label,
            placement=getattr(loaded.policy, "placement", "pack"),
            about=about,
        )
    except FileExistsError:
        raise InputError("the file exists already; a journal is never overwritten", where=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


# ------------------------------------------------------------------------------------------------- live


def run(
    workload: Workload | PathLike,
    *,
    cluster: Cluster | PathLike | None = None,
    policy: str | Policy | Planner = "history",
    history: PathLike | None = None,
    model: str = DEFAULT_MODEL,
    seed: int | None = None,
    on: str | Sequence[str] = (),
    overrun: Overrun = "kill",
    default_walltime: Seconds | str | None = None,
    run_dir: PathLike | None = None,
    cwd: PathLike | None = None,
    grace: Seconds | str = 5.0,
    executor: str = "local",
    slurm: Sequence[str] = (),
    cut_walltimes: bool = False,
    at_once: int | None = None,
    retries: int | None = None,
    memory: int | str | None = None,
    halt: str = "never",
    neighbours: Neighbourhood = "avoid",
    changed: Callable[[Engine], None] | None = None,
    started: Callable[[Session], None] | None = None,
    tell: Callable[[str], None] = warn_caller,
    **reader: Any,
) -> Report:
    """Run a workload for real, and learn from it.

    ``executor`` names where (``local``: this machine; ``NAME?option=value``); on one that hands jobs to
    another scheduler the default policy is ``earliest-completion``, ``slurm`` is passed to sbatch for every
    job, and ``cut_walltimes`` lets restartable jobs request the time that they are known to need. ``history``
    is the SQLite file (default: in the XDG state folder). Outputs, journal, ledger and spawn log go to
    ``run_dir`` (default: a new folder beside the history). ``grace`` is the time between TERM and KILL.
    ``at_once`` is the most jobs that run together, ``retries`` how often a job that gives no number of its
    own starts again after it has failed, ``memory`` (bytes, a size, or ``auto``) what one that gives none
    may hold on a node. ``neighbours`` is what other people's processes on a device mean: it is left alone
    (``avoid``), their memory is left out (``memory``), or nothing (``ignore``). ``halt`` ends the run early:
    ``soon,fail=1`` starts no more jobs
    after a failure, ``now,fail=10%`` also stops what runs; ``success`` and ``done`` count in the same way.
    Ctrl-C, SIGTERM and SIGHUP stop what runs and cancel what waits; the report shows both, and `resume` takes
    up what never started. Other keywords are options of each job, such as ``walltime="1h"`` or ``nodes=2``
    (`dovetail.spec.jobs.JobSpec`); they go over what a job file gives.
    ``tell`` gets sentences that its user should read at once (default: warnings). Raises `InputError`.
    """
    limit = _default_walltime(seed, overrun, default_walltime, None)
    for name, count, least in (("at_once", at_once, 1), ("retries", retries, 0)):
        if count is not None:
            check_whole(name, count, least)
    # Everything that can be refused is read before the backend looks at its machine, which may take seconds.
    from dovetail.running.halting import Halt
    from dovetail.running.leftovers import leftover_sentences, recover_left_behind
    from dovetail.running.limits import limit_workload
    from dovetail.running.session import RunOptions, begin_run

    ends = Halt.parse_halt(halt)
    backend = named_backend(executor)
    loaded = load_policy(policy_for(backend, policy, cut_walltimes=cut_walltimes))
    machine = backend.discover() if cluster is None else cluster_of(cluster)
    _check_kinds(split_names(on, "on"), machine)
    # In a job file `cpus` is a field of each job; for a list of commands it is what the reader of the list
    # needs.
    is_file = not isinstance(workload, Workload) and str(workload).endswith(".toml")
    plain = ("app",) if is_file else ("app", "cpus")  # what is for commands, and not for each job
    of_lists = {name: reader.pop(name) for name in plain if name in reader}
    part = check_values({name: reader.pop(name) for name in OF_RUNS & reader.keys()})
    if slurm and not isinstance(workload, Workload):
        # A `Workload` has its jobs already: they get the options below, one by one.
        part = laid_over(part, {"batch_options": list(slurm)})
    jobs = limit_workload(
        _load_jobs(workload, machine, on, seed=seed, part=part, **of_lists, **reader),
        at_once=at_once,
        retries=retries,
        memory=_read_memory(memory),
    )
    if slurm and isinstance(workload, Workload):
        with_options = [replace(job, batch_options=(*job.batch_options, *slurm)) for job in jobs.jobs]
        jobs = replace(jobs, jobs=with_options)
    # Without commands nothing can run; a workload of times alone is for simulations.
    _check_commands(jobs)
    if cwd is None:
        _check_here()
    for sentence in (*_absent_kind_notes(jobs, machine), *unused_conditions(machine)):
        tell(sentence)
    # Before a new run begins: what an earlier one has left is recorded now, so that this one can learn from
    # it.
    for sentence in leftover_sentences(recover_left_behind()):
        tell(sentence)
    options = RunOptions(
        history=None if history is None else Path(history),
        executor=executor,
        model=model,
        seed=seed,
        overrun=overrun,
        default_walltime=limit,
        run_dir=None if run_dir is None else Path(run_dir),
        cwd=os.path.abspath(cwd) if cwd is not None else os.getcwd(),
        grace=seconds_given(grace, "grace"),
        halt=ends,
        changed=changed,
        started=started,
        tell=tell,
        neighbours=_check_neighbourhood(neighbours),
    )
    ran = begin_run(jobs, machine, loaded, options)
    # The report is imported when the jobs are over, not while they wait to begin.
    from dovetail.report.report import Report

    notes = [*ran.result.notes, *not_as_named(ran.result, loaded)]
    return Report(replace(ran.result, ignores_priorities=ignores_priorities(jobs, loaded), notes=notes))


def resume(
    run: str | None = None,
    *,
    changed: Callable[[Engine], None] | None = None,
    started: Callable[[Session], None] | None = None,
    tell: Callable[[str], None] = warn_caller,
) -> Report:
    """Take up a run whose Dovetail ended before its jobs: by id, by folder, or (``None``) the newest.

    What still runs is adopted, what waited is queued again, what has ended meanwhile is recorded; the report
    is of all jobs of the run. Raises `InputError` where nothing is left to do.
    """
    from dovetail.running.folder import find_run
    from dovetail.running.session import RunOptions, take_up

    options = RunOptions(changed=changed, started=started, tell=tell)
    ran = take_up(find_run(run, maps=False), options)
    from dovetail.report.report import Report

    return Report(ran.result)


def _check_kinds(on: Sequence[str], machine: Cluster) -> None:
    """Refuse a kind of device that neither Dovetail nor the machine knows: it is a slip of the pen."""
    known = dict.fromkeys((*KNOWN_KINDS, *_device_kinds(machine)))
    for kind in on:
        # `cpu+gpu` is a kind of implementation: its device is what must be known.
        device = kind.removeprefix("cpu+")
        if device not in known:
            raise InputError(
                f"found the unknown kind of device {kind!r}{suggest_closest(device, list(known))}", where="on"
            )


def _device_kinds(machine: Cluster) -> set[str]:
    """Kinds of device that the machine has."""
    return {device.kind for group in machine.groups for device in group.node.devices}


def _absent_kind_notes(jobs: Workload, machine: Cluster) -> list[str]:
    """A sentence for each kind of device that jobs could use, and the machine does not have.

    Jobs that can run nowhere else are rejected, which is reported anyway.
    """
    there = _device_kinds(machine)
    without: dict[str, int] = {}
    for job in jobs.jobs:
        wanted = {kind for choice in job.choices for kind, _ in choice.request.devices}
        # Only jobs that can run somewhere else: the others are rejected, with a sentence of their own.
        if any(all(kind in there for kind, _ in c.request.devices) for c in job.choices):
            for kind in sorted(wanted - there):
                without[kind] = without.get(kind, 0) + 1
    return [
        f"no device of kind {kind} is here to be scheduled: {count_things(count, 'job')} cannot use one "
        "('dovetail devices' shows what there is)"
        for kind, count in without.items()
    ]


def unused_conditions(machine: Cluster) -> list[str]:
    """A sentence where the cluster file has conditions, which a live run does not look at."""
    fields = machine.conditions.fields
    if not fields:
        return []
    return [f"{machine.label}: {', '.join(fields)} are for simulations: what runs for real keeps to none"]


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
