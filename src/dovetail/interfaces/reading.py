"""Where workloads come from."""

from __future__ import annotations

from typing import Protocol

from dovetail.model import Cluster, Workload

__all__ = [
    "WorkloadReader",
]


class WorkloadReader(Protocol):
    """Reads a file into a `Workload`; its docstring states how fields are mapped."""

    def __call__(self, path: str, cluster: Cluster | None, *, lenient: bool = False) -> Workload:
        """Raises `InputError` with file and line at the first malformed line unless ``lenient``.

        ``cluster`` decides which jobs are too large; ``None``: the machine that the file names, returned
        as `Workload.machine`, else no job is.
        """
        ...
