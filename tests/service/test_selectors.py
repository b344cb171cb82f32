"""One rule for every command: a number is a job or its whole array, a name all jobs of it that are mine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import Serving, serving

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "--cluster", "1x2cpu") as found:
        yield found


def submitted(service: Serving, folder: Path, *words: str) -> str:
    done = service.dovetail("submit", "--parsable", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def jobs(service: Serving, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """An array and a single job of one name, held back, and one of another; which ids each selector means."""
    folder = tmp_path_factory.mktemp("jobs")
    array = submitted(service, folder, "-J", "arr", "--hold", "--array", "0-2", "--", "echo", "written")
    single = submitted(service, folder, "-J", "arr", "--hold", "--", "echo", "written")
    other = submitted(service, folder, "-J", "other", "--hold", "--", "echo", "written")
    elements = {f"{array}_{index}" for index in range(3)}
    return {
        array: elements,
        f"{array}_1": {f"{array}_1"},
        f"{array}_0-1,{other}": {f"{array}_0", f"{array}_1", other},
        f"{array}-{single}": {*elements, single},
        "arr": {*elements, single},
        "arr,other": {*elements, single, other},
        "last": {other},
    }


def meant_by(service: Serving, verb: str, selector: str) -> set[str]:
    """The ids that one command takes a selector for, by what it prints."""
    if verb == "logs":
        shown = service.dovetail("logs", selector)
        assert shown.returncode == 0, shown.stderr
        found = re.findall(r"^==> (\S+) <==$", shown.stdout, flags=re.MULTILINE)
        assert shown.stdout.count("written") == max(1, len(found))
        return set(found) or {json.loads(service.dovetail("info", selector, "--json").stdout)["id"]}
    done = service.dovetail(verb, selector, "--json")
    assert done.stderr == ""
    found = json.loads(done.stdout)
    if verb in ("hold", "release", "requeue", "cancel"):
        return set(found["jobs"])
    rows = found if isinstance(found, list) else [found]
    return {one["id"] if "id" in one else one["job"] for one in rows}


def test_every_command_means_the_same_jobs(service: Serving, jobs: dict[str, set[str]]) -> None:
    for verb in ("hold", "queue", "info", "explain"):  # all are held back
        for selector, meant in jobs.items():
            assert meant_by(service, verb, selector) == meant, (verb, selector)
    everything = set().union(*jobs.values())
    assert meant_by(service, "release", "all") == everything
    for verb in ("wait", "queue", "info", "explain", "logs"):  # all have ended
        for selector, meant in jobs.items():
            assert meant_by(service, verb, selector) == meant, (verb, selector)
    for selector, meant in jobs.items():
        assert meant_by(service, "requeue", selector) == meant, selector
        assert meant_by(service, "wait", selector) == meant, selector


def test_a_name_that_only_others_have_is_not_found(service: Serving) -> None:
    done = service.dovetail("cancel", "nothing")
    assert done.returncode == 2
    assert "found no job of yours named 'nothing'" in done.stderr


@pytest.mark.parametrize("verb", ["cancel", "release"])
def test_what_waits_is_meant_by_its_name(service: Serving, tmp_path: Path, verb: str) -> None:
    array = submitted(service, tmp_path, "-J", f"held-{verb}", "--hold", "--array", "0-2", "--", "true")
    assert meant_by(service, verb, f"held-{verb}") == {f"{array}_{index}" for index in range(3)}
