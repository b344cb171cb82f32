"""``dovetail recover``: what runs left behind whose Dovetail was killed."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from dovetail.cli import options as opt
from dovetail.cli.serve import folder_of
from dovetail.errors import InputError
from dovetail.files.streams import print_note

if TYPE_CHECKING:
    from dovetail.running.leftovers import Leftover


@opt.takes_options("recover")
def recover(stop: bool, give_up: str | None, as_json: bool) -> int:
    """Record what ended, and show or stop what still runs, of runs whose Dovetail was killed."""
    from dovetail.files.sentences import make_printable
    from dovetail.running import leftovers

    if give_up is not None and not _given_up_by_another_host(give_up):
        leftovers.give_up(give_up)
    found = leftovers.recover_left_behind(stop=stop, elsewhere=True, thorough=True)
    place = folder_of(None)
    unreadable = ""
    try:
        place.check_access()
    except InputError as error:
        unreadable = str(error)
    # A service that runs takes care of its own folder.
    served = None if place.is_locked() else leftovers.left_of_service(place.path, stop=stop)
    if as_json:
        rows = [
            {
                "run": left.run,
                "recorded": left.recorded,
                "trouble": left.trouble or None,
                "elsewhere": left.recovery.elsewhere or None,
                "ended": [job.job for job in left.recovery.ended],
                "running": [{"id": job.job, "pid": job.pid} for job in left.recovery.running],
                "lost": [{"id": job.job, "reason": job.reason} for job in left.recovery.lost],
            }
            for left in (*found, *([served] if served is not None else ()))
        ]
        print(json.dumps(rows, indent=2))
        return _unlooked(unreadable)
    if not found and served is None and not unreadable:
        print("Nothing was left behind.")
    for left in found:
        if left.recovery.elsewhere:
            print(f"run {left.run}: {_of_another_host(left)}")
            continue
        print(f"run {left.run}: {left.recorded} ended runs recorded")
        _show_running(left)
        for name, why in left.unreported_jobs:
            print(f"  {make_printable(name)}: {make_printable(why)}")
        if left.trouble:
            print(f"  set aside: {make_printable(left.trouble)}")
    if served is not None and served.recovery.elsewhere:
        print(f"service {place.path}: {_of_another_host(served)}")
    elif served is not None:
        print(f"service {place.path}: does not run; the next 'dovetail serve' takes up what is here")
        _show_running(served)
        if served.trouble:
            print(f"  {make_printable(served.trouble)}")
            print(f"  'dovetail recover --give-up {shlex.quote(str(place.path))}' puts that record aside.")
    running = [job for left in (*found, served) if left is not None for job in left.recovery.running]
    if any(not job.is_unwritten for job in running):
        # Only where something is left to stop, after all runs have been listed.
        print("'dovetail recover --stop' ends what still runs.")
    if any(left.trouble for left in found):
        print("What is set aside is tried again; 'dovetail recover --give-up RUN' looks at a run no more.")
    return _unlooked(unreadable)


def _unlooked(why: str) -> int:
    """The exit status, with a line where the service's folder could not be looked into."""
    if why:
        print_note(f"dovetail: {why}; whether its service left something behind is not known")
    return 2 if why else 0


def _given_up_by_another_host(name: str) -> bool:
    """Have a service's folder belong to no other host any more; whether that was all there was to do.

    Raises `InputError` while the service lives there.
    """
    from dovetail.client.folder import ServiceFolder
    from dovetail.process.spawn_log import LOG_NAME

    folder = ServiceFolder(name)
    other = folder.elsewhere()
    # A name that is no folder of another host's service is a run's, which is looked for next.
    if other is None:
        return False
    if other.lives:
        raise InputError(f"{other}, expected one that has ended", where=name)
    folder.release()
    return not (folder.path / LOG_NAME).exists()


def _of_another_host(left: Leftover) -> str:
    """What is known from here of a run that another host, or container, has written."""
    from dovetail.files.sentences import make_printable

    where = make_printable(left.recovery.elsewhere)
    if left.recovery.in_use:
        return f"goes on on {where}"
    return f"is of {where}, where 'dovetail recover' shows it; nothing of it can be seen from here"


def _show_running(left: Leftover) -> None:
    from dovetail.files.sentences import make_printable

    for job in left.recovery.running:
        if job.is_unwritten:
            print(f"  {make_printable(job.job)} has ended: its supervisor writes down how as soon as it can")
            continue
        cores = ",".join(map(str, job.cores)) or "any"
        print(f"  {make_printable(job.job)} still runs: process {job.pid} on cores {cores}")
