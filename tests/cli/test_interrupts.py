"""Ctrl-C while a compiler is at work, with the real compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMPILE = """
import os, signal, sys, time
from dovetail.cli import interrupts
from numba import njit
from numba.core.codegen import CPUCodeLibrary

interrupts.raise_if_interrupted()
keep = CPUCodeLibrary._object_compiled_hook.__func__
pressed = []

def called_back(cls, module, code):
    if not pressed:  # once: on a busy machine a second one would come while the first is answered
        pressed.append(os.kill(os.getpid(), signal.SIGINT))
    time.sleep(0)
    keep(cls, module, code)
    print("kept")

CPUCodeLibrary._object_compiled_hook = classmethod(called_back)
try:
    print(njit(lambda x: x + 1)(1))
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted", interrupts.was_interrupted())
# Having passed through text that numba has run, a caught interrupt makes CPython end by SIGINT: not so here.
sys.stdout.flush()
os._exit(0)
"""


def test_it_comes_when_the_compiler_has_done() -> None:
    """What LLVM calls back must not raise: it was lost there, or the process died of it."""
    said = subprocess.run(
        [sys.executable, "-c", COMPILE], capture_output=True, text=True, timeout=280, check=False
    )
    assert (said.returncode, said.stderr) == (0, "")
    *kept, last = said.stdout.splitlines()
    assert last == "interrupted True"
    assert "kept" in kept


@pytest.mark.parametrize("handler", ["SIG_IGN", "lambda *_: print('handled')"])
def test_what_others_do_about_it_is_left_to_them(handler: str) -> None:
    code = f"""
import os, signal
from signal import SIG_IGN
from dovetail.cli import interrupts
signal.signal(signal.SIGINT, {handler})
interrupts.raise_if_interrupted()
os.kill(os.getpid(), signal.SIGINT)
print(interrupts.was_interrupted())
"""
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False
    )
    assert said.stdout.splitlines()[-1] == "False"
    assert (said.returncode, said.stdout.count("handled")) == (0, handler != "SIG_IGN")
