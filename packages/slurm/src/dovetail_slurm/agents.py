"""The agents of a run: how they are started, reached, and found again by the next Dovetail.

One ``srun --overlap`` starts all of them, and another one each that is lost later.

``agents/token`` in the run folder (0600) is what both sides prove to know, ``agents/agents.json`` has
where each agent is, ``agents/NODE.log`` is its spawn log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import secrets
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from dovetail.errors import ExecutorError
from dovetail.files.writing import private_folder, replace_file
from dovetail.model import Node, Seconds
from dovetail.model.hostlist import expand_hostlist
from dovetail.process import agent
from dovetail.process.agent import KEPT_ALIVE
from dovetail.process.channel import Handshake, keep_alive, nonce_of
from dovetail.process.environment import visible_devices
from dovetail.process.notes import private_file, refuse_errors, write_private
from dovetail.process.processes import boot_id, started_at
from dovetail.process.spawn_log import SpawnLog, parse_log, read_log
from dovetail.records import dataclass
from dovetail_slurm.commands import NodeTable, Share, SlurmError, explain_refusal, read_rows
from dovetail_slurm.steps import gres_option, unbind_settings

_GONE = "Requested node configuration is not available"
"""What srun writes where a node that it is to use has left the allocation."""
_FAILED = re.compile(r"launch for \S+ failed on node ([^\s:]+):")
SCRIPT = Path(agent.__file__)
PATIENCE = 60.0
"""Seconds that agents may take to connect."""
LULL = 10.0
"""Seconds without another hello after which those that are missing are waited for no more."""
SPARE_FILES = 256
"""Descriptors that we like to have beside one for each agent."""
LEAST_FILES = 64
"""Descriptors that we cannot do without."""
AT_ONCE = 32
"""Agents that are being connected to at the same time."""
REACHED = 10.0
"""Seconds that an agent may take to answer."""


@dataclass(frozen=True, slots=True)
class Hello:
    """An agent's first message: where it listens, and what it sees of its node."""

    node: str
    address: str
    port: int
    log: str
    folder: bool
    bound: bool
    visible: Mapping[str, str]
    host: str
    boot_id: str
    pid: int
    began: int


class AgentFolder:
    """What a run keeps of its agents, for itself and for the next Dovetail."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "agents"
        self.lent = self.path / "devices.token"  # what programs that borrow devices have to know

    def create(self) -> str:
        """Make the folder with a new token. Raises `ExecutorError`."""
        with refuse_errors(self.path):
            try:
                private_folder(self.path)
                return _new_token(self.path / "token")
            except FileExistsError:
                raise ExecutorError(f"{self.path}: found the agents of another run") from None

    def make_lending_token(self) -> str:
        """A new token for device servers, in the place of one that a killed Dovetail left.

        Raises `ExecutorError`.
        """
        with refuse_errors(self.lent):
            self.lent.unlink(missing_ok=True)
            return _new_token(self.lent)

    def read_token(self) -> str:
        """The run's token. Raises `ExecutorError`."""
        with refuse_errors(self.path / "token", "read"):
            return (self.path / "token").read_text()

    def write(self, job: str, hellos: Mapping[str, Hello]) -> None:
        """Note where the agents are, and who we are. Raises `ExecutorError`."""
        pid = os.getpid()
        client = {"host": socket.gethostname(), "boot_id": boot_id(), "pid": pid, "boot": started_at(pid)}
        data = {"version": 1, "job": job, "client": client, "agents": [asdict(h) for h in hellos.values()]}
        with refuse_errors(self.path / "agents.json"):
            replace_file(self.path / "agents.json", json.dumps(data))

    def read(self) -> tuple[str, dict[str, Hello], bool]:
        """The allocation, where its agents are, and whether the Dovetail that started them lives here."""
        path = self.path / "agents.json"
        try:
            data: Any = json.loads(path.read_text())
            client = data["client"]
            start = started_at(client["pid"]) if client["boot_id"] == boot_id() else None
            lives = start is not None and start == client["boot"]
            return data["job"], {one["node"]: Hello(**one) for one in data["agents"]}, lives
        except FileNotFoundError:
            return "", {}, False
        except OSError as error:
            raise ExecutorError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ExecutorError(f"{path}: is damaged: {type(error).__name__} {error}") from error

    def write_nodes(self, shares: Mapping[str, tuple[str, int]]) -> Path:
        """Each node's address and number of CPUs, where its agent reads it; a file of a new name.

        An agent that read one that has been replaced could see the old one (NFS). Raises `ExecutorError`.
        """
        path = self.path / f"nodes-{time.time_ns()}"
        with refuse_errors(path):
            for old in self.path.glob("nodes-*"):
                old.unlink()
        lines = (f"{name} {address} {cpus}\n" for name, (address, cpus) in shares.items())
        write_private(path, "".join(lines).encode(), os.O_EXCL)
        return path

    def copy_of(self, hello: Hello) -> IO[bytes] | None:
        """Where to note what the agent is to do, if its log is not here. Raises `ExecutorError`."""
        if Path(hello.log).parent == self.path:
            return None
        path = self.path / f"{hello.node}.log"
        with refuse_errors(path):
            return os.fdopen(private_file(path, os.O_APPEND), "ab", buffering=0)

    def read_log(self, node: str) -> SpawnLog:
        """The spawn log of a node whose agent is gone. Raises `ExecutorError`."""
        with refuse_errors(self.path / f"{node}.log", "read"):
            return read_log(self.path / f"{node}.log")

    def nodes(self) -> list[str]:
        """Nodes that have a spawn log here."""
        return sorted(path.stem for path in self.path.glob("*.log"))


def _new_token(path: Path) -> str:
    """Raises `OSError`."""
    token = secrets.token_hex(32)
    with os.fdopen(private_file(path, os.O_EXCL), "w") as file:
        file.write(token)
    return token


class SlurmAgents:
    """Starts agents in the allocation ``job``, whose nodes have these ``shares``, and finds them again.

    ``complaint`` is what was wrong when one could not be started or reached, ``unfit`` what a node does not
    see that it needs; both of the last start. ``table`` is Slurm's table of the nodes.
    """

    def __init__(
        self,
        job: str,
        shares: Mapping[str, Share],
        files: AgentFolder,
        run: str,
        settings: Mapping[str, str],
        environ: Mapping[str, str],
        table: NodeTable,
    ) -> None:
        self.job, self.shares = job, shares
        self.hellos: dict[str, Hello] = {}
        self.complaint = ""
        self.unfit = ""
        self.table = table
        self._files, self._run, self._settings, self._environ = files, run, settings, environ
        self._token = ""
        self._whys: dict[str, str] = {}  # why there is no agent, of nodes of which more is known
        self._launchers: list[subprocess.Popen[bytes]] = []

    def begin_run(self) -> None:
        """A new run: make its token. Raises `ExecutorError`."""
        self._token = self._files.create()

    def start(self, nodes: Sequence[Node], term_grace: Seconds, connected: int = 0) -> dict[str, Connection]:
        """Start agents and connect to those that come and see what they need.

        ``connected`` is how many there are already. Raises `ExecutorError` where ``srun`` cannot be called.
        """
        # Each agent takes a descriptor: beyond the limit further nodes wait for another start.
        allowed = allowed_agents(connected + len(nodes))
        room = max(0, allowed - connected)
        why = f"the limit of open files (ulimit -Hn) lets us reach {allowed} agents"
        self.unfit, self._whys = "", {node.name: why for node in nodes[room:]}
        nodes = nodes[:room]
        if not nodes:
            return {}
        names = [node.name for node in nodes]
        facts = self.table.node_facts(self.shares)
        about = self._files.write_nodes({n: (facts[n].address, self.shares[n].cpus) for n in names})
        config = {
            "token": self._token,
            "run": self._run,
            "folder": str(self._files.path.parent),
            "term_grace": term_grace,
            "nodes": str(about),
        }
        # A file of its own for each start, since several may be under way.
        complaints = self._files.path / f"start-{time.time_ns()}.err"
        process = _start_agents(self._launcher_command(names), config, self._environ, complaints)
        self._launchers.append(process)
        hellos, text = _receive_hellos(process, set(names)), complaints.read_text(errors="replace")
        if not text:
            complaints.unlink()
        self.complaint = str(explain_refusal("srun", text)) if text else "srun: it gave no reason"
        # One node that cannot be reached ends the step on all of them: begin again without it.
        failed = {name for name in _FAILED.findall(text) if name in names}
        if not hellos and _GONE in text:
            failed |= set(names) - self._nodes_left()
        if not hellos and failed and len(failed) < len(names):
            complaint = self.complaint
            others = self.start([node for node in nodes if node.name not in failed], term_grace, connected)
            self.complaint = complaint
            return others
        connections: dict[str, Connection] = {}
        by_name = {node.name: node for node in nodes}
        for name, found in connect_all(hellos, self._token).items():
            if isinstance(found, str):
                self._whys[name] = self.complaint = f"node {name}: {found}"
                continue
            fault = self._node_fault(by_name[name], hellos[name])
            if fault is not None:
                self._whys[name], self.unfit = fault, self.unfit or fault
                # An agent without its server ends: nothing is left on a node that does not fit.
                found.socket.close()  # with which its agent ends
                continue
            connections[name] = found
            self.hellos[name] = hellos[name]
        self._files.write(self.job, self.hellos)
        return connections

    def _nodes_left(self) -> set[str]:
        """The nodes that the allocation has by now: Slurm takes one that is down out of it for good."""
        found: set[str] = set()
        with contextlib.suppress(SlurmError):
            for (names,) in read_rows(["squeue", "-h", f"--jobs={self.job}", "--format=%N"], 1):
                found |= set(expand_hostlist(names.strip()))
        return found

    def _launcher_command(self, names: list[str]) -> list[str]:
        """One step for all of them, beside everything else that runs in the allocation."""
        return [
            *("srun", "--overlap", f"--jobid={self.job}", f"--nodelist={','.join(names)}"),
            *(f"--nodes={len(names)}", f"--ntasks={len(names)}", "--ntasks-per-node=1"),
            *gres_option({self.shares[name].gres for name in names}),
            *("--mem=0", *unbind_settings(self._settings), "--mpi=none", "--wait=0", "--kill-on-bad-exit=0"),
            # --wait=0 and --no-kill: an agent that ends, or its node, must not take the others along.
            *("--no-kill", "--input=all", "--quiet", "--job-name=dovetail-agent"),
        ]

    def why_not(self, name: str) -> str:
        """Why the last start has brought no agent on this node."""
        return self._whys.get(name, self.complaint)

    def _node_fault(self, node: Node, hello: Hello) -> str | None:
        """What a node does not see that it needs; ``None`` if there is nothing."""
        if not hello.folder:
            return (
                f"node {node.name} does not see the run folder {self._files.path.parent}: name one on a file "
                "system that all nodes share (--run-dir FOLDER)"
            )
        for variable, count in visible_devices(node).items():
            seen = [word for word in hello.visible.get(variable, "").split(",") if word]
            if len(seen) < count:
                return (
                    f"node {node.name} sees {len(seen)} devices in {variable}, expected {count} as allotted: "
                    f"begin the allocation with --gres=gpu:{count}"
                )
        return None

    def reach_agents(self) -> dict[str, Connection]:
        """Agents of an earlier Dovetail that still live. Raises `ExecutorError` while that one lives."""
        job, hellos, lives = self._files.read()
        self._token = self._files.read_token()
        connections: dict[str, Connection] = {}
        allowed_agents(len(hellos))
        # While the other Dovetail lives its agents are its own: they are not even called.
        for name, found in ({} if lives else connect_all(hellos, self._token)).items():
            if not isinstance(found, str):
                connections[name] = found
                self.hellos[name] = hellos[name]
        fault = None
        # Busy: it holds a connection to a Dovetail that still answers.
        if lives or any(connection.busy for connection in connections.values()):
            fault = f"the Dovetail of run {self._run} still lives"
        elif connections and job != self.job:
            fault = f"jobs of this run still run in allocation {job}: take it up there, or 'scancel {job}'"
        if fault is not None:
            for connection in connections.values():
                connection.socket.close()
            raise ExecutorError(fault)
        return connections

    def reap_steps(self) -> None:
        """Wait for our steps, which are over when their agents are; end those that are not. Blocks."""
        # Gently first: srun brings its agents to an end, which end their jobs in good order.
        for launcher in self._launchers:
            for end in (launcher.terminate, launcher.kill):
                try:
                    launcher.wait(5.0)
                    break
                except subprocess.TimeoutExpired:
                    end()
            launcher.wait()
            if launcher.stdout is not None:
                launcher.stdout.close()


# --------------------------------------------------------------------------------------------- starting


def _start_agents(
    launcher: Sequence[str], config: Mapping[str, Any], environ: Mapping[str, str], complaints: Path
) -> subprocess.Popen[bytes]:
    """Start agents, each with its ``config``. Raises `ExecutorError` where that cannot be done.

    ``launcher`` starts its arguments on every node, gives them its standard input, and brings back what
    they print.
    """
    # O_EXCL: the name is guessable, and the file must be ours.
    with os.fdopen(private_file(complaints, os.O_EXCL), "wb") as errors:
        try:
            process = subprocess.Popen(
                [*launcher, sys.executable, "-I", "-S", "-X", "utf8", str(SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Not in the run folder, or a busy file system could not be unmounted below the agent.
                cwd="/",
                env=dict(environ),
                # Its own session: Ctrl-C must reach us alone, who end the jobs.
                start_new_session=True,
            )
        except OSError as error:
            raise ExecutorError(f"{launcher[0]} cannot be started: {error.strerror}") from error
    assert process.stdin is not None
    # The configuration holds the token, so it goes over the pipe and not into the arguments.
    with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(json.dumps(config).encode() + b"\n")
    return process


def allowed_agents(count: int) -> int:
    """How many of so many agents we may be connected to, each of which takes a descriptor.

    Raises the soft limit of open files for them, as far as the hard one lets us.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    # The rest is for files, sockets and children of ours.
    return count if soft == resource.RLIM_INFINITY else max(1, min(count, soft - LEAST_FILES))


def _receive_hellos(process: subprocess.Popen[bytes], missing: set[str]) -> dict[str, Hello]:
    """The hellos of these nodes, as far as they come in time."""
    assert process.stdout is not None
    hellos: dict[str, Hello] = {}
    deadline = time.monotonic() + PATIENCE
    inbox = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while missing and (left := deadline - time.monotonic()) > 0:
            # After the first one the others come soon: a node that is silent for so long is missing.
            if not selector.select(min(left, LULL) if hellos else left):
                break
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                break
            *lines, inbox = (inbox + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    text = json.loads(line)
                    if text.pop("t") == "hello" and text["node"] in missing:
                        hellos[text["node"]] = Hello(**text)
                        missing.discard(text["node"])
    return hellos


# ------------------------------------------------------------------------------------------- connecting


@dataclass(slots=True)
class Connection:
    """A socket to an agent that has let us in, and what has come from it since; ``busy``: it has not."""

    socket: socket.socket
    unread: bytes
    busy: bool = False

    def next_answer(self, kind: str, seconds: float) -> dict[str, Any]:
        """The next line of this kind; what comes before it stays. Raises `OSError`."""
        before: list[bytes] = []
        self.socket.settimeout(seconds)
        while True:
            line, newline, rest = self.unread.partition(b"\n")
            if not newline:
                self.unread += _receive_bytes(self.socket)
                continue
            self.unread = rest
            message: dict[str, Any] = json.loads(line)
            if message["t"] == kind:
                self.unread = b"\n".join([*before, self.unread])
                return message
            before.append(line)

    def log(self) -> SpawnLog:
        """The agent's spawn log up to now; the first question to it. Raises `OSError`."""
        self.socket.sendall(b'{"t":"log"}\n')
        while True:
            ends, newline, rest = self.unread.partition(b'{"t":"log","lines":')
            count, message, lines = rest.partition(b"}\n")
            if newline and message and lines.count(b"\n") >= int(count):
                parts = lines.split(b"\n")
                self.unread = ends + b"\n".join(parts[int(count) :])
                return parse_log(b"\n".join(parts[: int(count)]))
            self.unread += _receive_bytes(self.socket)


def connect_all(hellos: Mapping[str, Hello], token: str) -> dict[str, Connection | str]:
    """A connection to each agent, so many at a time; or why there is none."""
    with ThreadPoolExecutor(min(AT_ONCE, len(hellos) or 1)) as pool:
        found = pool.map(lambda hello: _connect_agent(hello, token), hellos.values())
        return dict(zip(hellos, found, strict=True))


def _connect_agent(hello: Hello, token: str) -> Connection | str:
    try:
        found = socket.create_connection((hello.address, hello.port), timeout=REACHED)
    except OSError as error:
        return error.strerror or str(error)
    try:
        return _shake_hands(found, token)
    except (OSError, ValueError, KeyError, TypeError) as error:
        found.close()
        return f"it did not answer as an agent of this run does ({error})"


def _shake_hands(found: socket.socket, token: str) -> Connection:
    """Prove to know the token, and see that the other side does."""
    challenge, _ = _next_line(found)
    handshake, theirs = Handshake(token.encode(), "client"), nonce_of(challenge["nonce"])
    answer = {"nonce": handshake.nonce.hex(), "mac": handshake.make_proof(theirs)}
    found.sendall(json.dumps(answer).encode() + b"\n")
    welcome, rest = _next_line(found)
    if not handshake.is_proven("agent", theirs, welcome["mac"]):
        raise ValueError("it does not know the run's token")
    keep_alive(found, *KEPT_ALIVE)
    return Connection(found, rest, busy=welcome["t"] == "busy")


def _next_line(found: socket.socket) -> tuple[Any, bytes]:
    """The content of the next line, and what has come after it."""
    text = b""
    while b"\n" not in text:
        text += _receive_bytes(found)
    line, _, rest = text.partition(b"\n")
    return json.loads(line), rest


def _receive_bytes(found: socket.socket) -> bytes:
    data = found.recv(1 << 16)
    if not data:
        raise ConnectionError("it has closed the connection")
    return data
