"""What a job writes, as it writes it, and its end: for ``srun`` outside of a job."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from dovetail_slurm.shims.options import write_complaint
from dovetail_slurm.shims.service import Refused, Service

PIECE_WAIT = 10
"""Seconds that one question for more output may take."""


class Interrupted(Exception):  # noqa: N818 - reads as what it is
    """A signal that ends us."""


def follow_job(service: Service, id: str, number: int, *, quiet: bool, wait: Callable[[], int]) -> int:
    """Copy the output of a job until it has ended; its exit status. Where we are ended it is cancelled."""

    def raise_interrupted(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, raise_interrupted)
    try:
        state = service.get(f"/api/v1/jobs/{id}")["state"]
        waited = state == "PENDING"
        if waited and not quiet:
            write_complaint(f"srun: job {number} queued and waiting for resources")
        threads = [
            threading.Thread(target=_copy_output, args=(service, id, stream, fd), daemon=True)
            for stream, fd in (("out", 1), ("err", 2))
        ]
        for thread in threads:
            thread.start()
        if waited and not quiet:
            threading.Thread(target=_tell_start, args=(service, id, number), daemon=True).start()
        status = wait()
        for thread in threads:
            thread.join()
    except Interrupted as error:
        write_complaint(f"srun: forcing job termination of job {number}")
        service.post_form("/api/v1/cancel", {"jobs": id})
        return 128 + int(error.args[0])
    return status


def _copy_output(service: Service, id: str, stream: str, fd: int) -> None:
    offset = 0
    while True:
        query = {"stream": stream, "offset": offset, "wait": PIECE_WAIT}
        try:
            data, headers = service.read(f"/api/v1/jobs/{id}/log", query)
        except Refused:  # of a job that never began there is none
            return
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        offset = int(headers["dovetail-offset"]) + len(data)
        if headers["dovetail-ended"] == "1" and offset >= int(headers["dovetail-length"]):
            return


def _tell_start(service: Service, id: str, number: int) -> None:
    """Report the begin of the job."""
    import time

    while True:
        state = service.get(f"/api/v1/jobs/{id}")["state"]
        if state == "RUNNING":
            write_complaint(f"srun: job {number} has been allocated resources")
        if state != "PENDING":
            return
        time.sleep(0.2)
