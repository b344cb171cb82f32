"""``srun``: inside a job its tasks; outside of one a job that is waited for, with its output and status.

Inside, tasks are processes of this machine, beside which this process stays: it forwards signals, marks
lines, and ends with the highest status. They share the job's cores, unless ``--exact`` or ``--exclusive``
gives the step cores of its own.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from dovetail_slurm.shims import step_records
from dovetail_slurm.shims.options import Given, Options, Wrong, has_option, last_value, write_complaint
from dovetail_slurm.shims.service import Refused, Service

OPTIONS = Options(
    "srun",
    ".accel-bind= account=A .acctg-freq= array=a .bb= .bbf= .bcast? .bcast-exclude= begin=b chdir=D "
    "workdir= .cluster-constraint= .clusters=M comment= .compress? constraint=C container= .contiguous! "
    ".core-spec=S .cores-per-socket= .cpu-bind= .cpu_bind= .cpu-freq= cpus-per-gpu= cpus-per-task=c "
    "deadline= .debugger-test! .delay-boot= dependency=d .disable-status!X .distribution=m .epilog= error=e "
    "exact! exclude=x exclusive? export= .extra-node-info=B .get-user-env? gid= .gpu-bind= .gpu-freq= "
    "gpus=G gpus-per-node= gpus-per-socket= gpus-per-task= gres= .gres-flags= help!h .het-group= .hint= "
    "hold!H .immediate?I input=i .interactive! job-name=J jobid= kill-on-bad-exit?K label!l licenses=L "
    ".mail-type= .mail-user= .mcs-label= mem= .mem-bind= .mem_bind= mem-per-cpu= mem-per-gpu= mincpus= "
    ".mpi= multi-prog! .msg-timeout= .network= nice? .no-allocate!Z .no-kill?k nodefile=F nodelist=w "
    "nodes=N ntasks=n .ntasks-per-core= ntasks-per-gpu= ntasks-per-tres= ntasks-per-node= "
    ".ntasks-per-socket= open-mode= output=o overcommit!O overlap! oversubscribe!s .pack-group= partition=p "
    ".power= .prefer= .preserve-env!E .priority= .profile= .prolog= .propagate? pty? qos=q quiet!Q "
    ".quit-on-interrupt! .reboot! relative=r requeue! no-requeue! reservation= .resv-ports? .send-libs? "
    "signal= .slurmd-debug= .sockets-per-node= .spread-job! .switches= tasks-per-node= task-epilog= "
    "task-prolog= test-only! .thread-spec= threads=T .threads-per-core= time=t .time-min= .tmp= .tres-bind= "
    ".tres-per-task= uid= unbuffered!u .usage! .use-min-nodes! .verbose!v version!V wait=W .wait-for-nodes? "
    "wckey= .whole! .x11?",
)
FORGOTTEN = 30 * 86400.0
"""Seconds after its last step for which the count of a job's steps is kept."""
OF_THE_JOB = (
    "account",
    "begin",
    "chdir",
    "comment",
    "constraint",
    "cpus-per-gpu",
    "cpus-per-task",
    "deadline",
    "dependency",
    "exclude",
    "exclusive",
    "gpus",
    "gpus-per-node",
    "gpus-per-socket",
    "gpus-per-task",
    "gres",
    "hold",
    "job-name",
    "licenses",
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
    "mincpus",
    "nice",
    "nodefile",
    "nodelist",
    "nodes",
    "ntasks",
    "ntasks-per-gpu",
    "ntasks-per-node",
    "ntasks-per-tres",
    "tasks-per-node",
    "overcommit",
    "partition",
    "qos",
    "requeue",
    "no-requeue",
    "reservation",
    "signal",
    "time",
    "wckey",
    "container",
    "uid",
    "gid",
)
"""Options that describe a job where srun makes one; the reader of batch scripts knows them."""
MOST_NAME = 200
"""Characters of a step's name that are kept."""
UNDONE = {
    "multi-prog": "a file of several programs",
    "pty": "a terminal on the job's node",
    "task-prolog": "a prolog of tasks",
    "task-epilog": "an epilog of tasks",
    "relative": "a relative node",
    "array": "an array",
}
"""Options that would make something else than is wanted, were they passed over."""
FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGCONT,
)


def run(words: list[str], place: str) -> int:
    """Run a step, or a job; the highest exit status of its tasks, 255 for wrong options."""
    try:
        given, command = OPTIONS.read(words, permute=False)
    # 255 and not 1: MPI launchers distinguish a wrong call from a failed task by it.
    except Wrong as error:
        raise Wrong(*error.lines, status=255) from None
    if has_option(given, "help"):
        print(f"Usage: srun [OPTIONS(0)... [executable(0) [args(0)...]]]\n{' '.join(OPTIONS.values)}")
        return 0
    if not command:
        raise Wrong("srun: fatal: No command given to execute.")
    own = os.environ.get("SLURM_JOB_ID", "")
    # Both, since a login shell may have one of them from elsewhere.
    inside = bool(own) and "DOVETAIL_JOB" in os.environ
    for name, what in UNDONE.items():
        if has_option(given, name) and not (name == "pty" and inside):
            raise Wrong(f"srun: error: --{name}: found {what}, which Dovetail's srun does not give")
    wanted = last_value(given, "jobid")
    # A step in another job would need its cores, which only that job's own srun can share out.
    if wanted is not None and not (inside and wanted in (own, os.environ["DOVETAIL_JOB"])):
        raise Wrong(f"srun: error: --jobid={wanted}: found another job, expected the one in which srun runs")
    if inside:
        return Step(given, command, place).run()
    return _as_job(given, words[: len(words) - len(command)], command, place)


# -- inside --------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """One process of a step: its rank, that on its node, and the node's place and name."""

    rank: int
    local: int
    node: int
    name: str


class Step:
    """The tasks of one call inside a job."""

    def __init__(self, given: Sequence[Given], command: Sequence[str], place: str) -> None:
        self.place = place
        self.given, self.command = given, list(command)
        self.nodes = self._step_nodes()
        self.count = self._count_tasks()
        self.tasks = self._distribute_tasks()
        self.files: dict[str, int] = {}
        self.pids: dict[int, Task] = {}
        self.status = 0
        self.number = 0
        self.worst = (0, 0)  # exit code and signal of the task with the highest status
        self.used: dict[int, Any] = {}  # what each task used, by its rank

    def run(self) -> int:
        """Start the tasks, look after them; the highest status."""
        keeper = self._keeper_pid()
        # Before the tasks start, so that no signal is lost between start and waiting.
        signal.pthread_sigmask(signal.SIG_BLOCK, (*FORWARDED, signal.SIGCHLD))
        self._take_cores()
        self.number = _next_step()
        folder = last_value(self.given, "chdir", "workdir")
        if folder:
            try:
                # In the words of Slurm, which scripts may look for.
                os.chdir(folder)
            except OSError as error:
                raise Wrong(f"srun: error: couldn't chdir to `{folder}': {error.strerror}") from None
        records = step_records.path_of(Service("srun", self.place), os.environ["DOVETAIL_JOB"])
        if records:
            step_records.add_record(records, self.number, self._begun())
        program = _find_program(self.command[0])
        labels = []
        for task in self.tasks:
            if program is None:
                write_complaint(
                    f"slurmstepd-{task.name}: error: execve(): {self.command[0]}: No such file or directory",
                    f"srun: error: {task.name}: task {task.rank}: Exited with exit code 2",
                )
                self.status = 2
                self.worst = (2, 0)
                continue
            labels += self._start_task(program, task)
        threads = [_label_lines(*one) for one in labels]
        self._look_after(keeper)
        for thread in threads:
            thread.join()
        if records:
            step_records.add_record(records, self.number, self._over())
        return self.status

    # .. what is kept of it

    def _begun(self) -> dict[str, Any]:
        """What is known of the step when it begins, as `StepRecord` has it."""
        each = last_value(self.given, "cpus-per-task") or os.environ.get("SLURM_CPUS_PER_TASK", "1")
        cpus = self.count * (int(each) if each.isdecimal() else 1)
        held = sum(_counts(os.environ.get("SLURM_JOB_CPUS_PER_NODE", "")))
        return {
            "uid": os.environ.get("DOVETAIL_UID", ""),
            "name": os.path.basename(self.command[0])[:MOST_NAME],
            "start": time.time(),
            "tasks": self.count,
            "cpus": min(cpus, held) if held else cpus,
            "nodes": len(self.nodes),
            "where": _compress_names(self.nodes),
        }

    def _over(self) -> dict[str, Any]:
        """How the step ended, and what it used."""
        peaks = {rank: int(used.ru_maxrss) << 10 for rank, used in self.used.items()}
        top = max(peaks, key=lambda rank: peaks[rank], default=0)
        code, number = self.worst
        return {
            "end": time.time(),
            "code": code,
            "signal": number,
            "peak": peaks.get(top, 0),
            "mean": sum(peaks.values()) // max(1, len(peaks)),
            "task": top,
            "user": float(sum(used.ru_utime for used in self.used.values())),
            "system": float(sum(used.ru_stime for used in self.used.values())),
        }

    # .. what is wanted

    def _step_nodes(self) -> list[str]:
        text = os.environ.get("SLURM_JOB_NODELIST", "")
        if not text:
            return [os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]]
        from dovetail.model.hostlist import expand_hostlist

        ours = expand_hostlist(text)
        named = last_value(self.given, "nodelist")
        if named:
            # Before the count: a wrong name must not silently become another node.
            wanted = expand_hostlist(named)
            foreign = [one for one in wanted if one not in ours]
            if foreign:
                raise Wrong(
                    f"srun: error: Unable to create step: node {foreign[0]} is none of the job's: {text}"
                )
            ours = wanted
        count = (last_value(self.given, "nodes") or "").partition("-")[0]
        if count.isdecimal() and int(count):
            if int(count) > len(ours):
                raise Wrong(
                    "srun: error: Unable to create step for job: More nodes requested than the job has"
                )
            ours = ours[: int(count)]
        return ours

    def _count_tasks(self) -> int:
        text = last_value(self.given, "ntasks")
        each = last_value(self.given, "ntasks-per-node", "tasks-per-node")
        if text is None and each is not None and each.isdecimal():
            return int(each) * len(self.nodes)
        if text is None:
            if has_option(self.given, "nodes"):
                return len(self.nodes)
            text = os.environ.get("SLURM_NTASKS") or os.environ.get("SLURM_NPROCS") or str(len(self.nodes))
        if not text.isdecimal() or not int(text):
            raise Wrong(f'srun: error: Invalid numeric value "{text}" for --ntasks.', status=255)
        return int(text)

    def _distribute_tasks(self) -> list[Task]:
        """In blocks, as even as can be: the first nodes have one more."""
        each, more = divmod(self.count, len(self.nodes))
        found, rank = [], 0
        for place, name in enumerate(self.nodes):
            for local in range(each + (place < more)):
                found.append(Task(rank, local, place, name))
                rank += 1
        return found

    def _take_cores(self) -> None:
        """Cores of its own for a step that requests them: it waits until the job has some left."""
        if not has_option(self.given, "exact", "exclusive") or has_option(
            self.given, "overlap", "oversubscribe"
        ):
            return
        from dovetail_slurm.inner_srun import hold_places

        cores = sorted(os.sched_getaffinity(0))
        each = last_value(self.given, "cpus-per-task") or "1"
        wanted = self.count * (int(each) if each.isdecimal() and int(each) else 1)
        if wanted > len(cores):
            raise Wrong(
                f"srun: error: Unable to create step for job: found {wanted} CPUs, the job has {len(cores)}"
            )
        held = hold_places({"cores": wanted}, {"cores": len(cores)}, _steps_folder())
        os.sched_setaffinity(0, {cores[place] for place in held["cores"]})

    # .. starting

    def _start_task(self, program: str, task: Task) -> list[tuple[int, int, str]]:
        """Start one; what is to be labelled: (descriptor to read, to write, prefix)."""
        opened: list[int] = []
        out, err = self._pattern_descriptor("output", task), self._pattern_descriptor("error", task)
        labels: list[tuple[int, int, str]] = []
        if has_option(self.given, "label"):
            prefix = f"{task.rank:>{len(str(self.count - 1))}}: "
            pipes = []
            for target in (1 if out is None else out, 2 if err is None and out is None else err or out or 2):
                read, write = os.pipe2(os.O_CLOEXEC)
                labels.append((read, target, prefix))
                pipes.append(write)
            opened += pipes
            out, err = pipes
        else:
            err = out if err is None else err
        actions: list[Any] = []
        source = self._input_descriptor(task)
        if source is not None:
            opened.append(source)
            actions.append((os.POSIX_SPAWN_DUP2, source, 0))
        if out is not None:
            actions.append((os.POSIX_SPAWN_DUP2, out, 1))
        if err is not None:
            actions.append((os.POSIX_SPAWN_DUP2, err, 2))
        try:
            pid = os.posix_spawn(
                program,
                self.command,
                self._task_environment(task),
                file_actions=actions,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT],
            )
        except OSError as error:
            write_complaint(
                f"slurmstepd-{task.name}: error: execve(): {self.command[0]}: {error.strerror}",
                f"srun: error: {task.name}: task {task.rank}: Exited with exit code "
                f"{_unstarted_status(error)}",
            )
            self._note_status(_unstarted_status(error), (_unstarted_status(error), 0))
        else:
            self.pids[pid] = task
        for fd in opened:
            os.close(fd)
        return labels

    def _pattern_descriptor(self, name: str, task: Task) -> int | None:
        """The descriptor that a pattern names for a task; ``None``: our own."""
        pattern = last_value(self.given, name)
        if pattern is None or pattern == "all":
            return None
        if pattern.lower() == "none":
            pattern = "/dev/null"
        if pattern.isdecimal():
            return None if int(pattern) == task.rank else self._open_file("/dev/null", append=True)
        mode = (last_value(self.given, "open-mode") or os.environ.get("SLURM_OPEN_MODE", "t"))[:1]
        return self._open_file(self._fill_pattern(pattern, task), append=mode == "a")

    def _open_file(self, path: str, *, append: bool) -> int:
        if path not in self.files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if append else os.O_TRUNC)
            try:
                self.files[path] = os.open(path, flags, 0o666)
            except OSError as error:
                raise Wrong(f"srun: error: Could not open stdout file {path}: {error.strerror}") from None
        return self.files[path]

    def _input_descriptor(self, task: Task) -> int | None:
        """What a task reads: our input for one, a file, nothing for the others."""
        pattern = last_value(self.given, "input")
        if pattern is None or pattern == "all":
            return None if task.rank == 0 else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        if pattern.isdecimal():
            return None if int(pattern) == task.rank else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        path = os.devnull if pattern.lower() == "none" else self._fill_pattern(pattern, task)
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Wrong(f"srun: error: Could not open stdin file {path}: {error.strerror}") from None

    def _fill_pattern(self, pattern: str, task: Task) -> str:
        """A file name with its marks filled in, as srun(1) has them."""
        if "\\" in pattern:
            return pattern.replace("\\", "")
        environ = os.environ
        job = environ["SLURM_JOB_ID"]
        values = {
            "A": environ.get("SLURM_ARRAY_JOB_ID", job),
            "a": environ.get("SLURM_ARRAY_TASK_ID", "4294967294"),
            "J": f"{job}.{self.number}",
            "j": job,
            "s": str(self.number),
            "N": task.name,
            "n": str(task.node),
            "t": str(task.rank),
            "u": environ.get("SLURM_JOB_USER") or environ.get("USER", ""),
            "x": environ.get("SLURM_JOB_NAME", ""),
            "%": "%",
            "b": environ.get("SLURM_ARRAY_TASK_ID", "0")[-1:],
        }

        def fill_mark(match: re.Match[str]) -> str:
            found = values.get(match[2])
            return match[0] if found is None else found.zfill(min(10, int(match[1] or 0)))

        return re.sub(r"%(\d{0,2})([A-Za-z%])", fill_mark, pattern)

    def _task_environment(self, task: Task) -> dict[str, str]:
        """The environment of a task, by ``--export``."""
        found = dict(os.environ)
        exported = last_value(self.given, "export")
        if exported is not None:
            parts = [part for part in exported.split(",") if part]
            if "ALL" not in [part.upper() for part in parts]:
                found = {k: v for k, v in found.items() if k.startswith(("SLURM", "DOVETAIL")) or k == "PATH"}
            for part in parts:
                name, equals, value = part.partition("=")
                if equals:
                    found[name] = value
                elif name in os.environ:
                    found[name] = os.environ[name]
        each: dict[int, int] = {}
        for one in self.tasks:
            each[one.node] = each.get(one.node, 0) + 1
        mine = [str(one.rank) for one in self.tasks if one.node == task.node]
        nodes = _compress_names(self.nodes)
        found |= {
            "SLURM_PROCID": str(task.rank),
            "SLURM_LOCALID": str(task.local),
            "SLURM_NODEID": str(task.node),
            "SLURM_NTASKS": str(self.count),
            "SLURM_NPROCS": str(self.count),
            "SLURM_NNODES": str(len(self.nodes)),
            "SLURM_STEP_ID": str(self.number),
            "SLURM_STEPID": str(self.number),
            "SLURM_GTIDS": ",".join(mine),
            "SLURM_STEP_NODELIST": nodes,
            "SLURM_STEP_NUM_NODES": str(len(self.nodes)),
            "SLURM_STEP_NUM_TASKS": str(self.count),
            "SLURMD_NODENAME": task.name,
            "SLURM_STEP_TASKS_PER_NODE": ",".join(str(each.get(at, 0)) for at in range(len(self.nodes))),
            "SLURM_TASKS_PER_NODE": ",".join(str(each.get(at, 0)) for at in range(len(self.nodes))),
            "SLURM_SRUN_COMM_HOST": "127.0.0.1",
            "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        }
        cpus = last_value(self.given, "cpus-per-task")
        if cpus is not None:
            found["SLURM_CPUS_PER_TASK"] = cpus
        return found

    # .. looking after

    def _keeper_pid(self) -> int:
        """The pid that starts and stops our job: its signals reach all tasks without us."""
        try:
            with open(f"/proc/{os.getsid(0)}/stat", encoding="utf-8", errors="replace") as file:
                return int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return 0

    def _look_after(self, keeper: int) -> None:
        """Until the last task has ended: forward signals, note ends."""
        reaped = True
        while self.pids:
            if not reaped:
                info = signal.sigwaitinfo((*FORWARDED, signal.SIGCHLD))
                if info.si_signo != signal.SIGCHLD:
                    # What a terminal, or the keeper of the job, sends goes to our whole group.
                    if info.si_pid not in (0, keeper):
                        self._forward_signal(info.si_signo)
                    continue
            reaped = False
            while self.pids:
                try:
                    pid, status, used = os.wait4(-1, os.WNOHANG)
                except ChildProcessError:
                    return
                if not pid:
                    break
                task = self.pids.pop(pid, None)
                if task is not None:
                    self.used[task.rank] = used
                    self._note_task_end(task, os.waitstatus_to_exitcode(status))

    def _forward_signal(self, number: int) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _note_task_end(self, task: Task, code: int) -> None:
        if not code:
            return
        self._note_status(code if code > 0 else 128 - code, (max(0, code), max(0, -code)))
        if not has_option(self.given, "quiet"):
            how = (
                f"Exited with exit code {code}" if code > 0 else signal.strsignal(-code) or f"signal {-code}"
            )
            write_complaint(f"srun: error: {task.name}: task {task.rank}: {how}")
        if has_option(self.given, "kill-on-bad-exit") and last_value(self.given, "kill-on-bad-exit") != "0":
            self._forward_signal(signal.SIGKILL)

    def _note_status(self, status: int, worst: tuple[int, int]) -> None:
        if status > self.status:
            self.status, self.worst = status, worst


def _counts(text: str) -> list[int]:
    """The numbers of ``4(x2),3``, each as often as it stands for a node."""
    found: list[int] = []
    for match in re.finditer(r"(\d{1,9})(?:\(x(\d{1,6})\))?", text, re.ASCII):
        found += [int(match[1])] * int(match[2] or 1)
    return found


def _find_program(name: str) -> str | None:
    """The path of a program, by PATH."""
    if "/" in name:
        return name
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or ".", name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def _unstarted_status(error: OSError) -> int:
    """The status of what could not be executed: its error's number, as slurmstepd has it."""
    return error.errno or 2


def _compress_names(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    from dovetail.model.hostlist import compress_names

    return compress_names(names)


def _label_lines(read: int, write: int, prefix: str) -> Any:
    """A thread that copies lines, each behind its task's rank."""
    import threading

    def copy_lines() -> None:
        with os.fdopen(read, "rb") as lines:
            for line in lines:
                text = prefix.encode() + (line if line.endswith(b"\n") else line + b"\n")
                with suppress(OSError):
                    os.write(write, text)

    thread = threading.Thread(target=copy_lines)
    thread.start()
    return thread


def _steps_folder() -> str:
    """Where what the steps of this job share lies: a private folder, and a name of this start of the job."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = f"{base}/dovetail-steps" if os.path.isdir(base) else f"/tmp/dovetail-steps-{os.geteuid()}"
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or not os.path.isdir(folder):
        raise Wrong(
            f"srun: error: {folder}: found a folder that others may use, expected one of this account alone"
        )
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", os.environ.get("DOVETAIL_UID") or os.environ["SLURM_JOB_ID"])
    return f"{folder}/{name}"


def _next_step() -> int:
    """The number of this step among those of the job, from 0."""
    import fcntl

    with open(f"{_steps_folder()}.steps", "a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = len(file.read())
        file.write("+")
    if not number:
        _forget_old_jobs(os.path.dirname(file.name))
    return number


def _forget_old_jobs(folder: str) -> None:
    """Remove what is kept of jobs without a step for `FORGOTTEN`: their ends are not seen here."""
    for entry in list(os.scandir(folder)):
        with suppress(OSError):
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > FORGOTTEN:
                os.unlink(entry.path)


# -- outside -------------------------------------------------------------------------------------------

SCRIPT = '#!/bin/sh\nexec {program} {options} "$@"\n'


def _as_job(given: Sequence[Given], words: Sequence[str], command: Sequence[str], place: str) -> int:
    """A job that runs this very command; its output here, its status ours."""
    import shlex

    from dovetail_slurm.shims import sbatch

    program = os.path.abspath(sys.argv[0])
    inner = [word for one in given for word in _as_words(one) if one.name not in OF_THE_JOB]
    text = SCRIPT.format(program=shlex.quote(program), options=shlex.join([*inner, "--"]))
    mine = [one for one in given if one.name in OF_THE_JOB]
    name = os.path.basename(command[0])
    try:
        form, _ = sbatch.script_form(
            text, "srun", "", mine, list(command), quiet=has_option(given, "quiet"), name=name, output=False
        )
    except Wrong as error:
        raise Wrong(
            *(line.replace("sbatch:", "srun:", 1) for line in error.lines), status=error.status
        ) from None
    service = Service("srun", place)
    try:
        found = service.post_form("/api/v1/jobs", form)
    except Refused as error:
        raise Wrong(f"srun: error: Unable to allocate resources: {sbatch.reword_error(error)}") from None
    id, number = found["ids"][0], found["numbers"][0]
    from dovetail_slurm.shims.follow import follow_job

    return follow_job(
        service, id, number, quiet=has_option(given, "quiet"), wait=lambda: sbatch.status_after(service, [id])
    )


def _as_words(one: Given) -> list[str]:
    return [f"--{one.name}" if one.value is None else f"--{one.name}={one.value}"]
