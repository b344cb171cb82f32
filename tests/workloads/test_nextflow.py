"""Traces of Nextflow: as it writes them, and with raw values."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import InputError
from dovetail.workloads.nextflow import READ_BYTES, read_nextflow, run_of

TABS = (
    "task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\tpeak_rss\trchar\n"
    "1\t5f/ab\t77\talign (s1)\tCOMPLETED\t0\t2024-01-31 12:00:00.500\t1h 1m\t1h\t99%\t1.5 GB\t2 KB\n"
    "2\t5f/ac\t78\talign (s2)\tFAILED\t1\t2024-01-31 12:00:00.500\t3.5s\t2.1s\t-\t-\t-\n"
)


def test_as_nextflow_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(TABS)
    (task,) = read_nextflow(path)
    assert (task.process, task.seconds, task.peak, task.read) == ("align", 3600.0, 3 * 2**29, 2048)
    assert task.complete == 1706702400.5 + 3660
    assert task.start == task.complete - 3600
    assert task.requested is None
    run = run_of(task)
    assert (run.app, run.seconds, run.when) == ("align", 3600.0, task.complete)
    assert dict(run.inputs) == {READ_BYTES: 2048.0}
    assert run.usage is not None
    assert run.usage.peak_memory == 3 * 2**29


def test_raw_values_by_commas(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "task_id,process,status,start,complete,realtime,peak_rss,memory,rchar,cpus\n"
        "1,A:B,COMPLETED,1000,3500,2400,4096,8192,-,2\n"
    )
    (task,) = read_nextflow(path)
    assert (task.start, task.complete, task.seconds) == (1.0, 3.5, 2.4)
    assert (task.peak, task.requested, task.read, task.cpus) == (4096, 8192, None, 2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("1.5 GB", "lots", "line 2: peak_rss: found 'lots', expected bytes"),
        ("\t1h\t", "\tsoon\t", "line 2: realtime: found 'soon', expected milliseconds"),
        ("realtime", "time", "expected also realtime"),
        ("COMPLETED", "ABORTED", "found no task that is COMPLETED"),
        ("12:00:00.500\t1h 1m", "noon\t1h 1m", "line 2: submit: found '2024-01-31 noon'"),
    ],
)
def test_what_is_malformed_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(TABS.replace(old, new))
    with pytest.raises(InputError) as error:
        read_nextflow(path)
    assert said in str(error.value)
