"""The variables that sbatch sets for a job, as patterns that the start of the job fills in."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from dovetail.records import dataclass
from dovetail.workloads.batch.resources import Requested, Shares
from dovetail.workloads.batch.units import MEBIBYTE, Array


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a script was submitted: folder, host and name of the submitter."""

    folder: str
    host: str
    user: str

    @classmethod
    def of_this_process(cls, folder: str) -> Origin:
        """This process."""
        import pwd

        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        return cls(folder, socket.gethostname().partition(".")[0], user)


def job_variables(
    origin: Origin,
    name: str,
    requested: Requested,
    shares: Shares,
    array: Array | None,
    given: Mapping[str, str],
) -> dict[str, str]:
    """Names and patterns of `dovetail.model.Launch`; ``given`` are the values of options as they stand."""
    found = {
        "SLURM_CLUSTER_NAME": "dovetail",
        "SLURM_CPUS_ON_NODE": "\0C",
        "SLURM_CPUS_PER_TASK": "\0C"
        if shares.cpus == "all" and shares.tasks_on_node == 1
        else f"{shares.cpus_per_task}",
        "SLURM_GPUS_ON_NODE": "\0g",
        "SLURM_GTIDS": "0",
        "SLURM_JOBID": "\0j",
        "SLURM_JOB_CPUS_PER_NODE": "\0P",
        "SLURM_JOB_END_TIME": "\0E",
        "SLURM_JOB_GID": f"{os.getgid()}",
        "SLURM_JOB_GPUS": "\0G",
        "SLURM_JOB_ID": "\0j",
        "SLURM_JOB_NAME": name,
        "SLURM_JOB_NODELIST": "\0N",
        "SLURM_JOB_NUM_NODES": "\0K",
        "SLURM_JOB_PARTITION": "\0p",
        "SLURM_JOB_START_TIME": "\0S",
        "SLURM_JOB_UID": f"{os.getuid()}",
        "SLURM_JOB_USER": origin.user,
        "SLURM_LOCALID": "0",
        "SLURM_NNODES": "\0K",
        "SLURM_NODEID": "0",
        "SLURM_NODELIST": "\0N",
        "SLURM_NPROCS": f"{shares.tasks}",
        "SLURM_NTASKS": f"{shares.tasks}",
        "SLURM_PRIO_PROCESS": f"{os.getpriority(os.PRIO_PROCESS, 0)}",
        "SLURM_PROCID": "0",
        "SLURM_RESTART_COUNT": "\0r",
        "SLURM_SUBMIT_DIR": origin.folder,
        "SLURM_SUBMIT_HOST": origin.host,
        "SLURM_TASKS_PER_NODE": shares.tasks_per_node(),
        "SLURMD_NODENAME": "\0H",
    }
    if array is not None:
        found |= {
            "SLURM_ARRAY_JOB_ID": "\0A",
            "SLURM_ARRAY_TASK_ID": "\0a",
            "SLURM_ARRAY_TASK_COUNT": f"{array.count}",
            "SLURM_ARRAY_TASK_MIN": f"{array.least}",
            "SLURM_ARRAY_TASK_MAX": f"{array.most}",
            "SLURM_ARRAY_TASK_STEP": f"{array.step}",
        }
    memory = (
        ("SLURM_MEM_PER_NODE", requested.memory),
        ("SLURM_MEM_PER_CPU", requested.memory_per_cpu),
        ("SLURM_MEM_PER_GPU", requested.memory_per_gpu),
    )
    found |= {variable: f"{amount // MEBIBYTE}" for variable, amount in memory if amount is not None}
    found |= {variable: given[option] for option, variable in AS_GIVEN.items() if option in given}
    if given.get("hint") == "nomultithread":
        found["SLURM_THREADS_PER_CORE"] = "1"
    if "overcommit" in given:
        found["SLURM_OVERCOMMIT"] = "1"
    if "open-mode" in given:
        found["SLURM_OPEN_MODE"] = given["open-mode"][:1].lower()
    return found


AS_GIVEN: Mapping[str, str] = {
    "account": "SLURM_JOB_ACCOUNT",
    "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
    "dependency": "SLURM_JOB_DEPENDENCY",
    "distribution": "SLURM_DISTRIBUTION",
    "export": "SLURM_EXPORT_ENV",
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-socket": "SLURM_GPUS_PER_SOCKET",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "hint": "SLURM_HINT",
    "ntasks-per-core": "SLURM_NTASKS_PER_CORE",
    "ntasks-per-gpu": "SLURM_NTASKS_PER_GPU",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
    "ntasks-per-socket": "SLURM_NTASKS_PER_SOCKET",
    "qos": "SLURM_JOB_QOS",
    "threads-per-core": "SLURM_THREADS_PER_CORE",
    "wckey": "SLURM_WCKEY",
}
"""Options whose values stand in variables as they were given."""
