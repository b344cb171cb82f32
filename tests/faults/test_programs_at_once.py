"""An executor of this machine, one of a service, and commands, at once, while the service is killed.

No core is used by two at a time, no call and no command is lost or made twice, every future ends.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import occupied
import pytest
from services import Serving

import dovetail

FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))
SECONDS = 600.0 if FULL else 15.0
"""For which work is submitted."""
KILLS = 10 if FULL else 2
EACH = 0.3
"""Seconds of one piece of work."""

TAKEN: list[tuple[str, str]] = []
"""Commands that were taken in, and the names under which they were."""

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live"), pytest.mark.timeout(3600 if FULL else 600)]


def test_several_programs_share_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CLAIMS", str(tmp_path / "claims"))
    folder = tmp_path / "notes"
    folder.mkdir()
    service = Serving(tmp_path, DOVETAIL_CLAIMS=str(tmp_path / "claims"))
    service.start().close()
    until = time.monotonic() + SECONDS
    futures: dict[str, Future[Any]] = {}
    problems: list[BaseException] = []

    def play(kind: str, submit: Any) -> None:
        """Have some work in flight until the time is over."""
        number = 0
        try:
            while time.monotonic() < until:
                name = f"{kind}-{number}"
                futures[name] = submit(name)
                number += 1
                wait([one for key, one in list(futures.items()) if key.startswith(f"{kind}-")][-3:], 60)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            problems.append(error)

    script = str(Path(occupied.__file__))
    at = service.folder.path
    with (
        dovetail.Client(at) as client,
        dovetail.Executor(local=True) as here,
        dovetail.Executor(service=at) as there,
    ):
        words = [sys.executable, script, str(folder)]
        commands = client.with_options(retries=0)
        submits = {
            "here": lambda name: here.submit(occupied.occupy, str(folder), name, EACH),
            "there": lambda name: there.submit(occupied.occupy, str(folder), name, EACH),
            "command": lambda name: submitted(commands, [*words, name, str(EACH)]),
        }
        threads = [threading.Thread(target=play, args=one) for one in submits.items()]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            time.sleep(SECONDS / (KILLS + 1))
            service.kill()
            service.start().close()
        for thread in threads:
            thread.join()
        assert not problems
        assert not wait(futures.values(), 500).not_done
        for name, future in futures.items():
            assert future.exception() is None, name
    service.stop()
    found = occupied.notes(folder)
    made = Counter(note["name"] for note in found)
    named = dict(TAKEN)
    assert [name for name in futures if made[named.get(name, name)] != 1] == [], "each was made once"
    assert max(made.values()) == 1
    assert {name.partition("-")[0] for name in futures} == {"here", "there", "command"}
    assert occupied.shared(found) == []


def submitted(client: Any, words: list[str]) -> Future[Any]:
    """Submit a command; while the service is being started anew, again, under another name.

    Whether one was taken in whose answer was cut off only the notes show.
    """
    deadline = time.monotonic() + 200
    *program, name, seconds = words
    for attempt in itertools.count(1):
        try:
            future: Future[Any] = client.submit([*program, f"{name}.{attempt}", seconds])
        except dovetail.DovetailError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            TAKEN.append((name, f"{name}.{attempt}"))
            return future
    raise AssertionError
