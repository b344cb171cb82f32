"""What a user of dask-jobqueue does: a cluster of two jobs, some work, and the end of it."""

import subprocess
import sys
import time

from dask.distributed import Client
from dask_jobqueue import SLURMCluster


def square(x):
    return x * x


def names():
    return subprocess.check_output(["squeue", "-h", "-n", "daskers", "-o", "%T"], text=True).split()


def main(folder: str) -> None:
    cluster = SLURMCluster(
        cores=1, memory="200MB", walltime="00:10:00", processes=1, interface="lo", job_name="daskers",
        local_directory=folder, log_directory=folder, queue="dovetail",
    )  # fmt: skip
    cluster.scale(jobs=2)
    client = Client(cluster)
    client.wait_for_workers(2, timeout=300)
    assert names() == ["RUNNING", "RUNNING"], names()
    assert sum(client.gather(client.map(square, range(100)))) == 328350
    cluster.scale(jobs=1)
    deadline = time.monotonic() + 120
    while names() != ["RUNNING"] and time.monotonic() < deadline:
        time.sleep(0.2)
    assert names() == ["RUNNING"], names()
    client.close()
    cluster.close()
    while names() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert names() == [], names()
    print("all well")


if __name__ == "__main__":
    main(sys.argv[1])
