"""One small file of every kind that people give to Dovetail: what tests damage."""

from __future__ import annotations

JOBS = """
[[app]]
name = "mm"
[[app.implementation]]
name = "cpu"
kind = "cpu"
command = ["./mm_cpu", "{n}"]
env = { OMP_SCHEDULE = "static" }
cpus = 2
memory = 4e9
time = 4.475
[[app.implementation]]
name = "gpu"
gpus = 1
times = { 1 = 3.0, 2 = 2.0 }
[[app]]
name = "train"
command = ["python", "train.py", "--device", "{device}", "--rows", "{rows}"]
on = ["cpu", "gpu"]
[[job]]
id = "a"
app = "mm"
inputs = { n = 2048 }
times = { cpu = 4.475, gpu = 0.041 }
sequential = 7.3
submit = 0.0
count = 1
nodes = 1
speedup = { cpu = 5.1, gpu = 8.2 }
walltime = 3600
user = "u1"
priority = 0
[[job]]
app = "train"
inputs = { rows = 10 }
times = { cpu = 2.0, gpu = 1.0 }
count = 3
"""

CLUSTER = """
[[node]]
name = "n[0-1]"
cpus = 8
gpus = 1
memory = 64e9
devices = [{ kind = "opencl", model = "pocl", cores = [1], count = 1 }]
host_cpus = 0
[[node]]
name = "m0"
cores = [0, 2, 3]
"""

SWF = "; MaxProcs: 8\n" + "".join(
    f"{i} {i * 10} -1 {5 + i} {1 + i % 4} -1 -1 -1 {20 if i % 2 else -1} -1 1 {i % 3} 1 1 1 -1 -1 -1\n"
    for i in range(8)
)
AAIC = (
    "id, user, group, queue, nodes, gpus, walltime_req, termcode, time_submit, time_start, time_end, "
    "waittime, walltime\n"
) + "".join(f"j{i}, u{i % 2}, g, 0, 1, 1, 100, 0, {1000 + i}, 0, 0, 0, 50\n" for i in range(4))
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-02 00:0{i}:07,{60 * i},1,1,abc\n" for i in range(4)
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    "scheduled_time\n"
) + "".join(f"p{i},1500,9,1,500,{'T4|P100' if i == 3 else ''},LS,Run,{i},{i + 10},{i}\n" for i in range(5))
SACCT = (
    "JobID|User|Account|Partition|Submit|Start|Elapsed|Timelimit|State|NNodes|NCPUS|ReqTRES|AllocTRES\n"
) + "".join(
    f"{i}|u|a|p|2024-01-01T00:00:0{i}|2024-01-01T00:01:00|00:01:0{i}|01:00:00|COMPLETED|1|2|cpu=2|cpu=2,mem=1G\n"
    for i in range(4)
)
SACCT_JSON = (
    '{"jobs": [{"job_id": 1, "user": "u", "account": "a", "partition": "p",\n'
    '"state": {"current": ["COMPLETED"]},\n'
    '"time": {"submission": 10, "start": 20, "end": 40, "elapsed": 20,\n'
    '"limit": {"set": true, "infinite": false, "number": 60}},\n'
    '"required": {"CPUs": 2}, "allocation_nodes": 1,\n'
    '"tres": {"allocated": [{"type": "cpu", "name": "", "count": 2}]}}]}\n'
)
COMMANDS = "# three\npython train.py --rows 10\n./mm 20 a.txt\necho 'hi there'\n"

TRACES = {
    "log.swf": SWF,
    "aaic.csv": AAIC,
    "philly.csv": PHILLY,
    "openb.csv": OPENB,
    "sacct.csv": SACCT,
    "slurm.json": SACCT_JSON,
    "commands.txt": COMMANDS,
}
