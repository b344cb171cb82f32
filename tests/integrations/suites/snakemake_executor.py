"""Snakemake's own tests for executor plugins, over Dovetail's."""

from __future__ import annotations

from around import service  # noqa: F401 - pytest finds the fixture here
from snakemake.common.tests import TestWorkflowsLocalStorageBase

from snakemake_executor_plugin_dovetail import ExecutorSettings


class TestWorkflows(TestWorkflowsLocalStorageBase):  # type: ignore[misc]
    __test__ = True

    def get_executor(self) -> str:
        return "dovetail"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings()
