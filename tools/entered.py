"""Files and functions of ours that a command enters, and how deep: what a person meets who follows it.

    python tools/entered.py [run -- true | submit -- true | simulate FILE --cluster … | …]

Without arguments: the three ways that docs/explanation/architecture.md goes. Counted are functions of the
distributions in this repository, in this process and its threads; a module's own code is no function, but its
file counts. A service is not followed: `submit` ends at its socket, where a stand-in answers.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import threading
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


class Entered:
    """What was entered: code objects, and the deepest stack of them."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        self.deepest = 0
        self._depth = threading.local()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function, as `sys.setprofile` takes it."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(OURS):
            return
        depth = getattr(self._depth, "value", 0) + (1 if event == "call" else -1)
        self._depth.value = depth
        self.deepest = max(self.deepest, depth)
        self.codes.add(code)

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
    from dovetail.service import client

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
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
