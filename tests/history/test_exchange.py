"""History as text: what goes out comes back, and every malformed line is named."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.history.exchange import csv_lines, json_lines, read_csv, read_json_lines
from dovetail.model import DeviceClass, Run, State, Usage
from dovetail.testing.builders import full

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
times = st.floats(0, 1e9)
maybe = st.none() | times
usages = st.builds(Usage, maybe, st.none() | st.integers(0, 2**40), maybe, maybe, maybe, maybe)
runs = st.builds(
    Run,
    app=names,
    implementation=names,
    device_class=st.builds(DeviceClass, st.sampled_from(["cpu", "gpu", "cpu+gpu"]), words),
    nodes=st.integers(1, 100),
    cpus=st.integers(-2, 64),
    gpus=st.floats(0, 8),
    inputs=st.dictionaries(names, words | st.floats(-1e9, 1e9), max_size=3),
    seconds=times,
    state=st.sampled_from([State.COMPLETED, State.FAILED, State.TIMEOUT]),
    walltime=maybe,
    usage=st.none() | usages.filter(lambda usage: usage != Usage()),
    when=times,
    uid=names,
    job=words,
    user=st.none() | names,
    first_on_device=st.booleans(),
)


@settings(deadline=None, derandomize=True, max_examples=full(100, 25))
@given(st.lists(runs, max_size=4))
def test_json_lines_give_back_what_was_written(given_runs: list[Run]) -> None:
    assert list(read_json_lines(json_lines(given_runs), "x.jsonl")) == given_runs


def test_csv_gives_back_what_was_written() -> None:
    gpu, cpu = DeviceClass("gpu", "T4:x"), DeviceClass("cpu")
    given_runs = [
        Run("mm", "gpu", gpu, 2, 4, 0.5, {"n": 8.0, "kind": "a,b"}, 1.5, uid="u1", job="7"),
        Run("mm", "cpu", cpu, 1, -1, 0.0, {"m": 2.5}, 2.5, State.FAILED, 60.0, uid="2", when=5.0),
        Run(
            "fft", "cpu", cpu, 1, -1, 0.0, usage=Usage(1.0, 2, 3.0), uid="3", user="1e3", first_on_device=True
        ),
    ]
    text = "".join(csv_lines(given_runs, {"n", "kind", "m"}))
    assert list(read_csv(io.StringIO(text), "x.csv")) == given_runs


def test_little_is_enough() -> None:
    lines = [
        '{"app": "mm", "device": "gpu:T4", "inputs": {"n": 8}, "seconds": 2}',
        "",
        '{"app":"a","device":"cpu","seconds":1}',
    ]
    gpu, cpu = read_json_lines(lines, "x")
    assert (gpu.implementation, gpu.device_class) == ("gpu", DeviceClass("gpu", "T4"))
    assert (gpu.nodes, gpu.cpus, gpu.gpus, gpu.state) == (1, -2, 1.0, State.COMPLETED)
    assert (cpu.nodes, cpu.cpus, cpu.gpus) == (1, -1, 0.0)
    (row,) = read_csv(["app,device,inputs.n,inputs.kind,seconds\n", "mm,cpu,2048,dense,0.5\n"], "x")
    assert row.inputs == {"n": 2048.0, "kind": "dense"}


def test_runs_without_uid_get_the_same_one_each_time_and_differ_in_a_file() -> None:
    line = '{"app": "mm", "device": "cpu", "seconds": 2}'
    first = [run.uid for run in read_json_lines([line, line, line.replace("2", "3")], "x")]
    assert len(set(first)) == 3
    assert [run.uid for run in read_json_lines([line, line], "y")] == first[:2]


GOOD = '{"app": "a", "device": "cpu", "seconds": 1'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "found no JSON"),
        ("[1]", "found list, expected one run as an object"),
        ('{"device": "cpu", "seconds": 1}', "app is missing"),
        ('{"app": "a", "seconds": 1}', "device is missing"),
        ('{"app": "a", "device": "cpu"}', "seconds is missing"),
        (
            '{"app": "a", "device": "cpu", "seconds": -1}',
            "found -1, expected a number of at least 0",
        ),
        ('{"app": "a", "device": "cpu", "seconds": NaN}', "seconds: found nan, expected a finite number"),
        ('{"app": "a", "device": "cpu", "seconds": "1"}', "seconds: found '1', expected a finite number"),
        ('{"app": "a", "device": "cpu", "seconds": true}', "seconds: found True"),
        ('{"app": "a", "device": "cpu", "seconds": 1' + "0" * 400 + "}", "expected a finite number"),
        ('{"app": 1, "device": "cpu", "seconds": 1}', "app: found 1, expected a word"),
        ('{"app": "", "device": "cpu", "seconds": 1}', "app is missing"),
        ('{"app": "a", "device": "", "seconds": 1}', "device is missing"),
        ('{"app": "a", "device": {"x": 1}, "seconds": 1}', "expected KIND, KIND:MODEL or an object"),
        (
            GOOD + ', "nodes": 0}',
            "nodes: found 0, expected a whole number",
        ),
        (GOOD + ', "nodes": 1.5}', "nodes: found 1.5, expected a whole"),
        (
            GOOD + ', "inputs": [1]}',
            "inputs: found [1], expected an object",
        ),
        (GOOD + ', "inputs": {"n": null}}', "inputs.n: found None"),
        (
            GOOD + ', "state": "DONE"}',
            "state: found 'DONE', expected PENDING",
        ),
        (GOOD + ', "first_on_device": "no"}', "expected true or false"),
        (GOOD + ', "second": 1}', "found field 'second', expected app,"),
    ],
)
def test_malformed_lines_are_named(line: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        list(read_json_lines([GOOD + "}", line], "x.jsonl"))
    assert str(caught.value).startswith("x.jsonl: line 2")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "x.csv: found an empty file"),
        ("app,device,time\n", "x.csv: line 1: found column 'time', expected app"),
        ("app,app,device,seconds\n", "found column 'app' twice"),
        ("app,device,seconds\na,cpu\n", "x.csv: line 2: found 2 fields, expected 3"),
        ("app,device,seconds\na,cpu,fast\n", "line 2: seconds: found 'fast', expected a finite number"),
        ('app,device,seconds\na,cpu,"1\n', "found no CSV"),
        ("app,device,seconds,inputs\na,cpu,1,x\n", "line 2: inputs: found 'x', expected a JSON object"),
    ],
)
def test_malformed_csv_is_named(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        list(read_csv(io.StringIO(text), "x.csv"))
    assert said in str(caught.value)


@settings(deadline=None, derandomize=True, max_examples=full(150, 37))
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_text_is_read_or_answered(data: bytes) -> None:
    text = data.decode(errors="replace")
    for reader in (read_json_lines, read_csv):
        with contextlib.suppress(InputError):
            list(reader(io.StringIO(text), "x"))


@settings(deadline=None, derandomize=True, max_examples=full(100, 25))
@given(st.dictionaries(names, words | st.sampled_from(["inf", "nan", "5", "1e3", '"5"', '"', "true", ""])))
def test_csv_keeps_words_apart_from_numbers(inputs: dict[str, str]) -> None:
    run = Run("a", "cpu", DeviceClass("cpu"), 1, -1, 0.0, inputs, 1.0, uid="1")
    text = "".join(csv_lines([run], inputs))
    assert [found.inputs for found in read_csv(io.StringIO(text), "x.csv")] == [inputs]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"app":"a","device":"cpu","seconds":1,"inputs":' + "[" * 100_000 + "]" * 100_000 + "}", "too deep"),
        ('{"app":"a","device":"cpu","seconds":1,"nodes":99999999999999999999}', "nodes: found 9999"),
        (
            '{"app":"a","device":"cpu","seconds":1,"peak_memory":99999999999999999999}',
            "peak_memory: found 1e+20",
        ),
        ('{"app":"a","device":"cpu","seconds":1,"inputs":{"k":"\\ud800"}}', "half of a character"),
        ('{"app":"a\\ud800","device":"cpu","seconds":1}', "half of a character"),
    ],
)
def test_what_no_database_can_hold_is_refused_with_its_line(line: str, says: str) -> None:
    with pytest.raises(InputError, match=r"^x\.jsonl: line 2: ") as caught:
        list(read_json_lines(["\n", line], "x.jsonl"))
    assert says in str(caught.value)
