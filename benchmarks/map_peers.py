"""One way to map a function over items with two worker processes, timed: ``map_peers.py PEER``; prints JSON.

Workers are up and have run something before the clock starts. Seconds are wall time by item: of items that
do nothing, and of arrays that are sent and come back. Functions are at module level, so that every peer can
import them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

WORKERS = 2
TINY = 20_000
ROUNDS = 3
ARRAYS = {"1 MB": (1_000_000, 60), "100 MB": (100_000_000, 4)}

Mapper = Callable[[Iterable[Any]], Iterable[Any]]


def same(x: Any) -> Any:
    """The item."""
    return x


@contextmanager
def dovetail_local() -> Iterator[Mapper]:
    import dovetail

    with dovetail.Workers(f"cpu:{WORKERS}") as workers:
        yield lambda items: dovetail.map(
            same, items, workers=workers, ordered=True, history=False, progress=False
        )


@contextmanager
def dovetail_ray() -> Iterator[Mapper]:
    import dovetail

    with dovetail.Workers(f"cpu:{WORKERS}", engine="ray") as workers:
        yield lambda items: dovetail.map(
            same, items, workers=workers, ordered=True, history=False, progress=False
        )


@contextmanager
def pool(chunk: int = 1) -> Iterator[Mapper]:
    import multiprocessing

    with multiprocessing.Pool(WORKERS) as made:
        yield lambda items: made.imap(same, items, chunksize=chunk)


@contextmanager
def futures(chunk: int = 1) -> Iterator[Mapper]:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(WORKERS) as made:
        yield lambda items: made.map(same, items, chunksize=chunk)


@contextmanager
def joblib() -> Iterator[Mapper]:
    from joblib import Parallel, delayed

    with Parallel(WORKERS, backend="loky", return_as="generator") as made:
        yield lambda items: made(delayed(same)(item) for item in items)


@contextmanager
def dask() -> Iterator[Mapper]:
    from dask.distributed import Client

    with Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, silence_logs=50) as client:
        yield lambda items: client.gather(client.map(same, list(items), pure=False))


@contextmanager
def ray() -> Iterator[Mapper]:
    import ray as cluster

    cluster.init(
        address="local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=1 << 30,
    )  # fmt: skip
    task = cluster.remote(same)

    def run(items: Iterable[Any]) -> Iterator[Any]:
        waiting = []
        for item in items:  # a few at a time: the object store holds a gigabyte
            waiting.append(task.remote(item))
            if len(waiting) > 1000 or (len(waiting) > WORKERS and getattr(item, "nbytes", 0) > 1e6):
                yield cluster.get(waiting.pop(0))
        for ref in waiting:
            yield cluster.get(ref)

    yield run
    cluster.shutdown()


PEERS: dict[str, Callable[[], Any]] = {
    "dovetail": dovetail_local,
    "multiprocessing imap": pool,
    "multiprocessing imap, chunks of 1000": lambda: pool(1000),
    "concurrent.futures": futures,
    "concurrent.futures, chunks of 1000": lambda: futures(1000),
    "joblib (loky)": joblib,
    "dask": dask,
    "dovetail on ray": dovetail_ray,
    "ray": ray,
}


def main() -> None:
    """Time one peer."""
    name = sys.argv[1]
    found: dict[str, float] = {}
    with PEERS[name]() as run:
        assert list(run(range(100))) == list(range(100))  # everything is up
        tiny = TINY * 50 if "dovetail" in name or "chunks" in name else TINY
        spans = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            assert sum(run(range(tiny))) == tiny * (tiny - 1) // 2
            spans.append((time.perf_counter() - began) / tiny)
        found["nothing"] = statistics.median(spans)
        for size, (count, items) in ARRAYS.items():
            if "chunks" in name:
                continue
            array = np.ones(count, dtype=np.uint8)
            spans = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                for result in run(array for _ in range(items)):
                    assert result[-1] == 1
                spans.append((time.perf_counter() - began) / items)
            found[size] = statistics.median(spans)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
