"""Raw kernels of CUDA C, compiled by NVRTC through CuPy, for whichever library holds the arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.remote.backends.base import Kernel
from dovetail.remote.encoding import LocalMemory

__all__ = ["cuda_kernel"]


def cuda_kernel(source: str, name: str) -> Kernel:
    """A kernel of CUDA C, compiled now. Raises `TypeError` where CuPy, which has the compiler, is missing."""
    try:
        import cupy
    except ModuleNotFoundError:
        raise TypeError("raw kernels of CUDA C need CuPy, which is not installed") from None
    compiled: Callable[..., None] = cupy.RawKernel(source, name)
    compiled.compile()  # type: ignore[attr-defined]

    def launch(grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], shared: int) -> None:
        given: list[Any] = []
        for argument in arguments:
            if isinstance(argument, LocalMemory):
                raise TypeError("found LocalMemory, which CUDA does not know; expected shared=BYTES")
            if not isinstance(argument, np.generic):
                argument = cupy.asarray(argument)
                if not argument.flags.c_contiguous:
                    raise ValueError("found an array that is not contiguous, expected one that is")
            given.append(argument)
        compiled(grid, block, tuple(given), shared_mem=shared)

    return launch
