"""What a job on the CPUs loses beside a job on a device, measured on this machine (Ravi 2012, Fig. 8).

Two of Dovetail's apps: one on the CPUs, timed alone and beside the other, which keeps a device busy all the
while. *Pinned*: each has cores of its own, the device's host thread the last one. *Unpinned*: both may use
every core, as in the paper. *Control*: beside a process that sleeps and so shares nothing; what it seems to
cost is what the machine does by itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any

from dovetail.errors import InputError
from dovetail.model import Seconds
from dovetail.process.environment import THREAD_COUNTS, UNSET
from dovetail.rates.sharing_penalty import FIG_8
from dovetail.report.intervals import Interval, mean_interval
from dovetail_lab.apps.registry import APPS, RAVI
from dovetail_remote.opencl_device import choose_device, load_pyopencl

SLEEP = ("-c", "import time; time.sleep(1e6)")
FOREVER = 1_000_000
"""Repetitions of the neighbour, which is stopped when it is needed no more."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two applications of Fig. 8, the penalty printed (a fraction), and our apps of these names."""

    paper_cpu_app: str
    paper_device_app: str
    penalty: float
    cpu_app: str
    device_app: str


OURS = {spec.paper_name: spec.name for spec in RAVI.values()}


def _parse_pair(printed: str) -> Pair:
    """``EM/GK:0.043`` as a pair."""
    apps, _, penalty = printed.partition(":")
    on_cpu, _, on_device = apps.partition("/")
    return Pair(on_cpu, on_device, float(penalty), OURS[on_cpu], OURS[on_device])


PAIRS: tuple[Pair, ...] = tuple(map(_parse_pair, FIG_8.split(",")))
"""The three pairs of Fig. 8."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Seconds of the CPU app alone, beside the other, and beside a process that sleeps, round by round.

    ``on_cores``: the device computes on cores of this machine (PoCL), which a GPU does not.
    """

    cpu_app: str
    device_app: str
    device: str
    pinned: bool
    alone: tuple[Seconds, ...]
    beside: tuple[Seconds, ...]
    control: tuple[Seconds, ...] = ()
    on_cores: bool = False

    @property
    def control_cost(self) -> Interval | None:
        """What the control seems to cost: a fraction, none without a control."""
        return (
            mean_interval(b / a - 1 for a, b in zip(self.alone, self.control, strict=True))
            if self.control
            else None
        )

    @property
    def shows_effect(self) -> bool:
        """Whether this machine can show Fig. 8: its device is no core, and the control costs nothing."""
        # The interval of the control must hold zero: otherwise the machine is too noisy to show an effect.
        noise = self.control_cost
        quiet = noise is None or noise.half_width is None or noise.lower_end <= 0 <= noise.upper_end
        return quiet and not self.on_cores

    @property
    def penalty(self) -> Interval | None:
        """By which fraction it takes longer; each round beside over its own round alone."""
        # Round by round, so that drifts of the machine over minutes cancel out.
        return mean_interval(b / a - 1 for a, b in zip(self.alone, self.beside, strict=True))

    @property
    def mean_penalty(self) -> float:
        """Mean beside over mean alone, less 1."""
        return fmean(self.beside) / fmean(self.alone) - 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        noise = self.control_cost
        return asdict(self) | {"penalty": self.mean_penalty, "noise": None if noise is None else noise.mean}


def read_sharing(text: str, where: str) -> list[Sharing]:
    """What ``dovetail bench-sharing --json`` printed; raises `InputError`."""
    try:
        rows = json.loads(text)
        return [
            Sharing(
                str(row["cpu_app"]),
                str(row["device_app"]),
                str(row["device"]),
                bool(row["pinned"]),
                tuple(map(float, row["alone"])),
                tuple(map(float, row["beside"])),
                tuple(map(float, row.get("control", ()))),
                bool(row.get("on_cores", False)),
            )
            for row in rows
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"found {error}, expected what dovetail bench-sharing --json prints", where=where
        ) from None


def measure_sharing(
    cpu_app: str = "matmul",
    device_app: str = "sobel",
    *,
    device: str = "opencl",
    rounds: int = 5,
    repeat: int = 10,
    lead: Seconds = 3.0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Sharing]:
    """Both ways, pinned and unpinned; a round is alone, beside and control, in an order that turns.

    ``repeat`` is how often the CPU app repeats its work in a round, ``lead`` the seconds that the neighbour
    gets to set itself up. Takes 2 · rounds · (3 runs + 2 lead). Raises `InputError` where an app is unknown
    or fails, or where the process may use one core only.
    """
    for name in (cpu_app, device_app):
        if name not in APPS and name not in RAVI:
            raise InputError(f"found {name!r}, expected one of {', '.join((*APPS, *RAVI))}", where="app")
    # Affinity rather than the machine's count: a container may have fewer.
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise InputError("this process may use one core only; sharing needs two", where="bench-sharing")
    found: list[Sharing] = []
    total = 6 * rounds
    on_cores = _on_cores(device)
    for pinned in (True, False):
        own, host = (cores[:-1], cores[-1:]) if pinned else (cores, cores)
        times: dict[str, list[Seconds]] = {"alone": [], "beside": [], "control": []}
        for number in range(rounds):
            order = [*times][number % 3 :] + [*times][: number % 3]
            for kind in order:
                with _run_beside(kind, device_app, device, host, lead):
                    times[kind].append(_time_app(cpu_app, own, repeat))
                _report_progress(progress, len(found) * 3 * rounds + sum(map(len, times.values())), total)
        alone, beside, control = (tuple(runs) for runs in times.values())
        found.append(Sharing(cpu_app, device_app, device, pinned, alone, beside, control, on_cores))
    return found


def measure_pairs(
    pairs: Sequence[tuple[str, str]],
    *,
    device: str = "opencl",
    rounds: int = 5,
    repeat: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> list[Sharing]:
    """`measure_sharing` of several pairs of apps, one after the other."""
    found: list[Sharing] = []
    for i, (cpu_app, device_app) in enumerate(pairs):

        def report_pair(done: int, total: int, before: int) -> None:
            _report_progress(progress, before * total + done, len(pairs) * total)

        tell_of_pair = partial(report_pair, before=i)
        found += measure_sharing(
            cpu_app, device_app, device=device, rounds=rounds, repeat=repeat, progress=tell_of_pair
        )
    return found


def _report_progress(progress: Callable[[int, int], None] | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def _on_cores(device: str) -> bool:
    """Whether the device's work is done by cores of this machine."""
    if device.startswith("opencl"):
        cl = load_pyopencl()
        return bool(choose_device(cl, device.partition(":")[2]).type & cl.device_type.CPU)
    return device in ("cpu", "numpy")


def _run_beside(
    kind: str, app: str, device: str, cores: Sequence[int], lead: Seconds
) -> AbstractContextManager[None]:
    """What runs meanwhile: nothing, the other app, or a process that sleeps."""
    if kind == "alone":
        return nullcontext()
    return _run_neighbour(app if kind == "beside" else None, device, cores, lead)


def _start_app(app: str | None, device: str, cores: Sequence[int], repeat: int) -> subprocess.Popen[str]:
    """An app on these cores, with as many threads; a child inherits the cores of its parent."""
    environment = {key: value for key, value in os.environ.items() if key not in UNSET}
    words = ("-m", "dovetail.apps", str(app), "--device", device, "--repeat", str(repeat))
    environment |= dict.fromkeys((*THREAD_COUNTS, "POCL_MAX_PTHREAD_COUNT"), str(len(cores)))
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return subprocess.Popen(
            [sys.executable, *(SLEEP if app is None else words)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.sched_setaffinity(0, ours)


def _time_app(app: str, cores: Sequence[int], repeat: int) -> Seconds:
    """Seconds of the app's own work, its start left out."""
    with _start_app(app, "cpu", cores, repeat) as child:
        out, errors = child.communicate()
    if child.returncode:
        raise _make_failure(app, errors)
    return float(json.loads(out)["seconds"])


@contextmanager
def _run_neighbour(app: str | None, device: str, cores: Sequence[int], lead: Seconds) -> Iterator[None]:
    """The other app, busy on the device until we are done."""
    with _start_app(app, device, cores, FOREVER) as child:
        try:
            time.sleep(lead)
            if child.poll() is not None:
                raise _make_failure(str(app), child.stderr.read() if child.stderr else "")
            yield
        finally:
            child.send_signal(signal.SIGKILL)


def _make_failure(app: str, errors: str) -> InputError:
    lines = errors.strip().splitlines()
    return InputError(f"app {app} failed: {lines[-1] if lines else 'no reason given'}", where="bench-sharing")
