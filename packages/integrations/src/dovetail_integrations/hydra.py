"""A Hydra launcher: each job of a sweep is a job in the queue of a Dovetail service.

    python my_app.py -m hydra/launcher=dovetail hydra.launcher.cpus=2 rate=0.1,0.2

The overrides are the features of a job's run time, so that the log names when a sweep is expected to end.
What a job returns travels as data where data can hold it; of a shared service a pickle is never read.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from dovetail import Client
from dovetail.client.connection import open_connection
from dovetail.errors import DovetailError

log = logging.getLogger(__name__)
LOOK = 5.0
"""Seconds that a forecast may take before the sweep is waited for without one."""


def launch(
    service: str | None,
    options: Mapping[str, Any],
    context: HydraContext,
    config: DictConfig,
    task: TaskFunction,
    job_overrides: Sequence[Sequence[str]],
    first: int,
) -> Sequence[JobReturn]:
    """Run the jobs of a sweep, numbered from ``first`` on. Raises `NoService`, `InputError`."""
    setup_globals()
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    sweep = Path(str(config.hydra.sweep.dir))
    sweep.mkdir(parents=True, exist_ok=True)
    name = str(config.hydra.job.name)
    given: dict[str, Any] = {"name": name, "app": f"hydra.{name}", **options}
    # GPUs are wanted, so the job must not go to a CPU where those are busy.
    if given.get("gpus"):
        given["on"] = ["gpu"]
    jobs = []
    with Client(service) as client:
        try:
            state = Singleton.get_state()
            for index, overrides in enumerate(map(list, job_overrides), first):
                requests = client.with_options(inputs=_override_features(overrides), **given)
                jobs.append(requests.submit(_execute_job, index, overrides, context, config, task, state))
                log.info("\t#%d : job %s : %s", index, jobs[-1].job, " ".join(filter_overrides(overrides)))
            log.info("Submitted %d jobs, sweep output dir : %s", len(jobs), sweep)
            _log_end(service, [one.job for one in jobs])
            return [_read_return(one.result()) for one in jobs]
        # A sweep that is interrupted, or whose job fails, leaves none of the others behind.
        finally:
            for one in jobs:
                if not one.done():
                    one.cancel()


def _execute_job(
    index: int,
    overrides: Sequence[str],
    hydra_context: HydraContext,
    config: DictConfig,
    task_function: TaskFunction,
    state: Any,
) -> dict[str, Any]:
    """Run one job of a sweep, in its own process: what it returns, and its configuration as text."""
    setup_globals()
    Singleton.set_state(state)
    whole = hydra_context.config_loader.load_sweep_config(config, list(overrides))
    with open_dict(whole):
        whole.hydra.job.id = f"{whole.hydra.job.name}_{index}"
        whole.hydra.job.num = index
    HydraConfig.instance().set_config(whole)
    done = run_job(
        hydra_context=hydra_context, config=whole, task_function=task_function,
        job_dir_key="hydra.sweep.dir", job_subdir_key="hydra.sweep.subdir",
    )  # fmt: skip
    return {
        "overrides": list(done.overrides), "cfg": OmegaConf.to_yaml(done.cfg),
        "hydra_cfg": OmegaConf.to_yaml(done.hydra_cfg), "working_dir": done.working_dir,
        "task_name": done.task_name, "status": done.status.name, "value": done._return_value,
    }  # fmt: skip


def _read_return(data: Mapping[str, Any]) -> JobReturn:
    """What Hydra's sweepers read, from the data of a job."""
    # As text, since OmegaConf's objects belong to the process that made them.
    found = JobReturn()
    found.overrides, found.working_dir = data["overrides"], data["working_dir"]
    found.cfg, found.hydra_cfg = OmegaConf.create(data["cfg"]), OmegaConf.create(data["hydra_cfg"])
    found.task_name, found.status = data["task_name"], JobStatus[data["status"]]
    found.return_value = data["value"]
    return found


def _override_features(overrides: Sequence[str]) -> dict[str, float | str]:
    """Overrides as features of a run time: numbers, and short words."""
    found: dict[str, float | str] = {}
    for one in filter_overrides(overrides):
        key, _, text = one.lstrip("+~").partition("=")
        try:
            number = float(text)
        except ValueError:
            if 0 < len(text) <= 40:
                found[key] = text
        else:
            # Features have to be numbers a model can learn from: no infinities, nothing negative.
            if math.isfinite(number) and number >= 0:
                found[key] = number
    return found


def _log_end(service: str | None, jobs: Sequence[str]) -> None:
    """One line on when all are expected to have ended, as far as that is known."""
    try:
        with open_connection(service) as service_calls:
            rows = service_calls.get("/api/v1/jobs", jobs=",".join(jobs), limit=len(jobs), patience=LOOK)[
                "jobs"
            ]
    except DovetailError as error:
        log.warning("No forecast: %s", error)
        return
    left = [row for row in rows if row["end"] is None]
    known = [row["predicted_end"] for row in left if row["predicted_end"] is not None]
    if left and not known:
        log.info("When the sweep ends is not known yet: none like these jobs has run")
    if not known:
        return
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(known)))
    latest = max(row["predicted_end_high"] or 0.0 for row in left)
    until = time.strftime(", 90 %% by %H:%M:%S", time.localtime(latest)) if latest else ""
    rest = f"; of {len(left) - len(known)} jobs it is not known" if len(known) < len(left) else ""
    log.info("The sweep is predicted to end at %s%s%s", clock, until, rest)
