"""``dovetail serve``: the queue that is always there."""

from __future__ import annotations

import logging
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dovetail.cli import options as opt
from dovetail.files.streams import note
from dovetail.model import Cluster
from dovetail.service.client import VARIABLE, NoService, connection
from dovetail.service.folder import Address, ServiceFolder

if TYPE_CHECKING:
    from dovetail.service.usage import FairUse

__all__ = ["Folder", "folder_of", "serve"]


class Level(StrEnum):
    """From which level on a service's log tells."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class Form(StrEnum):
    """How a service's log is written."""

    text = "text"
    json = "json"


Folder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Where it keeps everything. Default: in the XDG state folder."),
]


def serve(
    cluster: opt.Cluster = None,
    policy: opt.Policy = "history",
    model: opt.Model = "learned",
    history: opt.HistoryFile = None,
    executor: Annotated[
        str, typer.Option(metavar="NAME[?option=value]", help="Where the jobs run.")
    ] = "local",
    overrun: opt.AtWalltime = opt.Overrun.kill,
    default_walltime: opt.DefaultWalltime = None,
    grace: Annotated[float, opt.duration("--grace", help="Between TERM and KILL.")] = 5.0,
    seed: opt.Seed = None,
    folder: Folder = None,
    socket: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The socket, another than the default one.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Let this group use the socket too (0660).")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen on the network too; takes tokens.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain (PEM).")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key, if not in the same file.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen without TLS beyond this machine: tokens can be read.")
    ] = False,
    keep: Annotated[float, opt.duration("--keep", help="How long ended jobs stay in memory.")] = 3600.0,
    user_limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Jobs of one user that may run at once.")
    ] = None,
    half_life: Annotated[
        float | None,
        opt.duration(
            "--half-life",
            help="Fair shares: after so long half of what was used is forgotten.",
            above_zero=True,
        ),
    ] = None,
    share: Annotated[
        list[str] | None,
        typer.Option(metavar="USER=N", help="Fair shares: this user's, where all others have 1; repeatable."),
    ] = None,
    log_level: Annotated[
        Level, typer.Option("--log-level", help="From which level on the log tells.")
    ] = Level.info,
    log_format: Annotated[
        Form, typer.Option("--log-format", help="Lines for people, or JSON for a collector.")
    ] = Form.text,
    new: Annotated[
        bool, typer.Option("--new", help="Where the ledger has gone: begin with an empty queue.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="Have the service that runs start nothing more and end.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="End the service that runs; its jobs run on for the next one.")
    ] = False,
) -> int:
    """Keep a queue: take jobs in, run them, remember everything. Ctrl-C ends it; what runs goes on."""
    place = folder_of(folder)
    if drain or stop:
        return _end(place, drain)
    from dovetail.service.daemon import log_to_stderr
    from dovetail.service.serve import ServeOptions
    from dovetail.service.serve import serve as serve_here

    log = log_to_stderr(log_level.value, log_format.value)
    fair = _fair(half_life, share or [])
    limit = opt.walltime(default_walltime, simulated=False)
    assert not isinstance(limit, str)

    def ready(address: Address) -> None:
        for url in (f"socket {address.socket}", *address.urls):
            note(f"listening: {url}")

    serve_here(
        ServeOptions(
            place,
            cluster=None if cluster is None else Cluster.parse(cluster),
            policy=policy,
            model=model,
            history=history,
            executor=executor,
            overrun="kill" if overrun is opt.Overrun.kill else "run",
            default_walltime=limit,
            seed=seed,
            grace=grace,
            socket=socket,
            group=group,
            listen=listen,
            certificate=certificate,
            key=key,
            insecure=insecure,
            keep=keep,
            user_limit=user_limit,
            new=new,
            fair=fair,
            tell=logging.getLogger("dovetail.serve").info,
            reopen=log.reopen,
            ready=ready,
        )
    )
    return 0


def _fair(half_life: float | None, shares: list[str]) -> FairUse | None:
    """Fair shares, where either option asks for them. Raises `InputError`."""
    from dovetail.service.usage import HALF_LIFE, FairUse, parse_shares

    if half_life is None and not shares:
        return None
    return FairUse(HALF_LIFE if half_life is None else half_life, parse_shares(shares))


def folder_of(folder: Path | None) -> ServiceFolder:
    """The folder that is named, by the option or by the environment, or the default one."""
    named = os.environ.get(VARIABLE, "")
    return ServiceFolder(folder or (named if os.path.isabs(named) else None))


def _end(place: ServiceFolder, drain: bool) -> int:
    """Ask the service to end, and wait until it has."""
    if not place.path.is_dir():
        raise NoService("no service runs here")
    with connection(place.path) as service:
        waiting = service.get("/api/v1/info")["jobs"]["running"]
        if drain and waiting:
            note(f"waits for {waiting} jobs that run")
        service.post(f"/api/v1/service/{'drain' if drain else 'stop'}")
    while place.is_locked():
        time.sleep(0.05)
    return 0
