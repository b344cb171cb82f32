"""The program of a submitit job with several tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from submitit.core import utils

from dovetail_integrations.submitit import DovetailJobEnvironment


def main(folder: str, tasks: str, *call: str) -> int:
    """Run the tasks of a job side by side, each with its own log; the status is of the first that fails."""
    for one in (DovetailJobEnvironment._usr_sig(), signal.SIGTERM, signal.SIGCONT):
        signal.signal(one, signal.SIG_IGN)  # all processes of a job get them: the tasks answer
    running = []
    for task in range(int(tasks)):
        paths = utils.JobPaths(folder, os.environ["DOVETAIL_JOB"], task)
        around = {**os.environ, "SUBMITIT_DOVETAIL_TASK": str(task)}
        with paths.stdout.open("ab") as out, paths.stderr.open("ab") as err:
            running.append(subprocess.Popen(call, env=around, stdout=out, stderr=err))
    return next((status for status in [one.wait() for one in running] if status), 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
