"""joblib's calls on Dovetail's workers."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import executor_functions as ef
import numpy as np
import pytest
from waiting import until

joblib = pytest.importorskip("joblib")
backend = pytest.importorskip("dovetail_integrations.joblib")

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def calls(function: Any, *items: Any, **options: Any) -> Any:
    return joblib.Parallel(**options)(joblib.delayed(function)(item) for item in items)


def nested(number: int) -> list[int]:
    return list(calls(ef.square, number, number + 1, n_jobs=2))


def test_calls_results_and_errors() -> None:
    with joblib.parallel_config("dovetail", n_jobs=2):
        assert calls(ef.square, *range(500)) == [n * n for n in range(500)]
        assert set(calls(lambda _: os.getpid(), *range(20))).isdisjoint({os.getpid()})
        assert sorted(calls(operator.neg, 1, 2, 3, return_as="generator_unordered")) == [-3, -2, -1]
        assert list(calls(operator.neg, 1, 2, 3, return_as="generator")) == [-1, -2, -3]
        with pytest.raises(LookupError, match="no"):
            calls(ef.fail, "no", "no")
        assert calls(nested, 1, 2) == [[1, 4], [4, 9]], "the executor is used again after an error"
        (one, two) = calls(ef.total, np.ones(1 << 15), np.ones(1 << 16))
        assert (one[:2], two[0]) == ((1 << 15, True), 1 << 16)
    assert calls(ef.square, 2, 3, n_jobs=2, backend="dovetail") == [4, 9]


def add_one(array: Any) -> tuple[str, float]:
    array += 1
    return type(array).__name__, float(array[0])


def put_sum(data: Any, sums: Any, row: int) -> None:
    sums[row] = data[row].sum()


def test_arrays_travel_as_with_joblibs_own_backends(tmp_path: Path) -> None:
    large, small = np.zeros(300_000), np.zeros(30_000)
    with joblib.parallel_config("dovetail", n_jobs=2):
        assert calls(add_one, small, small) == [("ndarray", 1.0)] * 2, "each has its own copy"
        with pytest.raises(ValueError, match="read-only"):
            calls(add_one, large, large)
        assert calls(add_one, large, large, max_nbytes=None) == [("ndarray", 1.0)] * 2
        assert calls(add_one, large, large, mmap_mode="c") == [("memmap", 1.0)] * 2
        assert calls(add_one, large, large, mmap_mode=None) == [("ndarray", 1.0)] * 2
        fortran = np.asfortranarray(np.arange(600_000.0).reshape(600, 1000))
        for array in (fortran, fortran.T, fortran[::2, ::2], fortran[None]):
            assert np.array_equal(calls(np.array, array, array)[1], array)
        data = joblib.load(joblib.dump(np.arange(60.0).reshape(6, 10), tmp_path / "data")[0], mmap_mode="r")
        sums = np.memmap(tmp_path / "sums", float, "w+", shape=(6,))
        joblib.Parallel()(joblib.delayed(put_sum)(data, sums[1:], row) for row in range(5))
        assert np.array_equal(sums, [0, *data.sum(axis=1)[:5]]), "what a call writes to a file is there"


def test_a_large_array_is_written_once_and_removed(tmp_path: Path) -> None:
    array = np.ones(300_000)
    folder = tmp_path / "arrays"
    folder.mkdir()
    with (
        joblib.parallel_config("dovetail", n_jobs=2, temp_folder=str(folder)),
        joblib.Parallel() as parallel,
    ):
        assert parallel(joblib.delayed(ef.total)(array) for _ in range(9))[8][0] == 300_000
        assert len(list(folder.glob("*/*"))) == 1
        array[:] = 2
        assert [one[0] for one in parallel(joblib.delayed(ef.total)(array) for _ in range(2))] == [6e5, 6e5]
        del array
        parallel(joblib.delayed(ef.total)(np.full(300_000, n)) for n in range(5))
        until(lambda: not list(folder.glob("*/*")), "files went with their arrays")
    assert list(folder.iterdir()) == []


KILLED = """
import joblib, os, signal, sys
import numpy as np
import dovetail_integrations.joblib
with joblib.parallel_config("dovetail", n_jobs=2, temp_folder=sys.argv[1]), joblib.Parallel() as parallel:
    parallel(joblib.delayed(np.sum)(array) for array in [np.ones(300_000)] * 2)
    assert os.listdir(sys.argv[1])
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_program_leaves_no_arrays(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)]).returncode == -signal.SIGKILL
    until(lambda: not list(tmp_path.iterdir()), "joblib's own process removes them")


def test_numbers_of_workers() -> None:
    found = backend.DovetailBackend(nesting_level=0)
    cores = len(os.sched_getaffinity(0))
    assert [found.effective_n_jobs(n) for n in (None, 1, 7, -1)] == [1, 1, 7, cores]
    with pytest.raises(ValueError, match="n_jobs == 0"):
        found.effective_n_jobs(0)
    with joblib.parallel_config("dovetail", n_jobs=2, inner_max_num_threads=3):
        (first, _) = calls(ef.around, "OMP_NUM_THREADS", "OMP_NUM_THREADS")
    assert first[0] == ["3"]


def test_scikit_learn_searches() -> None:
    pytest.importorskip("sklearn")
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    data, target = make_classification(400, random_state=1)
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, cv=3)
    alone = search.fit(data, target).cv_results_["mean_test_score"]
    with joblib.parallel_config("dovetail", n_jobs=2), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(search.fit(data, target).cv_results_["mean_test_score"], alone)
