"""What is worked out from the arrays of borrowed GPUs is what the records say."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from dovetail.api import simulate_result
from dovetail.model import Record, Result
from dovetail.report.borrowed_columns import BorrowedColumns
from dovetail.report.columns import columns_of
from dovetail.report.json_form import to_json
from dovetail.report.lifetimes import median_lifetime_decrease


def both(policy: str, options: str) -> tuple[Result, Result]:
    """The result as the kernel leaves it, and the same with records."""
    found = simulate_result(f"published:markthub?jobs=220&{options}", policy=policy)
    return found, replace(found, records=list(found.records))


@pytest.mark.parametrize("options", ["seed=1", "seed=2&spread=wide", "seed=3&gpus=0.5,0.2,0.3&nodes_mean=3"])
@pytest.mark.parametrize("policy", ["fcfs", "rq", "mrq", "mrq-aware"])
def test_the_json_form_is_that_of_the_records(policy: str, options: str) -> None:
    arrays, records = both(policy, options)
    assert isinstance(columns_of(arrays), BorrowedColumns)
    assert not isinstance(columns_of(records), BorrowedColumns)
    assert to_json(arrays) == to_json(records)


def test_stretches_are_those_of_the_records() -> None:
    arrays, records = (columns_of(result).stretches for result in both("mrq", "seed=1"))
    for name in ("job", "start", "end", "cpus", "devices"):
        assert np.array_equal(getattr(arrays, name), getattr(records, name)), name
    assert list(arrays.allocations) == list(records.allocations)
    assert arrays.states == records.states
    assert None in arrays.states  # some have moved


def test_lifetimes_need_no_records() -> None:
    (first, _), (later, records) = both("fcfs", "seed=1"), both("mrq", "seed=1")
    assert median_lifetime_decrease(later, first) == median_lifetime_decrease(records, first)


def plain(record: Record) -> tuple[object, ...]:
    place = record.allocation
    assert place is not None
    return (
        record.job.id,
        record.start,
        record.end,
        place.parts,
        dict(place.cores),
        place.donors,
        record.migrations,
    )


def test_they_travel_as_records() -> None:
    arrays, records = both("mrq", "seed=1")
    travelled = pickle.loads(pickle.dumps(arrays)).records
    assert type(travelled) is list
    assert [plain(record) for record in travelled] == [plain(record) for record in records.records]
