from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from dovetail_lab.apps.__main__ import main


def test_prints_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matmul", "--device", "cpu", "--n", "17", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    answer = json.loads(lines[0])
    assert (answer["app"], answer["device"], answer["n"], answer["seed"]) == ("matmul", "cpu", 17, 3)
    assert answer["bytes_to_device"] == answer["bytes_from_device"] == 0
    assert answer["kernel_seconds"] > 0


@pytest.mark.parametrize(
    "arguments", [["nosuch"], ["matmul", "--device", "opencl:no such thing"], ["matmul", "--n", "-1"]]
)
def test_bad_input_is_one_sentence_and_status_2(
    arguments: list[str], opencl: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["matmul", "--n", "many"], ["matmul", "--n", "1.5"], ["--n", "inf"], []]
)
def test_wrong_use_is_one_sentence_and_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_size_may_have_an_exponent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "--n", "1e3"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 1000


def _module(*arguments: str, **where: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dovetail.apps", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **where)  # type: ignore[call-overload,no-any-return]


def test_a_full_disk_and_a_reader_that_left_are_no_tracebacks() -> None:
    with open("/dev/full", "w") as full:
        done = _module("scan", "--n", "9", stdout=full)
        assert done.communicate()[1] == "dovetail.apps: cannot write: No space left on device\n"
    assert done.returncode == 2
    read, write = os.pipe()
    os.close(read)
    done = _module("scan", "--n", "9", stdout=write)
    os.close(write)
    assert done.communicate()[1] == ""
    assert done.returncode == 141


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dovetail_lab.apps.__main__.run_app", interrupted)
    assert main(["scan"]) == 130


def test_help_says_what_n_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "side of the two square matrices" in capsys.readouterr().out


def test_a_cpu_run_imports_neither_scipy_nor_opencl() -> None:
    code = (
        "import sys; from dovetail_lab.apps.registry import run_app; run_app('matmul', 'cpu', 8); "
        "print([m for m in ('scipy', 'pyopencl', 'array_api_compat') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
