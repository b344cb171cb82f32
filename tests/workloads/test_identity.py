"""An app is known by what runs in the end, not by what starts it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.programs.identity import identify_command, with_file_sizes
from dovetail.programs.wrappers import unwrap_command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.py", "run.sh", "tool"):
        (tmp_path / name).write_text("x")
    (tmp_path / "data.csv").write_text("x" * 123)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "small.csv").write_text("x" * 7)
    for i in range(6):
        (tmp_path / f"f{i}").write_text("y" * 10)
    return tmp_path


PLAIN = "python train.py --rows 1e6 data.csv"


@pytest.mark.parametrize(
    "start",
    [
        "",
        "python3 ",
        "python3.11 ",
        "/usr/bin/python3 -u ",
        "nice ",
        "nice -n 10 ",
        "nice -10 ",
        "env ",
        "env -i A=1 B=2 ",
        "/usr/bin/env ",
        "time ",
        "/usr/bin/time -v -o log ",
        "nohup nice -n 5 ",
        "timeout -k 5 1h ",
        "stdbuf -oL ",
        "taskset -c 0-3 ",
        "numactl -N 0 -m0 ",
        "ionice -c2 -n 7 ",
        "uv run ",
        "uv run --with numpy --python 3.12 ",
        "poetry run ",
        "conda run -n lab --no-capture-output ",
        "micromamba run -n lab ",
        "mpirun --bind-to core --mca a b ",
    ],
)
def test_what_starts_a_program_does_not_change_the_app(folder: Path, start: str) -> None:
    plain = identify_command(shlex.split(PLAIN), cwd=folder)
    program = PLAIN.removeprefix("python ") if "python" in start.split("--")[0] else PLAIN
    found = identify_command(shlex.split(start + program), cwd=folder)
    assert (
        (found.app, dict(found.inputs))
        == (plain.app, dict(plain.inputs))
        == (
            "python:train.py",
            {"rows": 1e6, "arg1_bytes": 123.0},
        )
    )


@pytest.mark.parametrize("shell", ["sh -c", "bash -c", "bash -lc", "bash -o pipefail -ec", "dash -e -c"])
def test_a_shell_that_starts_one_program_does_not_hide_it(folder: Path, shell: str) -> None:
    plain = identify_command(shlex.split(PLAIN), cwd=folder)
    for script in (PLAIN, f"cd . && A=1 {PLAIN} > log 2>&1", f"mkdir -p out; nice {PLAIN}"):
        found = identify_command([*shell.split(), script], cwd=folder)
        assert (found.app, dict(found.inputs)) == (plain.app, dict(plain.inputs))


@pytest.mark.parametrize(
    ("command", "app", "inputs"),
    [
        ("sh -c 'gzip -c data.csv | xz -9 > o.xz'", "gzip+xz", {"c_bytes": 123.0, "9": "yes"}),
        ("sh -c 'sort -n <data.csv'", "sort", {"n": "yes", "stdin_bytes": 123.0}),
        ("sh -c 'sort \"$1\" | head -5' _ data.csv", "sort+head", {"arg1_bytes": 123.0, "5": "yes"}),
        ("sh -c 'cd sub && wc small.csv'", "wc", {"arg1_bytes": 7.0}),
        ("sh -c 'for i in 1 2; do x $i; done'", "sh", {"c": "for i in 1 2; do x $i; done"}),
        ("sh -c 'x $(date)'", "sh", {"c": "x $(date)"}),
        ("sh -c 'echo hi'", "echo", {}),
        ("sh -c \"a 'x\"", "sh", {"c": "a 'x"}),
        ("python -m pkg fit 5 --lr 0.1", "python:pkg:fit", {"arg1": 5.0, "lr": 0.1}),
        ("python -m pkg score 5", "python:pkg:score", {"arg1": 5.0}),
        ("python -m pkg data.csv", "python:pkg", {"arg1_bytes": 123.0}),
        ("python -m pkg --fast", "python:pkg", {"fast": "yes"}),
        ("uv run -m pkg fit", "python:pkg:fit", {}),
        ("uv pip install x", "uv", {"arg1": "pip", "arg2": "install", "arg3": "x"}),
        ("uv run train.py 5", "python:train.py", {"arg1": 5.0}),
        ("mpirun -np 4 ./solve 512", "solve", {"ranks": 4.0, "arg1": 512.0}),
        ("mpiexec -n8 python3 train.py", "python:train.py", {"ranks": 8.0}),
        ("mpirun -n 2 ./a 5 : -n 2 ./b 6", "a", {"ranks": 2.0, "arg1": 5.0}),
        ("srun -N2 --ntasks=8 --exclusive ./solve 512", "solve", {"ranks": 8.0, "arg1": 512.0}),
        ("torchrun --nproc-per-node 4 train.py --lr 1", "python:train.py", {"ranks": 4.0, "lr": 1.0}),
        (
            "docker run --rm -it -v /a:/b --gpus all img:1.2 python3 /x/fit.py 5",
            "python:fit.py",
            {"image": "img", "arg1": 5.0},
        ),
        ("docker run registry.example/blast:2", "blast", {"image": "registry.example/blast"}),
        ("docker run --rm blast:2 --db 5", "blast", {"image": "blast", "db": 5.0}),
        ("apptainer run blast.sif data.csv", "blast.sif", {"image": "blast.sif", "arg1_bytes": 123.0}),
        ("docker build .", "docker", {"arg1": "build", "arg2": "."}),
        ("apptainer exec -B /x tools.sif samtools sort", "samtools", {"image": "tools.sif", "arg1": "sort"}),
        ("java -Xmx4g -jar /x/tool.jar data.csv", "java:tool.jar", {"arg1_bytes": 123.0}),
        ("java -cp a:b org.Main 3", "java:org.Main", {"arg1": 3.0}),
        ("python tool 5", "python:tool", {"arg1": 5.0}),
        ("python -W ignore train.py 5", "python:train.py", {"arg1": 5.0}),
        ("gzip -9 data.csv", "gzip", {"9": "yes", "arg1_bytes": 123.0}),
        ("cat f0 f1 f2 f3 f4 f5 7", "cat", {"arg1_files": 6.0, "arg1_bytes": 60.0, "arg2": 7.0}),
        ("cat f0 f1", "cat", {"arg1_bytes": 10.0, "arg2_bytes": 10.0}),
        ("env -C sub wc small.csv", "wc", {"arg1_bytes": 7.0}),
        ("time", "time", {}),
        ("env", "env", {}),
        ("nice -n 10", "nice", {"n": 10.0}),
        ("bash", "bash", {}),
    ],
)  # fmt: skip
def test_apps_behind_other_programs(
    folder: Path, command: str, app: str, inputs: dict[str, float | str]
) -> None:
    found = identify_command(shlex.split(command), cwd=folder)
    assert found.app == app
    assert dict(found.inputs) == inputs


def test_the_command_runs_as_it_was_written(folder: Path) -> None:
    argv = shlex.split("nice -n 5 python3 train.py 7")
    assert identify_command(argv, cwd=folder).argv == tuple(argv)


def test_the_explanation_names_what_was_passed_over(folder: Path) -> None:
    said = identify_command(shlex.split("nice mpirun -n 4 ./solve 5"), cwd=folder).explanation
    assert said[0] == "app 'solve' (program)"
    assert "nice: starts the program, no part of the app" in said
    assert "ranks = 4 (number of processes)" in said


WORDS = (
    "nice",
    "env",
    "time",
    "uv",
    "run",
    "mpirun",
    "docker",
    "conda",
    "sh",
    "bash",
    "python",
    "img",
    "x.py",
)
OPTIONS = ("-c", "-n", "4", "-np", "--", ":", "-m", "a=1", "a|b")


@settings(deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(WORDS + OPTIONS), min_size=1, max_size=8))
def test_any_command_has_an_app(argv: list[str]) -> None:
    found = identify_command(argv, cwd="/")
    assert found.app
    assert found.argv == tuple(argv)
    assert unwrap_command(argv).argv


def test_inputs_that_name_files_become_sizes(folder: Path) -> None:
    inputs = {"file": "data.csv", "mode": "fast", "n": 3.0}
    assert with_file_sizes(inputs, folder) == {"file_bytes": 123.0, "mode": "fast", "n": 3.0}
    taken = {"file": "data.csv", "file_bytes": 5.0}
    assert with_file_sizes(taken, folder) == taken
