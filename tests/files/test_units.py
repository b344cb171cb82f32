"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.files.units import bytes_given, bytes_of, seconds_given, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1h", 3600.0),
        ("1h30m", 5400.0),
        ("1d", 86400.0),
        ("2w", 1209600.0),
        ("1D 2H 3Min 4s", 93784.0),
        ("1.5d", 129600.0),
        ("250ms", 0.25),
        ("00:10:00", 600.0),
        ("10:00", 600.0),
        ("100:00:00", 360000.0),
        ("1-00:00:00", 86400.0),
        ("1-02:03:04.5", 93784.5),
        ("2-12", 216000.0),
        ("2-12:30", 217800.0),
        (" 5m ", 300.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "x", "-5", "1m1h", "1h1h", "1y", "h", "1 h", "1:99", "1e400", "nan", "inf", "٣", "5" * 99, "1_0"],
)
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="expected seconds, or a"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GB", 8e9),
        ("8 gb", 8e9),
        ("8G", 8e9),
        ("512MiB", 512 * 2**20),
        ("2Ti", 2.0**41),
        ("4e9", 4e9),
        ("0", 0.0),
        ("5B", 5.0),
        ("1.5kB", 1500.0),
    ],
)
def test_sizes(text: str, size: float) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "1iB", "-1", "1 GB x", "1e400", "1e999kB", "nan", "8GBit"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="expected bytes, or a"):
        bytes_of(text)


@settings(derandomize=True)
@given(st.text(max_size=12))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    for read in (seconds_of, bytes_of):
        try:
            value = read(text)
        except ValueError:
            continue
        assert 0 <= value < float("inf")


SPELT = [
    ("90", 90.0),
    ("1m", 60.0),
    ("1h30m", 5400.0),
    ("10:00", 600.0),
    ("1-12", 129600.0),
    ("1-12:30", 131400.0),
]


@pytest.mark.parametrize(("text", "seconds"), SPELT)
def test_a_duration_is_read_alike_wherever_one_is_taken(text: str, seconds: float) -> None:
    from dovetail.report.metrics import TrimmedTrace
    from dovetail.workloads.batch.units import parse_limit
    from dovetail.workloads.slurm_accounting import parse_duration

    assert seconds_of(text) == seconds_given(text, "grace") == seconds
    if not text.endswith("m"):  # accounting tools print none of these
        assert parse_duration(text) == seconds
    assert TrimmedTrace.parse_trim(text).warmup == seconds
    if not text[-1].isalpha() and "." not in text:
        assert parse_limit(text) == (seconds * 60 if text.isdigit() else seconds)  # as sbatch: minutes


@pytest.mark.parametrize("text", ["8G", "8g", "8GB", "8e9", "8000MB"])
def test_a_size_is_read_alike_wherever_one_is_taken(text: str) -> None:
    assert bytes_given(text, "--memory") == bytes_of(text) == 8_000_000_000


@pytest.mark.parametrize("wrong", ["", "8x", "-1", "nan", "1e999", "1h2h"])
def test_what_is_neither_is_refused_with_the_name_of_the_option(wrong: str) -> None:
    for read in (seconds_given, bytes_given):
        with pytest.raises(InputError, match=r"^--option: found .*, expected "):
            read(wrong, "--option")
