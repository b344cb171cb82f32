"""What all tests have in common."""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, settings
from hypothesis.internal import charmap
from hypothesis.internal.conjecture import providers

from dovetail.testing.builders import full

HERE = Path(__file__).parent
OTHERS = r"\bdovetail_(slurm|ray|remote|integrations|lab)\b|\b(slurm-shims|slurm_cluster|ray_cluster)\b"
"""What a test of another distribution than the core names."""
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
    "end_to_end/test_slurm_lending.py": (
        "test_a_job_borrows_from_another_node_and_moves_home",
        "test_a_dovetail_that_is_killed_leaves_no_server_and_no_secret_and_is_taken_up",
    ),
    "end_to_end/test_slurm.py": (
        "test_cpu_and_gpu_jobs_share_nodes_and_each_sees_its_own_devices",
        "test_outside_of_an_allocation_it_is_said_what_to_do",
        "test_a_cluster_larger_than_the_allocation_is_refused",
        "test_slurms_variables_and_srun_are_of_what_a_job_was_given",
    ),
    "end_to_end/test_slurm_queue.py": (
        "test_each_job_sees_its_own_devices",
        "test_a_policy_that_decides_where_jobs_run_is_refused",
        "test_devices_shows_the_partitions",
    ),
    "end_to_end/test_slurm_guest.py": (
        "test_where_the_default_partition_is_full_jobs_wait_and_nobody_is_preempted",
        "test_a_script_is_handed_over_as_it_is",
        "test_what_is_preempted_goes_back_into_the_queue",
        "test_what_is_impossible_ends_in_a_sentence_and_is_asked_about_no_more",
    ),
    "mapping/test_ray.py": (),
}
"""Whole clusters are started and killed there, which takes minutes; `make test` has a few of each."""

SAMPLED = {
    "end_to_end/test_bounds.py::test_a_device_as_a_trace": 3,
    "end_to_end/test_bounds.py::test_a_small_file_that_unpacks_to_ten_gigabytes": 3,
    "end_to_end/test_bounds.py::test_text_without_end": 3,
    "end_to_end/test_errors.py::test_shell_completion": 2,
    "end_to_end/test_memory.py::test_a_list_of_commands_takes_memory_too": 2,
    "end_to_end/test_simulate.py::test_no_promise_is_broken_on_real_traces": 3,
    "engine/test_checkpoint.py::test_every_segment_replays_alone": 4,
    "engine/test_ended.py::test_sample_trace": 2,
    "engine/test_priority.py::test_of_equal_jobs_the_higher_one_never_starts_later": 3,
    "engine/test_recorded.py::test_logs_of_several_formats": 3,
    "engine/test_stand_in_shared.py::test_a_long_queue": 3,
    "engine/test_stand_in_whole.py::test_other_sample_traces_under_conservative_backfilling": 3,
    "engine/test_stand_in_whole.py::test_sample_trace": 4,
    "packing/test_registry.py::test_auto_is_near_its_bound": 3,
    "packing/test_stale.py::test_what_was_compiled_into_another_file_is_not_kept": 2,
    "policies/test_moldable_edges.py::test_every_schedule_is_valid": 3,
    "policies/test_moldable_edges.py::test_while_learning_promises_are_broken_only_with_an_excuse": 3,
    "properties/test_backfilling.py::test_no_promise_is_broken_on_a_trace": 3,
    "properties/test_borrowing.py::test_the_kernel_does_what_the_engine_does_on_the_papers_workload": 3,
    "properties/test_kept_profiles.py::test_kept_profiles_give_the_schedules_of_new_ones": 5,
    "remote/test_backends.py::test_function_agrees_with_numpy": 5,
    "remote/test_encoding.py::test_estimates_refuse_nothing_that_fits": 3,
    "runtimes/test_extrapolation.py::test_from_the_third_run_on_no_guess_is_far_off": 3,
    "runtimes/test_learned.py::test_unseen_sizes_of_made_up_apps": 3,
    "service/test_recovery.py::test_killed_at_random_moments_under_load": 3,
    "service/test_turns.py::test_a_higher_priority_goes_first_under_any_policy": 2,
    "studies/test_shirahata.py::test_speed_ups_on_64_nodes_are_the_references": 3,
}
"""Of many like cases of a test `make test` has every n-th, `make test-all` each. No fault is left out, and no
reference in whole."""

CLUSTERS = {
    *("test_lent.py", "test_moldable.py", "test_ravi_gangs.py", "test_ray.py"),
    *("test_slurm.py", "test_slurm_guest.py", "test_slurm_lending.py", "test_slurm_limits.py"),
    "test_slurm_queue.py",
}
COMPILED = {
    group: tuple(f"tests/{name}.py" for name in names)
    for group, names in {
        "apps": ("apps/*",),
        "packing": ("packing/*", "cli/test_pack", "policies/test_pack", "studies/test_aupy"),
        "borrowing": ("properties/test_borrowing", "studies/test_markthub", "test_lifetimes"),
    }.items()
}
"""Tests of what numba, or OpenCL, compiles when it is first called: one process compiles it, not each."""
LONGEST = tuple(
    f"tests/{name}.py"
    for name in (
        "properties/test_borrowing",
        "end_to_end/test_slurm*",
        "end_to_end/test_ra*",
        "mapping/test_ray",
        "end_to_end/test_lent",
        "end_to_end/test_moldable",
        "workloads/test_replicates",
    )
)
"""What begins first, since it takes longest."""

UTF_8 = [(0, 0xD7FF), (0xE000, sys.maxunicode)]
"""The characters that it has: all but surrogates."""

# What a shell starts in the background ignores Ctrl-C, as does what it starts itself: ours are to hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run of `make test`: what fails there was broken by a change. `make test-all`
# looks for new ones.
# Neither fails on a busy machine for being slow.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", PATIENT)
settings.register_profile("known", PATIENT, derandomize=True, max_examples=25)
settings.load_profile("patient" if full(1, 0) else "known")
if not full(1, 0):
    # Hypothesis reads every module that is loaded for numbers and words to try: what else a process has
    # loaded would then decide which examples there are, and each process takes seconds for it.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_configure(config: pytest.Config) -> None:
    """Each worker rewrites its share of the files as pytest does: in a new checkout each would do all."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    gc.disable()  # until all is collected: nothing of that may go
    if sys.dont_write_bytecode:
        return
    files = sorted(HERE.rglob("test_*.py"))
    for path in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(path, kept) is None:
            kept.parent.mkdir(exist_ok=True)
            source, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """The workers find there what the process that starts them writes."""
    if not hasattr(session.config, "workerinput"):
        _write_tables_of_characters()


def _write_tables_of_characters() -> None:
    """What Hypothesis keeps of Unicode, where it is not kept yet: every worker of a new checkout would find
    out of each character whether UTF-8 has it, which takes seconds."""
    charmap.charmap()
    path = charmap.charmap_file("codec-v2-utf-8")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(gzip.compress(json.dumps([UTF_8, []]).encode()))
        new.replace(path)


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
    for item in items:
        kept = LONG.get(_place(item.path))
        if kept is not None and getattr(item, "originalname", item.name) not in kept:
            item.add_marker(pytest.mark.skip(reason="starts whole clusters: make test-all"))
    if _names_tests(config):
        left = set(_left_out(items))
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Where the core is tested alone, the files that need another distribution are left out."""
    if os.environ.get("DOVETAIL_TEST_CORE") == "1" and collection_path.suffix == ".py":
        return True if _needs_others(collection_path) else None
    return None


@cache
def _needs_others(path: Path) -> bool:
    """Whether a file names another distribution, or loads one of `support` that does."""
    if path.stem == "ready_command":
        return False  # it serves all
    text = path.read_text()
    if re.search(OTHERS, text):
        return True
    names = re.findall(r"(?m)^\s*(?:from|import) (\w+)", text)
    return any(_needs_others(one) for name in names if (one := HERE / "support" / f"{name}.py").exists())


@cache
def _place(path: Path) -> str:
    """Of a file of ours, from this folder; cached, since each test is asked for its file's."""
    return path.relative_to(HERE).as_posix() if path.is_relative_to(HERE) else ""


def _left_out(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases of `SAMPLED` tests that `make test` does without."""
    every = _every_nth()
    seen: Counter[str] = Counter()
    for item in items:
        if place := _place(item.path):
            _, _, name = item.nodeid.partition("::")
            test = f"{place}::{name.partition('[')[0].partition('@')[0]}"
            nth = every.get(test, 1)
            if nth == 0 or seen[test] % nth:
                yield item
            seen[test] += 1


@cache
def _every_nth() -> dict[str, int]:
    """Of tests that take long, as `tools/sample_tests.py` lists them, every n-th case, or (0) none."""
    if full(1, 0):
        return {}
    listed = SAMPLED.copy()
    if os.environ.get("DOVETAIL_TEST_LONG") != "1":
        for line in (HERE / "sampled.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                test, _, nth = line.rpartition(" ")
                listed[test] = int(nth)
    return listed


def _names_tests(config: pytest.Config) -> bool:
    """Whether a person has asked for some tests by name: those are all found, and deselected."""
    return any("::" in word for word in config.args)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Only the cases that stay are made: each worker would make all of them, and throw most away."""
    if _names_tests(metafunc.config):
        return
    within = metafunc.definition.nodeid.partition("::")[2].partition("[")[0]
    nth = _every_nth().get(f"{_place(metafunc.definition.path)}::{within}", 1)
    if nth > 1:
        metafunc._calls = metafunc._calls[::nth]


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str) -> list[pytest.Item] | None:
    """As `pytest_generate_tests`, where no case stays."""
    if not name.startswith("test") or _names_tests(collector.config):
        return None
    within = collector.nodeid.partition("::")[2]
    test = "::".join(part for part in (_place(collector.path), within, name) if part)
    return [] if _every_nth().get(test, 1) == 0 else None


def pytest_collection_finish() -> None:
    """What all tests have loaded stays to the end: nobody looks through it for what may go."""
    gc.freeze()
    gc.enable()


def _turn(item: pytest.Item) -> int:
    """The place of a test among all: see `LONGEST`, then what is in a group."""
    place = _first(item.path, LONGEST)
    return len(LONGEST) + (item.get_closest_marker("xdist_group") is None) if place is None else place


@cache
def _first(path: Path, names: tuple[str, ...]) -> int | None:
    """Which of these names, as of a shell, a file has."""
    return next((n for n, name in enumerate(names) if path.match(name)), None)


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
        for group, files in COMPILED.items():
            if _first(item.path, files) is not None:
                item.add_marker(pytest.mark.xdist_group(group))
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and not item.nodeid.endswith(f"@{_group(item, mark)}"):
            item._id = NodeId.parse(f"{item.nodeid}@{_group(item, mark)}")


@pytest.fixture(autouse=True, scope="module")
def _state_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests of a file claim cores, and find runs that were left behind, among themselves alone."""
    own = {
        "DOVETAIL_CLAIMS": str(tmp_path_factory.mktemp("claims")),
        "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state")),
    }
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
