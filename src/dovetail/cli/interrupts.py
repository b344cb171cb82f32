"""Ctrl-C also where Python cannot raise its `KeyboardInterrupt`: in what a compiler calls back."""

from __future__ import annotations

import os
import signal
import sys
from threading import Event, Timer
from types import FrameType

COMPILER = f"{os.sep}llvmlite{os.sep}"
"""In the paths of the code that calls LLVM, and that LLVM calls back."""

AGAIN = 0.05
"""Seconds until a Ctrl-C that came while LLVM was at work is raised again."""

USER_MODULE = "dovetail_user_"
"""How the modules of users' own files are named (`dovetail.plugins`)."""

_pressed = Event()
_places: list[str] = []


def was_interrupted() -> bool:
    """Whether Ctrl-C has been pressed, though perhaps a library made an error of its own of it."""
    return _pressed.is_set()


def interrupted_at() -> str:
    """File and line of a user's own file where the first Ctrl-C came; empty where none was at work."""
    return _places[0] if _places else ""


def raise_if_interrupted() -> None:
    """Raise `KeyboardInterrupt` as Python does, but never into LLVM: it would lose it, or crash.

    A SIGINT that is ignored or handled by others stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _handle_interrupt)


def _handle_interrupt(number: int, frame: FrameType | None) -> None:
    _pressed.set()
    # Here, since typer makes an exit of the exception, without its traceback.
    _places.append(_place_of_user(frame))
    sys.unraisablehook = lambda _: None
    if not _is_compiling(frame):
        signal.default_int_handler(number, frame)
    later = Timer(AGAIN, os.kill, (os.getpid(), number))
    later.daemon = True
    later.start()


def _place_of_user(frame: FrameType | None) -> str:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(USER_MODULE):
            return f"{frame.f_code.co_filename}, line {frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_compiling(frame: FrameType | None) -> bool:
    while frame is not None:
        if COMPILER in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
