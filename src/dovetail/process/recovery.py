"""After Dovetail was killed: what of a run still runs, what ended meanwhile, and what is not known.

The supervisor outlives us and goes on writing the spawn log, so the usual case is plain reading. Only
where the supervisor was killed as well is there anything to find out: pids are checked against their
start times, and a job that was about to be started is looked for by DOVETAIL_UID in ``/proc``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import field
from pathlib import Path
from typing import Any

from dovetail.files.locks import is_locked
from dovetail.files.writing import private_folder
from dovetail.model import EMPTY, Cluster, DeviceClass, Ended, JobId, Placed, Run, State
from dovetail.process import cgroups
from dovetail.process.environment import devices_of
from dovetail.process.processes import TICKS, is_alive, marked_processes, standing_of, started_at
from dovetail.process.spawn_log import LOG_NAME, SpawnLog, append_record, end_event, read_log, settle_log
from dovetail.records import dataclass

_log = logging.getLogger(__name__)

UNRECORDED = "unrecorded"
"""A file of this name in a run folder marks a ledger that holds runs which its history lacks."""
_PATIENCE = 2.0
"""Seconds that the supervisor is given to notice that its client is gone; it takes a millisecond."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that ended; ``run`` is what goes into the history, if it ran (its uid makes that idempotent)."""

    job: JobId
    event: Ended
    run: Run


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that still runs. ``watched``: the supervisor lives and will record its end."""

    job: JobId
    uid: str
    pid: int
    boot: float
    cores: tuple[int, ...]
    argv: tuple[str, ...]
    watched: bool

    @property
    def is_unwritten(self) -> bool:
        """Whether it has ended, and its supervisor, which knows how, cannot write that down now."""
        return self.watched and not is_alive(self.pid, self.boot)


@dataclass(frozen=True, slots=True)
class LostJob:
    """A job of which no more can be known than ``reason`` gives; nothing of it runs."""

    job: JobId
    uid: str
    reason: str


@dataclass(slots=True)
class Recovery:
    """What a spawn log and ``/proc`` hold of a run. ``in_use``: its Dovetail lives, leave it alone.

    ``damage`` is what is wrong with the log, if anything is: then there may be more than stands here.
    ``elsewhere`` names another host, or container, whose run it is: then its jobs are left out, which
    are neither alive nor dead as seen from here, and ``in_use`` is whether it was seen to live.
    """

    run_dir: Path
    in_use: bool = False
    damage: str = ""
    elsewhere: str = ""
    ended: list[EndedJob] = field(default_factory=list)
    running: list[RunningJob] = field(default_factory=list)
    lost: list[LostJob] = field(default_factory=list)
    _supervisor: tuple[int, float] | None = None
    _beside: Mapping[str, JobId] = field(default_factory=dict)

    @property
    def known_uids(self) -> set[str]:
        """Unique ids of all attempts that the spawn log knows of."""
        ended = {job.run.uid for job in self.ended}
        return ended | {job.uid for job in self.running} | {job.uid for job in self.lost}

    def stop(self, grace: float = 5.0) -> Recovery:
        """End what still runs: TERM to its groups, KILL after the grace; returns the state after that.

        The supervisor does it where it lives, since only a parent can never hit a pid given again.
        Blocks for the grace at most, and for as long as the kernel takes to end a killed process.
        """
        if self.in_use or not self.running:
            return self
        _log.info("run %s: %d jobs that still run are ended", self.run_dir.name, len(self.running))
        # The supervisor's pid may have been given to another process since.
        if self._supervisor is not None and is_alive(*self._supervisor):
            os.kill(self._supervisor[0], signal.SIGTERM)
        now = self
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
            now._signal_survivors(number)
            deadline = time.monotonic() + seconds
            while now.running and time.monotonic() < deadline:
                # Not more often: each look reads the whole log.
                time.sleep(0.02)
                now = recover_run(self.run_dir, self._beside)
        return now

    def _signal_survivors(self, number: signal.Signals) -> None:
        """Where the supervisor has to end a job, only what has outlived its grace."""
        log = read_log(self.run_dir / LOG_NAME)
        for job in self.running:
            group = cgroups.group_of(log, job.uid)
            if group is not None and number == signal.SIGKILL:
                cgroups.kill_all(group)
            if (number == signal.SIGKILL or not job.watched) and is_alive(job.pid, job.boot):
                kill_group(job.pid, number)

    def settle(self) -> bool:
        """Note that all is recorded, so that later starts pass over this run; ``False`` while jobs run."""
        # A run that may still write to its log stays unsettled, or its late ends would never be read.
        if self.in_use or self.running or self.elsewhere:
            return False
        cgroups.clear_groups(read_log(self.run_dir / LOG_NAME))
        settle_log(self.run_dir)
        return True

    def give_up(self) -> bool:
        """Put the spawn log aside, whatever is in it; ``False`` while jobs run. Raises `OSError`."""
        if self.in_use or self.running:
            return False
        os.rename(self.run_dir / LOG_NAME, self.run_dir / f"{LOG_NAME}.{os.urandom(4).hex()}.given-up")
        return True


def describe_place(placed: Placed, cluster: Cluster) -> dict[str, Any]:
    """What the history keeps of all runs of an implementation on one place."""
    request = placed.allocation.request
    kind = placed.implementation.kind
    devices = devices_of(placed, cluster)
    first = cluster.nodes[placed.allocation.first_node]
    model = devices[0].model if devices else first.cpu_model
    return {
        "app": placed.job.app.name,
        "implementation": placed.implementation.name,
        "class": [kind, model],
        "nodes": request.nodes,
        "cpus": placed.allocation.parts[0].cpus,
        "gpus": request.gpus,
    }


def run_of(intent: Mapping[str, Any], about: Mapping[str, Any], event: Ended) -> Run:
    """The history's record of an ended job; ``about`` is what `describe_place` gave."""
    started, stopped = event.started_at or 0.0, event.ended_at or 0.0
    return Run(
        app=about["app"],
        implementation=about["implementation"],
        device_class=DeviceClass(*about["class"]),
        nodes=about["nodes"],
        cpus=about["cpus"],
        gpus=about["gpus"],
        inputs=intent["inputs"],
        seconds=stopped - started,
        state=event.state,
        walltime=intent.get("walltime"),
        usage=event.usage,
        when=stopped,
        uid=intent["uid"],
        job=event.job,
        user=intent.get("user"),
    )


def unsettled_runs(root: str | os.PathLike[str]) -> list[Path]:
    """Run folders under ``root``, or linked there, whose runs may have something to recover, oldest first.

    Reads the end of each spawn log: about 15 microseconds a run. One that cannot be read comes first. Links
    (`link_run`) to runs that have nothing any more are removed on the way, as far as that can be done.
    """
    found: list[tuple[float, Path]] = []
    try:
        entries = list(os.scandir(root))
    except FileNotFoundError:
        return []
    for entry in entries:
        written = _last_written(os.path.join(entry.path, LOG_NAME))
        path = Path(entry.path)
        if written is not None:
            found.append((written, path.resolve() if entry.is_symlink() else path))
        elif entry.is_symlink() and not os.path.lexists(path / UNRECORDED):
            # Another Dovetail was faster, or the folder is read-only.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return [path for _, path in sorted(found)]


OPEN = "open-runs"
"""Beside the folder of runs: for each that may have something to recover an empty file, or a link to it."""
NEVER_BEGUN = 3600.0
"""Seconds after which a run of which no spawn log has come to be is looked at no more."""


def open_runs(root: str | os.PathLike[str]) -> list[Path]:
    """As `unsettled_runs`, of the runs that are noted as open: what has ended costs nothing. O(open runs).

    The first time all are looked at. Notes of runs in which nothing is open any more are removed.
    """
    found: list[tuple[float, Path]] = []
    try:
        entries = list(os.scandir(_index_folder(Path(root))))
    except OSError:
        # Nothing can be noted: every run is looked at each time.
        return [*unsettled_runs(root), *kept_aside(root)]
    for entry in entries:
        path = Path(os.path.realpath(entry.path)) if entry.is_symlink() else Path(root, entry.name)
        written = _last_written(os.path.join(path, LOG_NAME))
        if written is not None:
            found.append((written, path))
        elif os.path.lexists(path / UNRECORDED):
            found.append((0.0, path))
        else:
            # Another Dovetail was faster, or the folder is read-only.
            with contextlib.suppress(OSError):
                fresh = time.time() - os.lstat(entry.path).st_mtime < NEVER_BEGUN
                if not (fresh and path.is_dir() and not os.path.lexists(path / LOG_NAME)):
                    os.unlink(entry.path)
    return [path for _, path in sorted(found)]


def note_open(root: str | os.PathLike[str], run_dir: Path, name: str) -> None:
    """Have `open_runs` find a run: before it starts anything, and again once it can. Raises `OSError`."""
    _note_run(_index_folder(Path(root)), Path(root), run_dir, name)


def _note_run(index: Path, root: Path, run_dir: Path, name: str) -> None:
    """A file where the run lies in the folder of runs, which may be copied as a whole; else a link."""
    target = run_dir.resolve()
    with contextlib.suppress(FileExistsError):
        # O_EXCL and O_NOFOLLOW: a link that was planted there must not be opened.
        if target == root.resolve() / name:
            os.close(os.open(index / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        else:
            (index / name).symlink_to(target)


def note_settled(root: str | os.PathLike[str], name: str) -> None:
    """Nothing is left to recover of a run. Raises `OSError`."""
    (Path(root).with_name(OPEN) / name).unlink(missing_ok=True)


def _index_folder(root: Path) -> Path:
    """The folder of links, made where none is: whole, so that none of them lacks. Raises `OSError`."""
    index = root.with_name(OPEN)
    if index.is_dir():
        return index
    # Filled beside its final name and renamed whole: a reader of a half-made index would miss runs.
    part = index.with_name(f"{OPEN}.{os.urandom(4).hex()}.part")
    private_folder(part)
    try:
        for path in {*unsettled_runs(root), *kept_aside(root)}:
            _note_run(part, root, path, path.name)
        with contextlib.suppress(OSError):  # another Dovetail has made it
            part.rename(index)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return index


def kept_aside(root: str | os.PathLike[str]) -> list[Path]:
    """Runs whose ledgers hold what their history lacks, where nothing else is to be recovered."""
    return [marker.parent.resolve() for marker in Path(root).glob(f"*/{UNRECORDED}")]


def _last_written(log: str) -> float | None:
    """When a spawn log was last written; ``None`` if there is none, or all of it is settled."""
    try:
        # A pipe is not waited for.
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        # The recovery of this run names the cause.
        return 0.0
    try:
        stat = os.fstat(descriptor)
        # The last record fits in 64 bytes: one short read for each run instead of a whole log.
        tail = os.pread(descriptor, 64, max(0, stat.st_size - 64))
    except OSError:
        return 0.0
    finally:
        os.close(descriptor)
    return None if tail.endswith(b'{"t":"settled"}\n') else stat.st_mtime


def link_run(root: str | os.PathLike[str], run_dir: Path, name: str) -> None:
    """Have `unsettled_runs` find a run folder that lies elsewhere: a symbolic link of that name under
    ``root``.

    Made once the spawn log is there. Raises `OSError`.
    """
    folder, target = Path(root), run_dir.resolve()
    if target.parent != folder.resolve():
        private_folder(folder)
        (folder / name).symlink_to(target)


def unlink_run(root: str | os.PathLike[str], name: str) -> None:
    """Remove the link again, where there is one. Raises `OSError`."""
    path = Path(root, name)
    if path.is_symlink():
        path.unlink(missing_ok=True)


def recover_run(run_dir: str | os.PathLike[str], beside: Mapping[str, JobId] = EMPTY) -> Recovery:
    """Look at a run that was left behind. Changes nothing; may be called again at any time.

    ``beside`` are attempts (job by uid) that another record shows to have been about to start: those of which
    the spawn log does not know either run, or are lost. Raises `OSError` if there is no spawn log. Waits at
    most 2 s for a supervisor that is just noticing that its client is gone, or just starting a job.
    """
    folder = Path(run_dir)
    deadline = time.monotonic() + _PATIENCE
    while True:
        recovery, settling = _examine_run(folder, beside)
        if not settling or time.monotonic() > deadline:
            return recovery
        time.sleep(0.005)


def _examine_run(folder: Path, beside: Mapping[str, JobId]) -> tuple[Recovery, bool]:
    """What is known now, and whether the supervisor is about to write more down."""
    # Before reading: what an unlocked log lacks never comes.
    locked = is_locked(folder / LOG_NAME)  # Dovetail or its supervisor lives
    log = read_log(folder / LOG_NAME)
    standing = standing_of(log.client, locked=locked)
    if standing == "host" or (standing == "namespace" and locked):
        host = log.client.get("host", "")
        name = f"host {host}" if standing == "host" else f"another PID namespace of this machine ({host})"
        return Recovery(folder, in_use=locked, elsewhere=name, _beside=beside), False
    here = standing == "here"
    watched = locked and here
    in_use = watched and not log.gone and _client_alive(log)
    recovery = Recovery(folder, in_use=in_use, damage="" if in_use else log.describe_damage(), _beside=beside)
    settling = watched and not log.gone and not recovery.in_use
    if watched and log.supervisors:
        pid, boot = log.supervisors[-1]["pid"], started_at(log.supervisors[-1]["pid"])
        meant = standing_of(log.supervisors[-1]) == "here"
        # Its start must lie before its own record: a later one is another process under the same pid.
        if meant and boot is not None and boot <= log.supervisors[-1]["boot"] + 0.05:
            recovery._supervisor = (pid, boot)
    for uid, end in log.ends.items():
        intent = log.intents.get(uid)
        setup = None if intent is None else log.setups.get(intent["setup"])
        if intent is None or setup is None:
            job = uid.partition("/")[2] if intent is None else intent["job"]
            recovery.lost.append(LostJob(job, uid, "the spawn log does not show what was started"))
            continue
        event = end_event(intent, end)
        recovery.ended.append(EndedJob(intent["job"], event, run_of(intent, setup["run"], event)))
    unended = log.unended_uids()
    unwatched = {uid for uid in unended if not (watched and log.is_watched(uid))}
    unheard = {uid: job for uid, job in beside.items() if uid not in log.intents and uid not in log.ends}
    # One pass over /proc for all of them: it costs more than everything else here.
    looked_for = unwatched | unheard.keys()
    strays = _processes_of(looked_for, log) if looked_for and standing != "boot" else {}
    for uid in unended:
        intent, start = log.intents[uid], log.starts.get(uid)
        looked_after = uid not in unwatched
        process = next(iter(strays.get(uid, ())), None)
        past = standing_of(log.place_of(uid))
        if start is not None and past == "here" and (looked_after or is_alive(start["pid"], start["boot"])):
            process = start["pid"], start["boot"]
        if looked_after and start is None:
            settling = True
        elif process is not None:
            setup = log.setups.get(intent["setup"], {})
            cores, words = tuple(setup.get("cores", ())), tuple(intent["argv"])
            recovery.running.append(RunningJob(intent["job"], uid, *process, cores, words, looked_after))
        else:
            reason = why_lost(was_started=start is not None, standing=past)
            recovery.lost.append(LostJob(intent["job"], uid, reason))
    for uid, job in unheard.items():
        if uid in strays:
            recovery.running.append(RunningJob(job, uid, *strays[uid][0], (), (), watched=False))
        else:
            recovery.lost.append(LostJob(job, uid, "the spawn log does not show that it was started"))
    return recovery, settling


def end_lost(
    path: Path, fd: int, uids: list[str], why: str, epoch: float, had_ended: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """End jobs whose supervisor was killed, and write that down; yields (uid, end record).

    ``why`` is the reason for those that ran, ``had_ended`` (default: the same) for those of which nothing
    was left; for those that a new start of the machine, or the end of their PID namespace, has ended, that
    is why.
    """
    log = read_log(path)
    strays = _processes_of(set(uids), log)
    for uid in uids:
        if uid in log.ends:
            yield uid, log.ends[uid]
            continue
        start = log.starts.get(uid)
        standing = standing_of(log.place_of(uid))
        lived = start is not None and standing == "here" and is_alive(start["pid"], start["boot"])
        over = had_ended or why if standing == "here" else why_lost(was_started=True, standing=standing)
        # Only with the recorded start time: the pid alone may be another process's now.
        if start is not None and lived:
            kill_group(start["pid"], signal.SIGKILL)
        for pid, boot in strays.get(uid, ()):
            if is_alive(pid, boot):
                kill_group(pid, signal.SIGKILL)
        group = cgroups.group_of(log, uid)
        if group is not None:
            cgroups.kill_all(group)
        now, ran = time.monotonic() + epoch, start is not None or uid in strays
        end = {
            "t": "end",
            "uid": uid,
            "from": start["at"] if start else now,
            "at": now,
            "error": (why if lived or start is None else over)
            if ran
            else f"{why}; whether it had started is not known",
            "state": State.NODE_FAIL.value,
            "ran": ran,
        }
        # A full disk: the event that follows still reaches the caller.
        with contextlib.suppress(OSError):
            append_record(fd, end)
        yield uid, end


def end_unlogged(uids: Set[str]) -> set[str]:
    """Kill what runs of these attempts, of which no record is left; returns those of which something ran."""
    strays = _processes_of(uids, SpawnLog())
    for pid, boot in (one for found in strays.values() for one in found):
        if is_alive(pid, boot):
            kill_group(pid, signal.SIGKILL)
    return set(strays)


def kill_group(pid: int, number: signal.Signals) -> None:
    """Signal the process group of a process, never our own."""
    try:
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, number)
    except ProcessLookupError:
        return


def _processes_of(uids: Set[str], log: SpawnLog) -> dict[str, list[tuple[int, float]]]:
    """(pid, start) of every process in these jobs' cgroups, or with their DOVETAIL_UIDs."""
    found: dict[str, list[tuple[int, float]]] = {}
    if not uids:  # as at most starts: else the environment of every process of the machine would be read
        return found
    for uid in uids:
        group = cgroups.group_of(log, uid)
        for pid in cgroups.member_processes(group) if group is not None else ():
            boot = started_at(pid)
            if boot is not None:
                found.setdefault(uid, []).append((pid, boot))
    for uid, pid in marked_processes(uids):
        boot = started_at(pid)
        if boot is not None:
            found.setdefault(uid, []).append((pid, boot))
    return found


def _client_alive(log: SpawnLog) -> bool:
    boot = log.client.get("boot")
    start = started_at(log.client.get("pid", 0))
    return boot is not None and start is not None and abs(start - boot) < 0.5 / TICKS


def why_lost(*, was_started: bool, standing: str) -> str:
    """Why the end is unknown of a job that was started, or was to be, at a place (`standing_of`)."""
    if standing == "namespace":
        return "the PID namespace (container) in which it ran has ended, and the job with it"
    if standing == "boot":
        return "the machine was started anew, which ended it"
    if was_started:
        return "it ended while neither Dovetail nor its supervisor lived, so its exit code is not known"
    return "Dovetail and its supervisor were killed before it was started"
