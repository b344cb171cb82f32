"""Programs that sweep over their data, add up the contribution of every part, and begin again.

V. Ravi, W. Ma, D. Chiu, G. Agrawal (ICS 2010) call it a generalized reduction; the paper's programs for
several nodes are written so. From the few functions of a `Sweeps` follow all forms of a program: on a core,
on a device, on both at once with a part of the data each, by measured speed, and on several nodes by MPI.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail_lab.apps.interfaces import Array
from dovetail_lab.apps.opencl import OpenCL, round_up

Part = tuple[Array, ...]
Sweep = Callable[[Array, int], Array]
PROBES = 16, 4
"""The speeds of core and device are measured on these parts of the data: a sixteenth and a quarter."""


@dataclass(frozen=True, slots=True)
class Sweeps:
    """One program. The first ``divided`` inputs have an item in each row: these are what is divided.

    ``start`` makes the state from the inputs, ``host`` and ``device`` compute what a part of the items
    contributes in a sweep of that number, ``load`` brings a part to a device once, and ``update`` makes the
    next state from the total and the number of all items. Contributions are added up, or, where they are
    ``joined``, put one after the other.
    """

    start: Callable[..., Array]
    host: Callable[[Array, int, Part], Array]
    load: Callable[[OpenCL, Part], Any]
    device: Callable[[OpenCL, Array, int, Any], Array]
    update: Callable[[Array, Array, int], Array]
    divided: int = 1
    joined: bool = False

    def cpu(self, *inputs: Array, iterations: int = 1, world: Any = None) -> Array:
        """The state after so many sweeps, in NumPy; over the ranks of the communicator ``world``."""
        part = self._part(inputs, world)
        return self._run_sweeps(inputs, iterations, world, lambda state, sweep: self.host(state, sweep, part))

    def opencl(self, device: OpenCL, *inputs: Array, iterations: int = 1, world: Any = None) -> Array:
        """The same with all items on the device, where they stay."""
        there = self.load(device, self._part(inputs, world))
        return self._run_sweeps(
            inputs, iterations, world, lambda state, sweep: self.device(device, state, sweep, there)
        )

    def both(
        self, device: OpenCL, *inputs: Array, iterations: int = 1, world: Any = None
    ) -> tuple[Array, float]:
        """The same with a part of the items on the core and the rest on the device; that part besides."""
        part = self._part(inputs, world)
        items = part[0].shape[0]
        share = self._choose_share(device, self.start(*inputs), part, items)
        cut = min(items - 1, max(1, round(items * share))) if items > 1 else items
        here, there = _part_rows(part, 0, cut), self.load(device, _part_rows(part, cut, items))
        with ThreadPoolExecutor(1) as beside:

            def sweep_both(state: Array, sweep: int) -> Array:
                far = beside.submit(self.device, device, state, sweep, there)
                near = self.host(state, sweep, here)
                return self._together([near, far.result()])

            return self._run_sweeps(inputs, iterations, world, sweep_both), share

    def _choose_share(self, device: OpenCL, state: Array, part: Part, items: int) -> float:
        """The part of all items with which a core takes as long as the device with the rest.

        Each takes so long for a sweep and so much longer for every item: a line through two probes.
        """
        lines = []
        for sweep_of in (self._on_host, self._on_device):
            few, more = (max(1, items // part_of) for part_of in PROBES)
            short, long = (
                _time_second_call(sweep_of(device, state, _part_rows(part, 0, count)))
                for count in (few, more)
            )
            slope = max((long - short) / max(1, more - few), 0.1 * long / more)  # a noisy line never falls
            lines.append((long - slope * more, slope))
        # Where both lines meet: the core takes as long for its part as the device for the rest.
        (here, each_here), (there, each_there) = lines
        share = (there - here + each_there * items) / ((each_here + each_there) * items)
        return min(1.0, max(0.0, share))

    def _on_host(self, device: OpenCL, state: Array, part: Part) -> Callable[[], Array]:
        return lambda: self.host(state, 0, part)

    def _on_device(self, device: OpenCL, state: Array, part: Part) -> Callable[[], Array]:
        there = self.load(device, part)
        return lambda: self.device(device, state, 0, there)

    def _part(self, inputs: tuple[Array, ...], world: Any) -> Part:
        """The items of this rank."""
        items = inputs[0].shape[0]
        rank, ranks = (0, 1) if world is None else (world.rank, world.size)
        # By products instead of a fixed length, so that sizes differ by one at most and nothing is left over.
        return _part_rows(inputs[: self.divided], items * rank // ranks, items * (rank + 1) // ranks)

    def _run_sweeps(self, inputs: tuple[Array, ...], iterations: int, world: Any, sweep_once: Sweep) -> Array:
        state = self.start(*inputs)
        for sweep in range(iterations):
            total = sweep_once(state, sweep)
            if world is not None:
                total = (
                    self._together(world.allgather(total)) if self.joined else _sum_over_ranks(world, total)
                )
            state = self.update(state, total, inputs[0].shape[0])
        return state

    def _together(self, contributions: list[Array]) -> Array:
        return np.concatenate(contributions) if self.joined else np.asarray(sum(contributions))


def _time_second_call(do: Callable[[], Array]) -> float:
    """Seconds of a second time: the first one builds kernels and fills caches."""
    do()
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def _part_rows(part: Part, first: int, end: int) -> Part:
    return tuple(array[first:end] for array in part)


def _sum_over_ranks(world: Any, mine: Array) -> Array:
    from mpi4py import MPI

    total = np.ascontiguousarray(mine)
    world.Allreduce(MPI.IN_PLACE, total)
    return total


def upload_part(device: OpenCL, part: Part) -> tuple[Any, int]:
    """The rows of a part's only array on the device, and how many they are."""
    return device.upload_array(part[0]), part[0].shape[0]


def work_items(rows: int, chunk: int) -> int:
    """How many work-items there are where each looks at ``chunk`` rows."""
    return max(64, round_up(-(-rows // chunk), 64))


def sum_partials(device: OpenCL, partial: Any, values: int, items: int) -> Array:
    """Add up, in double precision, what each work-item wrote: ``values`` rows of one number an item."""
    return np.asarray(
        device.download_array(partial, (values, items), np.float32).sum(axis=1, dtype=np.float64)
    )
