"""Files and functions of ours that a command enters, how deep, and the workload's way through the rooms.

    python tools/entered.py [run -- true | submit -- true | simulate FILE --cluster … | …]

Without arguments: the three ways that docs/explanation/architecture.md goes. Counted are functions of the
distributions in this repository, in this process and its threads; a module's own code is no function, but its
file counts. A service is not followed: `submit` ends at its socket, where a stand-in answers.

A workload's *stays* are the rooms whose functions get it as an argument, one after the other; a *climb* is a
step to a room above (by the layers in pyproject.toml); *names* are those of the parameters.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve().parent.parent
OURS = (str(HERE / "src"), str(HERE / "packages"))

WAYS = (
    ["run", "--", "true"],
    ["submit", "--", "true"],
    ["simulate", "published:gregg-table2", "--cluster", "1x1cpu+1gpu"],
)


def room_layers() -> dict[str, int]:
    """The layer of each room, the highest one 0, as the first import contract has them."""
    contracts = tomllib.loads((HERE / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer.replace("(", "").replace(")", "").split(" | ") for layer in contracts[0]["layers"]]
    return {name.removeprefix("dovetail."): n for n, layer in enumerate(layers) for name in layer}


def room_of(path: str) -> str:
    """``engine`` of a file in ``src/dovetail/engine``, ``api`` of ``api.py``, else its distribution."""
    parts = Path(path).relative_to(HERE).parts
    return parts[2].removesuffix(".py") if parts[0] == "src" else parts[3]


class Entered:
    """What was entered: code objects, the deepest stack of them, and where a workload stayed."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        self.deepest = 0
        self.stays: list[str] = []
        self.names: set[str] = set()
        self._depth = threading.local()

    def _note_workload(self, frame: FrameType) -> None:
        from dovetail.model import Workload

        code = frame.f_code
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            # Its own methods are no stay: a function that calls one has it already.
            if name != "self" and isinstance(frame.f_locals.get(name), Workload):
                room = room_of(code.co_filename)
                self.names.add(name)
                if self.stays[-1:] != [room]:
                    self.stays.append(room)

    @property
    def climbs(self) -> int:
        """Steps of a workload to a room above."""
        layer = room_layers()
        pairs = zip(self.stays, self.stays[1:], strict=False)
        return sum(layer.get(there, 0) < layer.get(here, 0) for here, there in pairs)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function, as `sys.setprofile` takes it."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(OURS):
            return
        depth = getattr(self._depth, "value", 0) + (1 if event == "call" else -1)
        self._depth.value = depth
        self.deepest = max(self.deepest, depth)
        self.codes.add(code)
        if event == "call" and not code.co_name.startswith("<"):
            self._note_workload(frame)

    @property
    def files(self) -> set[str]:
        """The files of all that was entered."""
        return {code.co_filename for code in self.codes}

    @property
    def functions(self) -> set[CodeType]:
        """Functions and methods; not modules, classes and comprehensions."""
        return {code for code in self.codes if not code.co_name.startswith("<") and code.co_flags & 2}


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """A service that takes everything in, in the place of the real one."""
    from dovetail.client import connection as client

    class Answering:
        def __enter__(self) -> Answering:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def post(self, path: str, form: object) -> dict[str, Any]:
            return {"ids": ["1"], "numbers": [1]}

    real = client.open_connection
    client.open_connection = lambda *_, **__: Answering()  # type: ignore[assignment,return-value]
    try:
        yield
    finally:
        client.open_connection = real


def follow(arguments: list[str]) -> Entered:
    """What a command enters."""
    from dovetail.cli.main import status_of

    entered = Entered()
    with _answering(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        threading.setprofile(entered)
        sys.setprofile(entered)
        try:
            status = status_of(list(arguments))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    if status:
        raise SystemExit(f"{' '.join(arguments)}: ended with status {status}")
    return entered


def main() -> None:
    """Print a line for each way; each runs in a process of its own, in a state folder of its own."""
    ways = [sys.argv[1:]] if len(sys.argv) > 1 else WAYS
    for way in ways:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            with tempfile.TemporaryDirectory() as folder:
                os.environ["XDG_STATE_HOME"] = folder
                found = follow(way)
            shown = " ".join(way).replace(str(HERE) + "/", "")
            print(
                f"{shown}: {len(found.files)} files, {len(found.functions)} functions, {found.deepest} deep"
            )
            if found.stays:
                print(
                    f"    its workload: {len(found.stays)} stays in {len(set(found.stays))} rooms, "
                    f"{found.climbs} climbs, {len(found.names)} names: {' > '.join(found.stays)}"
                )
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
