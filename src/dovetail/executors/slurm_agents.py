"""The agents on an allocation's nodes: one ``srun --overlap`` for all, and one for each that is lost."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from dovetail.errors import ExecutorError
from dovetail.executors.agents import (
    AgentFolder,
    Connection,
    Hello,
    allowed_agents,
    connect_all,
    start_agents,
)
from dovetail.executors.environment import visible_devices
from dovetail.executors.slurm_commands import NodeTable, Share, explained
from dovetail.executors.slurm_steps import gres_option, unbound
from dovetail.model import Node, Seconds

_FAILED = re.compile(r"launch for \S+ failed on node ([^\s:]+):")


class SlurmAgents:
    """Starts agents in the allocation ``job``, whose nodes have these ``shares``, and finds them again.

    ``complaint`` is what was wrong when one could not be started or reached, ``unfit`` what a node does not
    see that it needs; both of the last start. ``table`` is what Slurm says of the nodes.
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

    def begin(self) -> None:
        """A new run: make its token. Raises `ExecutorError`."""
        self._token = self._files.create()

    def start(self, nodes: Sequence[Node], term_grace: Seconds, connected: int = 0) -> dict[str, Connection]:
        """Start agents and connect to those that come and see what they need.

        ``connected`` is how many there are already. Raises `ExecutorError` where ``srun`` cannot be called.
        """
        allowed = allowed_agents(connected + len(nodes))
        room = max(0, allowed - connected)
        why = f"the limit of open files (ulimit -Hn) lets us reach {allowed} agents"
        self.unfit, self._whys = "", {node.name: why for node in nodes[room:]}
        nodes = nodes[:room]
        if not nodes:
            return {}
        names = [node.name for node in nodes]
        facts = self.table.facts(self.shares)
        about = self._files.write_nodes({n: (facts[n].address, self.shares[n].cpus) for n in names})
        config = {
            "token": self._token,
            "run": self._run,
            "folder": str(self._files.path.parent),
            "term_grace": term_grace,
            "nodes": str(about),
        }
        launcher = self._launcher(names)
        process, hellos, said = start_agents(launcher, names, config, self._environ, self._files)
        self._launchers.append(process)
        self.complaint = str(explained("srun", said)) if said else "srun: it said nothing"
        # One node that cannot be reached ends the step on all of them: begin again without it.
        failed = {name for name in _FAILED.findall(said) if name in names}
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
            fault = self._fault(by_name[name], hellos[name])
            if fault is not None:
                self._whys[name], self.unfit = fault, self.unfit or fault
                found.socket.close()  # with which its agent ends
                continue
            connections[name] = found
            self.hellos[name] = hellos[name]
        self._files.write(self.job, self.hellos)
        return connections

    def _launcher(self, names: list[str]) -> list[str]:
        """One step for all of them, beside everything else that runs in the allocation."""
        return [
            *("srun", "--overlap", f"--jobid={self.job}", f"--nodelist={','.join(names)}"),
            *(f"--nodes={len(names)}", f"--ntasks={len(names)}", "--ntasks-per-node=1"),
            *gres_option({self.shares[name].gres for name in names}),
            *("--mem=0", *unbound(self._settings), "--mpi=none", "--wait=0", "--kill-on-bad-exit=0"),
            *("--no-kill", "--input=all", "--quiet", "--job-name=dovetail-agent"),
        ]

    def why_not(self, name: str) -> str:
        """Why the last start has brought no agent on this node."""
        return self._whys.get(name, self.complaint)

    def _fault(self, node: Node, hello: Hello) -> str | None:
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

    def reach(self) -> dict[str, Connection]:
        """Agents of an earlier Dovetail that still live. Raises `ExecutorError` while that one lives."""
        job, hellos, lives = self._files.read()
        self._token = self._files.token()
        connections: dict[str, Connection] = {}
        allowed_agents(len(hellos))
        for name, found in ({} if lives else connect_all(hellos, self._token)).items():
            if not isinstance(found, str):
                connections[name] = found
                self.hellos[name] = hellos[name]
        fault = None
        if lives or any(connection.busy for connection in connections.values()):
            fault = f"the Dovetail of run {self._run} still lives"
        elif connections and job != self.job:
            fault = f"jobs of this run still run in allocation {job}: take it up there, or 'scancel {job}'"
        if fault is not None:
            for connection in connections.values():
                connection.socket.close()
            raise ExecutorError(fault)
        return connections

    def reap(self) -> None:
        """Wait for our steps, which are over when their agents are; end those that are not. Blocks."""
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
