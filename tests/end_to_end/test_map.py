"""``dovetail map`` with real programs."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import DOVETAIL, load
from process_list import command_lines
from waiting import until

from dovetail.history.sqlite import SqliteHistory
from dovetail.mapping.places import devices_here
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live"), pytest.mark.timeout(120)]

Call = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = """#!/bin/sh
{first}
sleep {seconds}
echo ran >> "$(basename "$1").log"
echo "$DOVETAIL_DEVICE:$CUDA_VISIBLE_DEVICES $(cat "$1")" > "$2"
"""
CALLED = "until test -e called; do sleep 0.02; done"
STAYS = """
import os, sys
for line in sys.stdin:
    name = line.strip()
    text = open(name).read().strip()
    if text == "bad":
        sys.exit("this one is bad")
    print(os.getpid(), text, flush=True)
open(f"left-{os.getpid()}", "w").close()
"""


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    """Twelve items, and programs for both kinds, one four times faster.

    The slow one ends no item before the fast one has been called: all would be done before a device's worker
    is there on a busy machine.
    """
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(12):
        (folder / f"{i:02}.txt").write_text(f"{i}\n")
    program(tmp_path, "slow", PROGRAM.format(first=CALLED, seconds=0.08))
    program(tmp_path, "fast", PROGRAM.format(first="touch called", seconds=0.02))
    program(
        tmp_path,
        "total",
        '#!/bin/sh\nfor out; do :; done\ncat "$@" 2>/dev/null | wc -l > "$out.x"; mv "$out.x" "$out"\n',
    )
    return [f"data/{i:02}.txt" for i in range(12)]


BOTH = (
    "--cpu",
    "./slow {in} {out}",
    "--gpu",
    "./fast {in} {out}",
    "--workers",
    "cpu:1,gpu:2",
    "--out",
    "results",
)


def logs(folder: Path) -> dict[str, int]:
    """How often each item was run."""
    return {path.name.removesuffix(".log"): len(path.read_text().split()) for path in folder.glob("*.log")}


def test_programs_of_both_kinds_on_the_items(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    done = dovetail("map", *BOTH, *data, "--json", "--no-duplicate", "--reduce", "./total {ins} {out}")
    assert done.returncode == 0, done.stderr
    summary = load(done)
    assert summary["items"] == 12
    assert sum(summary["tasks"].values()) == 12
    assert set(summary["tasks"]) <= {"cpu", "gpu"}
    assert summary["mean_seconds"]["gpu"] > 0.02
    assert summary["overhead_per_task"] > 0
    assert (summary["retried"], summary["duplicated"], summary["failed"]) == (0, 0, [])
    if "cpu" in summary["tasks"]:
        assert summary["acceleration"] == pytest.approx(
            summary["mean_seconds"]["cpu"] / summary["mean_seconds"]["gpu"]
        )
    results = tmp_path / "results"
    devices = set()
    for i in range(12):
        device, number = (results / f"{i:02}.txt").read_text().split()
        assert int(number) == i
        devices.add(device)
    assert devices <= {"gpu:0:0", "gpu:1:1", "cpu:0:"}
    assert devices & {"gpu:0:0", "gpu:1:1"}
    assert summary["reduced"] == "results/reduced.txt"
    assert (results / "reduced.txt").read_text().strip() == "12"
    assert list((results / ".dovetail-map" / "parts").glob("*")) == []
    assert set(logs(tmp_path).values()) == {1}


def test_for_people_a_line(dovetail: Call, data: list[str]) -> None:
    done = dovetail("map", *BOTH, *data)
    assert done.stdout.startswith("12 items in ")
    assert "overhead" in done.stdout
    assert done.stderr == ""


def test_standard_input_and_output_serve_where_nothing_is_named(
    dovetail: Call, data: list[str], tmp_path: Path
) -> None:
    done = dovetail("map", "--cpu", "tr 0-9 a-j", *data, "--out", "results", "--workers", "cpu:2")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "11.txt").read_text() == "bb\n"


def test_items_from_a_list(
    dovetail: Call, data: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [*DOVETAIL, "map", "--cpu", "cp {in} {out}", "-", "--out", "results", "--json"],
        input="\n".join(data), text=True, capture_output=True, cwd=tmp_path, env=environment, check=False,
    )  # fmt: skip
    assert load(done)["items"] == 12


def test_results_are_readable_like_other_files(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    dovetail("map", "--cpu", "cp {in} {out}", *data, "--out", "results")
    mode = stat.S_IMODE((tmp_path / "results" / "03.txt").stat().st_mode)
    assert mode == stat.S_IMODE((tmp_path / "data" / "03.txt").stat().st_mode)


def test_names_that_repeat_keep_their_folders(dovetail: Call, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(folder)
    done = dovetail("map", "--cpu", "cp {in} {out}", "a/x.txt", "b/x.txt", "--out", "results")
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / "results" / f / "x.txt").read_text() for f in ("a", "b")] == ["a", "b"]


# -- failures ------------------------------------------------------------------------------------------


def test_a_failed_item_is_named_and_the_others_are_done(
    dovetail: Call, data: list[str], tmp_path: Path
) -> None:
    (tmp_path / "data" / "05.txt").write_text("bad\n")
    program(
        tmp_path,
        "picky",
        '#!/bin/sh\nif grep -q bad "$1"; then echo "cannot read it" >&2; exit 4; fi\ncp "$1" "$2"\n',
    )
    done = dovetail(
        "map", "--cpu", "./picky {in} {out}", *data, "--out", "results", "--retries", "1", "--json"
    )
    assert done.returncode == 1
    summary = load(done)
    assert summary["items"] == 11
    assert summary["retried"] == 1
    assert done.stderr.startswith("item 5 (data/05.txt): exit code 4: cannot read it (cpu ")
    assert "after 2 attempts" in done.stderr
    assert not (tmp_path / "results" / "05.txt").exists()
    assert len(list((tmp_path / "results").glob("*.txt"))) == 11
    (tmp_path / "data" / "05.txt").write_text("good\n")
    again = dovetail("map", "--cpu", "./picky {in} {out}", *data, "--out", "results", "--resume", "--json")
    assert (again.returncode, load(again)["items"], load(again)["skipped"]) == (0, 1, 11)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("./nowhere {in} {out}", "cannot be started: ./nowhere: No such file or directory"),
        ("true {in} {out}", "ended well but did not write its output"),
        ("sh -c 'kill -9 $$'", "ended by signal 9 (SIGKILL)"),
    ],
)
def test_programs_that_cannot_work(dovetail: Call, data: list[str], command: str, message: str) -> None:
    done = dovetail("map", "--cpu", command, data[0], "--out", "results")
    assert done.returncode == 1
    assert f"item 0 (data/00.txt): {message}" in done.stderr


def test_a_gpu_program_that_cannot_work_loses_no_item(
    dovetail: Call, data: list[str], tmp_path: Path
) -> None:
    program(tmp_path, "fast", "#!/bin/sh\ntouch called; echo no CUDA device >&2; exit 3\n")
    done = dovetail("map", *BOTH, *data, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["items"], summary["tasks"], summary["failed"]) == (12, {"gpu": 0, "cpu": 12}, [])
    assert 1 <= summary["failed_on"]["gpu"] <= 2 * 8
    assert sorted(path.name for path in (tmp_path / "results").glob("*.txt")) == sorted(
        Path(item).name for item in data
    )


def test_without_a_gpu_there_is_no_gpu_worker(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    """No `--workers`; on a machine with a GPU its worker would be one."""
    if devices_here("gpu"):
        pytest.skip("this machine has a GPU")
    (tmp_path / "called").touch()
    arguments = [word for word in BOTH if word not in ("--workers", "cpu:1,gpu:2")]
    done = dovetail("map", *arguments, *data, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tasks"] == {"cpu": 12}
    said = [line for line in done.stderr.splitlines() if line]
    assert said == [
        "dovetail: this machine has no gpu device: the map has no gpu worker "
        "(workers gpu:1 makes one all the same)"
    ]
    done = dovetail("map", "--gpu", "./fast {in} {out}", *data, "--out", "other")
    assert done.returncode == 2
    assert "workers: found no gpu device on this machine" in done.stderr


def test_where_every_program_fails_it_ends_early(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    more = [str(tmp_path / f"{i}.dat") for i in range(40)]
    for name in more:
        Path(name).write_text("x")
    program(tmp_path, "fails", f"#!/bin/sh\n{CALLED}; exit 1\n")
    program(tmp_path, "lacks", "#!/bin/sh\ntouch called; echo no CUDA device >&2; exit 3\n")
    arguments = ["--cpu", "./fails {in} {out}", "--gpu", "./lacks {in} {out}"]
    done = dovetail("map", *arguments, "--workers", "cpu:1,gpu:1", "--out", "results", *more, "--json")
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    assert summary["items"] == 0
    assert sum(summary["failed_on"].values()) < 40
    assert "nothing has succeeded" in done.stderr.splitlines()[-1]
    assert "gpu: exit code 3: no CUDA device" in done.stderr.splitlines()[-1]


def test_a_program_that_hangs_is_ended(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    nap = f"sleep 77.{os.getpid()}"
    program(tmp_path, "hang", f"#!/bin/sh\n{nap} &\nwait\n")
    done = dovetail("map", "--cpu", "./hang {in} {out}", data[0], "--out", "results", "--timeout", "0.3")
    assert done.returncode == 1
    assert "still running after 0.3 s" in done.stderr
    until(lambda: not there(nap))


def there(words: str) -> bool:
    """Whether a process has this command line."""
    return words in command_lines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cpu", "x", "data/00.txt"], "--out: is missing"),
        (["data/00.txt", "--out", "r"], "found neither --cpu nor --gpu"),
        (["--cpu", "x", "--out", "r"], "ITEMS: found no items"),
        (["--cpu", "x", "data", "--out", "r"], "data: found a folder, expected a file"),
        (["--cpu", "x", "nothing", "--out", "r"], "nothing: found no such file"),
        (["--cpu", "x", "data/00.txt", "data/../data/00.txt", "--out", "r"], "found twice"),
        (["--cpu", "x {input}", "data/00.txt", "--out", "r"], "placeholder {input}, expected {in}, {out}"),
        (["--cpu", "x 'y", "data/00.txt", "--out", "r"], "--cpu: found"),
        (["--cpu", "", "data/00.txt", "--out", "r"], "--cpu: found '', expected a program"),
        (["--cpu", "x", "--workers", "gpu:1", "data/00.txt", "--out", "r"], "has no implementation for gpu"),
        (["--cpu", "x", "--line", "{in}", "data/00.txt", "--out", "r"], "--line: found without --persistent"),
        (["--cpu", "x {in}", "--persistent", "data/00.txt", "--out", "r"], "placeholder {in}, expected none"),
        (["--cpu", "x", "data/00.txt", "--out", "data"], "its result would take its own place"),
        (["--cpu", "x", "data/00.txt", "--out", "r", "--reduce", "y {out}"], "--reduce: found no {ins}"),
        (["--cpu", "x", "data/00.txt", "--out", "data/00.txt"], "cannot be written: "),
        (["--cpu", "x", "data/00.txt", "--out", "r", "--memory", "much"], "--memory: found 'much'"),
        (["--cpu", "x", "data/00.txt", "--out", "r", "--engine", "hadoop"], "engine: found 'hadoop'"),
        (["--cpu", "x", "data/00.txt", "--out", "r", "--rule", "luck"], "rule: found 'luck'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(
    dovetail: Call, data: list[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = dovetail("map", *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "r").exists()


# -- resuming ------------------------------------------------------------------------------------------


def test_resume_does_nothing_twice(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    dovetail("map", *BOTH, "--no-duplicate", *data[:7])
    assert len(logs(tmp_path)) == 7
    done = dovetail("map", *BOTH, "--no-duplicate", *data, "--resume", "--json")
    assert (load(done)["items"], load(done)["skipped"]) == (5, 7)
    assert logs(tmp_path) == {f"{i:02}.txt": 1 for i in range(12)}
    (tmp_path / "data" / "03.txt").write_text("another\n")
    (tmp_path / "results" / "04.txt").unlink()
    done = dovetail("map", *BOTH, "--no-duplicate", *data, "--resume", "--json")
    assert load(done)["items"] == 2
    assert {name for name, count in logs(tmp_path).items() if count == 2} == {"03.txt", "04.txt"}
    done = dovetail("map", *BOTH, "--no-duplicate", *data, "--resume", "--json")
    assert (load(done)["items"], load(done)["skipped"]) == (0, 12)


def test_without_resume_all_is_done_anew(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        dovetail("map", *BOTH, "--no-duplicate", *data)
    assert set(logs(tmp_path).values()) == {2}


def test_other_commands_are_not_resumed(dovetail: Call, data: list[str]) -> None:
    dovetail("map", "--cpu", "cp {in} {out}", data[0], "--out", "results")
    done = dovetail("map", "--cpu", "cat {in}", data[0], "--out", "results", "--resume")
    assert done.returncode == 2
    assert "results: found results of --cpu 'cp {in} {out}', expected the same command" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_ended_at_any_moment_it_resumes_and_loses_nothing(
    dovetail: Call, data: list[str], tmp_path: Path, environment: dict[str, str], how: signal.Signals
) -> None:
    for moment in (0.15, 0.5, 0.3, 0.7)[: full(4, 2)]:
        process = subprocess.Popen(
            [*DOVETAIL, "map", *BOTH, *data, "--resume", "--json"],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        before = len(list((tmp_path / "results").glob("*.txt")))
        while process.poll() is None:
            if len(list((tmp_path / "results").glob("*.txt"))) >= min(12, before + 1 + int(moment * 4)):
                break
            time.sleep(0.005)
        process.send_signal(how)
        _, said = process.communicate(timeout=280)
        assert process.returncode in ((-9, 0) if how is signal.SIGKILL else (130, 0)), said
    done = dovetail("map", *BOTH, *data, "--resume", "--json")
    assert done.returncode == 0, done.stderr
    summary = load(done)
    assert summary["items"] + summary["skipped"] == 12
    for i in range(12):
        assert (tmp_path / "results" / f"{i:02}.txt").read_text().split()[1] == str(i)
    # An item that had ended when it was cut off may not have been recorded yet: one for each worker at most.
    assert sum(logs(tmp_path).values()) <= 12 + 4 * 3


def test_interrupted_it_says_how_much_is_left(
    data: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    nap = f"sleep 99.{os.getpid()}"
    program(tmp_path, "forever", f"#!/bin/sh\n{nap}\n")
    process = subprocess.Popen(
        [*DOVETAIL, "map", "--cpu", "./forever {in} {out}", *data, "--out", "results", "--json"],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: there(nap) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=280)
    assert process.returncode == 130
    assert json.loads(out)["items"] == 0
    assert said == "dovetail: interrupted: 12 of 12 items are not done; --resume does them\n"
    until(lambda: not there(nap))


def test_two_maps_do_not_write_to_one_folder(
    dovetail: Call, data: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    program(tmp_path, "wait", "#!/bin/sh\ntouch started\nsleep 300\n")
    process = subprocess.Popen(
        [*DOVETAIL, "map", "--cpu", "./wait {in} {out}", data[0], "--out", "results"],
        cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: (tmp_path / "started").exists())
    done = dovetail("map", "--cpu", "cp {in} {out}", data[0], "--out", "results")
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert done.returncode == 2
    assert "results: another map writes there" in done.stderr


# -- programs that stay --------------------------------------------------------------------------------


def test_programs_that_stay_answer_line_by_line(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    (tmp_path / "stays.py").write_text(STAYS)
    done = dovetail(
        "map", "--persistent", "--cpu", f"{sys.executable} stays.py", *data, "--out", "results",
        "--workers", "cpu:2", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = [(tmp_path / "results" / f"{i:02}.txt").read_text().split() for i in range(12)]
    assert [int(number) for _, number in answers] == list(range(12))
    pids = {pid for pid, _ in answers}
    assert len(pids) <= 2
    assert {path.name.removeprefix("left-") for path in tmp_path.glob("left-*")} >= pids  # in good order
    assert load(done)["overhead_per_task"] > 0


def test_a_program_that_leaves_instead_of_answering_has_failed_and_is_started_anew(
    dovetail: Call, data: list[str], tmp_path: Path
) -> None:
    (tmp_path / "stays.py").write_text(STAYS)
    (tmp_path / "data" / "05.txt").write_text("bad\n")
    done = dovetail(
        "map",
        "--persistent",
        "--cpu",
        f"{sys.executable} stays.py",
        *data,
        "--out",
        "results",
        "--workers",
        "cpu:1",
    )
    assert done.returncode == 1
    assert "item 5 (data/05.txt): exit code 1: this one is bad" in done.stderr
    assert len(list((tmp_path / "results").glob("*.txt"))) == 11


def test_the_line_may_name_the_output(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    (tmp_path / "copies.py").write_text(
        "import shutil, sys\n"
        "for line in sys.stdin:\n    shutil.copy(*line.split())\n    print('done', flush=True)\n"
    )
    done = dovetail(
        "map", "--persistent", "--line", "{in} {out}", "--cpu", f"{sys.executable} copies.py", *data,
        "--out", "results",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "07.txt").read_text() == "7\n"


# -- history -------------------------------------------------------------------------------------------


def test_a_map_of_programs_is_learned_from(dovetail: Call, data: list[str], state: Path) -> None:
    dovetail("map", *BOTH, *data)
    dovetail("map", *BOTH, *data, "--app", "kmeans")
    with SqliteHistory(state / "dovetail" / "history.sqlite") as history:
        assert {group.app for group in history.list_groups()} == {"slow", "kmeans", "map slow", "map kmeans"}
        found = {(run.implementation, run.device_class.kind) for run in history.runs("kmeans")}
    assert ("gpu", "gpu") in found


def test_the_larger_the_longer_on_request(dovetail: Call, data: list[str], tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / "data" / f"{i:02}.txt").write_text("x" * (1 + i * 100))
    program(tmp_path, "log", '#!/bin/sh\nbasename "$1" >> order\ncp "$1" "$2"\n')
    dovetail("map", "--cpu", "./log {in} {out}", *data, "--out", "results", "--workers", "cpu:1", "--by-size")
    assert (tmp_path / "order").read_text().split() == [f"{i:02}.txt" for i in reversed(range(12))]
    assert os.path.exists(tmp_path / "results")


# -- in a service --------------------------------------------------------------------------------------


def test_a_map_is_a_job_of_the_service_and_is_cancelled_there(
    dovetail: Call, data: list[str], tmp_path: Path
) -> None:
    program(tmp_path, "long", '#!/bin/sh\ncp "$1" "$2"; test "$(cat "$1")" -lt 2 || sleep 600\n')
    at = ("--service", str(tmp_path / "service"))
    words = ("map", "--cpu", "./long {in} {out}", *data, "--out", "results", "--workers", "cpu:1", "--submit")
    try:
        done = dovetail(*words, *at, "--json")
        assert done.returncode == 0, done.stderr
        assert load(done)["id"] == "1"
        until((tmp_path / "results" / "01.txt").exists)
        (job,) = load(dovetail("queue", *at, "--json"))
        assert (job["name"], job["state"]) == ("map long", "RUNNING")
        assert load(dovetail("explain", "1", *at, "--json"))[0]["features"] == {"items": 12.0}
        dovetail("cancel", "1", *at)
        assert dovetail("wait", "1", *at).returncode == 1
        rows = load(dovetail("runs", "--json"))
        assert [row["jobs"] for row in rows if row["workload"] == "map long"] == [{"CANCELLED": 1}]
        assert sorted(path.name for path in (tmp_path / "results").glob("*.txt")) == ["00.txt", "01.txt"]
    finally:
        dovetail("serve", "--stop", "--folder", at[1])
