"""A Slurm cluster as it stands, from the texts that its commands print; and a real one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from waiting import until

from dovetail.errors import InputError
from dovetail.starts import slurm, slurm_rules

NODES = """\
NodeName=n0 Arch=x86_64 CoresPerSocket=4 CPUAlloc=4 CPUTot=4 CPULoad=0.1 Gres=gpu:2
   RealMemory=2000 AllocMem=0 State=MIXED ThreadsPerCore=1 Partitions=all,gpu
   CfgTRES=cpu=4,mem=2000M,billing=4,gres/gpu=2
NodeName=n1 Arch=x86_64 CPUTot=4 Gres=(null) RealMemory=2000 State=IDLE Partitions=all
   CfgTRES=cpu=4,mem=2000M,billing=4
NodeName=n2 CPUTot=4 RealMemory=2000 State=DOWN+DRAIN Partitions=all CfgTRES=cpu=4
"""
HEADER = (
    "JOBID|USER|PARTITION|STATE|NODES|CPUS|MIN_MEMORY|TRES_PER_NODE|TIME_LIMIT|TIME|SUBMIT_TIME|START_TIME"
    "|PRIORITY|REASON|NODELIST|NAME\n"
)
QUEUE = HEADER + (
    "1|ann|all|RUNNING|1|4|64M|N/A|1:00:00|30:00|2026-03-01T10:00:00|2026-03-01T10:00:00|9|None|n0|fit\n"
    "2|bob|all|PENDING|2|8|64M|N/A|1:00:00|0:00|2026-03-01T10:10:00|N/A|8|Resources||wide\n"
    "3|bob|gpu|PENDING|1|1|64M|gres/gpu:1|10:00|0:00|2026-03-01T10:20:00|N/A|7|Priority||gpu\n"
    "4|bob|all|PENDING|1|1|64M|N/A|10:00|0:00|2026-03-01T10:20:00|N/A|6|Dependency||later\n"
    "5|eve|all|PENDING|9|9|64M|N/A|10:00|0:00|2026-03-01T10:20:00|N/A|5|Resources||large\n"
)
ACCOUNTING = f"{slurm.SACCT.replace(',', '|')}\n" + "".join(
    f"{n}|fit|ann|all|{day}10:00:00|{day}10:00:00|{day}10:40:00"
    "|COMPLETED|2400|60|1|4|cpu=4,mem=64M,node=1,billing=4\n"
    for n in range(60)
    for day in (f"2026-02-{1 + n % 27:02}T",)
)


def test_nodes_out_of_use_are_left_out() -> None:
    found = slurm.read_nodes(NODES, "nodes")
    assert [(node.name, node.cpus, node.gpus, node.partitions) for node in found] == [
        ("n0", 4, 2, ("all", "gpu")),
        ("n1", 4, 0, ("all",)),
    ]


def test_a_queue_becomes_what_runs_what_waits_and_what_is_unknown() -> None:
    cluster = slurm.SlurmCluster(slurm.read_nodes(NODES, "nodes"))
    jobs = slurm.read_squeue(QUEUE, "queue")
    now = (jobs[0].start or 0.0) + 1800
    situation, unknown = cluster.current_situation(jobs, now)
    assert [job.key for job in situation.running] == ["1"]
    assert situation.running[0].spent == 1800
    assert [job.key for job in situation.waiting] == ["2", "3"]
    assert sorted(unknown) == ["4", "5"], "one waits for another, one is larger than the cluster"
    assert situation.nodes.free[:, 0].tolist() == [0, 4]


def test_starts_follow_the_ends_that_the_accounting_lets_expect() -> None:
    """All jobs of ann took 40 minutes; half an hour has passed."""
    cluster = slurm.SlurmCluster(slurm.read_nodes(NODES, "nodes"))
    jobs = slurm.read_squeue(QUEUE, "queue")[:2]
    now = (jobs[0].start or 0.0) + 1800
    draws = slurm.draws_of(cluster, slurm.read_accounting(ACCOUNTING, "accounting"), jobs, now)
    situation, _ = cluster.current_situation(jobs, now)
    starts = draws.starts(situation)[:, 0]
    assert sorted(starts.tolist())[len(starts) // 2] == pytest.approx(600.0)


@pytest.mark.parametrize(
    ("line", "nodes", "cpus", "gpus", "seconds"),
    [
        ("sbatch -N2 -t 1:00:00 job.sh", 2, 2, 0, 3600.0),
        ("sbatch --nodes=1 --ntasks 4 -c 2 --gres=gpu:a100:2 --time=1-0 job.sh -t 9", 1, 8, 2, 86400.0),
        ("-n 3", 1, 3, 0, None),
    ],
)
def test_what_sbatch_would_submit(line: str, nodes: int, cpus: int, gpus: int, seconds: float | None) -> None:
    found = slurm.job_of_sbatch(line, "ann", 0.0, "all")
    assert (found.nodes, found.cpus, found.gpus, found.walltime) == (nodes, cpus, gpus, seconds)


def test_an_option_that_is_not_known_is_named() -> None:
    with pytest.raises(InputError, match="--qos"):
        slurm.job_of_sbatch("sbatch --qos=high x", "ann", 0.0, "all")


def table(text: str, between: str = "|", order: int = 1, names: dict[str, str] | None = None) -> str:
    """A table of Slurm with other characters between its columns, in another order, by other names."""
    rows = [line.split("|")[::order] for line in text.splitlines()]
    rows[0] = [(names or {}).get(name, name) for name in rows[0]]
    return "".join(between.join(row) + "\n" for row in rows)


@pytest.mark.parametrize("between", ["|", "\t", ";", "^", "\x1f", "~!~"])
@pytest.mark.parametrize("order", [1, -1])
def test_columns_come_in_any_order_with_any_character_between(between: str, order: int) -> None:
    assert slurm.read_squeue(table(QUEUE, between, order), "q") == slurm.read_squeue(QUEUE, "q")
    found = slurm.read_accounting(table(ACCOUNTING, between, order), "a")
    assert found == slurm.read_accounting(ACCOUNTING, "a")


def test_short_states_and_reasons_beside_nodes_are_read() -> None:
    """The columns of ``%t`` and ``%R`` instead of ``%T``, ``%N`` and ``%r``."""
    short = QUEUE.replace("RUNNING", "R").replace("PENDING", "PD").replace("|Resources||", "|x|(Resources)|")
    found = slurm.read_squeue(table(short, names={"STATE": "ST", "NODELIST": "NODELIST(REASON)"}), "q")
    assert [job.state for job in found] == ["RUNNING"] + 4 * ["PENDING"]
    assert [job.hosts for job in found] == [("n0",), (), (), (), ()]
    without = "\n".join(line.replace("|REASON", "").replace("|x|", "|") for line in short.splitlines()[:3])
    without = without.replace("|None|", "|").replace("NODELIST", "NODELIST(REASON)")
    assert [job.reason for job in slurm.read_squeue(without, "q")] == ["", "Resources"]


def test_a_queue_that_does_not_show_which_nodes_are_taken_is_refused() -> None:
    """All nodes would seem free."""
    with pytest.raises(InputError, match="no column NODELIST"):
        slurm.read_squeue(table(QUEUE, names={"NODELIST": "FEATURES"}), "q")


def test_counts_of_kibi_and_ranges_are_read() -> None:
    odd = QUEUE.replace("|PENDING|2|8|", "|PENDING|2-4|1K|")
    job = slurm.read_squeue(odd, "q")[1]
    assert (job.nodes, job.cpus) == (2, 1024)


def test_an_accounting_of_other_columns_is_read() -> None:
    names = {"JobID": "JobIDRaw", "ElapsedRaw": "x", "NNodes": "AllocNodes", "NCPUS": "AllocCPUS"}
    assert slurm.read_accounting(table(ACCOUNTING, names=names), "a") == slurm.read_accounting(
        ACCOUNTING, "a"
    )


def test_the_moment_of_a_file_is_that_of_what_runs(tmp_path: Path) -> None:
    """A copy of the file is newer; half an hour of an hour has passed."""
    for name, text in {"squeue": QUEUE, "nodes": NODES, "sacct": ACCOUNTING}.items():
        (tmp_path / name).write_text(text)
    files = [word for name in ("squeue", "nodes", "sacct") for word in (f"--{name}", str(tmp_path / name))]
    found = json.loads(forecast(tmp_path, *files, "--json").stdout)
    assert found["now"] == (slurm.read_squeue(QUEUE, "q")[0].start or 0.0) + 1800


def test_a_long_queue_leaves_room_for_outcomes(tmp_path: Path) -> None:
    line = QUEUE.splitlines()[3]
    many = QUEUE + "".join(f"{n}{line[1:]}\n" for n in range(100, 1100))
    for name, text in {"squeue": many, "nodes": NODES, "sacct": ACCOUNTING}.items():
        (tmp_path / name).write_text(text)
    files = [word for name in ("squeue", "nodes", "sacct") for word in (f"--{name}", str(tmp_path / name))]
    found = forecast(tmp_path, *files, "--json")
    rows = [row for row in json.loads(found.stdout)["jobs"] if row["predicted_start"] is not None]
    assert len(rows) == 1002
    assert all(
        row["predicted_start_low"] <= row["predicted_start"] <= row["predicted_start_high"] for row in rows
    )
    (kept,) = tmp_path.rglob("*.json")
    assert 50 <= len(json.loads(kept.read_text())["forecasts"]) <= 100


def test_texts_that_are_something_else_are_refused() -> None:
    for read, text in ((slurm.read_squeue, "a b c"), (slurm.read_nodes, "x"), (slurm.read_accounting, "x|y")):
        with pytest.raises(InputError):
            read(text, "file")


def forecast(
    state: Path, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dovetail", "forecast", *arguments]
    import os

    chosen = {**os.environ, **(env or {}), "XDG_STATE_HOME": str(state)}
    return subprocess.run(command, env=chosen, capture_output=True, text=True, check=False)


def test_from_files_alone(tmp_path: Path) -> None:
    import os

    names = {"squeue": QUEUE, "nodes": NODES, "sacct": ACCOUNTING}
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    now = (slurm.read_squeue(QUEUE, "queue")[0].start or 0.0) + 1800
    os.utime(tmp_path / "squeue", (now, now))
    files = [word for name in names for word in (f"--{name}", str(tmp_path / name))]
    found = forecast(tmp_path, *files, "--json")
    assert found.returncode == 0, found.stderr
    rows = {row["id"]: row for row in json.loads(found.stdout)["jobs"]}
    assert set(rows) == {"2", "3", "4", "5"}
    assert rows["2"]["predicted_start_low"] <= now + 600 <= rows["2"]["predicted_start_high"]
    assert rows["4"]["predicted_start"] is None
    text = forecast(tmp_path, *files, "--job", "2").stdout
    assert "(90 %)" in text
    assert "assumed:" in text
    asked = forecast(tmp_path, *files, "--if", "sbatch -N1 -n1 -t 5", "--json")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["jobs"][0]["predicted_start"] == pytest.approx(now, abs=60)


@needs_slurm
@pytest.mark.live
@pytest.mark.xdist_group("live")
def test_a_real_cluster_is_only_read(tmp_path: Path) -> None:
    with SlurmCluster((NodeShape(2, cpus=4, gpus=0),)) as cluster:
        for _ in range(4):
            cluster.call("sbatch", "-N2", "-c4", "-t", "10", "-o", "/dev/null", "--wrap", "sleep 60")
        until(lambda: "R" in cluster.call("squeue", "-h", "-o", "%t").split())
        before = set(cluster.call("squeue", "-h", "-t", "PD", "-o", "%i").split())
        found = forecast(tmp_path, "--slurm", "--json", env=dict(cluster.environment))
        assert found.returncode == 0, found.stderr
        after = set(cluster.call("squeue", "-h", "-t", "PD", "-o", "%i").split())
        answer = json.loads(found.stdout)
        assert before & after <= {row["id"] for row in answer["jobs"]} <= before | after
        assert len(answer["jobs"]) >= 2
        assert all(row["predicted_start_low"] <= row["predicted_start_high"] for row in answer["jobs"])
        assert answer["rules"]
        for job in cluster.call("squeue", "-h", "-o", "%i").split():
            cluster.call("scancel", job)


PARTITIONS = """\
PartitionName=all
   AllowGroups=ALL Default=YES QoS=N/A
   DefaultTime=00:30:00 MaxNodes=2 MaxTime=02:00:00 PriorityJobFactor=1 PriorityTier=1
   State=UP TotalCPUs=8 TotalNodes=2
PartitionName=gpu
   Default=NO DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED PriorityTier=5 State=UP
PartitionName=old
   Default=NO DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED PriorityTier=1 State=DOWN
"""
CONFIG = """\
Configuration data as of 2026-03-01T10:30:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightFairShare = 10000
PriorityWeightQOS       = 0
SchedulerParameters     = bf_window=1440,bf_max_job_test=100,defer
SchedulerType           = sched/backfill
"""
SPRIO = "JOBID|USER|PRIORITY|AGE\n2|bob|900|400\n3|bob|700|300\n9|eve|5000|10\n"


def rules() -> slurm_rules.SlurmRules:
    return slurm_rules.SlurmRules(
        slurm_rules.read_partitions(PARTITIONS, "partitions"),
        slurm_rules.read_config(CONFIG, "config"),
        slurm_rules.read_sprio(SPRIO, "sprio"),
    )


def test_what_a_cluster_shows_of_its_rules_is_named_as_what_is_assumed() -> None:
    lines = "\n".join(rules().assumption_sentences())
    assert "(Age 1000, FairShare 10000)" in lines
    assert "bf_window=1440, bf_max_job_test=100" in lines
    assert "defer" not in lines
    assert "PriorityTier" in lines
    plain = slurm_rules.SlurmRules(config={"SchedulerType": "sched/builtin"})
    assert plain.policy == "fcfs"
    assert "none before another" in plain.assumption_sentences()[0]


def test_partitions_bound_what_a_job_may_ask_for() -> None:
    found = rules()
    job = slurm.job_of_sbatch("sbatch -N1 -t 3:00:00 x", "bob", 0.0, "all")
    assert found.refusal_reason(job) == "found a walltime of 10800 s, the partition all allows 7200 s"
    assert found.refusal_reason(job._replace(partition="gpu,all")) == ""
    assert "3 nodes" in found.refusal_reason(job._replace(walltime=60.0, nodes=3))
    assert "expected one of all, gpu, old" in found.refusal_reason(job._replace(partition="none"))
    assert found.is_closed(job._replace(partition="old"))
    assert not found.is_closed(job._replace(partition="old,all"))
    assert found.tier_of_job(job._replace(partition="gpu")) == 5


def test_a_new_job_gets_the_partitions_walltime_and_its_users_priority_without_age() -> None:
    found = rules().complete_job(slurm.job_of_sbatch("sbatch x", "bob", 0.0, "all"))
    assert found.walltime == 1800.0
    assert found.priority == 450, "between 500 and 400"
    other = rules().complete_job(slurm.job_of_sbatch("sbatch x", "new", 0.0, "gpu"))
    assert other.walltime is None
    assert other.priority == 500, "the median of all"


def test_a_higher_tier_goes_first_and_what_is_closed_is_unknown() -> None:
    cluster = slurm.SlurmCluster(slurm.read_nodes(NODES, "nodes"))
    closed = QUEUE + "6|bob|old|PENDING|1|1|64M|N/A|10:00|0:00|2026-03-01T10:20:00|N/A|9|PartitionDown||x\n"
    jobs = slurm.read_squeue(closed, "queue")
    one = rules()
    situation, unknown = cluster.current_situation(jobs, 1e9, one.policy, one.tier_of_job, one.is_closed)
    assert [job.key for job in situation.waiting] == ["3", "2"]
    assert "6" in unknown


def test_files_of_rules_that_are_something_else_are_refused() -> None:
    for read in (slurm_rules.read_partitions, slurm_rules.read_config):
        with pytest.raises(InputError):
            read("x", "file")
    with pytest.raises(InputError, match="line 2"):
        slurm_rules.read_sprio("JOBID|USER|PRIORITY|AGE\n2|bob\n", "sprio")
