"""A joblib backend (and so scikit-learn's): the calls of `joblib.Parallel` on the warm workers of Dovetail.

    import dovetail_integrations.joblib
    with joblib.parallel_config("dovetail", cpus=2): ...

Options are those of `dovetail.Executor`. Without ``service`` or ``local=False`` its workers are processes of
this machine. Two programs with this backend never use the same cores; a Parallel within a worker uses threads
on that worker's cores, as joblib's own backends do. Arrays travel as with them: see `joblib_arrays`.
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from joblib import register_parallel_backend
from joblib._parallel_backends import AutoBatchingMixin, FallbackToBackend, SequentialBackend
from joblib.externals.loky import process_executor
from joblib.parallel import ParallelBackendBase

from dovetail import Executor
from dovetail_integrations.joblib_arrays import SharedArrays

__all__ = ["DovetailBackend"]

_executors: dict[str, Executor] = {}
"""Those that are used again, by their options: warm workers, which give their cores back when idle."""
_lock = threading.Lock()
MOST = 4
"""Executors that are kept."""


def _shared_executor(options: Mapping[str, Any]) -> Executor:
    """The executor with these options; it stays for the next call."""
    key = repr(sorted(options.items()))
    with _lock:
        found = _executors.pop(key, None) or Executor(**options)
        _executors[key] = found  # the last one used is the last
        for _ in range(len(_executors) - MOST):
            del _executors[next(iter(_executors))]  # it ends when nothing uses it any more
    return found


def _forget_executor(executor: Executor) -> None:
    """Use it no more for new calls; it ends when those that use it now have ended."""
    with _lock:
        for key in [key for key, one in _executors.items() if one is executor]:
            del _executors[key]


class DovetailBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Calls of a `joblib.Parallel` on a `dovetail.Executor` with the backend's options."""

    default_n_jobs = -1
    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    def __init__(
        self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, **options: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._options = dict(options)
        self._options.setdefault("local", self._options.get("service") is None)
        self._executor: Executor | None = None
        self._arrays: SharedArrays | None = None
        self._futures: set[Future[Any]] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        """Without its executor, which is this process' own."""
        return _made_again, (self.nesting_level, self.inner_max_num_threads, self._options)

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Calls at once: of -1 as many as fit, of this machine or of the service."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        within = multiprocessing.current_process().daemon or not (
            self.in_main_thread() or self.nesting_level == 0
        )
        if within and n_jobs not in (None, 1):
            warnings.warn(
                "Dovetail-backed parallel loops cannot be called below threads or within multiprocessing, "
                "setting n_jobs=1",
                stacklevel=3,
            )
        if n_jobs is None or within:
            return 1
        if n_jobs > 0:
            return n_jobs
        # As joblib counts: -1 is all, -2 all but one.
        return max(1, _shared_executor(self._options).most_workers + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **more: Any) -> int:
        """Have an executor for one `Parallel`."""
        count = self.effective_n_jobs(n_jobs)
        if count == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        begins = {key: more[key] for key in ("initializer", "initargs") if more.get(key) is not None}
        options = {"workers": count, **self._options, **begins}  # the rest of them is of joblib's own pools
        if self.inner_max_num_threads is not None:
            threads = dict.fromkeys(self.MAX_NUM_THREADS_VARS, str(self.inner_max_num_threads))
            options["env"] = {**threads, **(options.get("env") or {})}
        self._executor = _shared_executor(options)
        self._arrays = SharedArrays(more.get("max_nbytes"), more.get("mmap_mode"), more.get("temp_folder"))
        self.parallel = parallel
        return count

    def start_call(self) -> None:
        """A `Parallel` that is called again writes its arrays again: their values may have changed."""
        if self._arrays is not None:
            self._arrays.forget_arrays()

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], Any] | None = None
    ) -> Future[Any]:
        """Have a batch of calls made."""
        assert self._executor is not None
        assert self._arrays is not None
        future = self._executor.submit(_call_batch, self._arrays.pickle_batch(func))
        self._futures.add(future)

        batch = [func]

        def end_batch(future: Future[Any]) -> None:
            # Until now the batch held its arrays, and those their files; the future may live on.
            batch.clear()
            self._futures.discard(future)

        future.add_done_callback(end_batch)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Results of a batch, or what it raised."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Calls that wait are cancelled; those that run end in their time, no later one waits for them."""
        if self._executor is not None:
            # A call that runs cannot be stopped: new calls would wait behind it, so they get another
            # executor.
            stopped = [future.cancel() or future.done() for future in list(self._futures)]
            if not all(stopped):
                _forget_executor(self._executor)
            self.terminate()
        if ensure_ready:
            self.configure(n_jobs=self.parallel.n_jobs, parallel=self.parallel)

    def terminate(self) -> None:
        """The workers stay for the next `Parallel`; idle ones give their cores back by themselves."""
        self._executor = None
        if self._arrays is not None:
            self._arrays.close()
            self._arrays = None
        self.reset_batch_stats()


def _call_batch(text: bytes) -> Any:
    """Make the calls of a batch, as it was pickled."""
    # joblib's backends of processes make calls within a worker of this depth one after the other.
    process_executor._CURRENT_DEPTH = max(1, process_executor._CURRENT_DEPTH)
    return pickle.loads(text)()


def _made_again(
    nesting_level: int | None, inner_max_num_threads: int | None, options: Mapping[str, Any]
) -> DovetailBackend:
    return DovetailBackend(nesting_level, inner_max_num_threads, **options)


register_parallel_backend("dovetail", DovetailBackend)
