"""The compiled side of a kernel beside its specification: equal to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.native.library import Kernel, load_library


def same(kernel: Kernel[Any, Any], *arguments: Any) -> Any:
    """Call both; the result. What arrays hold afterwards is what the compiled side has left."""
    assert load_library() is not None
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    with np.errstate(all="ignore"):
        expected = kernel.plain(*copies)
    found = kernel(*arguments)
    assert found == expected, (kernel.plain.__name__, found, expected)
    for at, (mine, other) in enumerate(zip(arguments, copies, strict=True)):
        if isinstance(mine, np.ndarray):
            assert np.array_equal(mine, other), (kernel.plain.__name__, at, mine, other)
    return found
