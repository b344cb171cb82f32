"""Which nodes a gang takes that starts now: those that others have broken up already (Ravi 2012, III.B).

Policies that plan (`ReadyTimes`) and policies that only start what fits choose by the same rule,
`dovetail.kernels.gangs.choose`: of the nodes that can give their share, those whose other devices are busy
longest, so that whole nodes stay whole; ties go to the lowest index.
"""

from __future__ import annotations

from dovetail.files.arrays import np
from dovetail.interfaces import View
from dovetail.kernels.gangs import compiled_choose
from dovetail.model import Allocation, Request, Seconds, bit_indices
from dovetail.policies.parts.ready_times import ReadyTimes


class GangPlacer:
    """Places gangs on what is free at this instant, by the engine's capacity; pools are shared.

    ``free`` is what the gangs placed so far have left.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.free = view.free()
        self._devices = any(group.node.devices for group in view.cluster.groups)
        self._begun: list[tuple[Allocation, Seconds]] = []
        self._times: ReadyTimes | None = None
        self._used = 0
        for placed in view.running.values() if self._devices else ():
            self._used |= placed.allocation.mask

    def claim(self, request: Request, seconds: Seconds) -> Allocation | None:
        """Take nodes for a gang that is expected to run for so long; ``None`` where it does not fit now.

        Where the nodes that fit are idle, O(distinct states); else O(running jobs + nodes · wanted).
        """
        # Without devices nothing is left of a node but CPUs, which the engine's own rule packs.
        found = self.free.fit(request)
        able = self.free.nodes(request) if found is not None and self._devices else 0
        if able & self._used and able.bit_count() > request.nodes:
            found = self.free.fit(request, within=self._choose(request, able))
        if found is not None:
            self.free.take(found)
            self._used |= found.mask
            self._begun.append((found, self._view.now + seconds))
        return found

    def _choose(self, request: Request, able: int) -> int:
        """The nodes, as a bit mask, of those that are able."""
        times = self._times = self._times or ReadyTimes(self._view)
        for allocation, end in self._begun:
            times.hold_until(allocation, end)
        self._begun.clear()
        at = np.full(len(self._view.cluster), np.inf)
        at[list(bit_indices(able))] = 0.0
        shape = times.shape(request)
        wanted = request.nodes
        chosen, keys = np.empty(wanted, np.int64), np.empty(wanted)
        # From now on, so that an idle device counts nothing, however many a node has.
        compiled_choose(
            times.ready - times.now,
            1,
            int(shape.pool),
            shape.count,
            shape.eligible,
            at,
            0.0,
            wanted,
            chosen,
            keys,
        )
        return sum(1 << int(node) for node in chosen)
