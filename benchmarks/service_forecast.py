"""Predicted starts that ``queue`` shows, against what happened: ``service_forecast.py [JOBS]``; prints JSON.

``JOBS`` short jobs of three lengths on two slots, after three runs of each: the service knows how long they
take as it knows it of its users' jobs. Predictions are those of one look right after the submission. Beside
them what is left without: that all start at once, in seconds the median time that they waited.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from services import serving, submit, wait

from dovetail.client.connection import open_connection

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
LENGTHS = (0.2, 0.4, 0.8)
KNOWN = 3


def nap(seconds: float) -> dict[str, object]:
    """A job that takes so long."""
    return {"command": ["sleep", f"{seconds}"], "app": f"nap-{seconds}", "cpus": 1}


def main() -> None:
    """Submit, look, wait, compare."""
    with (
        tempfile.TemporaryDirectory() as root,
        serving(Path(root), "--cluster", "1x2cpu") as here,
        open_connection(here.folder.path) as service,
    ):
        wait(service, submit(service, *[nap(seconds) for seconds in LENGTHS for _ in range(KNOWN)]))
        began = time.time()
        ids = submit(service, *[nap(LENGTHS[n % len(LENGTHS)]) for n in range(JOBS)])
        rows = service.get("/api/v1/jobs", limit=JOBS, patience=30)["jobs"]
        shown = {row["id"]: row["predicted_start"] for row in rows if row["state"] == "PENDING"}
        wait(service, ids, timeout=600)
        started = {id: service.get(f"/api/v1/jobs/{id}")["start"] for id in ids}
    predicted = {id: at for id, at in shown.items() if at is not None}
    errors = sorted(abs(started[id] - at) for id, at in predicted.items())
    waits = [started[id] - began for id in predicted]
    print(
        json.dumps(
            {
                "jobs": JOBS,
                "waited when looked at": len(shown),
                "predicted": len(predicted),
                "median error, s": round(statistics.median(errors), 3),
                "90th percentile, s": round(errors[int(0.9 * (len(errors) - 1))], 3),
                "largest, s": round(errors[-1], 3),
                "median wait, s": round(statistics.median(waits), 3),
                "longest wait, s": round(max(waits), 3),
                "error over wait, medians": round(statistics.median(errors) / statistics.median(waits), 4),
                "load": round(os.getloadavg()[0], 1),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
