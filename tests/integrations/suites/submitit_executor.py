"""A pytest plugin: what submitit's tests of an executor call the local one is Dovetail's."""

from __future__ import annotations

import os

import pytest
import submitit.local.local as local
from around import service, skip  # noqa: F401 - pytest finds the fixture here
from submitit.core import plugins

from dovetail_integrations.submitit import DovetailExecutor

plugins.get_executors()  # by name each stays what it is
local.LocalExecutor = DovetailExecutor

PROCESS = "it signals the process of submitit's local executor"
LEFT_OUT = {
    "test_local_job": "its pickle holds submitit's local process",
    "test_killed": PROCESS,
    "test_cancel": "it expects a state that only the local executor has",
    "test_requeuing": "limits of 3 s end jobs before Python has started on a busy machine",
    "test_custom_checkpoint": "limits of 2 s end jobs before Python has started on a busy machine",
    "test_as_completed": "it takes 1.5 s for Python's start, which a busy machine does not give",
    "test_weird_dir": "a backslash leaves the signs of an output's name as they are, as with sbatch",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is of the local executor alone."""
    reasons = dict(LEFT_OUT)
    if len(os.sched_getaffinity(0)) < 3:
        reasons["test_get_first_task_error"] = "three tasks request three cores, and there are fewer"
    skip(items, {name: why for name, why in reasons.items() if any(name in one.name for one in items)})
