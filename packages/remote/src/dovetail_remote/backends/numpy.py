"""NumPy: the CPU cores of the server's machine."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.extras import DISTRIBUTION
from dovetail_remote.backends.base import Backend, View, default_dtypes, standard_functions
from dovetail_remote.standard import DTYPES

_NAMES = {np.dtype(name).char: name for name in DTYPES} | {"q": "int64", "Q": "uint64"}
"""Names by one-letter codes, of which C has several for a type; `numpy.dtype.name` takes a microsecond."""
_SCALARS = frozenset(np.dtype(code).type for code in _NAMES)


def _make_creation(function: Callable[..., Any]) -> Callable[..., Any]:
    def create_filled(shape: Any, *, dtype: Any = None) -> Any:
        return function(shape, dtype)

    return create_filled


def _make_total(ufunc: np.ufunc) -> Callable[..., Any]:
    reduce: Callable[..., Any] = ufunc.reduce

    def compute_total(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return reduce(x, axis, dtype, None, keepdims)

    return compute_total


def _make_extreme(ufunc: np.ufunc) -> Callable[..., Any]:
    reduce: Callable[..., Any] = ufunc.reduce

    def compute_extreme(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return reduce(x, axis, None, None, keepdims)

    return compute_extreme


def _matrix_product(x: Any, y: Any, /) -> Any:
    return np.matmul(x, y, out=...)


if np.lib.NumpyVersion(np.__version__) < "2.3.0":  # it knows no `out=...`: an array, also of no dimension
    _matrix_product = np.matmul


_DIRECT: Mapping[str, Callable[..., Any]] = {
    "astype": np.ndarray.astype,
    "empty": _make_creation(np.empty),
    "linalg.matmul": _matrix_product,
    "matmul": _matrix_product,
    "max": _make_extreme(np.maximum),
    "min": _make_extreme(np.minimum),
    "ones": _make_creation(np.ones),
    "prod": _make_total(np.multiply),
    "sum": _make_total(np.add),
    "zeros": _make_creation(np.zeros),
}
"""Functions straight from NumPy, where a wrapper takes longer than results of small arrays.

Each gives what the function of that name in array-api-compat gives, bit by bit.
"""


class NumpyBackend(Backend):
    """NumPy, through array-api-compat where NumPy itself does not follow the standard.

    Raises:
        InputError: array-api-compat is not installed.
    """

    name = "numpy"

    def __init__(self) -> None:
        xp = compatible_namespace("numpy")
        self.library = f"numpy {np.__version__}"
        self.device_name = platform.machine()
        self.functions = {**standard_functions(xp), **_DIRECT, "expand_dims": expand_dims}
        self.dtypes: Mapping[str, Any] = {name: np.dtype(name) for name in DTYPES}
        self.default_dtypes = default_dtypes(integral=np.dtype(np.int_).name)
        self.array_type = np.ndarray
        self.scalar_types = _SCALARS

    def settle(self, value: Any) -> Any:
        """Scalars, which reductions give, become arrays; a sequence of arrays stays one."""
        kind = type(value)
        if kind is not np.ndarray:
            if kind in _SCALARS:
                return np.asarray(value)
            if isinstance(value, tuple | list):
                return [self.settle(item) for item in value]
            value = np.asarray(value)
        if value.dtype.char not in _NAMES:
            raise TypeError(f"the result is of type {value.dtype}, which no array of the standard is")
        return value

    def describe_value(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """Data type and shape."""
        return _NAMES[value.dtype.char], value.shape

    def from_host(self, array: NDArray[Any]) -> Any:
        """The array itself."""
        return array

    def to_host(self, value: Any) -> NDArray[Any]:
        """The array itself where it is contiguous, else a copy."""
        return np.ascontiguousarray(value).reshape(value.shape)

    def adopt_array(self, array: NDArray[Any]) -> Any:
        """The array itself."""
        return array

    def in_place(self, value: Any) -> NDArray[Any]:
        """The array itself."""
        found: NDArray[Any] = value
        return found

    def owner_of(self, value: Any) -> tuple[Hashable, int]:
        """The array at the end of the chain of views."""
        while type(value.base) is np.ndarray:
            value = value.base
        return id(value if value.base is None else value.base), value.nbytes

    def view(self, value: Any) -> View:
        """By its address: whatever shares the owner lies around it."""
        address, readonly = value.__array_interface__["data"]
        return View(_NAMES[value.dtype.char], value.shape, value.strides, address, readonly)

    def read(self, value: Any, low: int, high: int) -> NDArray[np.uint8]:
        """Between two addresses, which the array spans or others with the same owner."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))

    def build(self, region: NDArray[np.uint8], views: Sequence[View]) -> list[Any]:
        """Views of the region, which is not copied."""
        return [view.of(region) for view in views]


def expand_dims(x: Any, /, axis: int = 0) -> Any:
    """The standard's default, which NumPy does not have."""
    return np.expand_dims(x, axis)


def compatible_namespace(library: str) -> Any:
    """The namespace of a library as the standard has it. Raises `InputError`."""
    import importlib

    try:
        return importlib.import_module(f"array_api_compat.{library}")
    except ModuleNotFoundError as error:
        missing = "array-api-compat" if (error.name or "").startswith("array_api_compat") else error.name
        wanted = f"'{DISTRIBUTION}[remote]'" if missing == "array-api-compat" else missing
        raise InputError(
            f"device {library!r} is not there: {missing} is not installed: pip install {wanted}"
        ) from None
