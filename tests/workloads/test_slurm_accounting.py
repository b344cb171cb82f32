"""Slurm's accounting: sacct --parsable2 and sacct --json."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.files.tables import Malformed, unix_seconds
from dovetail.model import Cluster, Device, Node, Request
from dovetail.testing.builders import full
from dovetail.workloads.sacct_rows import parse_tres
from dovetail.workloads.slurm_accounting import (
    parse_duration,
    read_sacct,
    read_sacct_json,
    read_sacct_parsable,
)

HEADER = "JobID|User|Account|Partition|Submit|Start|Elapsed|Timelimit|State|NNodes|NCPUS|ReqTRES|AllocTRES\n"
GIB = 2**30


def table(tmp_path, *lines, header=HEADER):
    path = tmp_path / "sacct.txt"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return path


SAMPLE = (
    "12|ann|phys|cpu|2026-01-05T10:00:00|2026-01-05T10:00:10|1-00:00:05|2-00:00:00|COMPLETED|2|8"
    "|billing=8,cpu=7,mem=4G,node=2|billing=8,cpu=8,mem=4G,node=2",
    "12.batch||phys||2026-01-05T10:00:10|2026-01-05T10:00:10|1-00:00:05||COMPLETED|1|4||cpu=4,mem=2G,node=1",
    "13_4|bob|chem|gpu|2026-01-05T09:59:00|2026-01-05T10:00:00|00:02:00|UNLIMITED|CANCELLED by 1000|1|4"
    "|cpu=4,gres/gpu:a100=2,node=1|cpu=4,gres/gpu=2,gres/gpu:a100=2,node=1",
    "14|bob|chem|gpu|2026-01-05T10:01:00|Unknown|00:00:00|01:00:00|PENDING|1|4|cpu=4,node=1|",
    "15|bob|chem|gpu|2026-01-05T10:01:00|None|00:00:00|01:00:00|CANCELLED by 7|1|4|cpu=4,node=1|",
    "16|bob|chem|gpu|2026-01-05T10:02:00|2026-01-05T10:02:00|00:00:09|01:00:00|FAILED|1|3||",
)


def test_parsable(tmp_path):
    workload = read_sacct(table(tmp_path, *SAMPLE), Cluster.uniform(2, 4, 2))
    assert [(j.id, j.submit_time, j.walltime) for j in workload.jobs] == [
        ("13_4", 0.0, None),
        ("12", 60.0, 172800.0),
        ("16", 180.0, 3600.0),
    ]
    array, two, plain = workload.jobs
    assert two.choices[0].request == Request(2, 4, (), 2 * GIB)  # what it held, a node
    assert array.choices[0].request == Request(1, 4, (("gpu", 2),))  # this cluster names no models
    assert plain.choices[0].request == Request(1, 3)
    assert (two.user, two.group, two.queue) == ("ann", "phys", "cpu")
    assert workload.truth.fixed == {"12": 86405.0, "13_4": 120.0, "16": 9.0}
    assert {r.id: r.reason for r in workload.rejected} == {
        "14": "unknown length (state PENDING)",
        "15": "never started (state CANCELLED)",
    }
    assert workload.skipped == 0


def test_models_that_were_asked_for(tmp_path):
    node = Node("a", tuple(range(4)), (Device("gpu", "a100", 0), Device("gpu", "a100", 1)))
    workload = read_sacct(table(tmp_path, SAMPLE[2]), Cluster((node,)))
    assert workload.jobs[0].choices[0].request.models == ("a100",)
    other = Node("a", tuple(range(4)), (Device("gpu", "t4", 0), Device("gpu", "t4", 1)))
    assert [r.id for r in read_sacct(table(tmp_path, SAMPLE[2]), Cluster((other,))).rejected] == ["13_4"]


def test_other_columns(tmp_path):
    header = (
        "JobID|Submit|State|ElapsedRaw|TimelimitRaw|ReqNodes|ReqCPUS|\n"  # --parsable ends lines with a bar
    )
    workload = read_sacct_parsable(table(tmp_path, "7|1700000000|TIMEOUT|60|2|3|12|", header=header))
    (job,) = workload.jobs
    assert (job.walltime, job.choices[0].request) == (120.0, Request(3, 4))
    assert workload.truth.fixed == {"7": 60.0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1|a|b|c|soon|x|00:01|1|COMPLETED|1|1||", "line 2: Submit: found 'soon', expected a moment"),
        (
            "1|a|b|c|2026-01-05T10:00:00|x|later|1|COMPLETED|1|1||",
            "Elapsed: found 'later', expected a duration",
        ),
        (
            "1|a|b|c|2026-01-05T10:00:00|x|00:01|x|COMPLETED|1|1||",
            "Timelimit: found 'x', expected a duration",
        ),
        ("1|a|b|c|2026-01-05T10:00:00|x|00:01|1|ODD|1|1||", "State: found 'ODD', expected a state of sacct"),
        (
            "1|a|b|c|2026-01-05T10:00:00|x|00:01|1|COMPLETED|1|1||cpu",
            "AllocTRES: found 'cpu', expected NAME=",
        ),
        ("1|a|b|c|2026-01-05T10:00:00|x|00:01|1|COMPLETED|one|1||", "NNodes: found 'one', expected a count"),
        ("|a|b|c|2026-01-05T10:00:00|x|00:01|1|COMPLETED|1|1||", "JobID: found '', expected a job id"),
        ("1|a|b", r"found 3 fields \('1\|a\|b'\), expected 13"),
    ],
)
def test_a_malformed_line_is_one_sentence_or_counted(tmp_path, line, message):
    path = table(tmp_path, line, SAMPLE[0])
    with pytest.raises(InputError, match=message):
        read_sacct(path)
    lenient = read_sacct(path, lenient=True)
    assert (len(lenient.jobs), lenient.skipped) == (1, 1)


@pytest.mark.parametrize(
    ("state", "kept", "reason"),
    [
        ("CANCELLED+", 1, ""),
        ("OUT_OF_ME+", 1, ""),
        ("LAUNCH_FAILED", 1, ""),
        ("RE+", None, ""),
        *((state, 0, state) for state in ("SIGNALING", "STAGE_OUT", "SPECIAL_EXIT", "POWER_UP_NODE")),
    ],
)
def test_states_of_all_versions_and_widths(tmp_path, state, kept, reason):
    path = table(tmp_path, SAMPLE[-1].replace("FAILED", state))
    if kept is None:  # RESIZING, REQUEUED, REVOKED
        with pytest.raises(InputError, match="State: found 'RE"):
            read_sacct(path)
        return
    workload = read_sacct(path)
    assert len(workload.jobs) == kept
    assert [one.reason for one in workload.rejected] == (
        [f"unknown length (state {reason})"] if reason else []
    )


def test_tables_that_were_put_together(tmp_path):
    path = table(tmp_path, SAMPLE[0], HEADER.strip(), SAMPLE[2])
    assert {job.id for job in read_sacct(path).jobs} == {"12", "13_4"}


def test_a_job_whose_submission_is_unknown_is_rejected_alone(tmp_path):
    odd = SAMPLE[-1].replace("2026-01-05T10:02:00|2026-01-05T10:02:00", "Unknown|Unknown")
    workload = read_sacct(table(tmp_path, odd, SAMPLE[0]))
    assert [one.reason for one in workload.rejected] == ["unknown submission"]
    assert [(job.id, job.submit_time) for job in workload.jobs] == [("12", 0.0)]


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu", 1),
        ("7696487:2", 2),
        ("gres:gpu:tesla:2", 2),
        ("craynetwork:1,gpu:p100:4", 4),
        ("1234567:3", 0),
    ],
)
def test_resources_as_older_versions_spell_them(tmp_path, gres, gpus):
    columns = "JobID|Submit|Start|End|State|NNodes|NCPUS|AllocGRES|ReqGRES\n"
    line = f"1|2018-01-05T10:00:00|2018-01-05T10:00:00|2018-01-05T10:01:40|COMPLETED|1|4|{gres}|"
    workload = read_sacct(table(tmp_path, line, header=columns), Cluster.uniform(1, 4, 4))
    assert dict(workload.jobs[0].choices[0].request.devices).get("gpu", 0) == gpus
    assert workload.truth.fixed == {"1": 100.0}  # End less Start
    line = line.removesuffix(f"{gres}|") + f"|PER_NODE:{gres}"
    workload = read_sacct(table(tmp_path, line, header=columns), Cluster.uniform(1, 4, 4))
    assert dict(workload.jobs[0].choices[0].request.devices).get("gpu", 0) == gpus


def test_a_table_without_elapsed(tmp_path):
    with pytest.raises(InputError, match="expected a column Elapsed or ElapsedRaw"):
        read_sacct(table(tmp_path, "1|5|COMPLETED", header="JobID|Submit|State\n"))


def record(**changes):
    job = {
        "job_id": 21,
        "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}},
        "user": "ann",
        "account": "phys",
        "partition": "gpu",
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "time": {
            "submission": 1_700_000_000,
            "start": 1_700_000_060,
            "elapsed": 90,
            "limit": {"set": True, "infinite": False, "number": 60},
        },
        "allocation_nodes": 2,
        "tres": {
            "requested": [{"type": "gres", "name": "gpu:a100", "id": 1002, "count": 4}],
            "allocated": [
                {"type": "cpu", "name": "", "id": 1, "count": 16},
                {"type": "mem", "name": "", "id": 2, "count": 8192},
                {"type": "node", "name": "", "id": 4, "count": 2},
                {"type": "gres", "name": "gpu", "id": 1001, "count": 4},
            ],
        },
        "steps": [],
    }
    return job | changes


def document(tmp_path, *records):
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"meta": {}, "jobs": list(records)}))
    return path


def test_json(tmp_path):
    later = record(
        job_id=25,
        array={"job_id": 23, "task_id": {"set": True, "infinite": False, "number": 2}},
        state={"current": "FAILED"},  # before data parser 0.0.40
        time={"submission": 1_700_000_050, "start": 1_700_000_060, "elapsed": 5, "limit": 30},
        tres={"requested": [], "allocated": None},
        required={"CPUs": 8},
    )
    pending = record(job_id=26, state={"current": ["PENDING"]})
    workload = read_sacct(document(tmp_path, record(), later, pending), Cluster.uniform(2, 8, 2))
    assert [(j.id, j.submit_time, j.walltime) for j in workload.jobs] == [
        ("21", 0.0, 3600.0),
        ("23_2", 50.0, 1800.0),
    ]
    assert workload.jobs[0].choices[0].request == Request(2, 8, (("gpu", 2),), 4096 * 2**20)
    assert workload.jobs[1].choices[0].request == Request(2, 4)
    assert workload.truth.fixed == {"21": 90.0, "23_2": 5.0}
    assert [r.id for r in workload.rejected] == ["26"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: found broken JSON"),
        ("{}", "found no list named jobs"),
        ('{"jobs": []}', "the list jobs is empty"),
        ('{"jobs": [1]}', "job 1: job: found 1, expected an object"),
        ('{"jobs": [{"time": 3}]}', "job 1: time: found 3, expected an object"),
        ('{"jobs": [{"time": {}, "tres": {}, "job_id": 1}]}', "state: found None"),
        ("{" * 5000, "found broken JSON"),
        ('{"jobs": ' + "[" * 100_000, "nested too deeply"),
        ('{"jobs": ' + "9" * 5000 + "}", "a number too long"),
    ],
)
def test_malformed_json_is_one_sentence(tmp_path, text, message):
    path = tmp_path / "sacct.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_sacct_json(path)


def test_signs_of_unknown_counts_and_limits(tmp_path):
    """Energy without a meter is -2, or 2 to the 64th less 2; a limit that is not set one of 32 bits."""
    energy = [{"type": "energy", "name": "", "count": count} for count in (-2, 2**64 - 2)]
    job = record(tres={"allocated": [*energy, {"type": "cpu", "count": 4}, {"type": "node", "count": 1}]})
    job["time"]["limit"] = 2**32 - 1
    (found,) = read_sacct(document(tmp_path, job)).jobs
    assert (found.walltime, found.choices[0].request) == (None, Request(1, 4))


def test_malformed_records_are_counted_when_lenient(tmp_path):
    bad = record(time={"submission": "noon"})
    worse = record(tres={"allocated": [{"type": "cpu", "count": -1}]})
    workload = read_sacct(document(tmp_path, bad, record(), worse), lenient=True)
    assert (len(workload.jobs), workload.skipped) == (1, 2)
    with pytest.raises(InputError, match=r"job 1: time\.submission: found 'noon', expected a number"):
        read_sacct(document(tmp_path, bad, record()))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:00", 0),
        ("01:02:03", 3723),
        ("1-01:02:03", 90123),
        ("02:03", 123),
        ("1-02:03", 93780),
        ("90", 90),
        ("00:00:01.5", 1.5),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1:2:3:4", "1-", "x", "1e3", "١:٠٠", "99999999999999:00:00"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match=r".*"):
        parse_duration(text)


def test_moments():
    assert unix_seconds("1970-01-02T00:00:00") == unix_seconds("1970-01-02 00:00:00") == 86400
    assert unix_seconds("1970-01-01T01:00:00+01:00") == 0
    assert unix_seconds("1700000000") == 1_700_000_000


def test_tres():
    assert parse_tres("cpu=4,mem=1.5G,node=1,gres/gpu:a100=2,energy=18446744073709551614") == {
        "cpu": 4,
        "mem": 1.5 * GIB,
        "node": 1,
        "gres/gpu:a100": 2,
        "energy": 2.0**64,
    }
    assert parse_tres("") == {}
    with pytest.raises(Malformed, match="found 'cpu=x'"):
        parse_tres("cpu=x")


KEYS = sorted(
    {"job_id", "array", "task_id", "state", "current", "time", "submission", "elapsed", "limit", "set"}
    | {"infinite", "number", "tres", "allocated", "requested", "type", "name", "count"}
)

values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-5, 10**18),
        st.floats(allow_nan=True, allow_infinity=True),
        st.sampled_from(["", "COMPLETED", "PENDING", "gpu", "cpu", "mem", "node", "gres", "x"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=full(150, 37), derandomize=True)
@given(data=st.data())
def test_no_json_makes_a_traceback(data, tmp_path_factory):
    job = record()
    for key in data.draw(st.lists(st.sampled_from(sorted(job)), max_size=3)):
        job[key] = data.draw(values)
    path = tmp_path_factory.mktemp("json") / "s.json"
    path.write_text(json.dumps({"jobs": [job]}))
    for lenient in (False, True):
        try:
            workload = read_sacct(path, Cluster.uniform(2, 8, 2), lenient=lenient)
        except InputError as error:
            assert not lenient
            assert "job 1" in str(error)  # noqa: PT017
        else:
            assert len(workload.jobs) + len(workload.rejected) + workload.skipped == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "JobID           JobName\n------------ ----------\n1 sleep\n",
            "line 1: found a table whose columns cannot be separated",
        ),
        ("1|sleep|2026-01-05T10:00:00|COMPLETED\n", "line 1: found no header, expected the names of the"),
        ("JobID|JobName\n1|sleep\n", "expected also Submit, State"),
    ],
)
def test_tables_that_sacct_prints_otherwise_are_answered_by_what_to_do(tmp_path, text, message):
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_sacct(path)
    assert message in str(caught.value)
