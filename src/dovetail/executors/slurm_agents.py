"""The agents on an allocation's nodes: one ``srun --overlap`` for all, and one for each that is lost."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from dovetail.errors import ExecutorError, InputError
from dovetail.executors.agents import AgentFolder, Connection, Hello, connect_all, start_agents
from dovetail.executors.environment import visible_devices
from dovetail.executors.slurm_commands import Share, explained, node_facts
from dovetail.executors.slurm_steps import gres_option, unbound
from dovetail.model import Node, Seconds

__all__ = ["SlurmAgents"]

_FAILED = re.compile(r"launch for \S+ failed on node ([^\s:]+):")


class SlurmAgents:
    """Starts agents in the allocation ``job``, whose nodes have these ``shares``, and finds them again.

    ``complaint`` is what was wrong when one could not be started or reached.
    """

    def __init__(
        self,
        job: str,
        shares: Mapping[str, Share],
        files: AgentFolder,
        run: str,
        settings: Mapping[str, str],
        environ: Mapping[str, str],
    ) -> None:
        self.job, self.shares = job, shares
        self.hellos: dict[str, Hello] = {}
        self.complaint = ""
        self._files, self._run, self._settings, self._environ = files, run, settings, environ
        self._token = ""
        self._launchers: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        """A new run: make its token. Raises `ExecutorError`."""
        self._token = self._files.create()

    def start(self, nodes: Sequence[Node], term_grace: Seconds) -> dict[str, Connection]:
        """Start agents and connect to them, as far as that works.

        Raises `ExecutorError` where ``srun`` cannot be called, `InputError` for a node that does not see what
        it needs.
        """
        if not nodes:
            return {}
        names = [node.name for node in nodes]
        facts = {fact.name: fact for fact in node_facts(names)}
        config = {
            "token": self._token,
            "run": self._run,
            "folder": str(self._files.path.parent),
            "term_grace": term_grace,
            "nodes": {n: {"address": facts[n].address, "cpus": self.shares[n].cpus} for n in names},
        }
        launcher = self._launcher(names)
        process, hellos, said = start_agents(launcher, names, config, self._environ, self._files)
        self._launchers.append(process)
        self.complaint = str(explained("srun", said)) if said else "srun: it said nothing"
        # One node that cannot be reached ends the step on all of them: begin again without it.
        failed = {name for name in _FAILED.findall(said) if name in names}
        if not hellos and failed and len(failed) < len(names):
            complaint = self.complaint
            others = self.start([node for node in nodes if node.name not in failed], term_grace)
            self.complaint = complaint
            return others
        connections: dict[str, Connection] = {}
        for name, found in connect_all(hellos, self._token).items():
            if isinstance(found, str):
                self.complaint = f"node {name}: {found}"
                continue
            connections[name] = found
            self.hellos[name] = hellos[name]
        faults = [fault for node in nodes if (fault := self._fault(node, hellos.get(node.name)))]
        if faults:
            for connection in connections.values():
                connection.socket.close()
            raise InputError(faults[0])
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

    def _fault(self, node: Node, hello: Hello | None) -> str | None:
        """What a node does not see that it needs; ``None`` if there is nothing."""
        if hello is None:
            return None
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
