"""The policy that the how-to page shows keeps what every policy keeps."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import dovetail
from dovetail.testing.conformance import PolicyConformance

SHORTEST = f"{Path(__file__).parent.parent.parent}/examples/policy/shortest.py:Shortest"


class TestShortest(PolicyConformance):
    policy: ClassVar[str] = SHORTEST


def test_short_jobs_wait_least() -> None:
    waits = {
        policy: dovetail.simulate("published:gregg-table2", cluster="1x1cpu+1gpu", policy=policy).metrics
        for policy in (SHORTEST, "history", "best-device")
    }
    assert min(waits, key=lambda policy: waits[policy]["mean_wait"]) == SHORTEST
