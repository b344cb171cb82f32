"""Tables of the service at 80 columns: no state, number or time is ever broken or cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dovetail.cli.queue import COLUMNS, columns_of
from dovetail.cli.service import table_of
from dovetail.errors import InputError

DATE = "2026-11-22 22:10"
ROWS = [
    {
        "id": f"{10_000 + i}_{i}",
        "name": f"training-of-a-large-model-{i}",
        "user": "somebody",
        "state": state,
        "submitted": DATE,
        "start": f"~{DATE}",
        "end": f"~{DATE}",
        "where": "n[0-3]",
        "reason": reason,
    }
    for i, (state, reason) in enumerate(
        [
            ("COMPLETED", ""),
            ("OUT_OF_MEMORY", "memory: 8.1 GB of 8 GB, asked for again with 12 GB"),
            ("PENDING", "held"),
        ]
    )
]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_a_row_is_a_line_with_its_state_and_times_whole(width: int) -> None:
    table = table_of(COLUMNS, ROWS, width)
    out = io.StringIO()
    Console(file=out, width=max(width, table.width or 0)).print(table)
    lines = out.getvalue().splitlines()
    assert len(lines) == 1 + len(ROWS)
    for line, row in zip(lines[1:], ROWS, strict=True):
        whole = {cell.strip() for cell in line.split("  ")}
        assert {row["id"], row["state"]} <= whole
        assert {row["start"], "~11-22 22:10"} & whole
        assert row["name"][-1] in line  # what tells the jobs apart
    if width >= 80:
        assert max(map(len, lines)) <= width
    assert ("somebody" in out.getvalue()) == (width >= 120)


def test_why_a_job_does_not_run_stands_where_it_would_run() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(table_of(COLUMNS, ROWS, 200))
    head, *lines = out.getvalue().splitlines()
    assert "WHERE/REASON" in head
    assert "n[0-3]" in lines[0]
    assert ROWS[1]["reason"] in lines[1]


def test_columns_by_squeues_own_default_format_and_by_names() -> None:
    squeue = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
    names = ["id", "partition", "name", "user", "state", "took", "node_count", "reason"]
    assert columns_of(squeue) == names
    assert columns_of("id, left,ID") == ["id", "left"]


@pytest.mark.parametrize(
    ("text", "found"),
    [("jobid", "found 'jobid', expected one of id, name"), ("", "found ''"), ("%Y", "found %Y")],
)
def test_a_column_that_is_none_is_one_sentence(text: str, found: str) -> None:
    with pytest.raises(InputError, match=found) as caught:
        columns_of(text)
    assert str(caught.value).count("expected") == 1
