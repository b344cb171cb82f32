"""A GPU box with other people on it: real processes on a stand-in of NVIDIA's library."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import load
from gpu_box import GB, GIB, LOST, WORDS, GpuBox, write_user
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.process.device_memory import PATTERN

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def box(tmp_path: Path, environment: dict[str, str]) -> GpuBox:
    found = GpuBox(tmp_path / "box")
    environment |= {**found.environment, "DOVETAIL_CLAIMS": str(tmp_path / "claims")}
    return found


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def job_file(folder: Path, count: int, size: int, seconds: float | str, **asked: object) -> str:
    """Jobs of one app that take so many bytes of their device."""
    command = [*write_user(folder), str(size), str(seconds)]
    lines = ["[[app]]", 'name = "train"', "[[app.implementation]]", 'name = "gpu"']
    lines += [f"command = {json.dumps(command)}", *(f"{name} = {json.dumps(v)}" for name, v in asked.items())]
    lines += ["[[job]]", 'app = "train"', f"count = {count}"]
    (folder / "jobs.toml").write_text("\n".join(lines) + "\n")
    return "jobs.toml"


def run(dovetail: Command, *arguments: str) -> list[dict[str, Any]]:
    process = dovetail("run", *arguments, "--history", "history.db", "--json")
    assert process.returncode == 0, process.stderr
    jobs: list[dict[str, Any]] = load(process)["jobs"]
    assert all(job["state"] == "COMPLETED" for job in jobs)
    return jobs


def kills(dovetail: Command, folder: Path) -> int:
    """Tries for which a device had too little memory, by the history."""
    assert dovetail("history", "export", "runs.jsonl", "--history", "history.db").returncode == 0
    runs = map(json.loads, (folder / "runs.jsonl").read_text().splitlines())
    (folder / "runs.jsonl").unlink()
    return sum(run["state"] == "OUT_OF_MEMORY" for run in runs)


def most_at_once(jobs: list[dict[str, Any]]) -> int:
    return max(sum(a["start"] <= b["start"] < a["end"] for a in jobs) for b in jobs)


def test_a_device_with_a_stranger_is_left_alone(
    dovetail: Command, box: GpuBox, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    taken = box.add(16 * GIB, "Tesla T4")
    box.add(16 * GIB, "Tesla T4")
    box.occupy(taken, stranger.pid, 10 * GIB)
    process = dovetail("run", job_file(tmp_path, 6, 8 * GIB, 0.05), "--history", "history.db", "--json")
    jobs = load(process)["jobs"]
    assert [(job["state"], job["devices"]) for job in jobs] == [("COMPLETED", ["localhost/gpu1"])] * 6
    assert "gpu0 in use by" in process.stderr
    assert f"sleep (process {stranger.pid}) since" in process.stderr
    assert process.stderr.count("in use by") == 1, "none of our own is a stranger"


def test_a_device_is_used_again_when_its_stranger_has_left(
    box: GpuBox, tmp_path: Path, environment: dict[str, str], stranger: subprocess.Popen[bytes]
) -> None:
    uuid = box.add(16 * GIB, "Tesla T4")
    box.occupy(uuid, stranger.pid, 10 * GIB)
    variables = {**box.environment, "DOVETAIL_CLAIMS": str(tmp_path / "claims")}
    with serving(tmp_path, **variables) as service, open_connection(service.folder.path) as asked:
        command = [*write_user(tmp_path), str(8 * GIB), "0"]
        said = service.dovetail("submit", "--on", "gpu", "--json", "--", *command)
        job = json.loads(said.stdout)["id"]
        until(lambda: "sleep" in asked.get(f"/api/v1/jobs/{job}")["reason"], "nothing names the stranger")
        reason = asked.get(f"/api/v1/jobs/{job}")["reason"]
        assert "gpu0 in use by" in reason
        assert f"(process {stranger.pid}) since" in reason
        assert f"(process {stranger.pid})" in service.dovetail("explain", job).stdout.replace("\n", " ")
        box.leave(stranger.pid)
        until(lambda: asked.get(f"/api/v1/jobs/{job}")["state"] == "COMPLETED", "the job does not run")


def test_the_instances_of_a_cut_gpu_are_devices(dovetail: Command, box: GpuBox, tmp_path: Path) -> None:
    whole = box.add(40 * GB)
    slices = box.cut([("3g.20gb", 20 * GB), ("3g.20gb", 20 * GB), ("1g.5gb", 5 * GB)])
    jobs = run(dovetail, job_file(tmp_path, 4, 4 * GB, "x4"))  # each ends when four are there
    given = {Path(job["stdout"]).read_text().split()[1] for job in jobs}
    assert given == {whole, *slices}
    found = json.loads(dovetail("devices", "--json").stdout)["devices"]
    assert [d["used"] for d in found if d["probe"] == "nvidia"] == [True, False, True, True, True]
    parents = {d["uuid"]: d["parent"] for d in found}
    assert all(parents[one].startswith("GPU-") for one in slices)
    assert found[2]["model"].endswith("MIG 3g.20gb")
    assert found[2]["memory"] == 20 * GB


def test_a_need_that_nobody_knows_costs_one_failure(dovetail: Command, box: GpuBox, tmp_path: Path) -> None:
    box.add(16 * GIB, "Tesla T4")
    box.add(40 * GIB)
    file = job_file(tmp_path, 5, 20 * GIB, 0.3)
    process = dovetail("run", file, "--history", "history.db", "--json")
    jobs = load(process)["jobs"]
    assert {(job["state"], *job["devices"]) for job in jobs} == {("COMPLETED", "localhost/gpu1")}
    failures = kills(dovetail, tmp_path)
    assert failures <= 1
    run(dovetail, file)
    assert kills(dovetail, tmp_path) == failures


def test_eight_quarters_share_as_memory_allows(dovetail: Command, box: GpuBox, tmp_path: Path) -> None:
    box.add(40 * GIB)
    jobs = run(dovetail, job_file(tmp_path, 8, 13 * GIB, 0.2, gpus=0.25, gpu_memory="13GiB"))
    assert most_at_once(jobs) <= 3


def test_jobs_share_where_the_driver_hides_whose_a_process_is(
    dovetail: Command, box: GpuBox, tmp_path: Path, environment: dict[str, str]
) -> None:
    """As in a container with processes of its own: what came since our jobs began there is theirs."""
    environment["HIDDEN"] = "1"
    box.add(40 * GIB)
    jobs = run(dovetail, job_file(tmp_path, 6, 5 * GIB, "x3", gpus=0.25, gpu_memory="5GiB"))
    assert len(jobs) == 6


def test_a_stranger_whose_process_is_hidden_is_one(
    dovetail: Command, box: GpuBox, tmp_path: Path, environment: dict[str, str]
) -> None:
    environment["HIDDEN"] = "1"
    taken = box.add(16 * GIB, "Tesla T4")
    box.add(16 * GIB, "Tesla T4")
    box.occupy(taken, 0, 10 * GIB)
    process = dovetail("run", job_file(tmp_path, 3, GIB, 0.05), "--history", "history.db", "--json")
    jobs = load(process)["jobs"]
    assert [(job["state"], job["devices"]) for job in jobs] == [("COMPLETED", ["localhost/gpu1"])] * 3
    assert "gpu0 in use by a process of another container (process 0)" in process.stderr


def test_peaks_are_measured_and_auto_is_learned_from_them(
    dovetail: Command, box: GpuBox, tmp_path: Path
) -> None:
    box.add(40 * GIB)
    file = job_file(tmp_path, 4, 5 * GIB, 1.2, gpu_memory="auto")
    first = run(dovetail, file, "--report", "report")
    assert most_at_once(first[:1]) == 1
    section = (tmp_path / "report" / "index.html").read_text().partition("Memory of devices</h2>")[2]
    row = re.search(r"<tbody>\s*<tr>(.*?)</tr>", section.partition("</section>")[0])
    assert row is not None
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", row[1])
    assert (cells[0], cells[2]) == ("localhost/gpu0", "4")
    assert cells[-1] in {f"{n * 5 * GIB / GB:.1f}" for n in range(1, 5)}, "5 GiB is the peak of each"
    assert dovetail("history", "export", "runs.jsonl", "--history", "history.db").returncode == 0
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert {json.loads(line)["gpu_memory"] for line in lines} == {5 * GIB}
    assert most_at_once(run(dovetail, file)) > 1, "what is known to be small is run beside others"


def test_jobs_learn_to_share_and_explain_says_what_came(
    dovetail: Command, box: GpuBox, tmp_path: Path
) -> None:
    """Jobs that only wait do not slow each other down: after the first few two run at a time."""
    box.add(40 * GIB)
    file = job_file(tmp_path, 12, 5 * GIB, 0.5, gpus="auto", gpu_memory="6GiB")
    jobs = run(dovetail, file)
    assert most_at_once(jobs) == 2
    told = " ".join(dovetail("explain").stdout.split())
    assert "shared its device with train for" in told
    assert "times as long" in told
    assert dovetail("history", "export", "runs.jsonl", "--history", "history.db").returncode == 0
    lines = map(json.loads, (tmp_path / "runs.jsonl").read_text().splitlines())
    assert any("train" in run.get("beside", {}).get("device", {}) for run in lines)


def test_what_no_device_has_is_refused_before_anything_runs(
    dovetail: Command, box: GpuBox, tmp_path: Path
) -> None:
    box.add(16 * GB, "Tesla T4")
    process = dovetail("run", job_file(tmp_path, 1, 1, 0, gpu_memory="50GB"), "--history", "history.db")
    assert process.returncode == 2
    assert "needs 50 GB of memory on a gpu, and none has more than 16 GB" in process.stderr


def test_out_of_memory_where_nothing_is_larger_says_so(
    dovetail: Command, box: GpuBox, tmp_path: Path
) -> None:
    box.add(16 * GIB, "Tesla T4")
    process = dovetail(
        "run", job_file(tmp_path, 1, 20 * GIB, 0), "--history", "history.db", "--json", "--quiet"
    )
    assert process.returncode == 1
    (job,) = load(process)["jobs"]
    assert job["state"] == "OUT_OF_MEMORY"
    assert "out of memory on gpu0 (Tesla T4, 17.2 GB), by torch" in process.stderr
    assert "none here has more" in process.stderr


@pytest.mark.parametrize("words", sorted(WORDS))
def test_the_last_words_of_frameworks(
    dovetail: Command, box: GpuBox, tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    box.add(16 * GIB, "Tesla T4")
    box.add(40 * GIB)
    command = [*write_user(tmp_path), str(20 * GIB), "0", words]
    if words == "own":
        environment[PATTERN] = "arena .* exhausted"
    process = dovetail("run", "--on", "gpu", "--history", "history.db", "--json", "--", *command)
    (job,) = load(process)["jobs"]
    assert (job["state"], job["devices"]) == ("COMPLETED", ["localhost/gpu1"])
    assert kills(dovetail, tmp_path) == 1


def test_a_lost_device_is_suspended(dovetail: Command, box: GpuBox, tmp_path: Path) -> None:
    box.add(16 * GIB, "Tesla T4")
    box.add(16 * GIB, "Tesla T4")
    file = job_file(tmp_path, 4, GIB, 0.05)
    (tmp_path / "cluster.toml").write_text(
        '[[node]]\nname = "box"\ncpus = 2\ndevices = [{ kind = "gpu", model = "Tesla T4", count = 2 }]\n'
    )
    box.devices[0]["fault"] = LOST
    box.write()
    process = dovetail("run", file, "--cluster", "cluster.toml", "--history", "history.db", "--json")
    jobs = load(process)["jobs"]
    assert [(job["state"], job["devices"]) for job in jobs] == [("COMPLETED", ["box/gpu1"])] * 4
    assert "gpu0 suspended: NVML cannot read it: GPU is lost" in process.stderr


def test_the_memory_of_neighbours_is_left_out(
    dovetail: Command, box: GpuBox, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Beside 20 of 40 GiB there is room for two jobs of 8, not for three."""
    uuid = box.add(40 * GIB)
    box.occupy(uuid, stranger.pid, 20 * GIB)
    jobs = run(dovetail, job_file(tmp_path, 4, 8 * GIB, 0.2, gpu_memory="8GiB"), "--neighbours", "memory")
    assert most_at_once(jobs) == 2


def test_a_job_whose_memory_a_stranger_takes_is_tried_elsewhere(
    dovetail: Command, box: GpuBox, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """They come between the look at the device and the job's allocation: no device is too small for it."""
    first, second = box.add(16 * GIB, "Tesla T4"), box.add(16 * GIB, "Tesla T4")
    script = tmp_path / "job.sh"
    comes = f"process\\t{first}\\t{stranger.pid}\\t{10 * GIB}\\t50\\n"
    script.write_text(
        f"[ -e came ] || printf '{comes}' >> {box.folder / 'box'}\ntouch came\n"
        f"exec {' '.join([*write_user(tmp_path), str(8 * GIB), '0'])}\n"
    )
    process = dovetail("run", "--on", "gpu", "--history", "history.db", "--json", "--", "sh", str(script))
    (job,) = load(process)["jobs"]
    assert (job["state"], job["devices"]) == ("COMPLETED", ["localhost/gpu1"]), process.stderr
    assert Path(job["stdout"]).read_text().split() == ["on", second]
    assert dovetail("history", "export", "runs.jsonl", "--history", "history.db").returncode == 0
    (lack, _) = map(json.loads, (tmp_path / "runs.jsonl").read_text().splitlines())
    assert (lack["state"], lack["gpu_memory"]) == ("OUT_OF_MEMORY", 6 * GIB), "it had what they left"


def test_neighbours_may_be_ignored(
    dovetail: Command, box: GpuBox, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    uuid = box.add(16 * GIB, "Tesla T4")
    box.occupy(uuid, stranger.pid, GIB)
    assert run(dovetail, job_file(tmp_path, 1, GIB, 0), "--neighbours", "ignore")


def test_jobs_of_a_service_share_a_device(box: GpuBox, tmp_path: Path) -> None:
    """By the command line, by a line of a script, by HTTP; a job above every device is refused at once."""
    box.add(40 * GB)
    variables = {**box.environment, "DOVETAIL_CLAIMS": str(tmp_path / "claims")}
    command = [*write_user(tmp_path), str(9 * GB), str(tmp_path / "go")]
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#DOVETAIL -G 1 --gpu-mem 9GB\n{' '.join(command)}\n")
    with serving(tmp_path, **variables) as service, open_connection(service.folder.path) as asked:
        for arguments in (("--on", "gpu", "--gpu-mem", "9GB", "--", *command), (str(script),)):
            assert service.dovetail("submit", *arguments).returncode == 0
        posted = {"command": command, "on": ["gpu"], "gpu_memory": "9GB"}
        asked.post("/api/v1/jobs", {"jobs": [posted, posted]})
        jobs = ["1", "2", "3", "4"]

        def are(state: str) -> bool:
            return all(asked.get(f"/api/v1/jobs/{job}")["state"] == state for job in jobs)

        until(lambda: are("RUNNING"), "they do not all run at once")
        (tmp_path / "go").touch()
        until(lambda: are("COMPLETED"), "they do not end")
        refused = service.dovetail("submit", "--on", "gpu", "--gpu-mem", "50GB", "--", "true")
        assert refused.returncode == 2
        assert "needs 50 GB of memory on a gpu, and none has more than 40 GB" in refused.stderr


def test_what_fits_no_device_is_run_on_a_cpu(dovetail: Command, box: GpuBox, tmp_path: Path) -> None:
    box.add(16 * GIB, "Tesla T4")
    command = [*write_user(tmp_path), str(20 * GIB), "0"]
    lines = ["[[app]]", 'name = "either"']
    for kind, argv in (("gpu", command), ("cpu", ["true"])):
        lines += ["[[app.implementation]]", f'name = "{kind}"', f"command = {json.dumps(argv)}"]
    lines += ["[[job]]", 'app = "either"']
    (tmp_path / "jobs.toml").write_text("\n".join(lines) + "\n")
    (job,) = run(dovetail, "jobs.toml")
    assert job["implementation"] == "cpu"
    assert kills(dovetail, tmp_path) == 1


def test_the_queue_shows_what_jobs_hold_of_their_devices(box: GpuBox, tmp_path: Path) -> None:
    box.add(16 * GIB, "Tesla T4")
    release = tmp_path / "release"
    variables = {**box.environment, "DOVETAIL_CLAIMS": str(tmp_path / "claims")}
    with serving(tmp_path, **variables) as service, open_connection(service.folder.path) as asked:
        command = [*write_user(tmp_path), str(8 * GIB), str(release)]
        done = service.dovetail("submit", "--on", "gpu", "--json", "--", *command)
        job = json.loads(done.stdout)["id"]

        def row() -> dict[str, Any]:
            found: dict[str, Any] = asked.get(f"/api/v1/jobs/{job}")
            return found

        until(lambda: row()["gpu_memory"] == 8 * GIB, "what it holds is not measured")
        assert 0 <= row()["gpu_use"] <= 1
        shown = service.dovetail("queue", "-o", "id,gpu_memory,gpu_use").stdout.splitlines()
        assert shown[1].split()[:3] == [job, "8.6", "GB"]
        assert shown[1].rstrip().endswith("%")
        assert "gpu memory:       8.6 GB at its peak" in service.dovetail("info", job).stdout
        release.touch()
        until(lambda: row()["state"] == "COMPLETED", "it does not end")
        assert row()["gpu_memory"] == 8 * GIB


def test_an_idle_gpu_is_mailed_once_and_its_job_goes_on(box: GpuBox, tmp_path: Path) -> None:
    box.add(16 * GIB, "Tesla T4")
    release, mails = tmp_path / "release", tmp_path / "mails"
    mailer = f"{sys.executable} -c \"import sys; open('{mails}', 'a').write(sys.stdin.read())\""
    service = Serving(
        tmp_path, "--mail-command", mailer, "--mail-idle",
        **box.environment, DOVETAIL_CLAIMS=str(tmp_path / "claims"),
    )  # fmt: skip
    # Half an hour is long for a test: the service of this one calls a GPU idle sooner.
    sooner = "import dovetail.running.device_guard as guard; guard.IDLE_AFTER = 2.0"
    service.program = ("-c", f"{sooner}; from dovetail.start import main; main()")
    service.start().close()
    try:
        with open_connection(service.folder.path) as asked:
            (job,) = submit(
                asked, {"command": ["sh", "-c", f"until [ -e {release} ]; do sleep 0.1; done"], "on": ["gpu"]}
            )
            until(mails.exists, "no mail comes")
            release.touch()
            assert wait(asked, [job]) == {job: "COMPLETED"}
        (mail,) = map(json.loads, mails.read_text().splitlines())
        assert (mail["event"], mail["job"]["id"], mail["job"]["state"]) == ("GPU_IDLE", job, "RUNNING")
        assert mail["idle"]["device"] == "gpu0"
        assert mail["idle"]["seconds"] >= 2
        assert mail["mail"] == {"user": mail["job"]["user"], "types": ["GPU_IDLE"]}
    finally:
        service.stop()


def test_two_gpus_are_a_pair_and_the_host_thread_is_near(
    dovetail: Command, box: GpuBox, environment: dict[str, str], tmp_path: Path
) -> None:
    """Joined are 0 and 2; near the first one of them is only one of our cores."""
    uuids = [box.add(16 * GIB, "Tesla V100") for _ in range(3)]
    core, *others = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("one core alone is near everything")
    box.join([(0, 2, "nvlink"), (1, 2, "switch")], {0: [core], 2: [core]})
    program = tmp_path / "where.py"
    program.write_text(
        "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], *sorted(os.sched_getaffinity(0)))"
    )
    command = json.dumps([sys.executable, str(program)])
    way = f'[[app.implementation]]\nname = "gpu"\ngpus = 2\ncommand = {command}'
    (tmp_path / "jobs.toml").write_text(f'[[app]]\nname = "a"\n{way}\n[[job]]\napp = "a"\n')
    process = dovetail("run", "jobs.toml", "--history", "history.db", "--json")
    (job,) = load(process)["jobs"]
    assert job["state"] == "COMPLETED", process.stderr
    assert Path(job["stdout"]).read_text().split() == [f"{uuids[0]},{uuids[2]}", str(core)]
    assert job["devices"] == ["localhost/gpu0", "localhost/gpu2"]
    shown = json.loads(dovetail("devices", "--json").stdout)["devices"]
    assert shown[0]["links"] == {uuids[2]: "nvlink"}
    assert shown[0]["near"] == [core]
