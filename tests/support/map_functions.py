"""Functions for maps in tests, in a module that workers can import."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from waiting import until

import dovetail

__all__ = ["bad", "clever", "device", "double", "met", "plain", "slow_plain", "slowly", "words"]


def plain(x: Any) -> Any:
    """The item itself."""
    return x


@dovetail.function
def double(x: Any) -> Any:
    """Twice the item, on any kind."""
    return x * 2


@double.gpu
def _(x: Any) -> Any:
    return x + x


@dovetail.function
def device(_: int) -> tuple[str, str | None, tuple[int, ...], int]:
    """What a worker finds around it."""
    time.sleep(0.01)
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return os.environ["DOVETAIL_DEVICE"], os.environ.get("CUDA_VISIBLE_DEVICES"), cores, os.getpid()


device.gpu(device.implementations["cpu"])


@dovetail.function
def met(_: int, *, folder: Path, count: int) -> tuple[str, str | None, tuple[int, ...], int]:
    """What a worker finds around it, as soon as ``count`` workers have come to the folder."""
    (folder / os.environ["DOVETAIL_DEVICE"]).touch()
    until(lambda: len(list(folder.iterdir())) >= count)
    return device(_)


met.gpu(met.implementations["cpu"])


@dovetail.function
def slowly(seconds: float) -> str:
    """Sleeps; the GPU is four times faster."""
    time.sleep(seconds)
    return "cpu"


@slowly.gpu
def _(seconds: float) -> str:
    time.sleep(seconds / 4)
    return "gpu"


@dovetail.function
def clever(x: float) -> float:
    """Wrong on the GPU for 3."""
    return x


@clever.gpu
def _(x: float) -> float:
    return x + 1 if x == 3 else x * (1 + 1e-9)


def slow_plain(x: Any) -> Any:
    """The item itself, after a while."""
    time.sleep(0.005)
    return x


def words(text: str) -> Any:
    """Pairs of a word and 1, as a generator."""
    return ((word, 1) for word in text.split())


def bad(x: Any) -> Any:
    """Everything that can go wrong."""
    if x == "raise":
        raise ValueError("this one is bad")
    if x == "exit":
        sys.exit(3)
    if x == "leave":
        os._exit(5)
    if x == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if x == "lock":
        return threading.Lock()
    if x == "hang":
        time.sleep(600)
    if x == "memory":
        kept = []
        while True:
            kept.append(bytearray(50_000_000))
    return x


@dovetail.function
def bad_everywhere(x: int) -> int:
    """Items 20 to 25 fail on every kind."""
    time.sleep(0.001)
    if 20 <= x < 26:
        raise ValueError("not on a core")
    return x


@bad_everywhere.gpu
def _(x: int) -> int:
    time.sleep(0.001)
    if 20 <= x < 26:
        raise RuntimeError("not on a device")
    return x
