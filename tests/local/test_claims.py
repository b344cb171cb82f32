"""Claims on cores and devices: advisory, seen by all, gone with whoever made them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.local.claims import Claims, claims_folders, list_holders, units_of_cluster
from dovetail.model import Cluster


def test_each_unit_has_one_holder(tmp_path: Path) -> None:
    one, two = Claims("one", tmp_path), Claims("two", tmp_path)
    assert one.take(["core:0", "gpu:0"]) == {}
    (who,) = {holder.uid for holder in two.take(["core:0", "core:1", "gpu:0"]).values()}
    assert who == "one"
    assert two.held == {"core:1"}
    one.keep(["gpu:0"])
    assert two.take(["core:0"]) == {}
    assert {h.uid: h.units for h in list_holders(tmp_path)} == {"one": {"gpu:0"}, "two": {"core:0", "core:1"}}
    one.close()
    assert two.take(["gpu:0"]) == {}
    two.close()
    assert list_holders(tmp_path) == []


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from dovetail.local.claims import Claims\n"
        "found = Claims('dead', Path(sys.argv[1])); found.take(['core:0'])\n"
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        mine = Claims("mine", tmp_path)
        assert mine.take(["core:0"])["core:0"].pid == process.pid
        process.kill()
    assert mine.take(["core:0"]) == {}
    mine.close()


def test_whoever_inherits_the_claim_keeps_it(tmp_path: Path) -> None:
    """As the supervisor does, which outlives its Dovetail."""
    claims = Claims("left", tmp_path)
    claims.take(["core:0"])
    heir = os.dup(claims.inheritable_descriptor)
    claims.leave()
    other = Claims("other", tmp_path)
    assert other.take(["core:0"])["core:0"].uid == "left"
    again = Claims("left", tmp_path)  # the next Dovetail of that run
    again.adopt_units(["core:0"])
    os.close(heir)
    assert other.take(["core:0"])["core:0"].uid == "left"
    again.close()
    assert other.take(["core:0"]) == {}
    other.close()


def test_a_job_that_is_a_dovetail_may_use_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = Claims("outer", tmp_path)
    outer.take(["core:0"])
    monkeypatch.setenv("DOVETAIL_UID", "outer.2/job-1")
    inner = Claims("inner", tmp_path)
    assert inner.take(["core:0"]) == {}
    inner.close()
    outer.close()


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", "{", '{"uid": 1}', "[" * 5000, '{"uid":"x","pid":1,"units":[[1]]}'),
        '{"uid":"map-\\u001b[2J","pid":1,"units":["core:0"]}',
        '{"uid":"x","pid":1,"units":["core:0\\u001b[2J"]}',
    ],
)
def test_what_strangers_write_counts_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.claims").write_text(text)
    (tmp_path / "pipe.claims").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo.claims")
    with open(tmp_path / "x.claims") as stranger:
        fcntl.flock(stranger, fcntl.LOCK_SH)
        mine = Claims("mine", tmp_path)
        assert mine.take(["core:0"]) == {}
        assert [holder for holder in list_holders(tmp_path) if holder.uid != "mine"] == []
        mine.close()


def test_a_folder_that_another_user_made_beforehand_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid():
        pytest.skip("only root makes folders of other users")
    monkeypatch.delenv("DOVETAIL_CLAIMS")
    monkeypatch.setattr("dovetail.local.claims.BASES", (str(tmp_path / "a"), str(tmp_path / "b")))
    for base in ("a", "b"):
        (tmp_path / base).mkdir()
    (tmp_path / "a" / "dovetail-claims-0").symlink_to(tmp_path / "b")
    assert claims_folders() == [tmp_path / "b" / "dovetail-claims-0"]
    strange = tmp_path / "b" / "dovetail-claims-0"
    strange.mkdir()
    os.chown(strange, 65534, 65534)
    assert strange not in claims_folders()
    mine = Claims("mine", strange)
    with pytest.raises(PermissionError):
        mine.take(["core:0"])
    theirs = tmp_path / "b" / "dovetail-claims-65534"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    assert claims_folders()[1:] == [theirs]


def test_users_with_folders_of_their_own_see_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOVETAIL_CLAIMS")
    monkeypatch.setattr("dovetail.local.claims.BASES", (str(tmp_path),))
    other = tmp_path / "dovetail-claims-65534"
    theirs = Claims("theirs", other)
    assert theirs.take(["core:0"]) == {}
    if os.geteuid() == 0:
        os.chown(other, 65534, 65534)
        mine = Claims("mine")
        assert mine.take(["core:0", "core:1"])["core:0"].uid == "theirs"
        assert mine.held == {"core:1"}
        mine.close()
    theirs.close()


def test_a_folder_that_stays_locked_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    assert Claims("anybody", tmp_path).patience < 10
    mine = Claims("mine", tmp_path, patience=0.2)
    mine.take(["core:0"])
    with open(tmp_path / "lock") as stranger:
        fcntl.flock(stranger, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError):
            mine.take(["core:1"])
    mine.close()


_WORKER = """
import random, sys, time
from pathlib import Path
from dovetail.local.claims import Claims
name, folder, log = sys.argv[1], Path(sys.argv[2]), open(sys.argv[3], "a", buffering=1)
rng, claims = random.Random(name), Claims(name, folder)
for _ in range(150):
    claims.take(rng.sample(["core:0", "core:1", "core:2"], rng.randint(1, 3)))
    for unit in claims.held:
        log.write(f"{time.monotonic()} + {name} {unit}\\n")
    time.sleep(rng.random() * 0.002)
    gone = [unit for unit in claims.held if rng.random() < 0.7]
    for unit in gone:
        log.write(f"{time.monotonic()} - {name} {unit}\\n")
    claims.keep(claims.held - set(gone))
for unit in claims.held:
    log.write(f"{time.monotonic()} - {name} {unit}\\n")
claims.close()
"""


def test_several_at_once_never_share_a_unit(tmp_path: Path) -> None:
    folder, log = tmp_path / "claims", tmp_path / "log"
    names = ["a", "b", "c"]
    processes = [subprocess.Popen([sys.executable, "-c", _WORKER, name, folder, log]) for name in names]
    assert [process.wait() for process in processes] == [0, 0, 0]
    holding: dict[str, str] = {}
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len({line[2] for line in lines}) == 3
    for _, sign, name, unit in sorted(lines, key=lambda line: float(line[0])):
        if sign == "+":
            assert holding.setdefault(unit, name) == name
        else:
            assert holding.pop(unit) == name


def test_units_of_a_cluster_are_its_cores_and_devices() -> None:
    found = units_of_cluster(Cluster.parse("1x2cpu+1gpu"))
    assert found == {"core:0": (0, None), "core:1": (0, None), "gpu:0": (0, 0)}
