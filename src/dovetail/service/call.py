"""A Python call as a job: the program of a batch script that `dovetail.service.futures` has made.

The script's last line holds the call. Its result goes to standard output, and nothing else does: what the
function prints is moved to standard error.
"""

from __future__ import annotations

import base64
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import cloudpickle

__all__ = ["outcome_of", "script_of"]

Outcome = tuple[bool, Any]
"""Whether it returned, and what; or what it raised."""


def script_of(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A script that makes the call with this Python. Raises what pickling raises."""
    call = base64.b64encode(cloudpickle.dumps((function, tuple(args), dict(kwargs)))).decode()
    python = sys.executable.replace("'", "'\\''")
    return f"#!/bin/sh\nexec '{python}' -m dovetail.service.call \"$0\"\n#{call}\n"


def outcome_of(data: bytes) -> Outcome:
    """What the job wrote. Raises `ValueError` where it wrote nothing of the kind."""
    returned, value = cloudpickle.loads(base64.b64decode(data, validate=True))
    return bool(returned), value


def main() -> NoReturn:
    """Make the call; exit status 0 if it returned."""
    out = os.dup(1)
    os.dup2(2, 1)
    with open(sys.argv[1], encoding="ascii") as script:
        call = script.read().rstrip().rpartition("\n")[2].removeprefix("#")
    outcome: Outcome
    try:
        function, args, kwargs = cloudpickle.loads(base64.b64decode(call))
        outcome = True, function(*args, **kwargs)
        data = cloudpickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001 - it is somebody's function: whatever it raises is its result
        traceback.print_exc()
        try:
            data = cloudpickle.dumps((False, error))
        except Exception:  # noqa: BLE001 - nor is every exception one that can travel
            data = cloudpickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
        outcome = False, error
    sys.stdout.flush()
    with os.fdopen(out, "wb") as file:
        file.write(base64.b64encode(data))
    sys.exit(0 if outcome[0] else 1)


if __name__ == "__main__":
    main()
