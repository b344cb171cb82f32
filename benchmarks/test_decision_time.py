"""What a decision of `history` costs with 10 to 10,000 jobs queued (Gregg 2011, section 4.3: 0.7 ms).

The time of a whole run is measured; how much of it the policy took, by job, is in ``extra_info``.
"""

from __future__ import annotations

from typing import Any

import pytest

from dovetail_lab.gregg.decisions import QUEUES, decision_time


@pytest.mark.parametrize("policy", ["history", "history-guarded"])
@pytest.mark.parametrize("queued", QUEUES)
def test_decisions(benchmark: Any, queued: int, policy: str) -> None:
    found = benchmark.pedantic(
        decision_time, (queued, policy), rounds=1 if queued >= 1000 else 5, iterations=1
    )
    assert found.queued == queued
    assert found.calls >= queued
    benchmark.extra_info["milliseconds_per_job"] = round(found.per_job * 1000, 4)
    # Far above what an idle machine needs, far below anything that grows with the square of the queue.
    assert found.per_job < 0.02
