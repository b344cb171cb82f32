from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dovetail.apps.__main__ import main


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


def test_malformed_number_is_status_2() -> None:
    with pytest.raises(SystemExit) as raised:
        main(["matmul", "--n", "many"])
    assert raised.value.code == 2


def test_help_says_what_n_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "side of the two square matrices" in capsys.readouterr().out


def test_a_cpu_run_imports_neither_scipy_nor_opencl() -> None:
    code = (
        "import sys; from dovetail.apps.registry import run; run('matmul', 'cpu', 8); "
        "print([m for m in ('scipy', 'pyopencl', 'array_api_compat') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
