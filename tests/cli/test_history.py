"""``dovetail history`` and ``dovetail model`` from the outside."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.cli.main import status_of

Command = Callable[..., str]
LINES = "".join(
    json.dumps({"app": "mm", "device": device, "inputs": {"n": n}, "seconds": factor * n**2 + start}) + "\n"
    for device, factor, start in (("cpu:epyc", 1e-5, 0.01), ("opencl:pocl", 1e-6, 0.2))
    for n in (100, 200, 400, 800, 1600)
    for _ in range(2)
)


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command over a history of ten runs on each of two devices; gives what it printed."""
    table = tmp_path / "runs.jsonl"
    table.write_text(LINES)
    base = ["--history", str(tmp_path / "h.sqlite")]

    def call(*arguments: str, status: int = 0) -> str:
        found = status_of([*arguments, *base])
        captured = capsys.readouterr()
        assert found == status, captured.err
        return captured.out if status == 0 else captured.err

    assert "20 runs added." in call("history", "import", str(table))
    return call


def test_import_skips_what_is_known(command: Command, tmp_path: Path) -> None:
    out = json.loads(command("history", "import", str(tmp_path / "runs.jsonl"), "--json"))
    assert out == {"read": 20, "new": 0, "known": 20}


def test_a_malformed_line_imports_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"app":"new","device":"cpu","seconds":1}\n{"app":"new"}\n')
    error = command("history", "import", str(tmp_path / "bad.jsonl"), status=2)
    assert error == f"dovetail: {tmp_path / 'bad.jsonl'}: line 2: device is missing\n"
    assert {row["app"] for row in json.loads(command("history", "list", "--json"))} == {"mm"}
    (tmp_path / "bytes.csv").write_bytes(b"app,device,seconds\n\xff,cpu,1\n")
    assert "no UTF-8 text" in command("history", "import", str(tmp_path / "bytes.csv"), status=2)
    assert "cannot be read: No such file" in command("history", "import", str(tmp_path / "x"), status=2)


def test_list_and_show(command: Command) -> None:
    rows = json.loads(command("history", "list", "--json"))
    assert [(row["device"], row["runs"], row["failed"]) for row in rows] == [
        ("cpu:epyc", 10, 0),
        ("opencl:pocl", 10, 0),
    ]
    assert "cpu:epyc" in command("history", "list")
    shown = json.loads(command("history", "show", "mm", "--device", "opencl", "--json"))
    assert (shown[0]["inputs"], shown[0]["count"]) == ({"n": 100.0}, 2)
    assert shown[0]["mean"] == pytest.approx(0.21)
    assert "1600" in command("history", "show", "mm")
    last = json.loads(command("history", "show", "mm", "-d", "cpu", "--runs", "3", "--json"))
    assert [run["inputs"]["n"] for run in last] == [800, 1600, 1600]
    table = command("history", "show", "mm", "-d", "cpu", "--runs", "3").splitlines()
    assert table[0].split()[:2] == ["Device", "class"]
    at = table[0].split().index("n") - 1  # "Device class" is one column
    assert [line.split()[at] for line in table[2:]] == ["800", "1600", "1600"]


@pytest.mark.parametrize("model", ["learned", "power", "least-squares"])
def test_predict(command: Command, model: str) -> None:
    out = command("history", "predict", "mm", "--device", "cpu", "-i", "n=1000", "--model", model, "--json")
    found = json.loads(out)
    assert (found["app"], found["device"], found["inputs"]) == ("mm", "cpu:epyc", {"n": 1000.0})
    assert 0 <= found["lower"] <= found["expected"] <= found["upper"]
    assert found["predictions"][0]["expected"] == found["expected"]
    if model != "least-squares":
        assert found["expected"] == pytest.approx(10.01, rel=0.03)
        assert found["samples"] == 10


def test_predict_on_every_device_and_where_nothing_is_known(command: Command) -> None:
    out = command("history", "predict", "mm", "-i", "n=1000")
    assert "cpu:epyc" in out
    assert "opencl:pocl" in out
    none = json.loads(command("history", "predict", "mm", "-i", "n=7", "--model", "mean", "--json"))
    assert [row["expected"] for row in none["predictions"]] == [None, None]
    assert "nothing known" in command("history", "predict", "mm", "-i", "n=7", "--model", "mean")
    walltime = ("--model", "user-estimate", "--walltime", "60", "--json", "-d", "cpu")
    assert json.loads(command("history", "predict", "mm", *walltime))["expected"] == 60
    assert (
        json.loads(command("history", "predict", "mm", "--model", "last-two", "-d", "cpu", "--json"))[
            "samples"
        ]
        == 2
    )


def test_wrong_use_is_answered_in_one_sentence(command: Command) -> None:
    for arguments, said in (
        (("predict", "fft"), "found no run of app 'fft', expected one of: mm"),
        (
            ("predict", "mm", "--device", "tpu"),
            "found 'tpu', expected a kind or class that has run mm",
        ),
        (("predict", "mm", "-I", "x"), "--implementation: found 'x', expected one of: cpu, opencl"),
        (("predict", "mm", "-i", "n"), "--input: found 'n', expected NAME=VALUE"),
        (("predict", "mm", "-i", "n=inf"), "--input: found 'n=inf', expected a finite number"),
        (("predict", "mm", "--model", "guess"), "--model: found 'guess', expected one of"),
        (("predict", "mm", "m=3"), "--input: found 'm', which is no input of mm, expected one of n"),
        (("predict", "mm", "n=big"), "--input: n: found 'big', expected a number, as in the runs of mm"),
        (
            ("predict", "--", "python", "mm.py", "n=3"),
            "found 'mm.py' after the app python, expected its inputs, NAME=VALUE; 'dovetail explain -- ",
        ),
        (("forget",), "expected either the name of an app or --all"),
        (("export", "x.txt", "--format", "xml"), "--format: found 'xml', expected jsonl or csv"),
    ):
        error = command("history", *arguments, status=2)
        assert said in error
        assert error.count("\n") == 1


def test_numbers_are_written_as_in_commands(command: Command) -> None:
    one, other = (
        json.loads(command("history", "predict", "mm", text, "-d", "cpu", "--json"))
        for text in ("n=1k", "n=1000")
    )
    assert one["inputs"] == {"n": 1000.0}
    assert one == other


def test_an_app_without_inputs_takes_none(command: Command, tmp_path: Path) -> None:
    (tmp_path / "plain.jsonl").write_text('{"app":"plain","device":"cpu","seconds":1}\n')
    command("history", "import", str(tmp_path / "plain.jsonl"))
    assert "expected none: its runs have no inputs" in command("history", "predict", "plain", "n=1", status=2)


def test_import_from_a_pipe_reads_all_before_it_writes(command: Command, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    for text, status in ((LINES.replace("mm", "new"), 0), (LINES.replace("mm", "bad") + "{}\n", 2)):
        writer = threading.Thread(target=pipe.write_text, args=(text,))
        writer.start()
        told = command("history", "import", str(pipe), status=status)
        writer.join()
        assert told == ("20 runs added.\n" if not status else f"dovetail: {pipe}: line 21: app is missing\n")
    assert {row["app"] for row in json.loads(command("history", "list", "--json"))} == {"mm", "new"}


def test_a_history_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["history", "list", "--history", str(tmp_path / "none.sqlite")]) == 2
    assert "no such file, expected a history database" in capsys.readouterr().err
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_export_and_import_again(command: Command, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"out.{form}"
    assert "20 runs written" in command("history", "export", str(file))
    assert json.loads(command("history", "import", str(file), "--json"))["new"] == 0
    assert "10 runs deleted." in command("history", "forget", "mm", "--device", "cpu")
    assert json.loads(command("history", "import", str(file), "--json")) == {
        "read": 20,
        "new": 10,
        "known": 10,
    }
    before = json.loads(command("history", "list", "--json"))
    assert json.loads(command("history", "forget", "--all", "--json")) == {"deleted": 20}
    assert "MB before" in command("history", "vacuum")
    assert "empty" in command("history", "list")
    command("history", "import", str(file))
    assert json.loads(command("history", "list", "--json")) == before
    assert len(command("history", "export", "-", "--format", form).splitlines()) == 20 + (form == "csv")


def test_export_writes_into_a_pipe_and_through_a_link(command: Command, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    command("history", "export", str(pipe))
    reader.join()
    assert pipe.is_fifo()
    assert read[0].count("\n") == 20
    link, target = tmp_path / "link.jsonl", tmp_path / "target.jsonl"
    link.symlink_to(target)
    command("history", "export", str(link))
    assert link.is_symlink()
    assert target.read_text() == read[0]
    assert not list(tmp_path.glob("*.part"))


def test_model_list_show_error_and_plot(command: Command, tmp_path: Path) -> None:
    rows = json.loads(command("model", "list", "--json"))
    assert [(row["device"], row["runs"], row["keys"]) for row in rows] == [
        ("cpu:epyc", 10, 5),
        ("opencl:pocl", 10, 5),
    ]
    assert all("n" in row["formula"] for row in rows)
    assert "cpu:epyc" in command("model", "list")
    for name, magic in (("p.png", b"\x89PNG"), ("p.svg", b"<?xml")):
        out = command("model", "show", "mm", "--plot", str(tmp_path / name))
        assert "seconds = " in out
        assert (tmp_path / name).read_bytes().startswith(magic)
    shown = json.loads(command("model", "show", "mm", "-d", "cpu", "--json"))
    assert len(shown["devices"][0]["samples"]) == 5
    assert shown["devices"][0]["left_out_error"] < 0.1
    assert "expected .png, .svg or .pdf" in command("model", "show", "mm", "--plot", "x.gif", status=2)
    errors = json.loads(command("model", "error", "mm", "--json"))
    median = {(row["device"], row["model"]): row["median_error"] for row in errors}
    for device in ("cpu:epyc", "opencl:pocl"):
        assert median[device, "learned"] <= min(0.1, median[device, "least-squares"] / 2)
    assert "learned" in command("model", "error", "mm", "--model", "learned")


@pytest.mark.parametrize("seconds", [[0.5], [0.5, 0.6, 0.55]])
def test_a_plot_of_an_app_without_sizes_shows_numbers_and_what_is_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: list[float]
) -> None:
    table, plot, history = tmp_path / "r.jsonl", tmp_path / "p.svg", str(tmp_path / "h.sqlite")
    rows = [{"app": "ls[1]", "device": "cpu", "inputs": {"a": "yes"}, "seconds": s} for s in seconds]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert status_of(["history", "import", str(table), "--history", history]) == 0
    added = "1 run added." if len(seconds) == 1 else "3 runs added."
    assert capsys.readouterr().out.strip() == added
    assert status_of(["model", "show", "ls[1]", "--history", history, "--plot", str(plot)]) == 0
    said = capsys.readouterr().out
    assert "constant 100%" in said
    drawn = plot.read_text()
    labels = [text.partition("</text>")[0].rpartition(">")[2] for text in drawn.split("<text")[1:]]
    numbers = [label for label in labels if label.replace(".", "", 1).isdecimal()]
    assert len([label for label in numbers if "." in label]) >= 2  # seconds, within one decade
    assert "Run times of ls[1]" in labels
