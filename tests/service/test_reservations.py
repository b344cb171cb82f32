"""Reservations of a service: made, listed, kept over a kill, given up; refused where they cannot be."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait
from waiting import until

from dovetail import Client
from dovetail.client.connection import Connection, open_connection
from dovetail.client.errors import Forbidden
from dovetail.errors import InputError
from dovetail.service.people import name_of
from dovetail.service.tokens import Tokens

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
JOB = {"command": ["sleep", "0.1"], "on": ["gpu"], "cpus": 0}


def token_of(here: Serving, name: str) -> Connection:
    """The service over the network, as another user."""
    secret = Tokens(here.folder.tokens_path).add(name, admin=False)
    address = here.folder.address()
    assert address is not None
    return Connection(address.urls[0], secret)


def test_only_its_users_jobs_run_on_reserved_gpus_over_a_kill(tmp_path: Path) -> None:
    listens = ("--listen", "127.0.0.1:0")
    with serving(tmp_path, "--cluster", "1x2cpu+2gpu", *listens) as here:
        with token_of(here, "ben") as ben, open_connection(here.folder.path) as service:
            done = here.dovetail("reserve", "--gpus", "1", "--for", "10h", "--name", "talk")
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith("Reservation 1: n0/gpu1 for ")
            first, second = submit(ben, JOB, JOB)
            assert wait(ben, [first, second]) == {first: "COMPLETED", second: "COMPLETED"}
            for job in (first, second):
                assert ben.get(f"/api/v1/jobs/{job}")["devices"] == ["n0/gpu0"]
            (own,) = submit(service, JOB)
            assert wait(service, [own]) == {own: "COMPLETED"}
            assert service.get(f"/api/v1/jobs/{own}")["devices"] == ["n0/gpu1"]
            (large,) = submit(ben, {**JOB, "gpus": 2})
            me = name_of(here.folder.path.stat().st_uid)
            expected = f"waits: n0/gpu1 reserved for {me} from "

            def reason() -> str:
                return str(ben.get(f"/api/v1/jobs/{large}")["reason"])

            until(lambda: reason().startswith(expected), "the reservation is not named")
            assert reason().endswith("(reservation 1)")
            explained = here.dovetail("explain", large).stdout
            assert "reserved for" in explained
        here.kill()
        here.start().close()
        with open_connection(here.folder.path) as service, Client(here.folder.path) as client:
            (row,) = client.reservations()
            assert (row["id"], row["name"], row["devices"]) == ("1", "talk", ["n0/gpu1"])
            assert json.loads(here.dovetail("reserve", "--list", "--json").stdout) == [row]
            time.sleep(0.5)
            assert service.get(f"/api/v1/jobs/{large}")["state"] == "PENDING"
            assert here.dovetail("reserve", "--cancel", "1").stdout == "Reservation 1 is given up.\n"
            assert wait(service, [large]) == {large: "COMPLETED"}
            assert here.dovetail("reserve", "--list").stdout == "There is no reservation.\n"
        assert "Traceback" not in here.folder.log.read_text()


def test_others_use_the_gpus_until_they_would_run_into_the_window(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu+1gpu", "--listen", "127.0.0.1:0") as here:  # noqa: SIM117
        with token_of(here, "ben") as ben, Client(here.folder.path) as client:
            made = client.reserve(1, start=time.time() + 3600, span="1h")
            short, long, unknown = submit(
                ben,
                {**JOB, "walltime": 1800},
                {**JOB, "walltime": 5400},
                {**JOB, "command": ["sh", "-c", "true"]},
            )
            assert wait(ben, [short]) == {short: "COMPLETED"}
            for job in (long, unknown):
                assert "reserved for" in ben.get(f"/api/v1/jobs/{job}")["reason"]
            rows = ben.get("/api/v1/jobs", patience=20)["jobs"]
            assert [row["id"] for row in rows] == [long, unknown]
            for row in rows:  # a forecast knows that they wait for the end of it
                assert row["predicted_start"] >= made["end"] - 1
            client.cancel_reservation(made["id"])
            assert wait(ben, [long, unknown]) == {long: "COMPLETED", unknown: "COMPLETED"}


def test_a_reservation_that_cannot_be_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu+2gpu", "--listen", "127.0.0.1:0") as here:
        with token_of(here, "ben") as ben, Client(here.folder.path) as client:
            with pytest.raises(
                InputError, match=r"^gpus: found 3, expected at most 2, all that there are here$"
            ):
                client.reserve(3, span=60)
            start = time.time() + 1000
            client.reserve(2, start=start, span=100)
            with pytest.raises(
                InputError,
                match=r"found 1, expected another time: 2 of 2 are reserved then .reservation 1 of",
            ):
                client.reserve(1, start=start + 50, span=100)
            assert client.reserve(1, start=start + 100, span=100)["id"] == "2"
            with pytest.raises(InputError, match="was over"):
                client.reserve(1, start=10.0, span=100)
            with pytest.raises(InputError, match=r"start: found .soon., expected a moment"):
                client.reserve(1, start="soon", span=100)
            form = {"gpus": 1, "span": 60}
            with pytest.raises(Forbidden, match="own account may reserve for eva"):
                ben.post("/api/v1/reservations", {**form, "user": "eva"})
            with pytest.raises(InputError, match=r"for: found 8.0 days, expected 7 at most"):
                ben.post("/api/v1/reservations", {"gpus": 1, "span": "8d"})
            with pytest.raises(Forbidden, match="reservation 2 belongs to"):
                ben.post("/api/v1/reservations/2/cancel", {})
            for n in range(5):
                ben.post("/api/v1/reservations", {**form, "start": start + 1000 + 100 * n})
            with pytest.raises(Forbidden, match="ben has 5 reservations already"):
                ben.post("/api/v1/reservations", form)
        for words, expected in (
            ((), "expected --gpus N --for SPAN, --list, or --cancel ID"),
            (("--gpus", "1"), "found a reservation without --for SPAN"),
            (("--cancel", "99"), "found no reservation '99'"),
        ):
            done = here.dovetail("reserve", *words)
            assert done.returncode == 2
            assert expected in done.stderr
            assert done.stderr.count("\n") == 1


def test_without_gpus_there_is_nothing_to_reserve(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu") as here:
        refused = here.dovetail("reserve", "--gpus", "2", "--for", "1h")
        assert refused.returncode == 2
        assert refused.stderr == "dovetail: gpus: found 2, expected a node with GPUs: there is none here\n"
