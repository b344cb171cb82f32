"""The public face: `Executor`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor as FuturesExecutor
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from dovetail.errors import InputError
from dovetail.files.units import bytes_given
from dovetail.local.claims import AROUND
from dovetail.local.discovery import usable_cores
from dovetail.mapping.calls import Functions, Runner, seal_arguments
from dovetail.mapping.elastic import ElasticCrew
from dovetail.mapping.function import Function
from dovetail.mapping.places import MOST, ThisMachine, devices_here, parse_workers
from dovetail.model import CPU
from dovetail.pools.pool import Call, Crew, Pool, Seats

__all__ = ["Executor"]

P = ParamSpec("P")
T = TypeVar("T")
GPU = "gpu"
DEEPEST = 2
"""So many executors, each within a worker of another, have workers; one further in makes its calls itself."""


class Executor(FuturesExecutor):
    """Calls on warm workers: a `concurrent.futures.Executor` whose workers come and go with the calls.

        with dovetail.Executor(local=True) as executor:
            futures = [executor.submit(train, rate, epochs=3) for rate in rates]

    ``workers`` is the most that there may be at once: a number, or a number of each kind (``"cpu:6,gpu:1"``);
    by default as many as fit. With ``local`` they are processes of this machine and need nothing else; else
    they are jobs of a service (an URL, a state folder; by default this account's own, which is started if it
    does not run) on this machine. A worker without calls gives its cores and devices back within seconds.

    Each worker has ``cpus`` cores, ``gpus`` GPUs, ``memory`` bytes (also ``"4GB"``; locally: the most that it
    may allocate), and, of a service, ``gpu_memory`` bytes on each GPU; the variables ``env`` beside those of
    this process. ``name`` is what its jobs are called. ``variants`` are the kinds of workers for functions
    with several implementations (`dovetail.function`); by default those kinds of which there are devices.
    Each call goes where it is expected to end first.

    ``initializer(*initargs)`` is called in each worker before its first call; where that raises, the executor
    is broken. A call whose worker is killed fails with `WorkerLost`; the others go on. Functions of
    ``__main__`` travel by value. Large arrays of arguments lie in shared memory, read-only.

    Within a worker of a map or of another executor, and within a job, it uses the cores of that worker, and
    where these are taken makes the calls in this process: it never waits for what waits for it.

    Raises `InputError`, `NoService`.
    """

    def __init__(
        self,
        workers: int | str | None = None,
        *,
        local: bool = False,
        service: str | os.PathLike[str] | None = None,
        cpus: int = 1,
        gpus: float = 0,
        memory: float | str | None = None,
        gpu_memory: float | str | None = None,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        variants: Sequence[str] | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
    ) -> None:
        if local and service is not None:
            raise InputError(f"found {os.fspath(service)!r}, expected none with local=True", where="service")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if type(cpus) is not int or not 1 <= cpus <= MOST:
            raise InputError(f"found {cpus!r}, expected a number of cores from 1 to {MOST}", where="cpus")
        if type(gpus) not in (int, float) or not 0 <= gpus < MOST:
            raise InputError(f"found {gpus!r}, expected a number of GPUs", where="gpus")
        each = None if memory is None else bytes_given(memory, "memory", above_zero=True)
        on_gpu = None if gpu_memory is None else bytes_given(gpu_memory, "gpu_memory", above_zero=True)
        variables = {str(key): str(value) for key, value in (env or {}).items()}
        depth = len(os.environ.get(AROUND, "").split())
        # Within a job a service's new jobs would wait for the cores that this very job holds.
        inside = bool(depth or os.environ.get("DOVETAIL_JOB"))
        local = local or (inside and service is None)
        with ExitStack() as undo:
            if local:
                if gpus not in (0, 1):
                    raise InputError(
                        f"found {gpus!r}, expected 0 or 1 for workers of this machine", where="gpus"
                    )
                limit = usable_cores().memory if each is None else each
                local_crew = ElasticCrew(ThisMachine(), memory=limit, variables=variables)
                undo.callback(local_crew.close)
                if depth < DEEPEST:
                    # In the caller's thread: a program that forks while another thread starts a process
                    # holds that thread up for as long as its child lives (the pipe of `subprocess`).
                    local_crew.start_supervisor()
                crew: Crew = local_crew
                devices, cores = _count_devices, len(os.sched_getaffinity(0))
            else:
                # What it needs is not needed locally.
                from dovetail.pools.jobs import JobCrew

                resources = {"gpus": gpus, "memory": each, "gpu_memory": on_gpu}
                crew = jobs = JobCrew(service, resources, variables, name or "executor")
                undo.callback(crew.close)
                devices, cores = jobs.devices, jobs.cores
            self._kinds, seats = _worker_seats(workers, cpus, gpus, variants, cores, devices, inside=inside)
            self.most_workers = seats[self._kinds[0]].most
            """Workers for plain functions that there may be at once."""
            self._functions = Functions()
            runner = Runner(initializer, initargs)
            self._pool = Pool(crew, seats, runner, alone=inside and local, deep=depth >= DEEPEST)
            self._finalizer = weakref.finalize(self, self._pool.stop)
            self._finalizer.atexit = False  # at the end of the program calls that wait are made
            self._pool.start()
            undo.pop_all()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function called with these arguments, all of them its own.

        What cannot be pickled is the future's exception. Raises `RuntimeError` after `shutdown`, and
        `concurrent.futures.BrokenExecutor` where workers cannot be had any more.
        """
        self._pool.check()
        future: Future[T] = Future()
        try:
            kinds = self._kinds_of(fn)
            call = Call(future, self._functions.ship_function(fn, kinds), seal_arguments(args, kwargs), kinds)
        except Exception as error:  # noqa: BLE001 - pickling runs the user's code
            future.set_running_or_notify_cancel()
            future.set_exception(error)
        else:
            self._pool.submit(call)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,
    ) -> Iterator[T]:
        """Results of calls with the items, in their order; all are submitted before this returns.

        Raises `TimeoutError` from ``next`` ``timeout`` seconds after this call. Short calls travel together
        by themselves; ``chunksize`` calls make one call in any case.
        """
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout, **more)
        rows = zip(*iterables, strict=False)
        chunks = iter(lambda: list(islice(rows, chunksize)), [])
        return chain.from_iterable(super().map(partial(_call_each, fn), chunks, timeout=timeout, **more))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; those that wait are made, or cancelled on request. ``wait``: until then."""
        self._pool.stop(cancel=cancel_futures)
        if wait:
            self._pool.thread.join()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """`shutdown`; after Ctrl-C, which workers ignore, without the calls that wait or run."""
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._pool.stop(cancel=interrupted, abandon=interrupted)
        self._pool.thread.join()

    def _kinds_of(self, function: Callable[..., Any]) -> tuple[str, ...]:
        """The kinds of workers for a function."""
        if not isinstance(function, Function):
            return self._kinds[:1]
        found = tuple(kind for kind in self._kinds if function.implementation(kind) is not None)
        return found or self._kinds[:1]


def _count_devices(kind: str) -> int:
    return len(devices_here(kind))


def _call_each(function: Callable[..., T], rows: Sequence[Sequence[Any]]) -> list[T]:
    return [function(*row) for row in rows]


def _worker_seats(
    workers: int | str | None,
    cpus: int,
    gpus: float,
    variants: Sequence[str] | None,
    cores: int,
    devices: Callable[[str], int],
    *,
    inside: bool,
) -> tuple[tuple[str, ...], dict[str, Seats]]:
    """The kinds of workers, that of plain functions first, and how many there may be of each."""
    if isinstance(workers, str):
        wanted = parse_workers(workers)
        return tuple(some.kind for some in wanted), {
            some.kind: Seats(some.count, max(cpus, some.cores)) for some in wanted
        }
    if workers is not None and (type(workers) is not int or not 1 <= workers <= MOST):
        raise ValueError(f"found {workers!r}, expected 1 to {MOST} workers, or as in 'cpu:6,gpu:1'")
    if variants is not None:
        kinds = tuple(dict.fromkeys(variants))
        if not kinds or isinstance(variants, str):
            raise InputError(f"found {variants!r}, expected kinds such as ['cpu', 'gpu']", where="variants")
    elif gpus:
        kinds = (GPU,)
    else:
        kinds = (CPU, *((GPU,) if devices(GPU) else ()))
    if cpus > cores and not inside:
        raise InputError(f"found {cpus}, expected at most the {cores} cores that there are", where="cpus")
    seats: dict[str, Seats] = {}
    for kind in kinds:
        there = devices(kind)
        if kind == CPU:
            most = max(1, cores // cpus)
        elif there:
            most = max(1, int(there / gpus)) if gpus else there
        else:
            raise InputError(f"found {kind}, expected a kind of which there are devices", where="variants")
        seats[kind] = Seats(most if workers is None else workers, cpus)
    return kinds, seats
