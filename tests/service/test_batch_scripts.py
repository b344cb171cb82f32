"""Batch scripts through a real service: what becomes of them, and what their jobs find."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from services import Serving, serving

from dovetail.cli.queue import queue_row
from dovetail.cli.service import format_clock
from dovetail.errors import InputError
from dovetail.model import Cluster, Node
from dovetail.service.partitions import read_partitions, with_partitions

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    root = tmp_path_factory.mktemp("service")
    (root / "cluster.toml").write_text(
        '[[node]]\nname = "here"\ncores = [0, 1]\n'
        'devices = [{ kind = "gpu", model = "NVIDIA A100-SXM4-40GB", count = 2 }]\n'
    )
    with serving(root, "--cluster", str(root / "cluster.toml")) as found:
        yield found


def script(folder: Path, *lines: str, name: str = "job.sh") -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in ("#!/bin/sh", *lines)))
    return path


def submit(service: Serving, folder: Path, *words: str, status: int = 0, **options: object) -> str:
    done = service.dovetail("submit", "--parsable", *words, cwd=folder, **options)
    assert done.returncode == status, done.stderr
    return str(done.stdout if not status else done.stderr).strip()


def output(service: Serving, job: str) -> str:
    assert service.dovetail("wait", job).returncode == 0, service.dovetail("info", job).stdout
    return str(service.dovetail("logs", job).stdout)


def info(service: Serving, job: str) -> dict[str, object]:
    found = json.loads(service.dovetail("info", "--json", job).stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("how", ["path", "input", "here-document", "pipe", "marked"])
def test_a_script_is_one_job_however_it_comes(service: Serving, tmp_path: Path, how: str) -> None:
    path = script(tmp_path, "#SBATCH -J steps", "sleep 0.2; echo one >> out", "echo two >> out")
    text = path.read_bytes()
    if how == "marked":
        path.write_bytes(b"\xef\xbb\xbf" + text)
    if how == "pipe":
        path.unlink()
        os.mkfifo(path)
        # Its write waits until the command opens the pipe.
        threading.Thread(target=path.write_bytes, args=(text,), daemon=True).start()
    words = {"input": ["-"], "here-document": []}.get(how, [str(path)])
    job = submit(service, tmp_path, *words, input=text.decode())
    assert output(service, job) == ""
    assert (tmp_path / "out").read_text() == "one\ntwo\n"
    assert info(service, job)["name"] == "steps"


@pytest.mark.parametrize("name", ["plain", b"caf\xe9"])
def test_a_script_is_bytes_in_whatever_encoding(service: Serving, tmp_path: Path, name: str | bytes) -> None:
    """The name of a job is that of its runs in the history, too, which holds characters alone."""
    word = name.encode() if isinstance(name, str) else name
    (tmp_path / "job.sh").write_bytes(
        b"#!/bin/sh\n# na\xefve\n#SBATCH -J " + word + b"\nprintf 'caf\xe9' > out\n"
    )
    job = submit(service, tmp_path, "job.sh")
    assert service.dovetail("wait", job).returncode == 0
    assert (tmp_path / "out").read_bytes() == b"caf\xe9"
    assert str(info(service, job)["name"]).encode("utf-8", "surrogateescape") == word


def test_a_program_whose_name_is_no_utf8_runs(service: Serving, tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/caf\xe9.sh"
    with open(program, "wb") as file:
        file.write(b"#!/bin/sh\ntrue\n")
    os.chmod(program, 0o755)
    job = submit(service, tmp_path, "--", os.fsdecode(program))
    assert service.dovetail("wait", job).returncode == 0
    assert service.dovetail("queue", "--name", os.fsdecode(b"caf\xe9")).returncode == 0


def test_a_name_that_is_no_utf8_names_its_job(service: Serving, tmp_path: Path) -> None:
    name, other = os.fsdecode(b"caf\xe9"), os.fsdecode(b"caf\xe8")
    job = submit(service, tmp_path, "--name", name, "--", "true")
    after = submit(service, tmp_path, "-d", f"afterok:{name}", "--", "true")
    assert service.dovetail("wait", f"{job},{after}").returncode == 0
    assert submit(service, tmp_path, "-d", f"afterok:{other}", "--", "true", status=2) == (
        f"dovetail: depends: found {'afterok:' + other!r}, a job that is not there"
    )


def test_a_partition_where_there_is_none_is_passed_over_by_name(service: Serving, tmp_path: Path) -> None:
    path = script(tmp_path, "#SBATCH -t 5", "#SBATCH -p short,long", "true")
    done = service.dovetail("submit", "--wait", path.name, cwd=tmp_path)
    assert done.returncode == 0
    assert "job.sh: line 3: -p short,long has no meaning here and is passed over" in done.stderr


def test_the_variables_of_an_array(service: Serving, tmp_path: Path) -> None:
    names = (
        "JOB_ID ARRAY_JOB_ID ARRAY_TASK_ID ARRAY_TASK_COUNT CPUS_PER_TASK NTASKS JOB_NUM_NODES CPUS_ON_NODE"
    )
    shown = " ".join(f"$SLURM_{name}" for name in names.split())
    path = script(tmp_path, "#SBATCH -c 2 -a 3,5", f'echo "{shown} $SLURM_JOB_NODELIST $SLURMD_NODENAME"')
    number = int(submit(service, tmp_path, str(path)))
    assert service.dovetail("wait", str(number)).returncode == 0
    for place, index in enumerate((3, 5)):
        expected = f"{number + place} {number} {index} 2 2 1 1 2 here here\n"
        assert output(service, f"{number}_{index}") == expected
    assert info(service, str(number + 1))["id"] == f"{number}_5"
    assert int(submit(service, tmp_path, "--", "true")) == number + 2


def test_gpus_of_a_model(service: Serving, tmp_path: Path) -> None:
    path = script(tmp_path, "#SBATCH --gres=gpu:a100:2", 'echo "$SLURM_JOB_GPUS $SLURM_GPUS_ON_NODE"')
    job = submit(service, tmp_path, str(path))
    assert output(service, job) == "0,1 2\n"
    path = script(tmp_path, "#SBATCH --gres=gpu:h100:1", "true")
    said = submit(service, tmp_path, path.name, status=2)
    assert said.startswith(
        "dovetail: job.sh: line 2: --gres=gpu:h100:1: models: found 'h100', expected one of"
    )


def test_files_of_a_job(service: Serving, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("read\n")
    path = script(
        tmp_path, "#SBATCH -i words -o %x.%3j.%N.%%.out --open-mode=append -J name", "cat; echo err >&2"
    )
    first = submit(service, tmp_path, str(path))
    service.dovetail("wait", first)
    (made,) = tmp_path.glob("*.out")
    assert made.name == f"name.{int(first):03}.here.%.out"
    assert made.read_text() == "read\nerr\n"
    path = script(tmp_path, "#SBATCH -o fixed --open-mode=append", "echo line")
    for _ in range(2):
        service.dovetail("wait", submit(service, tmp_path, str(path)))
    assert (tmp_path / "fixed").read_text() == "line\nline\n"
    assert service.dovetail("logs", first).stdout == "read\nerr\n"


def test_the_folder_of_the_submission_and_that_of_the_job(service: Serving, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    path = script(tmp_path, "#SBATCH -D sub", 'echo "$SLURM_SUBMIT_DIR $PWD"')
    assert output(service, submit(service, tmp_path, str(path))) == f"{tmp_path} {tmp_path}/sub\n"


def test_what_follows_the_name_is_the_scripts(service: Serving, tmp_path: Path) -> None:
    path = script(tmp_path, 'echo "$@"')
    job = submit(service, tmp_path, "-c", "1", path.name, "--hold", "-n", "2", "--", "x")
    assert output(service, job) == "--hold -n 2 -- x\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("#SBATCH -n 1\ntrue\n", "odd.sh: line 1: found '#SBATCH -n 1', expected #!"),
        ("\n#!/bin/sh\n", "odd.sh: line 1: found an empty line, expected #!"),
        ("#!/bin/sh\r\ntrue\r\n", "odd.sh: line 1: found DOS line ends"),
        ("#!/bin/sh\n#SBATCH -t x\n", "odd.sh: line 2: -t x: found 'x', expected minutes"),
        ("#!/bin/sh\n#SBATCH -c 99\n", "odd.sh: line 2: -c 99: cpus: found 99, the largest node has 2"),
    ],
)
@pytest.mark.parametrize("command", ["submit", "run"])
def test_what_is_refused(service: Serving, tmp_path: Path, command: str, text: str, sentence: str) -> None:
    (tmp_path / "odd.sh").write_bytes(text.encode())
    if command == "run" and "99" in text:
        pytest.skip("a run rejects what is too large for the machine")
    done = service.dovetail(command, "odd.sh", cwd=tmp_path)
    assert (done.returncode, done.stderr.startswith(f"dovetail: {sentence}")) == (2, True), done.stderr


def test_a_job_begins_later_and_another_some_time_after_it(service: Serving, tmp_path: Path) -> None:
    later = script(tmp_path, "#SBATCH --begin=now+1hour", "true", name="later.sh")
    waiting = submit(service, tmp_path, str(later))
    found = info(service, waiting)
    assert (found["state"], found["reason"]) == ("PENDING", "begins later")
    assert (
        queue_row(found, found["submit"])["reason"]
        == f"begins {format_clock(found['begin'], found['submit'])}"
    )
    service.dovetail("cancel", waiting)
    path = script(tmp_path, "#SBATCH --begin=now+2", "date +%s.%N")
    begun = time.time()
    first = submit(service, tmp_path, str(path))
    second = submit(service, tmp_path, "-d", f"after:{first}", "--", "date", "+%s.%N")
    assert float(output(service, first)) >= begun + 1  # whole seconds
    assert float(output(service, second)) >= begun + 1


@pytest.mark.parametrize("command", [("submit", "--wait"), ("run", "-k")])
def test_a_umask_for_the_job_of_a_script(service: Serving, tmp_path: Path, command: Sequence[str]) -> None:
    path = script(tmp_path, "#SBATCH -o mask", "umask")
    env = {**service.environment, "SLURM_UMASK": "027"}
    done = service.dovetail(*command, str(path), cwd=tmp_path, env=env)
    assert (done.returncode, (tmp_path / "mask").read_text()) == (0, "0027\n"), done.stderr


def test_corresponding_elements(service: Serving, tmp_path: Path) -> None:
    path = script(tmp_path, "#SBATCH -a 1-2", "test $SLURM_ARRAY_TASK_ID = 1")
    first = submit(service, tmp_path, str(path))
    second = submit(
        service, tmp_path, "-d", f"aftercorr:{first}", str(script(tmp_path, "#SBATCH -a 1-2", name="b.sh"))
    )
    service.dovetail("wait", second)
    assert [info(service, f"{second}_{index}")["state"] for index in (1, 2)] == ["COMPLETED", "CANCELLED"]
    said = submit(service, tmp_path, "-d", f"aftercorr:{first}", "-a", "2-3", str(path), status=2)
    assert "without an element 3, expected arrays of like indices" in said


def test_a_signal_for_the_script_alone(service: Serving, tmp_path: Path) -> None:
    path = script(
        tmp_path, "#SBATCH --signal=B:USR1@2 -t 0:3", "trap 'echo caught; kill $child; exit 0' USR1",
        "sh -c \"trap 'echo wrong' USR1; while :; do sleep 0.1; done\" & child=$!", "wait",
    )  # fmt: skip
    assert output(service, submit(service, tmp_path, str(path))) == "caught\n"


def test_exports(service: Serving, tmp_path: Path) -> None:
    path = script(tmp_path, "#SBATCH --export=NONE,ONE=1", 'echo "$ONE-$TWO-$HOME"')
    path.write_text(path.read_text().replace("NONE,", ""))
    environment = {**service.environment, "TWO": "2", "HOME": str(tmp_path)}
    job = submit(service, tmp_path, str(path), env=environment)
    assert output(service, job).startswith("1--/")


def test_the_three_lists(service: Serving, tmp_path: Path) -> None:
    script(tmp_path, "#SBATCH -t 5 --mail-type=END -C x --container=x", "true")
    done = service.dovetail("submit", "--explain-script", "job.sh", "--json", cwd=tmp_path)
    assert done.returncode == 2
    found = json.loads(done.stdout)
    assert {name: [note["option"] for note in found[name]] for name in ("honoured", "warned", "refused")} == {
        "honoured": ["-t 5", "--mail-type=END"], "warned": ["-C x"], "refused": ["--container=x"],
    }  # fmt: skip
    assert found["refused"][0]["line"] == 2
    shown = service.dovetail("submit", "--explain-script", "job.sh", cwd=tmp_path).stdout
    assert shown.splitlines()[:2] == ["honoured (2)", "  job.sh: line 2: -t 5: 300 s"]


def test_run_takes_a_script_as_one_job(service: Serving, tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "#SBATCH -J two-steps -a 1-2 -p x",
        "sleep 0.2",
        'echo "$SLURM_ARRAY_TASK_ID $1" > out.$SLURM_JOB_ID',
    )
    done = service.dovetail("run", path.name, "word", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "job.sh: line 2: -p x has no meaning here and is passed over" in done.stderr
    assert [one.read_text() for one in sorted(tmp_path.glob("out.*"))] == ["1 word\n", "2 word\n"]
    done = service.dovetail("run", "-q", "-", cwd=tmp_path, input="#!/bin/sh\nsleep 0.1\necho end > end\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "end").read_text() == "end\n"


def test_partitions_of_a_service(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(
        '[[node]]\nname = "n0"\ncores = [0]\n[[node]]\nname = "g"\ncores = [1]\ngpus = 1\n'
    )
    (tmp_path / "parts.toml").write_text(
        '[[partition]]\nname = "short"\nnodes = "n0"\ndefault = true\nwalltime = "1m"\nlongest = "5m"\n'
        'most_nodes = 1\n[[partition]]\nname = "fast"\ndevices = ["gpu"]\n'
    )
    options = ("--cluster", str(tmp_path / "cluster.toml"), "--partitions", str(tmp_path / "parts.toml"))
    with serving(tmp_path, *options, "--policy", "easy") as found:
        job = submit(found, tmp_path, "--hold", str(script(tmp_path, "true")))
        assert (info(found, job)["walltime"], info(found, job)["partition"]) == (60.0, "short")
        job = submit(found, tmp_path, "--hold", str(script(tmp_path, "#SBATCH -p none,fast --gres=gpu:1")))
        assert (info(found, job)["walltime"], info(found, job)["partition"]) == (None, "fast")
        said = submit(found, tmp_path, str(script(tmp_path, "#SBATCH -t 6 -p short")), status=2)
        assert said.endswith("walltime: found 360 s, expected at most 300 in partition short")
        said = submit(found, tmp_path, str(script(tmp_path, "#SBATCH -p long")), status=2)
        assert said.endswith("line 2: -p long: partition: found 'long', expected one of fast, short")
        found.dovetail("cancel", "all")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "found an empty file"),
        ('[[partition]]\nname = "a"\n[[partition]]\nname = "a"\n', "partition: found 'a' twice"),
        ('[[partition]]\nname = "a"\nnodes = "x"\n', "partition 'a': nodes: found 'x', expected one of here"),
        ('[[partition]]\nname = "a"\ndevices = ["tpu"]\n', "partition 'a': found no node with tpu"),
    ],
)
def test_files_of_partitions_that_cannot_be(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "parts.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        with_partitions(Cluster((Node("here", (0,)),)), read_partitions(str(path)))
    assert sentence in str(error.value)
