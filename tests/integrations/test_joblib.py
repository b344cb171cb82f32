"""joblib's calls on Dovetail's workers."""

from __future__ import annotations

import operator
import os
import warnings
from typing import Any

import executor_functions as ef
import numpy as np
import pytest

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
        assert (one[:2], two[0]) == ((1 << 15, False), 1 << 16)
    assert calls(ef.square, 2, 3, n_jobs=2, backend="dovetail") == [4, 9]


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
