"""Runs commands one after the other, each in a fork with a limit on its memory and its time.

Reads one JSON object a line from standard input (``argv``, ``cwd``, ``env``) and answers with one
(``status``, ``err``). Everything is imported once, so a case costs a fork.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

from dovetail import api
from dovetail.cli.main import status_of
from dovetail.errors import DovetailError
from dovetail.running.folder import read_about
from dovetail.running.ledger import Ledger

MEMORY = 1 << 30
SECONDS = 10


def ledger(folder: str) -> int:
    """Ask a run's ledger everything, as whoever takes it up would."""
    try:
        with Ledger(Path(folder) / "ledger.db") as found:
            about = read_about(Path(folder))
            list(found.entries())
            found.open_entries()
            found.interrupted_entries()
            found.unrecorded_runs()
            found.cluster(about.cluster)
            found.count_states()
    except DovetailError as error:
        print(f"dovetail: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def child(case: dict[str, object], err: int) -> int:
    out = os.open(os.devnull, os.O_WRONLY)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(str(case["cwd"]))
    os.environ["XDG_STATE_HOME"] = str(case["state"])
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.alarm(SECONDS)
    argv = list(map(str, case["argv"]))  # type: ignore[call-overload]
    try:
        status = ledger(argv[1]) if argv[0] == "ledger" else status_of(argv)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 99
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def main() -> None:
    api.simulate("published:gregg-table2", cluster="1x1cpu+1gpu", policy="history")  # all is imported now
    for line in sys.stdin:
        case = json.loads(line)
        err = os.memfd_create("err")
        pid = os.fork()
        if pid == 0:
            os._exit(child(case, err))
        _, status = os.waitpid(pid, 0)
        said = os.pread(err, 1 << 16, 0).decode("utf-8", "replace")
        os.close(err)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status), "err": said}), flush=True)


if __name__ == "__main__":
    main()
