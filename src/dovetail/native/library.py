"""The compiled part of Dovetail: `*.c` of this folder in one file, built with the package.

Every function there has a Python one of the same name that is its specification, and takes its place where no
C compiler was at hand. Nothing is compiled later, while a command waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from functools import cache, update_wrapper
from inspect import get_annotations
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from dovetail.files.arrays import np

P = ParamSpec("P")
R = TypeVar("R")

PREFIX = "dovetail_"
ARRAYS = {"Floats": "float64", "Ints": "int64", "Bools": "bool"}
"""Annotations of arrays, and what these hold; each is passed as its address and its shape."""


@cache
def load_library() -> ctypes.CDLL | None:
    """The compiled file; ``None`` where there is none, or none that this machine can load."""
    path = Path(__file__).with_name("_native.so")
    try:
        return ctypes.CDLL(str(path)) if path.exists() else None
    except OSError:  # of another machine
        return None


class Kernel(Generic[P, R]):
    """A function on arrays and numbers, in C where the library is there; ``plain`` is its specification.

    Arrays that it is given, and may write to, are contiguous and of the annotated type; named tuples of such
    are passed field by field. It returns a number,
    a truth, or nothing. Raises `MemoryError` where C finds no room to work in, and `TypeError` for another
    array.
    """

    def __init__(self, plain: Callable[P, R]) -> None:
        update_wrapper(self, plain)
        self.plain = plain
        annotations = list(get_annotations(plain).values())
        # The annotations declare the C function: its arguments in their order, and last the result.
        self._result = annotations.pop()
        self._names = [name for annotation in annotations for name in _passed_fields(plain, annotation)]
        self._grouped = len(self._names) > len(annotations)
        self._wanted: list[Any] = []
        self._compiled: Callable[..., Any] | None = None
        self._looked_for = False

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Call the C function, or the specification."""
        if not self._looked_for:
            self._find_function(arguments)
        if self._compiled is None:
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # as in C
                return self.plain(*arguments, **named)
        found = self._compiled(*self._passed_arguments(arguments))
        if self._result == "float":
            # NaN, which is no result of any kernel, stands for "no memory"; so does any status but 0 where
            # there is no result.
            if found != found:
                raise MemoryError(f"no memory left to work in: {self.plain.__name__}")
        elif self._result == "None":
            if found:
                raise MemoryError(f"no memory left to work in: {self.plain.__name__}")
            return None  # type: ignore[return-value]
        elif self._result == "bool":
            return bool(found)  # type: ignore[return-value]
        return found  # type: ignore[no-any-return]

    def _find_function(self, arguments: tuple[Any, ...]) -> None:
        """Find the function, and declare its arguments: their numbers of dimensions are the first call's."""
        # Not at import: NumPy and the library are loaded only by a command that computes something.
        self._looked_for = True
        found = load_library()
        if found is None:
            return
        types: list[Any] = []
        self._wanted = [np.dtype(ARRAYS[name]) if name in ARRAYS else None for name in self._names]
        for name, argument in zip(self._names, _flatten_arguments(arguments), strict=True):
            if name in ARRAYS:
                types += [ctypes.c_void_p, *[ctypes.c_int64] * argument.ndim]
            else:
                types.append(ctypes.c_double if name == "float" else ctypes.c_int64)
        # `_least_total` has a public function around it; in C there is the kernel alone.
        compiled = getattr(found, PREFIX + self.plain.__name__.strip("_"))
        compiled.argtypes = types
        compiled.restype = ctypes.c_double if self._result == "float" else ctypes.c_int64
        self._compiled = compiled

    def _passed_arguments(self, arguments: tuple[Any, ...]) -> list[Any]:
        """Each array as its address and shape."""
        flat: list[Any] = []
        every = _flatten_arguments(arguments) if self._grouped else arguments
        for wanted, argument in zip(self._wanted, every, strict=True):
            if wanted is None:
                flat.append(argument)
            elif argument.dtype == wanted and argument.flags.c_contiguous:
                flat.append(_array_address(argument))
                flat += argument.shape
            else:
                raise TypeError(f"{self.plain.__name__}: expected a contiguous array of {wanted}")
        return flat


def _array_address(array: Any) -> int:
    """The value of ``array.ctypes.data``, in a third of its time."""
    # Searches call kernels very often, and NumPy builds an object each time that `.ctypes` is read.
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    except (TypeError, ValueError):
        # Only to be read, or empty.
        return int(array.ctypes.data)


def _passed_fields(plain: Callable[..., Any], annotation: str) -> list[str]:
    """What is passed for an argument: the fields of a named tuple, or itself."""
    group: object = plain.__globals__.get(annotation)
    if isinstance(group, type) and issubclass(group, tuple):
        return [field.__forward_arg__ for field in get_annotations(group).values()]
    return [annotation]


def _flatten_arguments(arguments: Iterable[Any]) -> Iterator[Any]:
    """Arguments, those of named tuples one by one."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from argument
        else:
            yield argument


def kernel(plain: Callable[P, R]) -> Kernel[P, R]:
    """Give a function on arrays its compiled side."""
    return Kernel(plain)
