"""The Eagle reader."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from dovetail.errors import InputError
from dovetail.model import Cluster, Request
from dovetail.workloads.tables import read_eagle

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the sample traces are not beside the repo")

HEADER = (
    "job_id,user,account,partition,qos,wallclock_req,nodes_req,processors_req,gpus_req,mem_req,"
    "submit_time,start_time,end_time,run_time,state,name,work_dir,submit_line\n"
)
TAIL = "2019-01-01 08:55:55,2019-01-01 08:55:56,2019-01-02 12:39:41,50.0,COMPLETED,n,w,s"


def table(tmp_path, *lines):
    path = tmp_path / "eagle.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    return path


def test_the_mapping(tmp_path):
    path = table(tmp_path, f"1,u,acc,p,normal,600,2,5,4,100.0,{TAIL}", f"2,u,acc,p,normal,0,0,1,0,0,{TAIL}")
    workload = read_eagle(path, Cluster.uniform(4, 36, 2))
    (job,) = workload.jobs
    assert job.choices[0].request == Request(2, 3, (("gpu", 2),), 50 * 2**20)
    assert (job.walltime, job.user, job.group, job.queue, job.submit_time) == (600.0, "u", "acc", "p", 0.0)
    assert workload.truth.fixed == {"1": 50.0}
    assert [r.id for r in workload.rejected] == ["2"]


def test_a_malformed_line_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="line 2: processors_req: found 'x', expected a number"):
        read_eagle(table(tmp_path, f"1,u,acc,p,normal,600,2,x,4,100.0,{TAIL}"))


@needs_traces
def test_the_sample():
    workload = read_eagle(TRACES / "eagle_jobs_sample1000.csv.gz", Cluster.uniform(2100, 36, 2))
    # Three jobs ask for more processors a node than it has cores.
    assert (len(workload.jobs), [r.id for r in workload.rejected]) == (997, ["532473", "532589", "532590"])
    everything = read_eagle(TRACES / "eagle_jobs_sample1000.csv.gz")
    assert statistics.median(everything.truth.fixed.values()) == 14_010
    assert len({j.user for j in everything.jobs}) == 15
    assert sum(bool(j.choices[0].request.devices) for j in workload.jobs) == 4
