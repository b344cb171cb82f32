"""``dovetail serve``: the queue that is always there."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.cli import options as opt
from dovetail.client.connection import VARIABLE, NoService, open_connection
from dovetail.client.folder import Address, ServiceFolder
from dovetail.errors import InputError
from dovetail.files.streams import print_note
from dovetail.model import Cluster
from dovetail.spec.values import LogFormat, LogLevel, Neighbourhood, Overrun

if TYPE_CHECKING:
    from dovetail.service.usage import FairUse


@opt.takes_options("serve")
def serve(
    cluster: str | None,
    policy: str,
    model: str,
    history: Path | None,
    executor: str,
    overrun: Overrun,
    default_walltime: str | None,
    grace: float,
    neighbours: Neighbourhood,
    seed: int | None,
    folder: Path | None,
    socket: Path | None,
    group: str | None,
    listen: str | None,
    certificate: Path | None,
    key: Path | None,
    insecure: bool,
    keep: float,
    forget_after: float,
    keep_output: float,
    max_request: float,
    user_limit: int | None,
    max_gpus_per_user: int | None,
    max_gpu_hours_per_user: float | None,
    gpu_hours_window: float | None,
    memory: str | None,
    partitions: str | None,
    mail_command: str | None,
    mail_idle: bool,
    notify: list[str] | None,
    half_life: float | None,
    share: list[str] | None,
    log_level: LogLevel,
    log_format: LogFormat,
    new: bool,
    drain: bool,
    stop: bool,
) -> int:
    """Keep a queue: take jobs in, run them, remember everything. Ctrl-C ends it; what runs goes on."""
    place = folder_of(folder)
    if drain or stop:
        return _end_service(place, drain)
    # Imported here, so that `--stop` and `--drain` need not load the service.
    from dovetail.service.daemon import log_to_stderr
    from dovetail.service.gpu_hours import make_limit
    from dovetail.service.hooks import CommandHook
    from dovetail.service.partitions import read_partitions
    from dovetail.service.serve import ServeOptions
    from dovetail.service.serve import serve_until_signalled as serve_here
    from dovetail.service.tidying import Limits
    from dovetail.service.webhook import parse_notify

    log = log_to_stderr(log_level, log_format)
    fair = _read_fair_use(half_life, share or [])
    if memory not in (None, "auto"):
        raise InputError(f"found {memory!r}, expected auto", where="--memory")
    if mail_idle and mail_command is None:
        raise InputError("found it without --mail-command, which sends the mail", where="--mail-idle")
    limit = opt.read_walltime(default_walltime, simulated=False)
    assert not isinstance(limit, str)

    def print_addresses(address: Address) -> None:
        for url in (f"socket {address.socket}", *address.urls):
            print_note(f"listening: {url}")

    machine = None if cluster is None else Cluster.parse(cluster)
    if machine is not None and machine.conditions:
        from dovetail.api import unused_conditions

        print_note(unused_conditions(machine)[0])
    serve_here(
        ServeOptions(
            folder=place,
            cluster=machine,
            policy=policy,
            model=model,
            history=history,
            executor=executor,
            overrun=overrun,
            default_walltime=limit,
            seed=seed,
            grace=grace,
            neighbours=neighbours,
            socket=socket,
            group=group,
            listen=listen,
            certificate=certificate,
            key=key,
            insecure=insecure,
            keep=keep,
            limits=Limits(forget_after, keep_output),
            max_request=int(max_request),
            user_limit=user_limit,
            max_gpus_per_user=max_gpus_per_user,
            gpu_hours=make_limit(max_gpu_hours_per_user, gpu_hours_window),
            memory_auto=memory is not None,
            partitions=() if partitions is None else read_partitions(partitions),
            mail_idle=mail_idle,
            mail=None if mail_command is None else CommandHook.parse_command(mail_command, "--mail-command"),
            notify=tuple(parse_notify(text, "--notify") for text in notify or ()),
            new=new,
            fair=fair,
            tell=logging.getLogger("dovetail.serve").info,
            reopen=log.reopen_file,
            ready=print_addresses,
        )
    )
    return 0


def _read_fair_use(half_life: float | None, shares: list[str]) -> FairUse | None:
    """Fair shares, where either option turns them on. Raises `InputError`."""
    from dovetail.service.usage import HALF_LIFE, FairUse, parse_shares

    if half_life is None and not shares:
        return None
    return FairUse(HALF_LIFE if half_life is None else half_life, parse_shares(shares))


def folder_of(folder: Path | None) -> ServiceFolder:
    """The folder that is named, by the option or by the environment, or the default one."""
    # Only an absolute path: a relative one would name another folder from each working directory.
    named = os.environ.get(VARIABLE, "")
    return ServiceFolder(folder or (named if os.path.isabs(named) else None))


def _end_service(place: ServiceFolder, drain: bool) -> int:
    """Have the service end, and wait until it has."""
    if not place.path.is_dir():
        raise NoService("no service runs here")
    try:
        service = open_connection(place.path)
    except NoService as error:
        holder = place.holder_process()
        # Without an answer on its socket a service can be stopped by its lock's holder, but not drained.
        if drain or not holder:
            raise
        print_note(f"{error}; it is ended by a signal")
        os.kill(holder, signal.SIGTERM)
        while place.is_locked():
            time.sleep(0.05)
        return 0
    with service:
        waiting = service.get("/api/v1/info")["jobs"]["running"]
        if drain and waiting:
            print_note(f"waits for {waiting} jobs that run")
        service.post(f"/api/v1/service/{'drain' if drain else 'stop'}")
    # The lock is free only when the process has ended: then the next service can begin.
    while place.is_locked():
        time.sleep(0.05)
    return 0
