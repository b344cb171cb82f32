"""The process that runs items of a map in a Slurm allocation: a task of a step of its own.

Frames come on standard input and go to standard output, which srun carries: a length of eight bytes, then
what is pickled. What the function prints goes to standard error. The process ends with its input, whatever
runs: so none outlives the Dovetail that started it.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import cloudpickle

from dovetail.errors import InputError
from dovetail.mapping.places import Place, environment_of
from dovetail.mapping.running import (
    UNREADABLE,
    Caught,
    Failure,
    Work,
    describe_failure,
    fold_batch,
    load_function,
    run_items,
    try_call,
)
from dovetail.process.processes import child_processes

LENGTH = 8
"""Bytes of a frame's length."""
HELLO = "hello"
UNSENDABLE = "the result cannot be sent back: "


def frame_of(message: tuple[Any, ...]) -> bytes:
    """A message as it travels. Raises what pickling raises."""
    body: bytes = cloudpickle.dumps(message, protocol=5)
    return len(body).to_bytes(LENGTH, "little") + body


def main() -> None:
    """Serve until the input ends."""
    inbox: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb", buffering=0)
    # What user code reads or prints must not get between the frames.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is Dovetail's to handle
    threading.Thread(target=_read_frames, args=(source, inbox), daemon=True).start()
    what, place, kinds, count, path = inbox.get()
    assert what == "setup", what
    sys.path[:] = path
    _take_place(place, kinds, count)
    _send(sink, (HELLO, os.environ.get("SLURM_STEP_ID", ""), os.getpid()))
    _Worker(sink).serve(inbox)


def _take_place(place: Place, kinds: list[str], count: int) -> None:
    """The variables and cores of the worker; ``count`` CPUs of the node are the allocation's."""
    cores = sorted(os.sched_getaffinity(0))
    try:
        os.environ.update(environment_of(place, os.environ, kinds))
    except InputError as error:
        sys.exit(f"dovetail: {error}")
    # Where Slurm binds nothing we see all cores of the machine, and which are ours is not known.
    if len(cores) == count:
        os.sched_setaffinity(0, {cores[core] for core in place.cores})


def _read_frames(source: IO[bytes], inbox: SimpleQueue[tuple[Any, ...]]) -> None:
    while True:
        head = source.read(LENGTH)
        body = source.read(int.from_bytes(head, "little")) if len(head) == LENGTH else b""
        if not body:
            _leave()
        inbox.put(pickle.loads(body))


def _leave() -> None:
    """End at once, with the programs that the function has started: Slurm may not find them."""
    for pid in (found := child_processes()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # so that none starts another meanwhile
    while found:
        pid = found.pop()
        with suppress(OSError):
            found += _children_of(pid)
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _children_of(pid: int) -> list[int]:
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(word) for word in words]


def _send(sink: IO[bytes], message: tuple[Any, ...]) -> None:
    """Raises what pickling raises."""
    view = memoryview(frame_of(message))
    try:
        while view:
            view = view[sink.write(view) :]
    except OSError:
        _leave()


class _Worker:
    """Runs what comes in."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink
        self._function: Callable[..., Any] | None = None
        self._work = Work({}, None)

    def serve(self, inbox: SimpleQueue[tuple[Any, ...]]) -> None:
        """Without end; the process ends with its input."""
        handlers: Mapping[str, Callable[..., tuple[Any, ...]]] = {"map": self._prepare, "run": self._run}
        while True:
            what, *about = inbox.get()
            reply = handlers[what](*about)
            sent = try_call(_send, self._sink, reply)
            if isinstance(sent, Caught):  # a result that cannot be pickled
                _send(self._sink, self._unsendable(reply, sent.error))

    def _prepare(self, number: int, shipped: bytes, work: bytes) -> tuple[Any, ...]:
        found = try_call(load_function, shipped)
        common = try_call(pickle.loads, work)
        for one in (found, common):
            if isinstance(one, Caught):
                return "unable", number, describe_failure(0, one.error)
        self._function, self._work = found, common
        return "set", number

    def _run(self, order: int, start: int, plain: bool, packed: bytes) -> tuple[Any, ...]:
        assert self._function is not None
        items = try_call(pickle.loads, packed)
        if isinstance(items, Caught):
            return "done", order, [], [describe_failure(UNREADABLE, items.error)], 0.0, 0
        work = Work(self._work.common, None) if plain else self._work
        values, failures, seconds = run_items(self._function, items, work)
        return "done", order, *fold_batch(values, failures, start, work), seconds, len(values)

    def _unsendable(self, reply: tuple[Any, ...], error: BaseException) -> tuple[Any, ...]:
        """A batch whose results cannot be pickled."""
        failure = Failure(UNREADABLE, type(error).__qualname__, f"{UNSENDABLE}{error}", "")
        return "done", reply[1], [], [failure], 0.0, 0


if __name__ == "__main__":
    main()
