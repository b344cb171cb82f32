"""A pytest plugin: what joblib's tests call loky is Dovetail's backend."""

from __future__ import annotations

import pytest
from around import skip
from joblib import register_parallel_backend

import dovetail_integrations.joblib as ours

register_parallel_backend("loky", ours.DovetailBackend)

NAMES = "it expects the class, the texts or the insides of loky"
MAPPED = "it expects numpy.memmap; here arrays lie in anonymous shared memory, read-only as well"
DEFAULT = "it expects one job where no number is given; this backend has all cores then, as Dask's"
FRESH = "it expects an error where a generator is dropped; here the second call proceeds"
SUBPROCESS = "it tests loky itself, in a process without this plugin"
LEFT_OUT = {
    "test_nested_parallel_warnings": NAMES,
    "test_error_capture[loky]": NAMES,
    "test_backend_context_manager[parallel_backend-loky]": NAMES,
    "test_backend_context_manager[parallel_config-loky]": NAMES,
    "test_nested_parallelism_limit": NAMES,
    "test_nested_backend_in_sequential": DEFAULT,
    "test_auto_memmap_on_arrays_from_generator[loky]": MAPPED,
    "test_memmapping_leaks[loky]": MAPPED,
    "test_multiple_generator_call_separated_gc": FRESH,
    "test_parallel_with_interactively_defined_functions[loky]": SUBPROCESS,
    "test_parallel_with_interactively_defined_bound_method_loky": SUBPROCESS,
    "test_parallel_with_interactively_defined_functions_loky": SUBPROCESS,
    "test_parallel_with_unpicklable_functions_in_args": SUBPROCESS,
    "test_parallel_unordered_generator_returns_fastest_first": "it holds results against the clock",
}
"""Tests, and why each is left out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what only loky itself can pass."""
    skip(items, LEFT_OUT)
