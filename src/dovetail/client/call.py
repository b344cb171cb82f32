"""A Python call as a job: the program of a batch script that `dovetail.client.futures` has made.

The script's last line holds the call. Its result goes to standard output, and nothing else does: what the
function prints is moved to standard error.

A result is written as data where data can hold all of it, types included (`data_of`): any program may read
it. What cannot is pickled. Reading a pickle runs the code of its writer, so that is done only where no other
account can have written it, or where the reader declares that it trusts them.
"""

from __future__ import annotations

import base64
import builtins
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import cloudpickle

from dovetail.errors import DovetailError
from dovetail.files.sentences import make_printable

Outcome = tuple[bool, Any]
"""Whether it returned, and what; or what it raised."""
DATA, PICKLE = b"data:", b"pickle:"
PLAIN_DTYPES = "biufcSUmM"
"""Kinds of array elements that are numbers, times or text, and no objects."""


class Untrusted(DovetailError):  # noqa: N818 - reads as what it is
    """A result is a pickle, and others than this account may have written it."""

    exit_status = 1


class CannotTravel(TypeError):  # noqa: N818 - reads as what it is
    """Data cannot hold this value with its type."""


def script_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A script that makes the call with this Python. Raises what pickling raises."""
    call = base64.b64encode(cloudpickle.dumps((function, tuple(args), dict(kwargs)))).decode()
    python = sys.executable.replace("'", "'\\''")
    return f"#!/bin/sh\nexec '{python}' -m dovetail.client.call \"$0\"\n#{call}\n"


def outcome_of(data: bytes, *, trusted: bool) -> Outcome:
    """What the job wrote; a pickle is read only if it is ``trusted``.

    Raises `ValueError` where it wrote nothing of the kind, `Untrusted` for a pickle that is not.
    """
    if data.startswith(DATA):
        try:
            returned, value = json.loads(data[len(DATA) :])
            return bool(returned), value_of(value)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
    if not data.startswith(PICKLE):
        raise ValueError("no result")
    pickled, _, content = data.removeprefix(PICKLE).partition(b" ")
    # Reading a pickle runs code: one that another user may have written would run with the rights of this
    # one.
    if not trusted:
        what = make_printable(content[:200].decode("ascii", "replace"))
        raise Untrusted(
            f"its result is a pickle ({what}), and others than this account may have written it; return "
            "what JSON and arrays can hold, or use Client(trust=True) if all who may submit there are trusted"
        )
    returned, value = cloudpickle.loads(base64.b64decode(pickled, validate=True))
    return bool(returned), value


def pickle_outcome(outcome: Outcome) -> bytes:
    """A result as the job writes it. Raises what pickling raises."""
    returned, value = outcome
    try:
        return DATA + json.dumps([returned, data_of(value)]).encode()
    except (CannotTravel, RecursionError):
        what = type(value).__qualname__.encode("ascii", "replace")
        return PICKLE + base64.b64encode(cloudpickle.dumps(outcome)) + b" " + what


# ------------------------------------------------------------------------------------------ values as data


def data_of(value: Any) -> Any:
    """A value as JSON from which `value_of` makes it again, types kept. Raises `CannotTravel`.

    None, bool, int, float (also infinite, NaN), str, bytes, complex; lists, tuples, sets, dictionaries of
    these; NumPy's arrays and numbers without objects in them; built-in exceptions. No subclasses.
    """
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        # JSON numbers beyond 2^53 lose digits in readers that take them for floating point.
        return value if abs(value) < 1 << 53 else {"int": hex(value)}
    if kind is float:
        # In hexadecimal, so that each bit arrives, and infinities and NaN, which JSON lacks.
        return {"float": value.hex()}
    if kind is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if kind is list:
        return [data_of(one) for one in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [data_of(one) for one in value]}
    if kind is dict:
        return {"dict": [[data_of(key), data_of(one)] for key, one in value.items()]}
    if isinstance(value, Exception) and getattr(builtins, kind.__name__, None) is kind and not vars(value):
        return {"exception": [kind.__name__, [data_of(one) for one in value.args]]}
    numpy = sys.modules.get("numpy")  # a value of its types has loaded it
    if numpy is not None and (kind is numpy.ndarray or isinstance(value, numpy.generic)):
        array = numpy.asarray(value)
        if array.dtype.kind in PLAIN_DTYPES and array.dtype.names is None:
            whole = base64.b64encode(array.tobytes()).decode()
            scalar = kind is not numpy.ndarray
            return {"array": [array.dtype.str, list(array.shape), whole, scalar]}
    raise CannotTravel(f"{kind.__module__}.{kind.__qualname__}")


def value_of(data: Any) -> Any:
    """What `data_of` has written. Runs no code of it; raises `ValueError`, `KeyError`, `TypeError`."""
    if isinstance(data, list):
        return [value_of(one) for one in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    return _MADE[kind](content)


def _read_exception(content: Any) -> Exception:
    name, args = content
    found = getattr(builtins, str(name), None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        raise ValueError(f"no exception is called {name!r}")
    made = found(*value_of(args))
    assert isinstance(made, Exception)
    return made


def _read_array(content: Any) -> Any:
    import numpy as np

    dtype, shape, whole, scalar = content
    found = np.dtype(str(dtype))
    if found.kind not in PLAIN_DTYPES:
        raise ValueError(f"found an array of {dtype!r}")
    array = np.frombuffer(base64.b64decode(whole, validate=True), found).reshape(shape).copy()
    return array[()] if scalar else array


_MADE: Mapping[str, Callable[[Any], Any]] = {
    "int": lambda content: int(content, 16),
    "float": float.fromhex,
    "complex": lambda content: complex(*map(float.fromhex, content)),
    "bytes": lambda content: base64.b64decode(content, validate=True),
    "tuple": lambda content: tuple(map(value_of, content)),
    "set": lambda content: set(map(value_of, content)),
    "frozenset": lambda content: frozenset(map(value_of, content)),
    "dict": lambda content: {value_of(key): value_of(one) for key, one in content},
    "exception": _read_exception,
    "array": _read_array,
}


def main() -> NoReturn:
    """Make the call; exit status 0 if it returned."""
    # What the function prints goes to standard error: standard output carries the result alone.
    out = os.dup(1)
    os.dup2(2, 1)
    with open(sys.argv[1], encoding="ascii") as script:
        call = script.read().rstrip().rpartition("\n")[2].removeprefix("#")
    outcome: Outcome
    try:
        function, args, kwargs = cloudpickle.loads(base64.b64decode(call))
        outcome = True, function(*args, **kwargs)
        data = pickle_outcome(outcome)
    except Exception as error:  # noqa: BLE001 - a user's function: whatever it raises is its result
        traceback.print_exc()
        outcome = False, error
        try:
            data = pickle_outcome(outcome)
        except Exception:  # noqa: BLE001 - nor is every exception one that can travel
            data = pickle_outcome((False, RuntimeError(f"{type(error).__name__}: {error}")))
    sys.stdout.flush()
    with os.fdopen(out, "wb") as file:
        file.write(data)
    sys.exit(0 if outcome[0] else 1)


if __name__ == "__main__":
    main()
