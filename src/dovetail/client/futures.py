"""The service from Python: jobs as futures.

from dovetail import Client
client = Client()
future = client.submit(train, 1e6, rate=0.1)              # a function, and all of its arguments
future = client.with_options(cpus=2).submit(train, 1e6)   # what its job requests
client.submit(["gzip", "big.csv"], cpus=2)                # a command
future.result()
for result in client.map(train, sizes): ...
result = await client.submit(train, 1e6)
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, overload
from urllib.parse import quote

from dovetail.client.call import Untrusted, outcome_of, script_of
from dovetail.client.connection import PATIENCE, Connection, open_connection
from dovetail.client.requests import request_context
from dovetail.errors import DovetailError, InputError
from dovetail.records import dataclass
from dovetail.spec.jobs import OF_PYTHON

__all__ = ["Client", "JobFailed", "JobFuture", "Outcome", "Submitter", "Untrusted"]

Command: TypeAlias = Sequence[str]
"""A list of words, or one string, which is split as a shell splits words."""
Work: TypeAlias = Callable[..., Any] | Command
"""A function to be called, or a command."""
_log = logging.getLogger(__name__)
QUESTION = 20.0
"""Seconds of one question; the next one follows after that."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended; ``stdout`` is what it wrote."""

    job: str
    state: str
    exit_code: int | None
    stdout: bytes


class JobFailed(DovetailError):  # noqa: N818 - reads as what it is
    """A job ended otherwise than COMPLETED, and not by an exception of its function."""

    exit_status = 1

    def __init__(self, job: str, state: str, reason: str) -> None:
        super().__init__(f"job {job}: {state}{': ' + reason if reason else ''}")
        self.job, self.state, self.reason = job, state, reason

    def __reduce__(self) -> tuple[type[JobFailed], tuple[str, str, str]]:
        """From its parts."""
        return type(self), (self.job, self.state, self.reason)


class JobFuture(Future[Any]):
    """What becomes of a job: its function's result, or an `Outcome`. ``job`` is its id. Can be awaited."""

    def __init__(self, client: Client, job: str, is_call: bool) -> None:
        super().__init__()
        self.job, self.is_call = job, is_call
        self._client = weakref.ref(client)

    def cancel(self) -> bool:
        """Cancel the job, or stop it where it runs; ``False`` where it has ended."""
        client = self._client()
        if self.done() or client is None:
            return self.cancelled()
        return client.cancel(self)

    def __await__(self) -> Generator[Any, None, Any]:
        """For coroutines."""
        return asyncio.wrap_future(self).__await__()


class Client:
    """A service and the jobs that were submitted here; use it in any threads.

    ``service`` is an URL or a state folder (default: ``$DOVETAIL_SERVICE``, else this account's own, which is
    started if it does not run). Raises `NoService`.

    Results travel as data where data can hold them. Pickles are read where no other account can have written
    them: from a service of this account, at its own socket, that has never admitted others; else a future has
    `Untrusted` for its exception. ``trust`` decides otherwise: ``True`` reads all, ``False`` none.

    A service that is started anew is waited for, ``patience`` seconds at most; then futures have `NoService`.

    All keywords of a function that is submitted are the function's; what its job requests comes before it:
    ``client.with_options(cpus=2).submit(train, 1e6, name="resnet")``.
    """

    def __init__(
        self,
        service: str | os.PathLike[str] | None = None,
        token: str | None = None,
        *,
        trust: bool | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._trust, self._patience = trust, patience
        self._open: Callable[[], Connection] = lambda: open_connection(
            service, token, start=lambda sentence: None
        )
        self._asks = self._open()
        self._lock = threading.Lock()  # a connection has one request at a time
        self._waiting: dict[str, JobFuture] = {}
        self._some = threading.Condition()
        self._closed = False
        self._watcher: threading.Thread | None = None

    def close(self) -> None:
        """Watch no more; jobs go on, futures that are not done stay so."""
        with self._some:
            self._closed = True
            self._some.notify_all()
        with self._lock:
            self._asks.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------- submitting

    def with_options(self, **options: Any) -> Submitter:
        """This client, for jobs with these options (``cpus``, ``walltime`` …). Raises `InputError`."""
        return Submitter(self, {}).with_options(**options)

    @overload
    def submit(self, what: Callable[..., Any], /, *args: Any, **kwargs: Any) -> JobFuture: ...
    @overload
    def submit(self, what: Command, /, *, array: str, **options: Any) -> list[JobFuture]: ...
    @overload
    def submit(self, what: Command, /, *, array: None = None, **options: Any) -> JobFuture: ...

    def submit(self, what: Work, /, *args: Any, **kwargs: Any) -> JobFuture | list[JobFuture]:
        """A call of a function with all of these arguments, or a command, as a job.

        A command's keywords are fields of a job (``cpus``, ``walltime`` …; docs/reference/service.md), with
        ``array`` there is a future for each index; those of a function's job are given by
        `with_options`. A function's numbers are the features of its run time. The job has this process'
        folder and environment. Raises `InputError`.
        """
        return self._submit_one(what, args, kwargs, {})

    def _submit_one(
        self, what: Work, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> JobFuture | list[JobFuture]:
        if callable(what):
            form = self._form_of_call(what, args, kwargs, options)
        else:
            form = self._form_of_command(what, args, {**options, **kwargs})
        futures = self._submit_forms([form], is_call=callable(what))
        return futures[0] if form.get("array") is None else futures

    def map(self, function: Callable[..., Any], /, *items: Iterable[Any], **options: Any) -> Iterator[Any]:
        """Results of calls with the items, in their order, as `concurrent.futures.Executor.map` gives them.

        ``options`` are those of each job. All jobs are submitted before this returns. Leaving early cancels
        those that are not done. Raises `InputError`.
        """
        _check_options(options)
        rows = list(zip(*items, strict=False))
        forms = [self._form_of_call(function, row, {}, options) for row in rows]
        futures = self._submit_forms(forms, is_call=True)

        def iterate_results() -> Iterator[Any]:
            try:
                for future in futures:
                    yield future.result()
            # Also when the caller stops reading early: nothing of the map is left running.
            finally:
                for future in futures:
                    if not future.done():
                        future.cancel()

        return iterate_results()

    def _form_of_command(
        self, command: Command, args: Sequence[Any], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        rest = [value for key, value in options.items() if key not in OF_PYTHON]
        if args or rest:
            raise InputError(f"found {', '.join(map(repr, [*args, *rest]))} beside a command")
        argv = shlex.split(command) if isinstance(command, str) else list(command)
        return {**options, "command": argv}

    def _form_of_call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> dict[str, Any]:
        form = dict(options)
        name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
        named = {f"arg{n}": value for n, value in enumerate(args, 1)} | dict(kwargs)
        # Only numbers can be features of a run time; other arguments would make every run a new app.
        features = {key: value for key, value in named.items() if _is_feature(value)}
        form.setdefault("app", name)
        form.setdefault("inputs", features)
        return {**form, "script": script_of(function, args, kwargs)}

    def _submit_forms(self, forms: list[dict[str, Any]], *, is_call: bool) -> list[JobFuture]:
        if not forms:
            return []
        with self._lock:
            ids = self._asks.post("/api/v1/jobs", {**request_context(), "jobs": forms})["ids"]
        futures = [JobFuture(self, id, is_call) for id in ids]
        with self._some:
            self._waiting.update((future.job, future) for future in futures)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch_ends, name="jobs", daemon=True)
                self._watcher.start()
            self._some.notify_all()
        return futures

    def cancel(self, future: JobFuture, signal: str | None = None) -> bool:
        """Cancel the job of a future; with ``signal`` (USR1, 10) send it to a job that runs, which goes on.

        ``False`` where the job has ended, or does not run yet. Raises `InputError` for no signal's name.
        """
        form = {"jobs": future.job} if signal is None else {"jobs": future.job, "signal": signal}
        with self._lock:
            return bool(self._asks.post("/api/v1/cancel", form)["jobs"])

    # ------------------------------------------------------------------- the queue

    def move(self, job: str, after: str | None = None) -> dict[str, str]:
        """Give waiting jobs the place after another one, or the first; why that could not be, by job."""
        with self._lock:
            found: dict[str, str] = self._asks.post("/api/v1/move", {"job": job, "after": after})["refused"]
        return found

    def update(self, jobs: str, **changes: Any) -> dict[str, str]:
        """Change jobs that wait (``walltime``, ``memory``, ``priority``, ``name``, ``on``, ``depends`` …).

        ``jobs`` are numbers, ranges or a name; of running ones only the walltime changes. Returns the jobs
        of which that could not be done, with the reason. Raises `InputError`.
        """
        with self._lock:
            found: dict[str, str] = self._asks.post("/api/v1/update", {"jobs": jobs, "changes": changes})[
                "refused"
            ]
        return found

    def pause(self, *kinds: str) -> list[str]:
        """Have nothing new start on these kinds of devices (none: on any); returns what is paused."""
        return self._change_queue("pause", kinds)

    def resume(self, *kinds: str) -> list[str]:
        """Have jobs start again on these kinds of devices (none: on all); returns what is still paused."""
        return self._change_queue("resume", kinds)

    def _change_queue(self, action: str, kinds: Sequence[str]) -> list[str]:
        with self._lock:
            found: list[str] = self._asks.post(f"/api/v1/queue/{action}", {"kinds": list(kinds)})["paused"]
        return found

    def reserve(
        self,
        gpus: int,
        *,
        start: float | str | None = None,
        span: float | str,
        user: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Keep so many GPUs for a user (default: the caller) for ``span`` seconds or e.g. ``3h``.

        ``start`` is seconds since 1970 or e.g. ``14:00`` (default: now). Returns the reservation with its
        ``id`` and ``devices``. Raises `InputError` where that many are not there, or not free then.
        """
        form = {"gpus": gpus, "start": start, "span": span, "user": user, "name": name}
        with self._lock:
            found: dict[str, Any] = self._asks.post("/api/v1/reservations", form)
        return found

    def reservations(self) -> list[dict[str, Any]]:
        """The reservations that are not over."""
        with self._lock:
            found: list[dict[str, Any]] = self._asks.get("/api/v1/reservations")["reservations"]
        return found

    def cancel_reservation(self, id: str) -> None:
        """Give a reservation up. Raises `InputError` (`NotFound`) where there is none of that id."""
        with self._lock:
            self._asks.post(f"/api/v1/reservations/{quote(id, safe='')}/cancel", {})

    # ------------------------------------------------------------------- watching

    def _watch_ends(self) -> None:
        """Wait for whatever ends next, again and again."""
        with self._open() as service:
            service.be_patient(self._patience, _log.warning)
            while True:
                with self._some:
                    while not self._waiting and not self._closed:
                        self._some.wait()
                    if self._closed:
                        return
                    jobs = _make_selector(list(self._waiting))
                try:
                    form = {"jobs": jobs, "timeout": QUESTION, "any": True}
                    ended = service.post("/api/v1/wait", form)["jobs"]
                    for one in ended:
                        self._settle_future(service, one["id"], one["state"])
                except DovetailError as error:
                    self._fail_all_futures(error)
                    return

    def _settle_future(self, service: Connection, job: str, state: str) -> None:
        """Fetch what became of a job, and let its future have it."""
        with self._some:
            future = self._waiting.get(job)
        if future is None:
            return
        well = state == "COMPLETED"  # then all else about it is known
        row: Any = {"exit_code": 0, "reason": ""} if well else service.get(f"/api/v1/jobs/{job}")
        data, ours = _whole_log(service, job) if state in ("COMPLETED", "FAILED") else (b"", False)
        with self._some:  # what could not be fetched has the error of that for its end
            self._waiting.pop(job, None)
        if state == "CANCELLED":
            Future.cancel(future)
            future.set_running_or_notify_cancel()
            return
        future.set_running_or_notify_cancel()
        if not future.is_call:
            if state == "COMPLETED":
                future.set_result(Outcome(job, state, row["exit_code"], data))
            else:
                future.set_exception(JobFailed(job, state, row["reason"]))
            return
        try:
            returned, value = outcome_of(data, trusted=ours if self._trust is None else self._trust)
        except Untrusted as error:
            future.set_exception(Untrusted(f"job {job}: {error}"))
            return
        except Exception as error:  # noqa: BLE001 - unpickling runs the code of the result's writer
            failed = JobFailed(job, state, row["reason"] or "its result cannot be read")
            failed.__cause__ = error
            future.set_exception(failed)
            return
        if returned:
            future.set_result(value)
        else:
            future.set_exception(value)

    def _fail_all_futures(self, error: DovetailError) -> None:
        """The service is gone: nothing more will come of these jobs here."""
        with self._some:
            waiting, self._waiting = self._waiting, {}
            self._watcher = None
        for future in waiting.values():
            future.set_running_or_notify_cancel()
            future.set_exception(error)


class Submitter:
    """A client with options for the jobs that are submitted through it; made by `Client.with_options`."""

    def __init__(self, client: Client, options: Mapping[str, Any]) -> None:
        self._client, self._options = client, dict(options)

    def with_options(self, **options: Any) -> Submitter:
        """The same with more options, or with others. Raises `InputError`."""
        _check_options(options)
        return Submitter(self._client, {**self._options, **options})

    def submit(self, what: Work, /, *args: Any, **kwargs: Any) -> Any:
        """As `Client.submit`; a list of futures where ``array`` is among the options."""
        return self._client._submit_one(what, args, kwargs, self._options)

    def map(self, function: Callable[..., Any], /, *items: Iterable[Any]) -> Iterator[Any]:
        """As `Client.map`."""
        return self._client.map(function, *items, **self._options)


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in OF_PYTHON:
            raise InputError(
                f"found {name!r}, expected one of {', '.join(sorted(OF_PYTHON))}", where="options"
            )


def _is_feature(value: object) -> bool:
    """Whether an argument can be a feature of a prediction: a number of at least 0, or a short word."""
    if isinstance(value, bool):
        return False
    if isinstance(value, str):
        return len(value) <= 40
    return isinstance(value, int | float) and 0 <= value < 1e300


def _make_selector(ids: Sequence[str]) -> str:
    """Ids as a selector; neighbours as a range.

    >>> _make_selector(["3", "4", "5", "9", "2_1"])
    '3-5,9,2_1'
    """
    numbers = sorted(int(id) for id in ids if id.isdecimal())
    parts: list[str] = []
    at = 0
    while at < len(numbers):
        end = at
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        parts.append(str(numbers[at]) if at == end else f"{numbers[at]}-{numbers[end]}")
        at = end + 1
    return ",".join([*parts, *(id for id in ids if not id.isdecimal())])


def _whole_log(service: Connection, job: str) -> tuple[bytes, bool]:
    """All that a job wrote to standard output, and whether only this account can have written it."""
    data, ours = b"", True
    while True:
        reply = service.ask("GET", f"/api/v1/jobs/{job}/log", query={"offset": len(data)})
        if reply.status != 200:
            reply.read_json()
        data += reply.body
        ours = ours and reply.headers.get("dovetail-shared") == "0"
        if not reply.body or len(data) >= int(reply.headers["dovetail-length"]):
            return data, ours and service.peers == {os.geteuid()}
