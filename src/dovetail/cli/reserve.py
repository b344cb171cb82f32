"""``dovetail reserve``: GPUs of the service for a user, from one moment to another."""

from __future__ import annotations

import time
from typing import Any

from dovetail.cli import options as opt
from dovetail.cli.service import format_clock, open_service, print_json, show_rows
from dovetail.errors import InputError
from dovetail.files.streams import print_note


@opt.takes_options("reserve")
def reserve(
    gpus: int | None,
    start: str | None,
    span: float | None,
    user: str | None,
    name: str | None,
    list_: bool,
    cancel: str | None,
    at: str | None,
    as_json: bool,
) -> int:
    """Keep GPUs for a user from one moment to another: no job of others runs there then."""
    made = gpus is not None or span is not None
    if made + list_ + (cancel is not None) != 1:
        raise InputError("expected --gpus N --for SPAN, --list, or --cancel ID", where="reserve")
    if list_:
        with open_service(at) as service:
            found = service.get("/api/v1/reservations")["reservations"]
        return _show_all(found, as_json=as_json)
    if cancel is not None:
        if not cancel.isalnum():
            raise InputError(f"found {cancel!r}, expected the number of a reservation", where="--cancel")
        with open_service(at) as service:
            gone = service.post(f"/api/v1/reservations/{cancel}/cancel", {})
        print_json(gone) if as_json else print(f"Reservation {gone['reservation']} is given up.")
        return 0
    if gpus is None or span is None:
        missing = "--gpus N" if gpus is None else "--for SPAN"
        raise InputError(f"found a reservation without {missing}", where="reserve")
    form = {"gpus": gpus, "start": start, "span": span, "user": user, "name": name}
    with open_service(at) as service:
        row = service.post("/api/v1/reservations", form)
    if as_json:
        print_json(row)
        return 0
    now = time.time()
    when = f"{format_clock(row['start'], now)} to {format_clock(row['end'], now)}"
    print(f"Reservation {row['id']}: {', '.join(row['devices'])} for {', '.join(row['users'])}, {when}.")
    if row["jobs"]:
        # They were there first: nothing that runs is ended for a reservation.
        print_note(f"jobs that run there now go on until they end: {', '.join(row['jobs'])}")
    return 0


def _show_all(found: list[dict[str, Any]], *, as_json: bool) -> int:
    """The reservations as JSON or as a table."""
    if as_json:
        print_json(found)
        return 0
    if not found:
        print("There is no reservation.")
        return 0
    now = time.time()
    rows = [
        {
            "id": row["id"],
            "users": ",".join(row["users"]),
            "start": format_clock(row["start"], now),
            "end": format_clock(row["end"], now),
            "devices": ",".join(row["devices"]),
            "jobs": ",".join(row["jobs"]),
            "name": row["name"],
        }
        for row in found
    ]
    columns = ("id", "users", "start", "end", "devices", "jobs", "name")
    show_rows(columns if any(row["name"] for row in rows) else columns[:-1], rows)
    return 0
