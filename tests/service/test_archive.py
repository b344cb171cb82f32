"""Jobs that somebody means, found in the ledger while the service writes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dovetail.model import App, Choice, Cluster, Implementation, Job, Request
from dovetail.running.ledger import Ledger
from dovetail.service.archive import Archive

ELEMENTS = 1500


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """Job 1, and the array 2 whose last element came in first."""
    path = tmp_path_factory.mktemp("archive") / "ledger.db"
    implementation = Implementation("cpu", "cpu", Request())
    app, choices = App("true", (implementation,)), (Choice(implementation, Request()),)
    numbers: list[tuple[int, int | None]] = [(1, None), (2, ELEMENTS - 1)]
    numbers += [(2, element) for element in range(ELEMENTS - 1)]
    ids = [f"{number}" if element is None else f"{number}_{element}" for number, element in numbers]
    with Ledger(path) as ledger:
        ledger.submit([Job(id, app, choices, user="ada") for id in ids], 0.0, batch=1, numbers=numbers)
        found = Archive(path, lambda: Cluster(()))
        yield found
        found.close()


def ids(archive: Archive, first: int, last: int, *elements: int) -> list[str]:
    rows = archive.query_thread.submit(archive.find_by_numbers, first, last, elements).result()
    assert all(row[1:] == ("PENDING", "ada") for row in rows)
    return [row[0] for row in rows]


def test_a_number_stands_for_all_elements_in_order_of_submission(archive: Archive) -> None:
    assert ids(archive, 1, 1) == ["1"]
    assert len(ids(archive, 1, 2)) == 1 + ELEMENTS
    assert ids(archive, 2, 2)[:3] == [f"2_{ELEMENTS - 1}", "2_0", "2_1"]


def test_some_elements_are_found_without_the_others(archive: Archive) -> None:
    assert ids(archive, 2, 2, 7) == ["2_7"]
    assert ids(archive, 2, 2, 5, 7, ELEMENTS - 1, ELEMENTS) == [f"2_{ELEMENTS - 1}", "2_5", "2_7"]
    assert ids(archive, 1, 1, 0) == [], "no array"
    assert len(ids(archive, 2, 2, *range(ELEMENTS))) == ELEMENTS
