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

__all__ = ["Bools", "Floats", "Ints", "np"]
