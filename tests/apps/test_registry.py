from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail_lab.apps.registry import APPS, find_app, load_implementation, run_app, weighted_checksum

PAPER = {
    "BinarySearch": (60, 4),
    "BitonicSort": (933, 9122),
    "FastWalshTransform": (77, 236),
    "DCT": (49, 503),
    "DwtHaar1D": (842, 924),
    "EigenValue": (712, 1448),
    "FFT": (1.6, 0.2),
    "FloydWarshall": (45, 527),
    "MatrixMultiplication": (41, 4475),
    "MatrixTranspose": (999, 3736),
    "PrefixSum": (112, 3),
    "QuasiRandomSequence": (18, 441),
    "Reduction": (26, 340),
    "ScanLargeArrays": (17, 154),
    "SimpleConvolution": (287, 481),
    "SobelFilter": (8, 13),
}


def test_times_are_those_of_table_2() -> None:
    times = {s.paper_name: (s.paper_gpu_milliseconds, s.paper_cpu_milliseconds) for s in APPS.values()}
    assert times == PAPER
    assert list(times) == list(PAPER)
    assert sum(gpu for gpu, _ in times.values()) == pytest.approx(4227.6)
    assert sum(cpu for _, cpu in times.values()) == pytest.approx(22407.2)


@pytest.mark.parametrize("spec", APPS.values(), ids=lambda spec: spec.name)
def test_every_app_has_its_parts(spec) -> None:  # type: ignore[no-untyped-def]
    app = load_implementation(spec.name)
    for part in (app.inputs, app.cpu, app.opencl, app.array_api):
        assert callable(part)
        assert part.__doc__
    assert 0 < spec.sizes.small < spec.sizes.medium < spec.sizes.large


def test_run_adds_repetitions_up(opencl: object) -> None:
    once = run_app("matmul", "opencl", 64)
    thrice = run_app("matmul", "opencl", 64, repeat=3)
    assert thrice.bytes_to_device == 3 * once.bytes_to_device == 3 * 2 * 64 * 64 * 4
    assert thrice.bytes_from_device == 3 * once.bytes_from_device == 3 * 64 * 64 * 4
    assert thrice.checksum == once.checksum
    assert thrice.repeat == 3


def test_names_of_the_suite_are_understood() -> None:
    for spec in APPS.values():
        assert find_app(spec.paper_name) is find_app(spec.name) is spec
    assert run_app("MatrixMultiplication", "cpu", 3).app == "matmul"


def test_medium_size_is_the_default() -> None:
    assert run_app("reduction", "cpu").n == APPS["reduction"].sizes.medium


def test_numpy_device_runs_the_array_api_source() -> None:
    assert run_app("sobel", "numpy", 33).checksum == run_app("sobel", "cpu", 33).checksum


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nosuch",), "app 'nosuch' is not known"),
        (("matmul", "abacus"), "device 'abacus' is not known"),
        (("matmul", "cpu:1"), "device 'cpu:1' is not known"),
        (("matmul", "cpu", -1), "n is -1"),
        (("matmul", "cpu", 4, -2), "seed is -2"),
        (("matmul", "cpu", 4, 0, 0), "repeat is 0"),
        (("quasirandom", "cpu", 2**32 + 1), "quasirandom takes 4294967296 at most"),
        (("sobel", "cpu", 10**30), "sobel takes 16777216 at most"),
        (("matmul", "cpu", 10**7), "matmul with n = 10000000 does not fit into memory"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[object, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run_app(*arguments)  # type: ignore[arg-type]


def test_checksum_sees_position_and_size() -> None:
    ordered = np.arange(5000, dtype=np.float32)
    swapped = ordered.copy()
    swapped[[10, 4000]] = swapped[[4000, 10]]
    assert weighted_checksum(ordered) != weighted_checksum(swapped)
    assert weighted_checksum(np.empty(0)) == 0.0
    weights = 1 + np.arange(5000) % 1021 / 1021
    assert weighted_checksum(ordered) == pytest.approx(float(np.sum(ordered * weights)), rel=1e-12)
    assert weighted_checksum(ordered.reshape(50, 100)) == weighted_checksum(ordered)


@pytest.mark.parametrize(
    "wrong", [{"n": 1.5}, {"n": True}, {"n": "8"}, {"n": 8, "seed": 0.5}, {"n": 8, "repeat": 2.0}]
)
def test_what_is_no_whole_number_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected a whole number"):
        run_app("scan", "cpu", **wrong)
