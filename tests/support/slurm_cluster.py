"""A real Slurm cluster of virtual nodes on this host: munged, slurmctld and a slurmd for each node.

All daemons run as whoever runs the tests, with their own key, ports and files, so that no Slurm that may
be installed here is touched. There are no cgroups: nodes may have more CPUs than the host, and nothing is
bound. GPUs are character devices that nobody opens; Slurm counts them and sets CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = ["NodeShape", "SlurmCluster", "needs_slurm", "needs_slurmdbd", "slurm_missing"]

SBIN = "/usr/sbin:/sbin"
DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("srun", "sbatch", "salloc", "squeue", "scancel", "scontrol", "sinfo")
GPU_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")
"""Slurm wants distinct character devices, and only looks at them."""

CONFIGURATION = """\
ClusterName=onehost
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={dir}/munge/munge.sock
StateSaveLocation={dir}/ctld
SlurmdSpoolDir={dir}/spool.%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmctldLogFile={dir}/log/slurmctld.log
SlurmdLogFile={dir}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=64
GresTypes=gpu
SchedulerType=sched/backfill
PriorityType=priority/basic
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=10000,bf_resolution=1,bf_continue,default_queue_depth=1000,sched_max_job_start=1000,max_rpc_cnt=0
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
KillWait=2
MinJobAge=300
MaxJobCount=50000
MessageTimeout=20
JobRequeue=0
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={dir}/jobcomp.txt
"""


def slurm_missing() -> str:
    """What of Slurm is missing here; empty if nothing is."""
    path = f"{os.environ.get('PATH', '')}:{SBIN}"
    missing = [name for name in (*DAEMONS, *CLIENTS) if shutil.which(name, path=path) is None]
    return f"Slurm is not installed here ({', '.join(missing)} missing)" if missing else ""


needs_slurmdbd = pytest.mark.skipif(
    not all(
        shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SBIN}") for name in ("slurmdbd", "mariadbd")
    ),
    reason="slurmdbd and mariadb are not installed here: make slurm",
)
needs_slurm = pytest.mark.skipif(bool(slurm_missing()), reason=slurm_missing() or "Slurm is here")


@dataclass(frozen=True)
class NodeShape:
    """Nodes that are alike: how many, their CPUs and GPUs, and the partition that they form."""

    count: int = 4
    cpus: int = 4
    gpus: int = 2
    partition: str = "all"
    memory: int = 2000
    gpu_model: str = ""


@dataclass
class SlurmCluster:
    """The daemons of a cluster; nodes are n0, n1, … in order of the shapes. Use it as a context manager.

    ``settings`` are lines of slurm.conf in the place of ours. ``accounting`` are commands of sacctmgr for a
    slurmdbd with a database of its own (none: there is no slurmdbd); ``USER`` in them is whoever we are.
    ``declared`` are further lines of slurm.conf: nodes in state CLOUD, which Slurm counts on though no slurmd
    runs there, and their partitions.
    """

    shapes: Sequence[NodeShape] = (NodeShape(),)
    settings: Mapping[str, str] = field(default_factory=dict)
    accounting: Sequence[str] = ()
    declared: Sequence[str] = ()
    folder: Path = field(init=False)
    daemons: dict[str, subprocess.Popen[bytes]] = field(init=False, default_factory=dict)

    def __enter__(self) -> SlurmCluster:
        # Sockets have names of 107 bytes at most: pytest's own folders are too deep.
        self.folder = Path(tempfile.mkdtemp(prefix="dovetail-slurm-"))
        try:
            self._write()
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        """What clients of this cluster need, and nothing of a Slurm job that we may be in ourselves.

        Nor where runs are kept: that each test says itself.
        """
        ours = ("SLURM", "SBATCH", "XDG_STATE_HOME")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {
            **clean,
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "MUNGE_SOCKET": str(self.folder / "munge" / "munge.sock"),
        }

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return [f"n{i}" for i in range(sum(shape.count for shape in self.shapes))]

    def call(self, *argv: str, timeout: float = 60, check: bool = True, **options: object) -> str:
        """Standard output of one of Slurm's commands."""
        found = subprocess.run(
            argv,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **options,
        )  # type: ignore[call-overload]
        assert not check or found.returncode == 0, f"{argv}: {found.stderr}"
        return str(found.stdout)

    @contextlib.contextmanager
    def allocation(self, *options: str) -> Iterator[Mapping[str, str]]:
        """Hold an allocation, and give the environment of a shell inside it."""
        argv = ["salloc", "--no-shell", *options]
        found = subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, timeout=280, check=True
        )
        words = found.stderr.split()
        job = next(word for word, before in zip(words[1:], words, strict=False) if before == "allocation")
        about = self.call("squeue", "-h", "-j", job, "-o", "%N|%D").strip().split("|")
        try:
            yield {
                **self.environment,
                "SLURM_JOB_ID": job,
                "SLURM_JOBID": job,
                "SLURM_JOB_NODELIST": about[0],
                "SLURM_NODELIST": about[0],
                "SLURM_JOB_NUM_NODES": about[1],
            }
        finally:
            self.end(job)

    def end(self, job: str, seconds: float = 30) -> None:
        """End a job or allocation, also while the controller is just starting."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.call("scancel", job, check=False)
            try:
                if not self.call("squeue", "-h").strip():
                    return
            except AssertionError:
                pass
            time.sleep(0.2)

    def start_again(self, job: str) -> None:
        """Have a job that was put back start again; by itself Slurm lets two minutes pass.

        Not at once: Slurm takes the late end of its first start for one of the next (22.05).
        """
        time.sleep(3.0)
        self.call("scontrol", "update", f"JobId={job}", "StartTime=now")

    def wait_until_idle(self, seconds: float = 30) -> None:
        """Wait until no job is left on any node."""
        deadline = time.monotonic() + seconds
        while self.call("squeue", "-h", check=False).strip() and time.monotonic() < deadline:
            time.sleep(0.1)

    # ------------------------------------------------------------------------------------------- daemons

    def start_daemon(self, name: str) -> None:
        """Start ``slurmctld`` or ``slurmd.nI`` (again)."""
        program, _, node = name.partition(".")
        argv = [program, "-D", *(["-N", node] if node else [])]
        if program == "munged":
            munge = self.folder / "munge"
            argv = [
                *("munged", "--foreground", "--force", "--num-threads=2"),
                *(f"--key-file={munge}/munge.key", f"--socket={munge}/munge.sock"),
                *(
                    f"--pid-file={munge}/munged.pid",
                    f"--log-file={munge}/munged.log",
                    f"--seed-file={munge}/seed",
                ),
            ]
        if program == "mariadbd":
            argv = [
                program,
                "--no-defaults",
                f"--datadir={self.folder}/db",
                f"--socket={self.folder}/db.sock",
            ]
            argv += ["--skip-networking", f"--user={getpass.getuser()}", "--innodb-buffer-pool-size=32M"]
        environment = {
            **self.environment,
            "MYSQL_UNIX_PORT": f"{self.folder}/db.sock",
            "PATH": f"{os.environ['PATH']}:{SBIN}",
        }
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def stop_daemon(self, name: str) -> None:
        """End a daemon as an administrator does."""
        self.daemons[name].terminate()
        self.daemons.pop(name).wait(30)

    def restart_daemon(self, name: str, pause: float = 1.0) -> None:
        """End a daemon, and start it again after a pause."""
        self.stop_daemon(name)
        time.sleep(pause)
        self.start_daemon(name)

    def kill_daemon(self, name: str) -> None:
        """Kill a daemon with SIGKILL."""
        self.daemons[name].kill()
        self.daemons.pop(name).wait()

    def stop(self) -> None:
        """End all jobs, then all daemons, and remove the files."""
        if "slurmctld" in self.daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.call("scancel", "-u", getpass.getuser(), check=False, timeout=10)
                self.wait_until_idle(5)
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()
        self._end_steps()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end_steps(self) -> None:
        """Kill step daemons that lost their slurmd; they name this cluster in their environment."""
        ours = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                # Bytes: a program of another test may have a name that is no UTF-8.
                if (process / "comm").read_bytes().startswith(b"slurmstepd") and ours in (
                    process / "environ"
                ).read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)

    def _write(self) -> None:
        (self.folder / "munge").mkdir(mode=0o755)
        for name in ("ctld", "log"):
            (self.folder / name).mkdir()
        key = self.folder / "munge" / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        host, total = socket.gethostname().partition(".")[0], len(self.nodes)
        ports = _free_ports(total + 2)
        asked = {**(self._write_accounting(host, ports[-1]) if self.accounting else {}), **self.settings}
        text = CONFIGURATION.format(host=host, port=ports[0], user=getpass.getuser(), dir=self.folder)
        lines = [line for line in text.splitlines() if line.partition("=")[0] not in asked]
        text = "\n".join([*lines, *(f"{name}={value}" for name, value in asked.items()), ""])
        gres = "AutoDetect=off\n"
        names = iter(self.nodes)
        for number, shape in enumerate(self.shapes):
            ours = [next(names) for _ in range(shape.count)]
            kind = f"gpu:{shape.gpu_model}" if shape.gpu_model else "gpu"
            for name in ours:
                has = f" Gres={kind}:{shape.gpus}" if shape.gpus else ""
                text += (
                    f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1 + int(name[1:])]}"
                )
                text += f" CPUs={shape.cpus} RealMemory={shape.memory}{has} State=UNKNOWN\n"
                if shape.gpus:
                    of_type = f" Type={shape.gpu_model}" if shape.gpu_model else ""
                    files = ",".join(GPU_FILES[: shape.gpus])
                    gres += f"NodeName={name} Name=gpu{of_type} File={files}\n"
            default = " Default=YES" if number == 0 else ""
            text += (
                f"PartitionName={shape.partition} Nodes={','.join(ours)}{default} MaxTime=INFINITE State=UP\n"
            )
        text += "".join(f"{line}\n" for line in self.declared)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text(gres)
        slurmd = shutil.which("slurmd", path=f"{os.environ['PATH']}:{SBIN}")
        version = subprocess.run([str(slurmd), "-V"], capture_output=True, text=True, check=True).stdout
        old = int(version.split()[-1].split(".")[0]) < 23
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin={'cgroup/v1' if old else 'disabled'}\n")

    def _write_accounting(self, host: str, port: int) -> dict[str, str]:
        """slurmdbd's own configuration; returns what slurm.conf says of it."""
        path, munge = self.folder / "slurmdbd.conf", self.folder / "munge" / "munge.sock"
        path.touch(mode=0o600)
        path.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={munge}\nDbdHost={host}\nDbdAddr=127.0.0.1\nDbdPort={port}\n"
            f"SlurmUser={getpass.getuser()}\nStorageType=accounting_storage/mysql\nStorageHost=localhost\n"
            f"StorageUser=root\nStorageLoc=accounts\nLogFile={self.folder}/log/slurmdbd.log\n"
            f"PidFile={self.folder}/slurmdbd.pid\n"
        )
        return {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(port),
            "AccountingStoragePass": str(munge),
            "AccountingStorageEnforce": "limits,qos",
        }

    def _start_accounting(self) -> None:
        data, user = self.folder / "db", getpass.getuser()
        made = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={user}"]
        made += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(made, check=True, capture_output=True, timeout=280)
        self.start_daemon("mariadbd")
        _until((self.folder / "db.sock").is_socket, "mariadbd does not start")
        self.start_daemon("slurmdbd")
        _until(
            lambda: "Cluster" in self.call("sacctmgr", "show", "cluster", check=False),
            "slurmdbd does not start",
        )
        for words in self.accounting:
            self.call("sacctmgr", "-i", *words.replace("USER", user).split())

    def _start(self) -> None:
        self.start_daemon("munged")
        _until((self.folder / "munge" / "munge.sock").is_socket, "munged does not start")
        if self.accounting:
            self._start_accounting()
        self.start_daemon("slurmctld")
        for node in self.nodes:
            self.start_daemon(f"slurmd.{node}")
        _until(self._ready, f"the nodes do not come up: see {self.folder}/log", 60)

    def _ready(self) -> bool:
        if not self.nodes:
            return "UP" in self.call("scontrol", "ping", check=False)
        idle = self.call("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False)
        return len(set(idle.split())) == len(self.nodes)


def _until(condition: object, what: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now; kept open together so that no two are the same."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
