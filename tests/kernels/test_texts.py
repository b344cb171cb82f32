"""Columns of whole numbers and lines of cells: C beside Python, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.files.arrays import distinct
from dovetail.model import Cluster, Result
from dovetail.native import texts
from dovetail.native.texts import Choices, Fractions, Numbers, Spans, Words
from dovetail.report import evalys_csv
from dovetail.testing.builders import full
from dovetail.workloads import swf_arrays

WIDTH = 18
drawn = settings(max_examples=full(2000, 100), deadline=None, derandomize=True)
whole = st.one_of(
    st.sampled_from(["0", "-1", "007", "-0", "9" * 15, "-" + "9" * 14]), st.integers(-99, 10**9).map(str)
)
odd = st.sampled_from(["1.5", "--1", "-", "1-", "x", "+3", "1e3", "9" * 16, "-" + "9" * 15, "3;"])
lines = st.lists(st.lists(whole, min_size=WIDTH, max_size=WIDTH), max_size=5)
gaps = st.sampled_from([" ", "  ", "\t", " \r"])


@given(lines, gaps, st.sampled_from(["\n", "\r\n", "\n\n", " \n"]), st.booleans())
@drawn
def test_clean_lines_are_read_as_array_operations_read_them(
    rows: list[list[str]], gap: str, end: str, closed: bool
) -> None:
    body = end.join(gap.join(row) for row in rows).encode() + (end.encode() if closed else b"")
    by_arrays = swf_arrays._clean_integers(body, WIDTH)
    by_c = texts.read_whole_numbers(body, WIDTH, swf_arrays.WANTED, (16, 17))
    assert by_arrays is not None
    assert by_c is not None
    assert by_c.keys() == by_arrays.keys()
    for column, values in by_arrays.items():
        assert by_c[column].tobytes() == values.tobytes()


@given(lines.filter(bool), st.data())
@drawn
def test_what_is_not_clean_is_left_to_others(rows: list[list[str]], data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(rows))
    place = data.draw(st.integers(0, WIDTH - 1))
    change = data.draw(st.one_of(odd, st.just("")))
    row[place : place + 1] = [change] if change else []
    body = "\n".join(" ".join(row) for row in rows).encode()
    assert swf_arrays._clean_integers(body, WIDTH) is None
    assert texts.read_whole_numbers(body, WIDTH, swf_arrays.WANTED, (16, 17)) is None


@given(st.data(), st.integers(1, 7), st.integers(1, 9))
@drawn
def test_lines_are_what_python_joins(data: st.DataObject, at_once: int, each: int) -> None:
    count = data.draw(st.integers(0, 12))
    numbers = st.integers(-(2**63), 2**63 - 1)
    cells = data.draw(st.lists(numbers, min_size=count, max_size=count))
    names = ["", 'a "name"', "Ünïcode\n", "x" * 200]
    chosen = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    words = data.draw(st.lists(st.sampled_from(["", "1.25", "inf"]), min_size=count, max_size=count))
    fractions = data.draw(
        st.lists(st.one_of(st.floats(0, 9), st.integers(0, 10**14)), min_size=count, max_size=count)
    )
    plain = [int(f) if f == int(f) else -1 for f in fractions]
    runs = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    low = data.draw(st.lists(st.integers(0, 10**8), min_size=sum(runs), max_size=sum(runs)))
    high = [value + data.draw(st.integers(1, 3)) for value in low]
    first = np.cumsum([0, *runs])[:-1]

    def others(part: slice) -> list[str]:
        return [repr(float(f)) for f, p in zip(fractions[part], plain[part], strict=True) if p < 0]

    columns = [
        Numbers(np.array(cells, np.int64)),
        Choices(np.array(chosen, np.int64), names),
        Words(lambda part: words[part]),
        Fractions(np.array(plain, np.int64), others),
        Spans(np.array(runs, np.int64), first, np.array(low, np.int32), np.array(high, np.int32), each),
    ]
    spans = [
        " ".join(
            str(a * each) if (b - a) * each == 1 else f"{a * each}-{b * each - 1}"
            for a, b in zip(low[f : f + n], high[f : f + n], strict=True)
        )
        for f, n in zip(first.tolist(), runs, strict=True)
    ]
    expected = [
        ",".join([str(cells[i]), names[chosen[i]], words[i], repr(float(fractions[i])), spans[i]]) + "\n"
        for i in range(count)
    ]
    assert b"".join(texts.write_lines(columns, count, at_once)).decode() == "".join(expected)


@pytest.mark.parametrize("decimals", [False, True])
@pytest.mark.parametrize("cpus", [1, 4])
def test_the_csv_of_a_table_is_the_same_with_c_and_without(
    decimals: bool, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dovetail import simulate
    from dovetail.workloads.swf import swf_workload
    from dovetail.workloads.synthetic import rigid_arrays

    arrays = rigid_arrays(3_000, 64, 1.05, 3)
    if decimals:
        arrays = swf_arrays.parse_swf(
            "\n".join(
                f"{3 * n} {s / 7:.3f} -1 {r % 3:.2f} {p} -1 -1 {p} {w if w == w else -1} "
                f"-1 1 1 1 {n % 3} 1 1 -1 -1"
                for n, s, r, p, w in zip(
                    arrays.number, arrays.submit, arrays.run, arrays.processors, arrays.walltime, strict=True
                )
            ).encode(),
            "drawn",
        )
    machine = Cluster.uniform(-(-64 // cpus), cpus)
    jobs = swf_workload(arrays, machine, name='a "log", drawn', cpus_per_node=cpus)
    result: Result = simulate(jobs, cluster=machine, policy="easy").result
    compiled = evalys_csv.to_evalys_csv(result)
    monkeypatch.setattr(evalys_csv, "can_write_lines", lambda: False)
    assert compiled == evalys_csv.to_evalys_csv(result)
    assert compiled.count("\n") == 3_001


@given(st.lists(st.one_of(st.integers(-9, 9), st.integers(-(10**9), 10**9)), max_size=20))
@drawn
def test_distinct_numbers_are_those_of_numpy(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    found, place = distinct(values)
    expected, where = np.unique(values, return_inverse=True)
    assert found.tolist() == expected.tolist()
    assert place.tolist() == where.tolist()
