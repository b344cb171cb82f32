"""Months of a service in minutes (`tools/months.py`): what it keeps stays bounded, and no job is lost."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
TOOL = Path(__file__).resolve().parents[2] / "tools" / "months.py"


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("months", TOOL)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["months"] = found
    spec.loader.exec_module(found)
    return found


@pytest.mark.skipif(not full(1, 0), reason="minutes: DOVETAIL_TEST_FULL=1")
@pytest.mark.timeout(3000)
def test_what_a_service_keeps_is_bounded(tmp_path: Path) -> None:
    months = tool()
    found = months.Months(tmp_path, seed=7, jobs_a_day=5)
    found.start()
    count, days = 6, 2
    try:
        for number in range(1, count + 1):
            found.month(number, days)
    finally:
        found.close()
    a_month = days * (5 + months.ELEMENTS + 2)
    last = found.rows[-1]
    # Of three months on record, of one as output: what belongs to the days between two looks comes on top.
    assert last.jobs <= 4 * a_month
    assert last.files <= 2 * 2 * a_month + 40
    assert found.counts["jobs"] == count * days * (5 + months.ELEMENTS + 1)
    assert not found.faults()
