"""What all tests have in common."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, settings

from dovetail.testing.builders import full

LONG = {
    "end_to_end/test_lent.py": (
        "test_a_job_borrows_and_moves_home_while_it_computes",
        "test_an_executor_that_cannot_move_jobs_says_so",
        "test_only_what_is_borrowed_moves_and_only_home",
    ),
    "end_to_end/test_moldable.py": (),
    "end_to_end/test_ray.py": (
        "test_jobs_run_on_all_nodes_and_see_what_ray_gave_them",
        "test_a_job_is_stopped_with_all_that_it_has_started",
        "test_a_cluster_that_is_not_there_is_one_sentence",
    ),
    "end_to_end/test_slurm.py": (
        "test_cpu_and_gpu_jobs_share_nodes_and_each_sees_its_own_devices",
        "test_outside_of_an_allocation_it_is_said_what_to_do",
        "test_a_cluster_larger_than_the_allocation_is_refused",
    ),
    "end_to_end/test_slurm_queue.py": (
        "test_each_job_sees_its_own_devices",
        "test_a_policy_that_decides_where_jobs_run_is_refused",
        "test_devices_shows_the_partitions",
    ),
    "mapping/test_ray.py": (),
}
"""Whole clusters are started and killed there, which takes minutes; `make test` has a few of each."""

CLUSTERS = {
    *("test_lent.py", "test_moldable.py", "test_ravi_gangs.py", "test_ray.py"),
    *("test_slurm.py", "test_slurm_lending.py", "test_slurm_limits.py", "test_slurm_queue.py"),
}
LONGEST = tuple(
    f"tests/{name}.py"
    for name in (
        "end_to_end/test_slurm*",
        "end_to_end/test_ra*",
        "mapping/test_ray",
        "end_to_end/test_lent",
        "end_to_end/test_moldable",
    )
)
"""What begins first, since it takes longest."""

# What a shell starts in the background ignores Ctrl-C, as does what it starts itself: ours are to hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run of `make test`: what fails there was broken by a change. `make test-all`
# looks for new ones.
# Neither fails on a busy machine for being slow.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", PATIENT)
settings.register_profile("known", PATIENT, derandomize=True)
settings.load_profile("patient" if full(1, 0) else "known")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep groups together, and leave the long ones to `make test-all`."""
    if hasattr(config, "workerinput"):
        _name_groups(items)
        # The tests that run one after the other begin first, and the longest of those: else the last worker
        # has one of them for itself when the others have done all.
        items.sort(key=_turn)
    if full(1, 0):
        return
    here = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        kept = LONG.get(item.path.relative_to(here).as_posix())
        if kept is not None and getattr(item, "originalname", item.name) not in kept:
            item.add_marker(pytest.mark.skip(reason="starts whole clusters: make test-all"))


def _turn(item: pytest.Item) -> int:
    """The place of a test among all: see `LONGEST`."""
    if item.get_closest_marker("xdist_group") is None:
        return len(LONGEST) + 1
    return next((n for n, name in enumerate(LONGEST) if item.path.match(name)), len(LONGEST))


def _group(item: pytest.Item, mark: pytest.Mark) -> str:
    """Tests of real processes disturb each other within a file: there one runs after the other.

    Those that start clusters are one group, since a cluster takes the machine for itself.
    """
    name = str(mark.args[0])
    if name not in ("live", "remote"):
        return name
    return "clusters" if item.path.name in CLUSTERS else f"{item.path.parent.name}-{item.path.stem}"


def _name_groups(items: list[pytest.Item]) -> None:
    """What pytest-xdist 3.8 does for ``--dist loadgroup``, and pytest 9.2 does not see any more."""
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and not item.nodeid.endswith(f"@{_group(item, mark)}"):
            item._id = NodeId.parse(f"{item.nodeid}@{_group(item, mark)}")


@pytest.fixture(autouse=True, scope="module")
def _claims_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The tests of a file claim cores among themselves: nobody else is in their way."""
    folder = tmp_path_factory.mktemp("claims")
    before = os.environ.get("DOVETAIL_CLAIMS")
    os.environ["DOVETAIL_CLAIMS"] = str(folder)
    yield folder
    if before is None:
        del os.environ["DOVETAIL_CLAIMS"]
    else:
        os.environ["DOVETAIL_CLAIMS"] = before
