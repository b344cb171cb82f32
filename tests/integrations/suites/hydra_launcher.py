"""Hydra's own suites for launchers, over Dovetail's."""

from __future__ import annotations

import pytest
from around import service  # noqa: F401 - pytest finds the fixture here
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)


def test_discovery() -> None:
    assert "DovetailLauncher" in [one.__name__ for one in Plugins.instance().discover(Launcher)]


@pytest.mark.parametrize(("launcher_name", "overrides"), [("dovetail", [])])
class TestDovetailLauncher(LauncherTestSuite):
    pass


@pytest.mark.parametrize(
    ("launcher_name", "overrides"), [("dovetail", ["hydra/sweeper=basic", "hydra.sweeper.max_batch_size=2"])]
)
class TestDovetailLauncherInBatches(BatchedSweeperTestSuite):
    pass


@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"),
    [
        (
            {},
            [
                "-m",
                "hydra/hydra_logging=disabled",
                "hydra/job_logging=disabled",
                "hydra/launcher=dovetail",
            ],
        )
    ],
)
class TestDovetailIntegration(IntegrationTestSuite):
    pass
