"""Functions of the standard straight from NumPy, where a wrapper takes longer than results of small arrays.

Each gives what the function of that name in array-api-compat gives, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["DIRECT"]


def _filled(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(shape: Any, *, dtype: Any = None) -> Any:
        return function(shape, dtype)

    return call


def _total(ufunc: np.ufunc) -> Callable[..., Any]:
    reduce: Callable[..., Any] = ufunc.reduce

    def call(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return reduce(x, axis, dtype, None, keepdims)

    return call


def _extreme(ufunc: np.ufunc) -> Callable[..., Any]:
    reduce: Callable[..., Any] = ufunc.reduce

    def call(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return reduce(x, axis, None, None, keepdims)

    return call


DIRECT: Mapping[str, Callable[..., Any]] = {
    "astype": np.ndarray.astype,
    "empty": _filled(np.empty),
    "linalg.matmul": np.matmul,
    "matmul": np.matmul,
    "max": _extreme(np.maximum),
    "min": _extreme(np.minimum),
    "ones": _filled(np.ones),
    "prod": _total(np.multiply),
    "sum": _total(np.add),
    "zeros": _filled(np.zeros),
}
"""By name."""
