"""Workers of a map on the nodes of a Slurm allocation: a step of its own for each, data through srun.

Slots are per node, as on Ray: ``cpu:14,gpu:2`` are fourteen workers with a CPU each and two with a GPU and a
CPU each, on every node that has so many. Steps overlap what else runs in the allocation, which is not looked
at. The worker itself is `dovetail_slurm.map_worker`.
"""

from __future__ import annotations

import logging
import os
import pickle
import selectors
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from dovetail.errors import DovetailWarning, InputError
from dovetail.mapping.crew import Crew, Event, Finished, Ready, Slot, Unable
from dovetail.mapping.far_workers import FALSE_STARTS, FarWorker
from dovetail.mapping.places import Place, Wanted
from dovetail.mapping.running import Work
from dovetail.model import CPU
from dovetail.model.hostlist import expand_hostlist
from dovetail.process.agent import of_step
from dovetail_slurm.commands import (
    Share,
    SlurmError,
    current_job,
    find_allotment,
    read_configuration,
    run_command,
)
from dovetail_slurm.map_worker import HELLO, LENGTH, frame_of
from dovetail_slurm.steps import gres_option, unbind_settings

_log = logging.getLogger(__name__)
PACKET = 1 << 16
LEAVE_TIME = 5.0
"""Seconds that a step has to end after its worker's input has."""


@dataclass(eq=False, slots=True)
class _Step(FarWorker):
    """The step of one worker."""

    process: subprocess.Popen[bytes] = field(kw_only=True)
    inbox: bytearray = field(default_factory=bytearray)
    number: str = ""  # Slurm's


class SlurmCrew(Crew):
    """Workers in the allocation that we are in.

    ``wanted_workers`` is the workers of each node; by default one for each GPU and one for each CPU left.
    ``address`` is a hostlist of the nodes to use; by default all of the allocation's. Raises `InputError`
    outside of an allocation and for workers that no node has room for, `SlurmError` where Slurm does not
    answer.
    """

    tells_position = False

    def __init__(
        self,
        wanted_workers: Sequence[Wanted] | None,
        kinds: Sequence[str],
        *,
        address: str | None,
        kept: bool,
    ) -> None:
        self.kept, self._kinds = kept, list(kinds)
        self._job = current_job(os.environ)
        found = find_allotment(self._job)
        if not found.is_alive:
            raise InputError(
                f"found allocation {self._job} in state {found.state}, expected one that runs",
                where="executor slurm",
            )
        self._shares = _chosen_nodes(found.shares, address)
        # Where nodes differ no option of srun gives each step all that its node has: we name the devices.
        self._gres = gres_option({share.gres for share in found.shares.values()})
        self._settings = read_configuration(("TaskPlugin",))
        self._environ = {name: value for name, value in os.environ.items() if not of_step(name)}
        self.slots: list[Slot] = []
        self._steps: dict[int, _Step] = {}
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, None)
        self._maps = 0
        self._shipped: Mapping[str, bytes] = {}
        self._work = b""
        self._closed = False
        self._place_workers(wanted_workers)

    def _place_workers(self, wanted_workers: Sequence[Wanted] | None) -> None:
        """A slot for each worker, as far as the nodes have room. Raises `InputError`."""
        short: dict[str, str] = {}
        for node, share in self._shares.items():
            gpus = sum(count for kind, _, count in share.gres if kind == "gpu")
            left = {CPU: share.cpus, "gpu": gpus}
            # GPU workers first, as they need a CPU each too.
            wanted = _default_workers(self._kinds, left) if wanted_workers is None else wanted_workers
            cores = iter(range(share.cpus))
            for some in sorted(wanted, key=lambda some: some.kind == CPU):
                room = min(some.count, left[CPU] // some.cores)
                room = room if some.kind == CPU else min(room, left.get(some.kind, 0))
                left[CPU] -= room * some.cores
                if room < some.count:
                    short.setdefault(
                        some.kind, f"node {node} of the allocation has room for {room} of {some}"
                    )
                for device in range(room):
                    held = tuple(next(cores) for _ in range(some.cores))
                    index = sum(slot.kind == some.kind for slot in self.slots)
                    model = next((m for kind, m, _ in share.gres if kind == some.kind), "")
                    number = device if some.kind != CPU else index
                    place = Place(some.kind, index, held, number, model)
                    self.slots.append(Slot(len(self.slots), place, node))
        here = {slot.kind for slot in self.slots}
        requested = [some.kind for some in wanted_workers] if wanted_workers is not None else self._kinds
        missing = [kind for kind in requested if kind not in here]
        if missing and (wanted_workers is not None or not here):
            raise InputError(
                f"found no node of allocation {self._job} with room for a {' and a '.join(missing)} worker, "
                "expected one (counts are for each node)",
                where="workers",
            )
        for sentence in short.values():
            warnings.warn(
                f"{sentence} beside the others (counts are for each node)", DovetailWarning, stacklevel=1
            )
        for kind in missing:
            warnings.warn(
                f"no node of the allocation has a {kind}: the map has no {kind} worker",
                DovetailWarning,
                stacklevel=1,
            )

    # -- for the scheduler -----------------------------------------------------------------------------

    def begin_map(self, shipped: Mapping[str, bytes], work: Work) -> None:
        """Give all workers their function; starts those that do not run yet."""
        self._maps += 1
        self._shipped = shipped
        try:
            self._work = cloudpickle.dumps(work)
        except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
            raise InputError(f"cannot be sent to a worker: {error}", where="common") from error
        for slot in self.slots:
            step = self._steps.get(slot.number)
            if step is None:
                self._start_step(slot)
            else:
                self._prepare_step(step)

    def send_items(
        self, slot: Slot, order: int, items: Sequence[Any], start: int, *, plain: bool = False
    ) -> None:
        """Give a worker items."""
        packed = cloudpickle.dumps(list(items), protocol=5)
        step = self._steps[slot.number]
        step.orders.append(order)
        self._send(step, ("run", order, start, plain, packed))

    def wait(self, seconds: float | None) -> list[Event]:
        """What has happened."""
        events: list[Event] = []
        deadline = None if seconds is None else time.monotonic() + seconds
        while not events:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            woken = False
            for key, _ in self._selector.select(left):
                if key.data is None:
                    os.eventfd_read(self._wake_fd)
                    woken = True
                else:
                    events += self._read_step(key.data)
            if woken or (deadline is not None and time.monotonic() >= deadline):
                break
        return events

    def end_wait(self) -> None:
        """End a wait."""
        if not self._closed:
            os.eventfd_write(self._wake_fd, 1)

    def item_position(self, slot: Slot) -> int | None:
        """The first, since with a time limit items go one by one."""
        step = self._steps.get(slot.number)
        return 0 if step is not None and step.orders else None

    def kill(self, slot: Slot, reason: str, *, trace: bool = False) -> None:
        """End a busy worker; where it was is not known."""
        step = self._steps.get(slot.number)
        if step is not None:
            step.reason = reason
            self._end_step(step)

    def dismiss_worker(self, slot: Slot) -> None:
        """Let a worker go, and its step with it."""
        self.slots.remove(slot)
        step = self._steps.pop(slot.number, None)
        if step is not None:
            self._forget_step(step)
            self._finish_steps([step])

    def close(self) -> None:
        """End all steps."""
        if self._closed:
            return
        self._closed = True
        steps = list(self._steps.values())
        self._steps.clear()
        self.slots = []
        for step in steps:
            self._forget_step(step)
        self._finish_steps(steps)
        self._selector.close()
        os.close(self._wake_fd)

    # -- steps -----------------------------------------------------------------------------------------

    def _start_step(self, slot: Slot, false_starts: int = 0) -> None:
        """Start a worker; what is sent meanwhile waits in its pipe."""
        share = self._shares[slot.node]
        command = [
            *(
                "srun",
                "--overlap",
                f"--jobid={self._job}",
                f"--nodelist={slot.node}",
                "--nodes=1",
                "--ntasks=1",
            ),
            *(f"--cpus-per-task={share.cpus}", *self._gres, "--mem=0"),
            *(*unbind_settings(self._settings), "--mpi=none", "--unbuffered", "--quiet"),
            *("--job-name=dovetail-map", sys.executable, "-m", "dovetail_slurm.map_worker"),
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environ,
            # A session of its own: Ctrl-C reaches this process alone, which ends steps in good order.
            start_new_session=True,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        step = self._steps[slot.number] = _Step(slot, false_starts=false_starts, process=process)
        self._selector.register(process.stdout, selectors.EVENT_READ, step)
        self._send(step, ("setup", slot.place, self._kinds, share.cpus, sys.path))
        if self._maps:
            self._prepare_step(step)

    def _prepare_step(self, step: _Step) -> None:
        shipped = step.begin_map(self._shipped)
        if shipped is not None:
            self._send(step, ("map", self._maps, shipped, self._work))

    def _send(self, step: _Step, message: tuple[Any, ...]) -> None:
        assert step.process.stdin is not None
        with suppress(OSError):  # its step is over, which its output shows
            step.process.stdin.write(frame_of(message))
            step.process.stdin.flush()

    def _read_step(self, step: _Step) -> list[Event]:
        assert step.process.stdout is not None
        data = step.process.stdout.read(PACKET)
        if data == b"":
            return self._replace_step(step)
        step.inbox += data or b""
        events: list[Event] = []
        while len(step.inbox) >= LENGTH:
            end = LENGTH + int.from_bytes(step.inbox[:LENGTH], "little")
            if len(step.inbox) < end:
                break
            message = pickle.loads(memoryview(step.inbox)[LENGTH:end].tobytes())
            del step.inbox[:end]
            events += self._interpret(step, *message)
        return events

    def _interpret(self, step: _Step, what: str, *about: Any) -> list[Event]:
        if what == HELLO:
            step.number = about[0]
        elif what in ("set", "unable") and about[0] == self._maps:
            step.ready, step.false_starts = what == "set", 0
            return [Ready(step.slot) if step.ready else Unable(step.slot, about[1])]
        elif what == "done" and step.orders and about[0] == step.orders[0]:
            step.orders.popleft()
            return [Finished(step.slot, *about)]
        return []

    def _replace_step(self, step: _Step) -> list[Event]:
        """A step is over: start another in its place."""
        slot = step.slot
        del self._steps[slot.number]
        self._forget_step(step)
        status = step.process.wait()
        events, starts = step.note_loss(f"its step ended with status {status}")
        _log.warning("a step of a map on %s ended with status %d %s", slot.node, status, step.reason)
        if starts < FALSE_STARTS and slot in self.slots:
            slot.warm = False
            self._start_step(slot, starts)
        return events

    def _forget_step(self, step: _Step) -> None:
        """Listen to a step no more; its worker ends with its input."""
        assert step.process.stdin is not None
        assert step.process.stdout is not None
        self._selector.unregister(step.process.stdout)
        with suppress(OSError):
            step.process.stdin.close()
        step.process.stdout.close()

    def _end_step(self, step: _Step) -> None:
        """Kill a step with all that runs in it."""
        if step.number:
            with suppress(SlurmError):  # it is over
                run_command(["scancel", "--signal=KILL", f"{self._job}.{step.number}"])
        else:
            step.process.terminate()

    def _finish_steps(self, steps: Sequence[_Step]) -> None:
        """Wait for steps whose workers have no input any more; kill what stays."""
        until = time.monotonic() + LEAVE_TIME
        for step in steps:
            try:
                step.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._end_step(step)
                step.process.kill()
                step.process.wait()


def _default_workers(kinds: Sequence[str], left: Mapping[str, int]) -> list[Wanted]:
    """One for each GPU, and one for each CPU left."""
    gpus = min(left["gpu"], left[CPU]) if "gpu" in kinds else 0
    cpus = left[CPU] - gpus if CPU in kinds else 0
    return [Wanted(kind, count) for kind, count in (("gpu", gpus), (CPU, cpus)) if count]


def _chosen_nodes(shares: Mapping[str, Share], address: str | None) -> dict[str, Share]:
    """The shares of the nodes that were named. Raises `InputError`."""
    if address is None:
        return dict(shares)
    names = expand_hostlist(address)
    for name in names:
        if name not in shares:
            raise InputError(
                f"found node {name!r}, expected nodes of the allocation: {', '.join(shares)}", where="address"
            )
    return {name: shares[name] for name in names}
