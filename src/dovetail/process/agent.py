"""The supervisor of one node of a cluster: reached over TCP, by clients that know the run's token.

Started on every node as ``python -I -S agent.py`` with one line of JSON on standard input: the token, the
run's folder, and the file in it that lists what was allotted of each node. It answers with one line on
standard output, its *hello* (address, port, what it sees of the node), and from then on it is the
supervisor of `dovetail.process.supervisor`: same requests, same spawn log (``agents/NODE.log`` in the run
folder; in the node's own temporary folder where that cannot be written), and jobs that go on when Dovetail
is gone.

A client proves that it knows the token, and so does the agent, before any other message; the
token itself is never sent. Nothing is encrypted. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

# Run by path, as the supervisor.
if not __package__:
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))

from dovetail.process import supervisor
from dovetail.process.agent_log import end_strays, open_log, read_records, take_lock
from dovetail.process.cgroups import Groups
from dovetail.process.channel import Handshake, become_subreaper, bracket_host, keep_alive, nonce_of
from dovetail.process.children import Child, Setup, encode_variables
from dovetail.process.processes import boot_id, signal_group, start_ticks
from dovetail.process.starting import SpawnError

PATIENCE = 120.0
"""Seconds that the first client may take to come."""
PROOF_TIME = 5.0
"""Seconds that one who connects has to show that it knows the token."""
KEPT_ALIVE = 10, 5
"""Seconds of silence, and between probes: that a machine is gone is noticed within half a minute."""
MOST_STRANGERS = 16
LONGEST = 4096
TERM_NOTICE = 0.2
"""Seconds within which a job and its agent get the same SIGTERM, when the node's owner wants it back."""
ENDINGS = tuple(status for end in (signal.SIGTERM, signal.SIGKILL) for status in (end, (128 + end) << 8))
"""Wait statuses of processes that were ended from outside, and of shells whose command was."""
COMPANION_GRACE = 5.0
"""Seconds that our companion has to end on SIGTERM."""
MOST_SAID = 1 << 16
VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
STEP_VARIABLES = (
    "SLURM_STEP",
    "SLURM_SRUN_",
    "SLURM_LAUNCH_",
    "SLURM_TASK",
    "SLURM_NTASKS",
    "SLURM_CPU_BIND",
    "SLURM_MEM_",
    "SLURM_DISTRIBUTION",
    "SLURM_GPUS",
    "SLURM_TOPOLOGY",
    "SLURM_CPUS_PER_TASK",
    "PMI_",
    "PMIX_",
)
"""Variables that describe a step to its task. The agent's jobs are no tasks of it, and must not see them."""
STEP_NAMES = frozenset(
    {
        *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_NPROCS"),
        *("SLURM_PRIO_PROCESS", "SLURM_UMASK", "SLURM_OVERCOMMIT", "SLURM_EXACT", "SLURM_NNODES"),
    }
)


class Agent(supervisor.Supervisor):
    """A supervisor without a client of its own: it waits for one at a TCP port."""

    beside = False

    def __init__(self, config: dict[str, Any], node: str, cpus: int, log: int, door: socket.socket) -> None:
        super().__init__(-1, log, time.time() - time.monotonic(), door)
        self.client = False
        self.token: str = config["token"]
        self.term_grace: float = config["term_grace"]
        self.node = node
        self.strangers: dict[int, UnverifiedPeer] = {}
        self.expected_until = time.monotonic() + PATIENCE
        self.evicted = False
        self.companions: dict[str, Companion] = {}  # by uid; more than one only while the one before ends
        self.secret = ""  # a file that its clients need
        self.host: str = door.getsockname()[0]
        self.doubtful: list[tuple[float, Child]] = []
        self.bound = bound_cores(cpus)

    def find_groups(self, run: str) -> Groups:
        """None: Slurm keeps its own cgroups of the step that we are in."""
        return Groups("")

    # --- the loop ---------------------------------------------------------------------------------

    def is_needed(self) -> bool:
        """Also while the first client is expected; not for one whose node is taken away."""
        if self.children or self.lingering or self.doubtful:
            return True
        if self.evicted:
            return False
        return (self.client and not self.closing) or time.monotonic() < self.expected_until

    def timeout(self) -> float | None:
        """Milliseconds until something is due."""
        due = [stranger.until for stranger in self.strangers.values()]
        due += [when for when, _ in self.doubtful]
        if not self.client and not self.children:
            due.append(self.expected_until)
        own = super().timeout()
        if not due:
            return own
        ours = max(0.0, (min(due) - time.monotonic()) * 1e3) + 1
        return ours if own is None else min(own, ours)

    def deadlines(self) -> None:
        """Deadlines of the jobs; of clients that connected and prove nothing; of doubtful ends."""
        if self.terminated:
            # Reported before the jobs are stopped: the client must know why when their ends come.
            self.evicted = True
            self.terminated = False
            self.tell(b'{"t":"evicted"}')
            for child in self.children.values():
                self.stop(child, "NODE_FAIL", self.term_grace)
        super().deadlines()
        now = time.monotonic()
        for fd in [fd for fd, stranger in self.strangers.items() if stranger.until <= now]:
            self.dismiss_stranger(fd)
        settled = [child for when, child in self.doubtful if when <= now or self.evicted]
        if settled:
            self.doubtful = [(when, child) for when, child in self.doubtful if child not in settled]
            for child in settled:
                self.conclude_child(child)

    def finish(self, child: Child) -> None:
        """One that was ended by a signal that is not ours may have got it with us: wait a moment."""
        companion = self.companions.pop(child.uid, None)
        if companion is not None:
            self.note_companion_end(child, companion)
        # srun passes SIGTERM to the job and to us in any order: a moment later it is known whose end it was.
        elif not self.evicted and child.reason is None and child.status in ENDINGS:
            self.doubtful.append((time.monotonic() + TERM_NOTICE, child))
        else:
            self.conclude_child(child)

    def conclude_child(self, child: Child) -> None:
        """Report how it ended; of one that went with its node, report that."""
        if self.evicted and child.reason is None and child.status in ENDINGS:
            child.reason = "NODE_FAIL"
        if child.reason == "NODE_FAIL" and not child.why:
            child.more["why"] = "the node was taken away while it ran"
        super().finish(child)

    # --- clients ----------------------------------------------------------------------------------

    def accept_client(self, door: socket.socket) -> None:
        """Demand a proof from a new client."""
        try:
            found, _ = door.accept()
        except OSError:
            return
        found.setblocking(False)
        # Strangers cost a descriptor each, and any machine of the network can connect.
        if len(self.strangers) >= MOST_STRANGERS:
            found.close()
            return
        handshake = Handshake(self.token.encode(), "agent")
        stranger = UnverifiedPeer(found, handshake, time.monotonic() + PROOF_TIME)
        self.strangers[found.fileno()] = stranger
        self.poll.register(found, select.POLLIN)
        challenge = {"t": "challenge", "nonce": handshake.nonce.hex()}
        with contextlib.suppress(OSError):
            found.send(supervisor.ENCODE(challenge).encode() + b"\n")

    def read_descriptor(self, fd: int) -> None:
        """The answer of a new client; what our companion writes."""
        for companion in self.companions.values():
            if fd == companion.out:
                self.hear_companion(companion)
                return
        stranger = self.strangers.get(fd)
        if stranger is None:
            return
        try:
            data = stranger.socket.recv(LONGEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        stranger.received += data
        if not data or len(stranger.received) > LONGEST:
            self.dismiss_stranger(fd)
        elif b"\n" in stranger.received:
            self.judge(fd, stranger)

    def judge(self, fd: int, stranger: UnverifiedPeer) -> None:
        """Let in a client that knows the token, if there is none already."""
        try:
            answer = json.loads(stranger.received)
            nonce, mac_offered = nonce_of(answer["nonce"]), answer["mac"]
        except (ValueError, KeyError, TypeError):
            self.dismiss_stranger(fd)
            return
        # Before anything that the client sent is carried out.
        if not stranger.handshake.is_proven("client", nonce, mac_offered):
            self.dismiss_stranger(fd)
            return
        self.poll.unregister(fd)
        del self.strangers[fd]
        mac = stranger.handshake.make_proof(nonce)
        if self.client or self.closing or self.evicted:
            with contextlib.suppress(OSError):
                # With our proof: a client must not take a stranger's "busy" for its run's.
                stranger.socket.send(supervisor.ENCODE({"t": "busy", "mac": mac}).encode() + b"\n")
            stranger.socket.close()
            return
        keep_alive(stranger.socket, *KEPT_ALIVE)
        self.expected_until = 0.0
        self.welcome_client(stranger.socket, {"t": "welcome", "mac": mac})

    def dismiss_stranger(self, fd: int) -> None:
        """Close the connection of one who did not answer as it should."""
        self.poll.unregister(fd)
        self.strangers.pop(fd).socket.close()

    def receive_requests(self) -> None:
        """Take in the client's requests; where it is gone, lending ends."""
        super().receive_requests()
        if not self.client:
            self.end_companions()
        if not self.client and self.secret:
            with contextlib.suppress(OSError):  # another node's agent was faster
                os.unlink(self.secret)
            self.secret = ""

    def leave(self) -> None:
        """No new client can come, and none stays."""
        for fd in list(self.strangers):
            self.dismiss_stranger(fd)
        if self.door is not None:
            self.door.close()

    # --- requests ---------------------------------------------------------------------------------

    def carry_out(self, request: dict[str, Any], line: bytes) -> None:
        """Cores are numbers of the allotment here; the log can be had, for one who takes over."""
        if request["t"] == "log":
            written = os.pread(self.log.fd, os.fstat(self.log.fd).st_size, 0) + self.log.owed
            lines = [line for line in written.split(b"\n") if line]
            self.tell(b"\n".join([supervisor.ENCODE({"t": "log", "lines": len(lines)}).encode(), *lines]))
            return
        if request["t"] == "companion":
            self.start_companion(request)
            return
        if request["t"] == "intent" and self.evicted:
            # The client learns from the event that the node is gone.
            return
        if request["t"] == "setup":
            # Requests number the cores of the allotment, which are other cores on each node.
            ours = [self.bound[core] for core in request["cores"]] if self.bound else []
            # What describes the job, and not the step that we are.
            given = request["env"]
            setup = Setup.of({**request, "cores": ours}, self.environs)
            for name in map(os.fsdecode, list(setup.environ)):
                if of_step(name) and name not in given:
                    del setup.environ[os.fsencode(name)]
            self.setups[request["setup"]] = setup
            self.log.write(line)
            return
        super().carry_out(request, line)

    # --- the node's device server -------------------------------------------------------------------

    def start_companion(self, request: dict[str, Any]) -> None:
        """Start our companion, in the place of one that is there: its client is another one's.

        It is a child as jobs are, but for the spawn log, which has no line of it.
        """
        self.end_companions(at_once=True)
        self.secret = request["secret"]
        self.groups = self.groups or self.find_groups("")
        uid = f"companion/{request['id']}"
        words = [word.replace("{host}", bracket_host(self.host)) for word in request["argv"]]
        files = {"files": [os.devnull, request["complaints"]], "chosen": True}
        job = {"job": "companion", "uid": uid, "argv": words, **files}
        environ = {name: value for name, value in os.environb.items() if not of_step(os.fsdecode(name))}
        environ |= encode_variables({**request["env"], "DOVETAIL_STARTED_BY": str(os.getpid())})
        setup = Setup(environ, os.defpath, [], "/", COMPANION_GRACE)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            os.close(os.open(request["complaints"], flags, 0o600))
            with contextlib.ExitStack() as undo, contextlib.ExitStack() as after:
                out, theirs = os.pipe2(os.O_CLOEXEC)
                undo.callback(os.close, out)
                after.callback(os.close, theirs)
                after.callback(self.starter.inherited.clear)
                self.starter.inherited[1] = theirs
                pid, _ = self.starter.spawn_job(job, setup, self.groups)
                undo.pop_all()
        except (OSError, SpawnError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self.tell_companion(request["id"], over=True, note=f"it cannot be started: {why}")
            return
        os.set_blocking(out, False)
        self.children[pid] = Child(uid, pid, self.now(), COMPANION_GRACE)
        self.pids[uid], self.companions[uid] = pid, Companion(request["id"], request["complaints"], out)
        self.poll.register(out, select.POLLIN)

    def report_lack(self, uid: str, why: str, *, noted: bool) -> None:
        """Its client starts nothing again by itself: the job ends, and is started again if it has retries."""
        self.report_never_started(uid, self.now(), why, noted=noted)

    def end_companions(self, *, at_once: bool = False) -> None:
        """Have them end."""
        for child in [child for child in self.children.values() if child.uid in self.companions]:
            # What it holds of a device is wanted.
            if at_once:
                signal_group(child.pid, signal.SIGKILL)
            else:
                self.stop(child, "CANCELLED", None)

    def hear_companion(self, companion: Companion) -> None:
        """It is ready, or has closed its end: then its own end follows."""
        try:
            data = os.read(companion.out, MOST_SAID)
        except BlockingIOError:
            return
        companion.received += data
        line, ready, _ = companion.received.partition(b"\n")
        if ready or not data:
            self.poll.unregister(companion.out)
            companion.announced = True
        if ready:
            self.tell_companion(companion.id, over=False, note=line.decode(errors="replace"))

    def note_companion_end(self, child: Child, companion: Companion) -> None:
        """A companion has ended, and all that it had started: report its complaint."""
        self.examine_ended(child, lambda: self.kill_strays(child))
        if not companion.announced:
            self.poll.unregister(companion.out)
        os.close(companion.out)
        note = companion.last_complaint() or f"it ended (status {os.waitstatus_to_exitcode(child.status)})"
        self.tell_companion(companion.id, over=True, note=note)

    def tell_companion(self, id: str, *, over: bool, note: str) -> None:
        """Report to the client that the companion of this id is ready, or that it is over."""
        message = {"t": "companion", "id": id, "over": over, "said": note}
        self.tell(supervisor.ENCODE(message).encode())


class Companion:
    """A process beside the jobs while a Dovetail is there: the node's device server.

    It writes one line on standard output (``out``) when it is ready. It ends with its agent's client, so that
    nothing that was lent outlives the Dovetail that lends it, and (by its own doing) with its agent.
    """

    def __init__(self, id: str, complaints: str, out: int) -> None:
        self.id, self.complaints, self.out = id, complaints, out
        self.received, self.announced = b"", False  # so far; whether that is all

    def last_complaint(self) -> str:
        """What it has complained of last."""
        try:
            with open(self.complaints, "rb") as file:
                return file.read(MOST_SAID).decode(errors="replace").strip()[-1000:]
        except OSError as error:
            return f"its complaint cannot be read: {error.strerror}"


class UnverifiedPeer:
    """One who has connected and not yet shown that it knows the token."""

    def __init__(self, found: socket.socket, handshake: Handshake, until: float) -> None:
        self.socket, self.handshake, self.until, self.received = found, handshake, until, b""


def of_step(name: str) -> bool:
    """Whether a variable belongs to the description of a Slurm step's task."""
    return name in STEP_NAMES or name.startswith(STEP_VARIABLES)


def bound_cores(cpus: int) -> list[int]:
    """The cores that were given to us, if we were bound to as many as were allotted; else none are known."""
    usable = sorted(os.sched_getaffinity(0))
    return usable if len(usable) == cpus else []


def allotted_cpus(path: str, node: str) -> tuple[str, int]:
    """The node's address and how many of its CPUs are ours: a line ``NAME ADDRESS CPUS`` of a file.

    Without a view of the run folder it is known by its name alone; its client will report what is wrong.
    """
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, address, cpus = line.split()
                if name == node:
                    return address, int(cpus)
    except OSError:
        pass
    return socket.gethostname(), 0


def open_port(address: str) -> socket.socket:
    """Listen at the node's own address; at every address where that is not one of this machine's."""
    for host in (address, "0.0.0.0"):
        try:
            family, kind, number, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
            door = socket.socket(family, kind, number)
            door.bind(where)
        except OSError:
            continue
        door.listen(16)
        door.setblocking(False)
        return door
    raise SystemExit(f"no port can be opened at {address}")


def main() -> None:
    """Read the configuration, send the hello, serve."""
    config = json.loads(sys.stdin.readline())
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    address, cpus = allotted_cpus(config["nodes"], node)
    log, path = open_log(config["folder"], node, config["run"])
    take_lock(log)
    become_subreaper()
    door = open_port(address)
    agent = Agent(config, node, cpus, log, door)
    end_strays(agent.log, read_records(log), agent.now())
    pid = os.getpid()
    here = {"pid": pid, "began": start_ticks(pid), "host": socket.gethostname(), "boot_id": boot_id()}
    agent.write_record(
        {"t": "run", "version": 1, "run": config["run"], "time": time.time(), "node": node, **here}
    )
    hello = {
        "t": "hello",
        "node": node,
        "address": address,
        "port": door.getsockname()[1],
        "log": path,
        "folder": os.path.isdir(config["folder"]),
        "bound": bool(agent.bound),
        "visible": {name: os.environ[name] for name in VISIBLE if name in os.environ},
        **here,
    }
    # The starter reads the hello and nothing after it: what we wrote later would end us by SIGPIPE.
    os.write(1, supervisor.ENCODE(hello).encode() + b"\n")
    for fd in (0, 1, 2):
        os.dup2(agent.starter.null, fd)
    agent.run()


if __name__ == "__main__":
    main()
