"""The HTTP API: what `dovetail.service.core` offers, as routes that describe themselves (OpenAPI).

Errors are ``{"error": "one sentence"}``: 400 for a wrong request, 403 for what is another's, 404 for
what is not there, 503 while nothing can be put on record. Only requests that `dovetail.service.gate` has
let in come here; who it is stands in the request's scope.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException

from dovetail.client.errors import Forbidden, Full, NotFound
from dovetail.errors import DovetailError, InputError
from dovetail.files.fields import Entry, validate_data
from dovetail.files.sentences import make_printable
from dovetail.files.shortage import describe_lack, lack_of
from dovetail.files.signals import signal_of
from dovetail.service import overview
from dovetail.service.core import SETTLED, Action, Service
from dovetail.service.details import explain_job, job_details, job_files, preview_jobs
from dovetail.service.forms import (
    ActionForm,
    CancelForm,
    ForgetForm,
    MoveForm,
    PauseForm,
    RequeueForm,
    ReserveForm,
    SubmitForm,
    TerminalForm,
    UpdateForm,
    WaitForm,
    WhatIfForm,
    schema_definitions,
    schema_of,
)
from dovetail.service.gate import Sessions
from dovetail.service.logs import FilePart, read_log
from dovetail.service.metrics import format_exposition
from dovetail.service.people import Principal
from dovetail.service.reports import Question, report_rows
from dovetail.service.submission import check_words, return_memory
from dovetail.service.tokens import Tokens
from dovetail.version import __version__

_log = logging.getLogger(__name__)
WEB = Path(__file__).with_name("web")
HEARTBEAT = 25.0
"""Seconds after which an event stream sends a sign of life."""
GAP = 0.25
"""Seconds between two events of one stream, at least."""
LONGEST_WAIT = 30.0
LONG_BODY = 1 << 14
"""Bytes of a request that is not read in the loop."""


class Answer(JSONResponse):
    """JSON, made by a fast encoder."""

    def render(self, content: Any) -> bytes:
        """Its bytes; names that are no UTF-8 are spelt out."""
        try:
            return orjson.dumps(content)
        # A file name need not be UTF-8; Python spells such bytes as surrogates, which only its own encoder
        # writes.
        except orjson.JSONEncodeError:  # it refuses what cannot be spelt in UTF-8
            return json.dumps(content).encode()


class _Described(FastAPI):
    """Describes the bodies that we read ourselves as well."""

    def openapi(self) -> dict[str, Any]:
        """The description, made once."""
        found = super().openapi()
        found.setdefault("components", {}).setdefault("schemas", {}).update(schema_definitions())
        return found


def application(service: Service, sessions: Sessions, tokens: Tokens) -> FastAPI:
    """The routes over one service."""
    app = _Described(
        title="Dovetail",
        version=__version__,
        description="The queue that is always there.",
        docs_url=None,  # their pages come from the internet
        redoc_url=None,
        default_response_class=Answer,
        redirect_slashes=False,
    )
    app.state.service = service
    _add_error_handlers(app)
    _add_read_routes(app, service)
    _add_change_routes(app, service)
    _add_admin_routes(app, service, sessions, tokens)
    _add_pages(app)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    statuses: dict[type[DovetailError], int] = {NotFound: 404, Forbidden: 403, Full: 503, InputError: 400}

    async def answer_own_error(request: Request, error: Exception) -> Answer:
        # In the order of the table: the first kind that fits decides.
        status = next((status for kind, status in statuses.items() if isinstance(error, kind)), 500)
        return Answer({"error": str(error)}, status)

    async def answer_invalid_request(request: Request, error: Exception) -> Answer:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"][1:]) or "request"
        return Answer({"error": f"{place}: {first['msg'].lower()}"}, 400)

    async def answer_http_error(request: Request, error: Exception) -> Answer:
        assert isinstance(error, HTTPException)
        return Answer({"error": str(error.detail).lower()}, error.status_code, dict(error.headers or {}))

    async def answer_lack(request: Request, error: Exception) -> Answer:
        assert isinstance(error, OSError)
        if not lack_of(error):
            raise error
        return Answer({"error": describe_lack(error)}, 503)

    async def answer_unforeseen(request: Request, error: Exception) -> Answer:
        # The log is where an operator finds the place; uvicorn's own log is off, as strangers fill it.
        _log.error("an error at %s %s", request.method, request.url.path[:200], exc_info=error)
        what = make_printable(f"{type(error).__name__}: {error}"[:500])
        return Answer({"error": f"internal error: {what} (the service's log shows where)"}, 500)

    app.add_exception_handler(DovetailError, answer_own_error)
    app.add_exception_handler(OSError, answer_lack)
    app.add_exception_handler(Exception, answer_unforeseen)
    app.add_exception_handler(RequestValidationError, answer_invalid_request)
    app.add_exception_handler(HTTPException, answer_http_error)


def _request_principal(request: Request) -> Principal:
    person = request.scope["person"]
    assert isinstance(person, Principal)
    return person


def _describe_body(form: type[Entry]) -> dict[str, Any]:
    """The description of a body that we read ourselves."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema_of(form)}}}}


def _parse_body(body: bytes) -> Any:
    """JSON; names that are no UTF-8 come as Python spells them. Raises `InputError`."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        why = error
    try:
        data = json.loads(body, parse_constant=int)  # which refuses NaN and its like
        json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogateescape")
    except (ValueError, RecursionError):
        raise InputError(f"the body is no JSON: {why}") from None
    return data


async def _read_form(request: Request, form: type[Entry]) -> Any:
    """The body as this form; long ones are read beside the loop. Raises `InputError`."""
    service: Service = request.app.state.service
    body = await request.body()

    def parse_form() -> Entry:
        data = _parse_body(body)
        if not isinstance(data, dict):
            # A list or a number would be valid JSON and no form.
            raise InputError("the body: expected an object")
        check_words(data)
        return validate_data(form, data, "request")

    if len(body) < LONG_BODY:
        return parse_form()
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(service.makers, parse_form)  # few at once: each is many objects
    finally:
        loop.call_later(SETTLED, service.makers.submit, return_memory)


State = Literal[
    "PENDING", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"
]
Short = Annotated[str | None, Query(max_length=4096)]
Limit = Annotated[int, Query(ge=1, le=100_000)]
Offset = Annotated[int, Query(ge=0, le=1_000_000_000)]
Time = Annotated[float | None, Query(ge=0, le=1e12, allow_inf_nan=False)]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": text,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"error": {"type": "string"}},
                    "required": ["error"],
                }
            }
        },
    }
    for status, text in {
        400: "a wrong request",
        401: "a token is needed",
        403: "not yours to do",
        404: "not there",
        413: "too long",
        503: "cannot be put on record now",
    }.items()
}


# ------------------------------------------------------------------------------------------------- looking


def _add_read_routes(app: FastAPI, service: Service) -> None:
    @app.get("/api/v1/info", responses=ERRORS)
    async def info() -> Answer:
        """How the service stands."""
        await service.tidying.count_again()
        return Answer(overview.service_info(service))

    @app.get("/api/v1/nodes", responses=ERRORS)
    async def nodes() -> Answer:
        """The nodes, what they have, and which jobs use it."""
        return Answer({"nodes": overview.node_rows(service)})

    @app.get("/api/v1/reservations", responses=ERRORS)
    async def reservations() -> Answer:
        """The reservations that are not over, by their start."""
        return Answer({"reservations": service.reserved()})

    @app.get("/api/v1/jobs", responses=ERRORS)
    async def jobs(
        request: Request,
        jobs: Short = None,
        state: Annotated[list[State] | None, Query()] = None,
        user: Short = None,
        name: Short = None,
        limit: Limit = 100,
        offset: Offset = 0,
        patience: Annotated[float, Query(ge=0, le=30)] = 0.0,
    ) -> Answer:
        """Jobs that have not ended, in the order of the queue; or those that a selector names."""
        await service.forecast.wait(patience)
        if jobs is not None:
            # A selector may name jobs that ended long ago, which only the archive knows; the queue itself is
            # in memory.
            rows = await service.rows(jobs, _request_principal(request), limit)
            return Answer({"jobs": rows, "total": len(rows), **service.forecast.describe_forecast()})
        rows, total = service.page(states=state or (), user=user, name=name, limit=limit, offset=offset)
        return Answer({"jobs": rows, "total": total, **service.forecast.describe_forecast()})

    @app.get("/api/v1/ended", responses=ERRORS)
    async def ended(
        state: Annotated[list[State] | None, Query()] = None,
        user: Short = None,
        name: Short = None,
        since: Time = None,
        until: Time = None,
        limit: Limit = 100,
        offset: Offset = 0,
    ) -> Answer:
        """Jobs that have ended, the last one first; `since` and `until` are seconds since the epoch."""
        rows = await service.ask(
            lambda archive: archive.page(
                states=state or (),
                user=user,
                name=name,
                since=since,
                until=until,
                limit=limit,
                offset=offset,
            )
        )
        return Answer({"jobs": rows})

    @app.get("/api/v1/records", responses=ERRORS)
    async def records(
        request: Request,
        jobs: Annotated[str | None, Query(max_length=1 << 16)] = None,
        state: Annotated[list[State] | None, Query()] = None,
        user: Annotated[list[str] | None, Query(max_length=1000)] = None,
        name: Annotated[list[str] | None, Query(max_length=1000)] = None,
        since: Time = None,
        until: Time = None,
        limit: Limit = 100_000,
    ) -> Answer:
        """Jobs with all that is on record, ended or not, in order of submission.

        Those of a selector (what no job has is passed over) or all, as far as the rest holds: `since` and
        `until` are seconds since the epoch between which a job was there.
        """
        question = Question(jobs, state or (), user or (), name or (), since, until, limit)
        found = await report_rows(service, question, _request_principal(request))
        return Answer({"jobs": found, "now": time.time(), "keep": service.options.keep})

    @app.get("/api/v1/apps", responses=ERRORS)
    async def apps(since: Time = None) -> Answer:
        """Of each app and implementation: how many runs, how long, and how far predictions were off."""
        return Answer({"apps": await service.ask(lambda archive: archive.summarize_apps(since))})

    @app.post("/api/v1/whatif", responses=ERRORS, openapi_extra=_describe_body(WhatIfForm))
    async def whatif(request: Request) -> Answer:
        """When the jobs of this moment would start and end under another policy, or on another cluster."""
        form = await _read_form(request, WhatIfForm)
        return Answer(await service.forecast.ask({"policy": form.policy, "cluster": form.cluster}))

    @app.get("/api/v1/jobs/{id}", responses=ERRORS)
    async def job(id: str) -> Answer:
        """One job, with its command, files and earlier attempts."""
        return Answer(await job_details(service, id))

    @app.get("/api/v1/jobs/{id}/explain", responses=ERRORS)
    async def explain(id: str) -> Answer:
        """What was considered for a job, what was predicted, and the reason."""
        return Answer(await explain_job(service, id))

    @app.get("/api/v1/jobs/{id}/sooner", responses=ERRORS)
    async def sooner(id: str) -> Answer:
        """When a waiting job starts, and when it would if its owner had requested one thing otherwise."""
        return Answer(await service.foretell_others(id))

    @app.get(
        "/api/v1/jobs/{id}/log",
        responses={**ERRORS, 200: {"content": {"application/octet-stream": {}}, "description": "the bytes"}},
        response_class=Response,
    )
    async def log(
        request: Request,
        id: str,
        stream: Literal["out", "err"] = "out",
        attempt: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
        offset: Annotated[int, Query(ge=-(1 << 60), le=1 << 60)] = 0,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 0.0,
    ) -> Response:
        """A piece of what a job wrote, from a byte on (negative: from the end).

        With `wait` seconds the answer comes when there is more, or the job has ended. The headers give where
        the piece begins (`dovetail-offset`), how long the file is, whether the job has ended, and whether
        others than the service's account may have written it (`dovetail-shared`).
        """
        piece = await _log_piece(service, id, _request_principal(request), stream, attempt, offset, wait)
        headers = {
            "dovetail-offset": str(piece.offset),
            "dovetail-length": str(piece.length),
            "dovetail-ended": str(int(piece.ended)),
            "dovetail-shared": str(int(service.shared)),
            "content-disposition": "attachment",
        }
        return Response(piece.data, 200, headers, "application/octet-stream")

    @app.get(
        "/api/v1/jobs/{id}/terminal",
        responses={**ERRORS, 200: {"content": {"application/octet-stream": {}}, "description": "frames"}},
        response_class=StreamingResponse,
    )
    async def terminal(
        request: Request,
        id: str,
        rows: Annotated[int, Query(ge=1, le=10_000)] = 24,
        columns: Annotated[int, Query(ge=1, le=10_000)] = 80,
    ) -> StreamingResponse:
        """What an interactive job's terminal shows, as frames (`dovetail.process.terminal`), to its end.

        One client at a time has it; where that one leaves, the job is hung up.
        """
        found = await service.terminal_of(id, _request_principal(request), (rows, columns))
        return StreamingResponse(found, media_type="application/octet-stream")

    @app.get(
        "/api/v1/events",
        responses={**ERRORS, 200: {"content": {"text/event-stream": {}}, "description": "a stream"}},
        response_class=StreamingResponse,
    )
    async def events() -> StreamingResponse:
        """Server-sent events: `change`, with counts, whenever something has happened; else nothing."""
        return StreamingResponse(_stream_events(service), media_type="text/event-stream")

    @app.get(
        "/metrics",
        responses={**ERRORS, 200: {"content": {"text/plain": {}}, "description": "Prometheus' text form"}},
        response_class=Response,
    )
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(
            format_exposition(overview.service_info(service), service.figures),
            media_type="text/plain; version=0.0.4; charset=utf-8",
        )


async def _log_piece(
    service: Service, id: str, person: Principal, stream: str, attempt: int | None, offset: int, wait: float
) -> FilePart:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while True:
        found = await job_files(service, id, person, attempt)
        path = found.out if stream == "out" else found.err
        # In a thread: the file may lie on a slow network.
        piece = await loop.run_in_executor(None, read_log, path, offset, found.ended, found.chosen)
        left = deadline - loop.time()
        if piece.data or piece.ended or left <= 0:
            return piece
        await asyncio.sleep(min(0.2, left))


async def _stream_events(service: Service) -> AsyncIterator[bytes]:
    listener = service.listen()
    try:
        yield _encode_event(service)
        while True:
            listener.clear()
            try:
                await asyncio.wait_for(listener.wait(), HEARTBEAT)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            # A burst of changes is one event: a page that loads anew for each would only load.
            await asyncio.sleep(GAP)
            yield _encode_event(service)
    finally:
        service.remove_listener(listener)


def _encode_event(service: Service) -> bytes:
    data = orjson.dumps(overview.change_pulse(service))
    return b"event: change\ndata: " + data + b"\n\n"


# ------------------------------------------------------------------------------------------------ changing


def _add_change_routes(app: FastAPI, service: Service) -> None:
    @app.post("/api/v1/jobs", status_code=201, responses=ERRORS, openapi_extra=_describe_body(SubmitForm))
    async def submit(request: Request) -> Answer:
        """Take in jobs, all or none. When this answers, they are on the disk.

        With `dry_run` nothing is taken in, and `jobs` has what would be: its request, and what is predicted.
        """
        form = await _read_form(request, SubmitForm)
        found = await service.submit(form, _request_principal(request))
        if form.dry_run:
            return Answer({"ids": [], "notes": found.notes, "jobs": preview_jobs(service, found.jobs)}, 200)
        # Elements of an array share one number.
        numbers = sorted({number for number, _ in found.numbers})
        return Answer({"ids": found.ids, "numbers": numbers, "notes": found.notes}, 201)

    @app.post("/api/v1/jobs/test", responses=ERRORS, openapi_extra=_describe_body(SubmitForm))
    async def test(request: Request) -> Answer:
        """When jobs would start and end if they were submitted now; nothing of them is kept."""
        form = await _read_form(request, SubmitForm)
        return Answer(await service.foretell_jobs(form, _request_principal(request)))

    def add_wish_route(action: Action, line: str) -> None:
        async def route(request: Request) -> Answer:
            form = await _read_form(request, ActionForm)
            found = await service.act_on_jobs(action, form.jobs, _request_principal(request))
            return Answer({"jobs": found.done, "refused": found.refused})

        route.__doc__, route.__name__ = line, action
        app.post(f"/api/v1/{action}", responses=ERRORS, openapi_extra=_describe_body(ActionForm))(route)

    @app.post("/api/v1/cancel", responses=ERRORS, openapi_extra=_describe_body(CancelForm))
    async def cancel(request: Request) -> Answer:
        """Cancel jobs that wait, stop those that run; with `signal` send it to those that run, which go on.

        Answers with those of which that is done (`jobs`), and with why not of the others (`refused`), as all
        of these do.
        """
        form = await _read_form(request, CancelForm)
        if form.signal is None:
            found = await service.act_on_jobs("cancel", form.jobs, _request_principal(request))
        else:
            number = _parse_signal_number(form.signal)
            found = await service.signal(form.jobs, number, form.to, _request_principal(request))
        return Answer({"jobs": found.done, "refused": found.refused})

    add_wish_route("hold", "Keep waiting jobs back.")
    add_wish_route("release", "Let jobs go that were held back.")

    @app.post("/api/v1/requeue", responses=ERRORS, openapi_extra=_describe_body(RequeueForm))
    async def requeue(request: Request) -> Answer:
        """Another attempt: of jobs that have ended now, of those that run after they were stopped.

        With `failed` only of those that have failed, of all of the caller's where no others are named.
        """
        form = await _read_form(request, RequeueForm)
        if form.jobs is None and not form.failed:
            raise InputError("jobs: found nothing, expected numbers, ranges, names, 'last' or 'all'")
        found = await service.act_on_jobs(
            "requeue", form.jobs, _request_principal(request), failed=form.failed
        )
        return Answer({"jobs": found.done, "refused": found.refused})

    @app.post("/api/v1/update", responses=ERRORS, openapi_extra=_describe_body(UpdateForm))
    async def update(request: Request) -> Answer:
        """Change jobs that wait, and the walltime of those that run."""
        found = await service.update(await _read_form(request, UpdateForm), _request_principal(request))
        return Answer({"jobs": found.done, "refused": found.refused})

    @app.post("/api/v1/move", responses=ERRORS, openapi_extra=_describe_body(MoveForm))
    async def move(request: Request) -> Answer:
        """Give waiting jobs the places after another one, or the first; several keep their order."""
        form = await _read_form(request, MoveForm)
        found = await service.move_jobs(form.job, form.after, _request_principal(request))
        return Answer({"jobs": found.done, "refused": found.refused})

    @app.post(
        "/api/v1/reservations", status_code=201, responses=ERRORS, openapi_extra=_describe_body(ReserveForm)
    )
    async def reserve(request: Request) -> Answer:
        """Keep GPUs for a user between two moments; answers with the reservation."""
        form = await _read_form(request, ReserveForm)
        return Answer(await service.reserve(form, _request_principal(request)), 201)

    @app.post("/api/v1/reservations/{id}/cancel", responses=ERRORS)
    async def cancel_reservation(request: Request, id: str) -> Answer:
        """Give a reservation up: its devices are for all again."""
        return Answer({"reservation": await service.cancel_reservation(id, _request_principal(request))})

    @app.post("/api/v1/jobs/{id}/terminal", responses=ERRORS, openapi_extra=_describe_body(TerminalForm))
    async def type_into(request: Request, id: str) -> Answer:
        """Type at an interactive job's terminal, or report the size of its window."""
        await service.type_into(id, await _read_form(request, TerminalForm), _request_principal(request))
        return Answer({"job": id})

    @app.post("/api/v1/wait", responses=ERRORS, openapi_extra=_describe_body(WaitForm))
    async def wait(request: Request) -> Answer:
        """Wait until jobs have ended, at most `timeout` seconds; `left` counts those that have not.

        With `any`, until one has; then `jobs` are only those that have ended.
        """
        form = await _read_form(request, WaitForm)
        found, left = await service.wait(form.jobs, _request_principal(request), form.timeout, first=form.any)
        return Answer({"jobs": [{"id": one.id, "state": str(one.state)} for one in found], "left": left})


def _parse_signal_number(text: str) -> int:
    try:
        return signal_of(text)
    except ValueError as error:
        raise InputError(f"signal: {error}") from None


def _add_admin_routes(app: FastAPI, service: Service, sessions: Sessions, tokens: Tokens) -> None:
    def require_admin(request: Request) -> Principal:
        person = _request_principal(request)
        if not person.admin:
            raise Forbidden("only the service's own account may do that")
        return person

    @app.post("/api/v1/nodes/{name}/{action}", responses=ERRORS)
    async def node(request: Request, name: str, action: Literal["drain", "resume"]) -> Answer:
        """Have a node start nothing more, or take jobs again."""
        require_admin(request)
        await service.set_node(name, action)
        return Answer({"node": name, "action": action})

    @app.post("/api/v1/queue/{action}", responses=ERRORS, openapi_extra=_describe_body(PauseForm))
    async def queue(request: Request, action: Literal["pause", "resume"]) -> Answer:
        """Have jobs that wait go on waiting, of some kinds of devices or of all, or have them start again."""
        require_admin(request)
        form = await _read_form(request, PauseForm)
        return Answer({"paused": await service.set_paused(action, form.kinds)})

    @app.post("/api/v1/forget", responses=ERRORS, openapi_extra=_describe_body(ForgetForm))
    async def forget(request: Request) -> Answer:
        """Forget jobs that ended long ago, with their output; answers with how many of which were removed."""
        require_admin(request)
        form = await _read_form(request, ForgetForm)
        removed = await service.forget_jobs(form.age)
        return Answer({"jobs": removed.jobs, "files": removed.files})

    @app.post("/api/v1/service/{action}", responses=ERRORS)
    async def end(request: Request, action: Literal["drain", "stop"]) -> Answer:
        """End the service: at once (jobs run on), or (`drain`) when what runs has ended."""
        require_admin(request)
        await request.body()  # a client that is still sending would not read the answer

        async def then() -> None:  # in the loop, when the answer is on its way
            service.live.stop() if action == "drain" else service.live.leave()

        return Answer({"action": action}, background=BackgroundTask(then))

    @app.post("/api/v1/dashboard", responses=ERRORS)
    async def dashboard(request: Request) -> Answer:
        """An address that lets a browser in once; a loopback port is opened for it where none is there."""
        person = require_admin(request)
        url = await service.browser_url()
        return Answer({"url": f"{url}/login/{sessions.make_code(person)}"})


def _add_pages(app: FastAPI) -> None:
    if (WEB / "static").is_dir():
        app.mount("/static", StaticFiles(directory=WEB / "static"), name="static")

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response((WEB / "static" / "icon.svg").read_bytes(), media_type="image/svg+xml")

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        page = WEB / "index.html"
        if not page.is_file():
            return Response("the dashboard is not installed\n", 404, media_type="text/plain")
        return Response(page.read_bytes(), media_type="text/html; charset=utf-8")
