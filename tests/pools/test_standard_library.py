"""CPython's own tests of executors, where the standard library has its tests, over `dovetail.Executor`.

They are the mixins of ``test.test_concurrent_futures``, which is of `ThreadPoolExecutor` and
`ProcessPoolExecutor`. A Python that was installed without that file uses the one that
``$DOVETAIL_CPYTHON_TESTS`` names, of another Python of the machine.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))
NAME = "test.test_concurrent_futures"
GIVEN = os.environ.get("DOVETAIL_CPYTHON_TESTS", "")
PROGRAM = '''
import concurrent.futures, importlib, pickle, sys, unittest
import dovetail

class Executor(dovetail.Executor):
    """With the names of parameters that those tests use; a lost worker is what they call a broken pool."""

    def __init__(self, max_workers=None, *, mp_context=None, **more):
        super().__init__(max_workers, local=True, **more)

def part(name):
    """A class of one file (until 3.11), or of the file of the package that has it."""
    for home in ("", ".test_shutdown", ".test_wait", ".test_as_completed", ".executor", ".test_deadlock",
                 ".test_process_pool", ".test_init", ".util"):
        try:
            module = importlib.import_module("test.test_concurrent_futures" + home)
        except ImportError:
            continue
        if hasattr(module, name):
            if hasattr(module, "BrokenProcessPool"):
                module.BrokenProcessPool = ANY
            return getattr(module, name)
    raise SystemExit(f"{name}: not found")

# Where a call cannot be read, or its result, it alone fails, with what was raised: the pool is not broken.
ANY = (concurrent.futures.BrokenExecutor, SystemExit, TypeError, RuntimeError, pickle.UnpicklingError)
LEFT_OUT = {
    "test_cancel_futures": "none of the calls need have begun: workers come when calls wait",
    "test_interpreter_shutdown": "it imports the executor by name from concurrent.futures",
    "test_submit_after_interpreter_shutdown": "it imports the executor by name from concurrent.futures",
    "test_hang_gh83386": "it imports the executor by name from concurrent.futures",
    "test_max_workers_negative": "the sentence is Dovetail's",
    "test_max_workers_too_large": "of Windows",
    "test_killed_child": "the insides of ProcessPoolExecutor",
    "test_saturation": "the insides of ProcessPoolExecutor",
    "test_idle_process_reuse_one": "the insides of ProcessPoolExecutor",
    "test_idle_process_reuse_multiple": "the insides of ProcessPoolExecutor",
    "test_shutdown_deadlock_pickle": "the insides of ProcessPoolExecutor",
    "test_first_exception": "it holds a worker's start against the clock",
    "test_traceback": "a note has the worker's traceback, not the cause",
}
Base = part("BaseTestCase")
Mixin = part("ExecutorMixin")
ours = type("Ours", (Mixin,), {"executor_type": Executor, "get_context": lambda self: None})
loader, suite = unittest.defaultTestLoader, unittest.TestSuite()
for name in ("ExecutorShutdownTest", "WaitTests", "AsCompletedTests", "ExecutorTest", "ExecutorDeadlockTest"):
    made = type(name, (ours, part(name), Base), {})
    for test in loader.getTestCaseNames(made):
        if test not in LEFT_OUT:
            suite.addTest(made(test))
done = unittest.TextTestRunner(verbosity=2).run(suite)
print("RAN", done.testsRun)
sys.exit(not done.wasSuccessful())
'''


@pytest.mark.live
@pytest.mark.xdist_group("live")
@pytest.mark.skipif(not FULL, reason="CPython's own tests of executors: make test-all")
@pytest.mark.skipif(
    not GIVEN and importlib.util.find_spec(NAME) is None,
    reason=f"this Python has no {NAME}, and DOVETAIL_CPYTHON_TESTS names none",
)
def test_cpythons_own_tests_of_executors(tmp_path: Path) -> None:
    if GIVEN:
        _put_beside(tmp_path / "test", Path(GIVEN))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert int(done.stdout.rpartition("RAN ")[2]) >= 25


def _put_beside(folder: Path, file: Path) -> None:
    """A package ``test`` of this Python's own, with one more file."""
    own = importlib.util.find_spec("test")
    assert own is not None
    assert own.submodule_search_locations
    folder.mkdir()
    for one in Path(own.submodule_search_locations[0]).iterdir():
        if one.name != "__pycache__":
            (folder / one.name).symlink_to(one)
    (folder / "test_concurrent_futures.py").symlink_to(file)
