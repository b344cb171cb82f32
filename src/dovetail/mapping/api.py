"""The public face of maps: `map`, `Workers`, and what a map gives back."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from dovetail.errors import InputError, ItemError, MapError
from dovetail.files.units import bytes_given, seconds_given
from dovetail.mapping.folding import Fold, Tree
from dovetail.mapping.function import Function, as_function, function
from dovetail.mapping.hiring import Workers
from dovetail.mapping.running import Caught, try_call
from dovetail.mapping.scheduler import Errors, HistoryLike, Plan
from dovetail.mapping.session import Session
from dovetail.mapping.summary import MapSummary
from dovetail.splitting.rules import DEFAULT_RULE, RULES

__all__ = ["Map", "Workers", "function", "map"]


def _abandon_map(run: list[Session]) -> None:
    """The map is no longer referenced: end it, wherever the garbage collector runs."""
    for one in run:
        one.delivery.close()
        # The collector may run in the map's own thread, which cannot wait for itself.
        if not threading.current_thread().name.startswith("dovetail-map"):
            one.thread.join()


def _combine_here(call: Callable[..., Any], *args: Any) -> Any:
    """Combine results here; what ``combine`` raises is a `MapError`, as it is in a worker."""
    found = try_call(call, *args)
    if not isinstance(found, Caught):
        return found
    if not isinstance(found.error, Exception):
        raise found.error
    what = f"{type(found.error).__qualname__}: {found.error}"
    raise MapError(f"results cannot be combined: {what}") from found.error


class Map:
    """A map: iterate over its results, or reduce them. It begins at its first use.

    Under asyncio use ``async for``. In a ``for`` loop (or by ``next``) an item that failed raises
    `ItemError`; the map goes on, and may be iterated on. Left alone, by ``break`` or an exception, it ends
    when nothing refers to it any more; ``close`` or ``with`` end it at once. ``summary`` has the counts.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._runs: list[Session] = []
        self._begins = threading.RLock()  # a close from another thread finds it begun
        self._segment: Iterator[Any] = iter(())
        self._finalizer = weakref.finalize(self, _abandon_map, self._runs)

    # -- results as they come --------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        run = self._begin_session(None)
        while True:
            try:
                yield from self._segment
                segment = run.delivery.get()
            # Ctrl-C ends the map at once: its workers ignore the signal.
            except KeyboardInterrupt:
                self.close()
                raise
            if segment is None:
                return
            if isinstance(segment, ItemError):
                if self._plan.errors == "raise":
                    # The traceback keeps this frame: it must not keep the map, and with it its workers.
                    del self, run
                    raise segment
                segment = [segment] if self._plan.errors == "return" else []
            self._segment = iter(segment)

    def __next__(self) -> Any:
        return next(iter(self))

    async def __aiter__(self) -> AsyncIterator[Any]:
        delivery = self._begin_session(None).delivery
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The loop was closed: there is no waiter.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(news.set)

        delivery.listen(wake)
        try:
            while not delivery.is_over:
                segment = delivery.get(wait=False)
                if segment is None:
                    # Set by any result; cleared after the wait, before the next look, so that none is missed.
                    await news.wait()
                    news.clear()
                elif not isinstance(segment, ItemError):
                    for value in segment:
                        yield value
                elif self._plan.errors == "raise":
                    raise segment
                elif self._plan.errors == "return":
                    yield segment
        finally:
            delivery.listen(None)

    # -- reductions ------------------------------------------------------------------------------------

    def reduce(self, combine: Callable[[Any, Any], Any]) -> Any:
        """All results combined two by two, in the items' order; ``combine`` must be associative.

        Combining begins with the first two neighbours that are there, in the workers and here, as a tree
        whose shape depends on nothing but the number of items: sums of floats are the same in every run.
        Raises `ItemError`, `MapError` for what ``combine`` raises, and `InputError` for a map of no items.
        """
        tree = self._gather_results(Fold(combine))
        if tree.empty:
            raise InputError(
                "found no item that gave a result, expected at least one to reduce", where="reduce"
            )
        return _combine_here(tree.result)

    def reduce_by_key(self, combine: Callable[[Any, Any], Any]) -> dict[Any, Any]:
        """Each item gives (key, value) pairs or a mapping: the values of each key combined.

        ``combine`` must be associative; values come to it in the items' order. Raises what `reduce` raises;
        a map of no items gives an empty dictionary.
        """
        tree = self._gather_results(Fold(combine, by_key=True))
        found: dict[Any, Any] = {} if tree.empty else _combine_here(tree.result)
        return found

    def _gather_results(self, fold: Fold) -> Tree:
        """The tree of all results."""
        run, tree = self._begin_session(fold), Tree(fold.both)
        with ExitStack() as undo:
            undo.callback(self.close)
            while (segment := run.delivery.get()) is not None:
                if not isinstance(segment, ItemError):
                    _combine_here(tree.add, segment)
                elif self._plan.errors == "raise":
                    raise segment
                else:
                    tree.skip(segment.index)
            undo.pop_all()
        return tree

    # -- the map itself --------------------------------------------------------------------------------

    def _begin_session(self, fold: Fold | None) -> Session:
        if not self._runs:
            if fold is not None and self._plan.errors == "return":
                raise InputError(
                    "found 'return', expected 'raise' or 'skip' where results are reduced", where="errors"
                )
            with self._begins:
                self._runs.append(Session(self._plan, fold))
        elif fold is not None or self._runs[0].fold is not None:
            raise InputError("this map has begun already, expected a new one for each use", where="map")
        return self._runs[0]

    @property
    def summary(self) -> MapSummary:
        """What was done so far, or in all."""
        return self._runs[0].summary if self._runs else MapSummary()

    def close(self) -> None:
        """End the map: no worker is left when this returns. Results that were not fetched are lost."""
        with self._begins:
            begun = list(self._runs)
        _abandon_map(begun)

    def __enter__(self) -> Map:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def map(  # noqa: A001 - what it is called
    function: Function | Callable[[Any], Any],
    items: Iterable[Any],
    *,
    workers: str | Workers | None = None,
    ordered: bool = False,
    common: Mapping[str, Any] | None = None,
    cost: Callable[[Any], float] | Sequence[float] | None = None,
    rule: str = DEFAULT_RULE,
    retries: int = 0,
    timeout: float | str | None = None,
    batch: int | None = None,
    errors: Errors = "raise",
    duplicate: bool = True,
    verify: float = 0.0,
    agree: Callable[[Any, Any], bool] | None = None,
    memory: float | str | None = None,
    executor: str = "local",
    engine: str | None = None,
    address: str | None = None,
    progress: bool | None = None,
    history: HistoryLike = None,
) -> Map:
    """Apply a function to many items, on CPU and GPU workers at once, so that all is done soonest.

    Args:
        function: one made by `dovetail.function`, or any callable (CPU workers only).
        items: any iterable; a generator is read ahead only as far as workers and results need.
        workers: ``cpu:14,gpu:2`` (KIND:COUNT or KIND:COUNTxCORES), or `Workers`; by default one for each
            device, and one for each core left. On a cluster: of each node.
        ordered: results in the items' order, not as they come.
        common: keyword arguments of every call, sent once to each worker.
        cost: how much work each item is, in any unit: a function of the item, or a sequence. The longest
            items then go first.
        rule: ``finish-time``, ``shares`` or ``greedy``.
        retries: how often an item that raised something or timed out is run again. An item whose worker
            was killed by a signal is run again anyway, three times at most.
        timeout: seconds that one item may take, or a duration such as ``10s``.
        batch: items that go to a worker together; by default until they take about 20 ms.
        errors: ``raise`` an item's `ItemError`, ``return`` it in the place of its result, or ``skip`` it.
        duplicate: near the end, run a straggler a second time where that is predicted to help.
        verify: share of the items that is run on every kind, and the results compared.
        agree: decides whether two results agree; by default but for rounding.
        memory: bytes that one worker may allocate, or a size such as ``8GB``; by default all there is.
        executor: ``local``, ``ray`` or ``slurm`` (inside an allocation); ``engine`` is its former name.
        address: of a Ray cluster; without one, Ray is started on this machine and stopped at the end.
        progress: whether to show a bar; by default on a terminal and in a notebook.
        history: where to learn from and keep what was measured; ``False`` for nowhere.

    Raises:
        InputError: something that was given makes no sense, when the map begins at the latest.
        ItemError: while iterating: an item failed.
        MapError: while iterating: the map cannot go on.
    """
    if rule not in RULES:
        raise InputError(f"found {rule!r}, expected one of {', '.join(RULES)}", where="rule")
    if errors not in ("raise", "return", "skip"):
        raise InputError(f"found {errors!r}, expected raise, return or skip", where="errors")
    if not isinstance(items, Iterable):
        raise InputError(f"found {items!r}, expected an iterable", where="items")
    if retries < 0:
        raise InputError(f"found {retries}, expected a number of at least 0", where="retries")
    limit = None if timeout is None else seconds_given(timeout, "timeout", above_zero=True)
    most = None if memory is None else bytes_given(memory, "memory", above_zero=True)
    where = executor if engine is None else engine
    if batch is not None and batch < 1:
        raise InputError(f"found {batch}, expected at least 1 item", where="batch")
    if not 0 <= verify <= 1:
        raise InputError(f"found {verify}, expected a share from 0 to 1", where="verify")
    if not isinstance(workers, Workers):
        workers = Workers(workers, engine=where, address=address, memory=most)
    elif where != "local" or address is not None or memory is not None:
        raise InputError("found with Workers, which have their own", where="executor, address, memory")
    made = as_function(function)
    for kind in workers.kinds:
        made.needed_implementation(kind)
    return Map(
        Plan(
            function=made, items=items, workers=workers, ordered=ordered, common=dict(common or {}),
            cost=cost, rule=RULES[rule], retries=retries, timeout=limit, batch=batch, errors=errors,
            duplicate=duplicate, verify=verify, agree=agree, progress=progress, history=history,
        )
    )  # fmt: skip
