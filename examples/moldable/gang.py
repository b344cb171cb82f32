"""What the two programs share: the part of each node, and an OpenCL kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI


class Strip:
    """The rows of this node: ``rows`` from ``first`` on, of ``total``."""

    def __init__(self, total: int, world: MPI.Comm) -> None:
        each, more = divmod(total, world.size)
        self.world = world
        self.rows = each + (world.rank < more)
        self.first = world.rank * each + min(world.rank, more)

    def exchange(self, plate: np.ndarray) -> None:
        """Give neighbours the outermost rows, and take theirs; at the edges nothing changes."""
        above = self.world.rank - 1 if self.world.rank > 0 else MPI.PROC_NULL
        below = self.world.rank + 1 if self.world.rank + 1 < self.world.size else MPI.PROC_NULL
        self.world.Sendrecv(plate[1], above, recvbuf=plate[-1], source=below)
        self.world.Sendrecv(plate[-2], below, recvbuf=plate[0], source=above)


def kernel_of(source: str, name: str) -> tuple[Any, Any, Any]:
    """OpenCL, a queue of its first device, and the kernel of that name."""
    import pyopencl as cl

    context = cl.create_some_context(interactive=False)
    return cl, cl.CommandQueue(context), cl.Kernel(cl.Program(context, source).build(), name)
