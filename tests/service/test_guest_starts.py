"""Intervals of starts of a guest's jobs: by the batch system's whole queue; and on a real Slurm."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import load
from services import Serving, serving
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from waiting import until

from dovetail.batch.ids import BatchIds
from dovetail.model import Cluster, Request
from dovetail.starts import slurm as tables
from dovetail.starts.comparing import starts_sooner
from dovetail.starts.outside import OwnJob, WatchesQueue
from dovetail_slurm.commands import SlurmError
from dovetail_slurm.queue import SlurmQueue
from dovetail_slurm.watch import SELDOM, SlurmWatch

# ------------------------------------------------------------ which batch job is which


def test_which_batch_job_is_which_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "queue" / "handed.jsonl"
    path.parent.mkdir()
    ids = BatchIds(tmp_path)
    assert ids.known_ids() == {}

    def note(*records: Mapping[str, Any], torn: str = "") -> dict[str, tuple[str, int | None]]:
        with path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
            file.write(torn)
        return ids.known_ids()

    def jobs(*names: str) -> list[list[object]]:
        return [[name, 1, f"uid {name}", ["out", "err"], ""] for name in names]

    assert note({"t": "batch", "batch": "a", "jobs": jobs("1", "2"), "tasks": None}) == {}, "not sent yet"
    assert note({"t": "sent", "batch": "a", "id": "70"}) == {"1": ("70", 0), "2": ("70", 1)}
    alone = {"t": "batch", "batch": "b", "jobs": jobs("3"), "tasks": None}
    script = {"t": "batch", "batch": "c", "jobs": jobs("4_5", "4_7"), "tasks": [5, 7]}
    sent = [{"t": "sent", "batch": batch, "id": id} for batch, id in (("b", "71"), ("c", "72"))]
    found = note(alone, script, *sent, torn='{"t":"told",')
    assert found == {
        "1": ("70", 0),
        "2": ("70", 1),
        "3": ("71", None),
        "4_5": ("72", 5),
        "4_7": ("72", 7),
    }
    left = note({}, torn='\n{"t":"told","uid":"uid 1"}\n')
    assert left == {job: id for job, id in found.items() if job != "1"}, "what was torn is of no effect"
    again = {"t": "again", "batch": "a", "number": 1, "attempt": 2, "uid": "uid 2 later", "restarts": 1}
    assert note(again, {"t": "told", "uid": "uid 2"})["2"] == ("70", 1), "its first start alone is over"
    assert note({"t": "told", "uid": "uid 2 later"}, {"t": "withdrawn", "batch": "b", "job": "3"}) == {
        "4_5": ("72", 5),
        "4_7": ("72", 7),
    }
    path.unlink()
    assert ids.known_ids() == {}


# ------------------------------------------------------------ what Slurm's commands print

NODES = "NodeName=n0 CPUTot=4 RealMemory=2000 State=MIXED Partitions=all CfgTRES=cpu=4,mem=2000M\n"
CONFIG = """\
Configuration data as of 2026-03-01T10:30:00
MinJobAge               = 300 sec
SchedulerType           = sched/backfill
SlurmUser               = {user}(1)
"""
PARTITION = "PartitionName=all Default=YES DefaultTime=00:30:00 MaxTime=02:00:00 State=UP PriorityTier=1\n"
HEADER = (
    "JOBID|USER|PARTITION|STATE|NODES|CPUS|MIN_MEMORY|TRES_PER_NODE|TIME_LIMIT|TIME|SUBMIT_TIME|START_TIME"
    "|PRIORITY|REASON|NODELIST|NAME\n"
)


def line(id: str, state: str, ran: str = "0:00", start: str = "N/A", where: str = "") -> str:
    submit = "2026-03-01T10:00:00"
    return f"{id}|ann|all|{state}|1|4|64M|N/A|1:00:00|{ran}|{submit}|{start}|9|None|{where}|fit\n"


ENDED = "".join(line(f"{n}", "COMPLETED", "10:00", f"2026-03-01T1{n}:00:00") for n in range(5))
RUNS = line("7", "RUNNING", "5:00", "2026-03-01T15:00:00", "n0")
WAITS = line("8_[3-4%1]", "PENDING")


class Commands:
    """Slurm's commands that print what files hold; each call is noted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        for name in ("squeue", "scontrol", "sacct", "sprio"):
            script = folder / name
            script.write_text(
                f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\n'
                f"test -f {folder}/{name}.$2 && exec cat {folder}/{name}.$2\n"
                f"test -f {folder}/{name}.txt && exec cat {folder}/{name}.txt\n"
                f"echo '{name}: error: Slurm accounting storage is disabled' >&2\nexit 1\n"
            )
            script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.folder / f"{name.replace('_', '.')}").write_text(text)

    def calls(self, name: str) -> int:
        return sum(text.startswith(name) for text in (self.folder / "calls").read_text().splitlines())


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    found = Commands(tmp_path, monkeypatch)
    found.write(
        squeue_txt=HEADER + ENDED + RUNS + WAITS,
        scontrol_nodes=NODES,
        scontrol_config=CONFIG.format(user="somebody"),
        scontrol_partition=PARTITION,
    )
    return found


NOW = tables.read_squeue(HEADER + RUNS, "queue")[0].start or 0.0
OWN = OwnJob("fit", "all", Request(1, 4), 4, 3600.0, NOW - 9000.0, NOW - 8900.0, NOW - 8000.0)


def test_without_accounting_run_times_are_those_that_squeue_still_shows(commands: Commands) -> None:
    watch = SlurmWatch()
    sight = watch.look(NOW + 300.0)
    assert [job.key for job in sight.situation.running] == ["7"]
    assert [job.key for job in sight.situation.waiting] == ["8_3", "8_4"], "each task of an array"
    assert sight.known == 5
    starts = sorted(sight.draws.starts(sight.situation)[:, 0].tolist())
    assert starts[len(starts) // 2] == pytest.approx(300.0), "all ran for ten minutes, five have passed"
    assert watch.task_id("8", 3) == "8_3"


def test_of_own_jobs_those_count_that_no_look_has_shown(commands: Commands) -> None:
    watch = SlurmWatch()
    watch.look(NOW)
    shown = OWN._replace(ended=NOW - 100.0)
    assert watch.look(NOW, [OWN, shown]).known == 6, "the second one was in squeue a minute ago"
    commands.write(sacct_txt=tables.SACCT.replace(",", "|") + "\n")
    assert watch.look(NOW + SELDOM, [OWN]).known == 5, "the accounting has all, and has read none yet"


def test_the_batch_system_is_not_read_more_often_than_its_size_allows(commands: Commands) -> None:
    watch = SlurmWatch()
    for seconds in (0.0, 1.0, 14.0):
        watch.look(NOW + seconds)
    assert (commands.calls("squeue"), commands.calls("sacct")) == (1, 1)
    watch.look(NOW + watch.lasts)
    assert (commands.calls("squeue"), commands.calls("sacct")) == (2, 1)
    watch.look(NOW + SELDOM)
    assert commands.calls("sacct") == 2


def test_a_job_that_is_only_tested_waits_behind_the_others(commands: Commands) -> None:
    sight = SlurmWatch().look(NOW, tested={"new": OWN, "long": OWN._replace(walltime=9000.0)})
    assert [job.key for job in sight.situation.waiting] == ["8_3", "8_4", "new"]
    assert sight.tested == ["new", ""], "the partition allows two hours"
    assert sight.situation.waiting[-1].kind.walltime == 3600.0


def test_a_shorter_walltime_in_the_place_of_a_waiting_job_starts_it_sooner(commands: Commands) -> None:
    """It goes before a wide job that waits for half of the node; by the same draws of all others."""
    half = RUNS.replace("|1|4|", "|1|2|")
    narrow = line("9", "PENDING").replace("|1|4|", "|1|2|")
    commands.write(squeue_txt=HEADER + ENDED + half + WAITS + narrow)
    watch = SlurmWatch()

    def draws(seconds: float) -> list[float]:
        job = OWN._replace(request=Request(1, 2), cpus=2, walltime=seconds)
        sight = watch.look(NOW + 60.0, tested={"this": job}, replaced="9")
        assert [job.key for job in sight.situation.waiting] == ["8_3", "8_4", "this"], "9 is not there twice"
        found: list[float] = sight.draws.starts(sight.situation)[:, 2].tolist()
        return found

    assert starts_sooner(draws(120.0), draws(3600.0))
    assert not starts_sooner(draws(3600.0), draws(3500.0))
    assert not starts_sooner(draws(3600.0), draws(120.0))


def test_a_controller_that_does_not_answer_is_an_error(commands: Commands) -> None:
    watch = SlurmWatch()
    (commands.folder / "squeue.txt").unlink()
    with pytest.raises(SlurmError):
        watch.look(NOW)


def test_the_backend_shows_that_its_queue_can_be_read(commands: Commands) -> None:
    backend = SlurmQueue()
    assert isinstance(backend, WatchesQueue)
    assert backend.watch_queue(Cluster.parse("1x4cpu")).lasts == 15.0


# ------------------------------------------------------------ a real Slurm

NAMES = ("predicted_start", "predicted_start_low", "predicted_start_high", "confidence")


@pytest.fixture
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster(
        (NodeShape(1, cpus=2, gpus=0), NodeShape(1, cpus=2, gpus=0, partition="other"))
    ) as found:
        yield found


def queue(service: Serving) -> dict[str, Any]:
    return {row["id"]: row for row in load(service.dovetail("queue", "--json"))}


@needs_slurm
@pytest.mark.live
@pytest.mark.xdist_group("live")
def test_jobs_of_a_guest_have_intervals_on_a_real_slurm(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Unknown until run times are; then they hold what others' jobs take, and what became of them counts."""
    variables = {**slurm.environment, "XDG_STATE_HOME": str(tmp_path / "state")}
    with serving(tmp_path, "--executor", "slurm-queue?poll=0.3", **variables) as service:

        def submit(*words: str) -> str:
            done = service.dovetail("submit", "--parsable", *words)
            assert done.returncode == 0, done.stderr
            return str(done.stdout).strip()

        def other(seconds: int) -> str:
            words = ("-c2", "-t1:00:00", "-o/dev/null", "--wrap", f"sleep {seconds}")
            return slurm.call("sbatch", "--parsable", *words).strip()

        blocker = other(600)
        until(lambda: "R" in slurm.call("squeue", "-h", "-j", blocker, "-o", "%t"), "it runs")
        job = submit("-t", "30", "-c", "2", "--", "sleep", "0.1")
        until(lambda: slurm.call("squeue", "-h", "-t", "PD", "-o", "%i").split(), "it is handed over")
        assert [queue(service)[job][name] for name in NAMES] == [None] * 4
        assert re.search(r"predicted start: +unknown", service.dovetail("info", job).stdout)
        slurm.call("scancel", blocker)
        short = [submit("-t", "30", "-c", "2", "--", "sleep", "0.1") for _ in range(5)]
        assert service.dovetail("wait", job, *short).returncode == 0

        blocker = other(600)
        until(lambda: "R" in slurm.call("squeue", "-h", "-j", blocker, "-o", "%t"), "it runs")
        waits = [submit("-t", "30", "-c", "2", "--", "sleep", "0.1") for _ in range(2)]
        held = submit("--hold", "--", "true")

        def known() -> bool:
            rows = queue(service)
            return all(rows[id]["confidence"] is not None for id in waits)

        until(known, "they have intervals")
        rows = queue(service)
        for id in waits:
            point, low, high, confidence = (rows[id][name] for name in NAMES)
            assert low <= point <= high
            assert confidence == 0.9
            assert high > time.time(), "another's job is in the way"
            assert (
                rows[id]["predicted_end_low"] <= rows[id]["predicted_end"] <= rows[id]["predicted_end_high"]
            )
        assert [rows[held][name] for name in NAMES] == [None] * 4
        shown = service.dovetail("info", waits[0]).stdout
        assert "between " in shown
        assert "(90 %)" in shown
        tested = load(
            service.dovetail("submit", "--test", "--json", "-t", "30", "-c", "2", "--", "sleep", "0.1")
        )
        assert tested["predicted_start_low"] <= tested["predicted_start"] <= tested["predicted_start_high"]
        found = load(service.dovetail("whatif", "--job", waits[1], "--json"))
        others = {tuple(one["with"].items()): one for one in found["sooner"]}
        assert set(others) == {(("walltime", 15.0),), (("walltime", 7.5),), (("partition", "other"),)}
        assert not others[("walltime", 15.0),]["differs"], "the only node is full"
        elsewhere = others[("partition", "other"),]["job"]
        assert elsewhere["predicted_start"] <= found["job"]["predicted_start"], "nothing is in the way there"
        slurm.call("scancel", blocker)
        assert service.dovetail("wait", *waits).returncode == 0
        queue(service)

        def outcomes() -> int:
            words = ("model", "starts", "--folder", str(service.folder.path), "--json")
            return sum(week["forecasts"] for week in load(service.dovetail(*words)))

        until(lambda: queue(service) is not None and outcomes() == 2, "both outcomes count")
        assert "no intervals" not in service.folder.log.read_text()
        service.dovetail("cancel", held)
