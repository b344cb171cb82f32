"""Single calls on the workers of maps: how a call and its outcome travel.

To a worker a call is an item of a map, and `run_call` is the function that the map runs. Each call, and each
result, is pickled by itself, so that one that cannot travel fails alone; large buffers lie in shared memory
(`wire`). What a call is given there is read-only; what comes back may be written to.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
import traceback
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.process import current_process
from typing import Any, NamedTuple

from dovetail.errors import InputError
from dovetail.mapping.function import (
    CPU,
    Function,
    Reference,
    as_function,
    imported_alike,
    ship_implementation,
)
from dovetail.mapping.running import load_function
from dovetail.mapping.wire import LARGE, dump_object
from dovetail.records import dataclass

Item = tuple[bytes, bytes | None, bytes, Sequence[Any]]
"""Digest of the function (empty: of this call alone), the function where it is not there yet, the call."""
MOST_KNOWN = 256
"""Functions that a worker keeps; when one more comes, it forgets all others, and so does who counts them."""
MOST_CACHED = 64
"""Functions whose pickle is kept here."""
PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None)})
"""Types whose values any pickler writes alike."""
RETURNED, SEALED, RAISED, LOST = range(4)
"""Outcomes: a plain value; a sealed one; an exception; an exception that cannot travel, in words."""


class Sealed(NamedTuple):
    """A pickle, and the large buffers that were left out of it."""

    head: bytes
    buffers: Sequence[Any]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self.head) + sum(int(buffer.raw().nbytes) for buffer in self.buffers)

    def open(self) -> Any:
        """The object. Raises what unpickling raises."""
        return pickle.loads(self.head, buffers=self.buffers)


def seal_object(thing: Any) -> Sealed:
    """Pickle an object so that it is read by itself. Raises what pickling raises."""
    buffers: list[pickle.PickleBuffer] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < LARGE:
            return True  # in the pickle
        buffers.append(buffer)
        return False

    return Sealed(dump_object(thing, keep_in_band), buffers)


def seal_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sealed:
    """The arguments of a call. Raises what pickling raises."""
    # Plain values need no cloudpickle, which takes far longer.
    if not kwargs and all(type(one) in PLAIN for one in args):
        return Sealed(pickle.dumps((args, kwargs), protocol=5), ())
    return seal_object((args, dict(kwargs)))


@dataclass(frozen=True, slots=True)
class Shipped:
    """A function as it travels: a pickle for each kind of worker that can run it, and its digest.

    ``digest`` is empty where the function is pickled anew for each call, so that no worker keeps it. ``name``
    is what its times are kept under.
    """

    pickles: Mapping[str, bytes]
    digests: Mapping[str, bytes]
    name: str


class Functions:
    """Pickles of functions. That of one which cannot have changed since is used again."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[int, tuple[str, ...]], tuple[Any, list[Any], Shipped]] = OrderedDict()

    def ship_function(self, function: Callable[..., Any], kinds: Sequence[str]) -> Shipped:
        """A function for workers of these kinds. Raises what pickling raises."""
        key = id(function), tuple(kinds)
        cached = self._cache.get(key)
        # A global that may change in itself makes the pickle stale without a sign.
        parts = list(_function_parts(function))
        fixed = not any(part is _UNKNOWN for part in parts)
        if cached is not None and fixed and cached[0] is function and _are_same_parts(cached[1], parts):
            return cached[2]
        shipped = _ship_kinds(function, kinds, fixed=fixed)
        if fixed:
            self._cache[key] = function, parts, shipped
            if len(self._cache) > MOST_CACHED:
                self._cache.popitem(last=False)
        return shipped


def _are_same_parts(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def _ship_kinds(function: Callable[..., Any], kinds: Sequence[str], *, fixed: bool) -> Shipped:
    if not callable(function):
        raise TypeError(f"found {function!r}, expected a function")
    given = as_function(function)
    pickles: dict[str, bytes] = {}
    for kind in kinds:
        if given.implementation(kind) is None:  # runs as it stands
            own = given.implementations.get(CPU) or next(iter(given.implementations.values()))
            given = Function(own, kind, given.name)
        try:
            pickles[kind] = ship_implementation(given, kind)
        except InputError as error:
            raise error.__cause__ or error from None
    digests = {
        kind: hashlib.blake2b(text, digest_size=16).digest() if fixed else b""
        for kind, text in pickles.items()
    }
    return Shipped(pickles, digests, given.name or repr(function))


_UNKNOWN = object()


def _function_parts(function: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """All that the pickle of a function is made of, or `_UNKNOWN` beside what may change in itself."""
    seen = set() if seen is None else seen
    if id(function) in seen:
        return
    seen.add(id(function))
    if isinstance(function, Function):
        yield function
        for kind, implementation in list(function.implementations.items()):
            yield kind
            yield from _function_parts(implementation, seen)
    elif isinstance(function, types.FunctionType) and imported_alike(function):
        yield function
    elif isinstance(function, types.FunctionType):
        code = function.__code__
        yield from (function, code, function.__defaults__, function.__kwdefaults__)
        if function.__dict__:
            yield _UNKNOWN
        for cell in function.__closure__ or ():
            try:
                yield from _parts_of_value(cell.cell_contents, seen)
            except ValueError:  # empty yet
                yield _UNKNOWN
        for value in function.__defaults__ or ():
            yield from _parts_of_value(value, seen)
        if function.__kwdefaults__:
            yield _UNKNOWN
        for name in _global_names(code):
            if name in function.__globals__:
                yield from _parts_of_value(function.__globals__[name], seen)
    else:
        yield from _parts_of_value(function, seen)


def _parts_of_value(value: Any, seen: set[int]) -> Iterator[Any]:
    if isinstance(value, Function | types.FunctionType):
        yield from _function_parts(value, seen)
    else:
        yield value
        built_in = isinstance(value, types.BuiltinFunctionType) and isinstance(
            value.__self__, types.ModuleType | types.NoneType
        )
        if not (type(value) in PLAIN or isinstance(value, types.ModuleType) or built_in):
            yield _UNKNOWN


def _global_names(code: types.CodeType) -> Iterator[str]:
    """The globals that a function and those within it may use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


# -- in the worker ---------------------------------------------------------------------------------------


class Runner(Reference):
    """`run_call`, after the initializer of its executor has been run in the worker.

    The worker has the executor's key of `multiprocessing`, so that calls may use what a manager there shares,
    and the words of its command line, which programs read wherever they are.
    """

    def __init__(self, initializer: Callable[..., Any] | None, initargs: Sequence[Any]) -> None:
        super().__init__(__name__, "run_call", CPU)
        self.initializer = None if initializer is None else ship_implementation(as_function(initializer), CPU)
        self.key = bytes(current_process().authkey)
        self.argv = list(sys.argv)
        self.initargs = dump_object(tuple(initargs))

    def load(self) -> Callable[..., Any]:
        """Run the initializer. Raises what it raises."""
        current_process().authkey = self.key
        sys.argv[:] = self.argv
        if self.initializer is not None:
            function = load_function(self.initializer)
            there = _main_globals(function)
            before = dict(there)
            function(*pickle.loads(self.initargs))
            _initialized.update((k, v) for k, v in there.items() if k not in before or before[k] is not v)
        return run_call


_known: dict[bytes, Callable[..., Any]] = {}
_initialized: dict[str, Any] = {}
"""Globals of ``__main__`` that the initializer has set. Functions of ``__main__`` come by value, each with
globals of its own as they were where it was submitted: there these have never been set."""


def _main_globals(function: Any) -> dict[str, Any]:
    """The globals of a function of ``__main__`` that came by value."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    found: dict[str, Any] = getattr(function, "__globals__", {})
    return found if found.get("__name__") == "__main__" and found is not vars(sys.modules["__main__"]) else {}


def run_call(item: Item) -> tuple[Any, ...]:
    """Make a call, and make its outcome ready to travel. Raises nothing."""
    try:
        function = _known_function(*item[:2])
        args, kwargs = pickle.loads(item[2], buffers=[memoryview(one).toreadonly() for one in item[3]])
        value = function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - whatever a call raises is its outcome
        return _describe_raised(error)
    if type(value) in PLAIN:
        return RETURNED, value
    try:
        return SEALED, *seal_object(value)
    except BaseException as error:  # noqa: BLE001 - pickling runs the user's code
        error.add_note(f"The result, of type {type(value).__qualname__}, cannot be sent back.")
        return _describe_raised(error)


def _known_function(digest: bytes, shipped: bytes | None) -> Callable[..., Any]:
    if shipped is None:
        return _known[digest]
    function = load_function(shipped)
    _main_globals(function).update(_initialized)
    if digest:
        if len(_known) >= MOST_KNOWN:
            # The pool counts alike, and sends what is forgotten here once more.
            _known.clear()
        _known[digest] = function
    return function


def _describe_raised(error: BaseException) -> tuple[Any, ...]:
    trace = error.__traceback__
    if trace is not None and trace.tb_next is not None:
        trace = trace.tb_next  # from the user's function on
    text = "".join(traceback.format_exception(error.with_traceback(trace))).rstrip()
    # A traceback cannot be pickled, and keeps all frames of the call alive.
    error.with_traceback(None)
    try:
        sealed = seal_object(error)
        # Exceptions with arguments of their own often pickle and do not unpickle: it is tried here.
        sealed.open()
    except BaseException as other:  # noqa: BLE001 - nor can every exception travel
        why = f"{type(other).__qualname__}: {other}"
        return LOST, f"{type(error).__qualname__}: {error}", text, why
    return RAISED, *sealed, text


def read_outcome(outcome: Sequence[Any]) -> tuple[Any, BaseException | None]:
    """The value of a call, or what it raised; with the worker's traceback as a note."""
    what, *about = outcome
    if what == RETURNED:
        return about[0], None
    error: BaseException
    if what == LOST:
        error = RuntimeError(f"{about[0]} (the exception itself cannot be sent back: {about[2]})")
        text = about[1]
    else:
        try:
            found = Sealed(about[0], about[1]).open()
        except BaseException as caught:  # noqa: BLE001 - unpickling runs the user's code
            caught.add_note("The result of the call cannot be read here.")
            return None, caught
        if what == SEALED:
            return found, None
        error, text = found, about[2]
    error.add_note(f"In the worker:\n{text}")
    return None, error
