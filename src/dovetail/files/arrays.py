"""NumPy, imported when it is first used, and the types of arrays: most commands need neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bools: TypeAlias = NDArray[np.bool_]
    Floats: TypeAlias = NDArray[np.float64]
    Ints: TypeAlias = NDArray[np.int64]
else:
    Bools = Floats = Ints = Any

    class _WhenUsed:
        def __getattr__(self, name: str) -> Any:
            import numpy as np

            found = self.__dict__[name] = getattr(np, name)
            return found

    np = _WhenUsed()

__all__ = ["Bools", "Floats", "Ints", "distinct", "np"]

FEW = 1 << 16
"""Numbers below this are counted, and not sorted."""


def distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """The distinct of whole numbers, ascending, and of each number the place among them.

    As ``numpy.unique`` with ``return_inverse``, in O(n) where the numbers span less than 65,536.
    """
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if high - low >= FEW:
        found: tuple[Ints, Ints] = np.unique(numbers, return_inverse=True)
        return found
    shifted = numbers - low
    there = np.zeros(high - low + 1, np.bool_)
    there[shifted] = True
    place = np.cumsum(there) - 1
    return np.flatnonzero(there)[: len(numbers)] + low, place[shifted]
