"""Programs of SciPy and scikit-learn that take arrays of the standard, over a device and over NumPy.

``python scipy_programs.py ADDRESS LIBRARY`` prints as JSON which programs of the library there are, and what
differs from NumPy. A process of its own, since both libraries decide when they are imported whether they take
arrays of other libraries.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ["SCIPY_ARRAY_API"] = "1"

Program = Callable[[Any, Callable[[Any], Any]], Any]
"""From a namespace, and a function that makes arrays of NumPy its own."""


def of_scipy() -> dict[str, Program]:
    """By name."""
    from scipy import differentiate, fft, integrate, ndimage, signal, special, stats
    from scipy.cluster import vq
    from scipy.optimize import elementwise
    from scipy.spatial.transform import Rotation

    rng = np.random.default_rng(5)
    x, y = rng.normal(size=60), rng.normal(size=60)
    m = rng.normal(size=(12, 5))
    wave = np.sin(np.linspace(0, 20, 128)) + 0.1 * rng.normal(size=128)
    image = rng.normal(size=(9, 9))

    def solved(xp: Any, a: Callable[[Any], Any]) -> Any:
        found = elementwise.find_root(
            lambda t: t**3 - a(np.asarray([2.0, 5.0])), (a(np.zeros(2)), a(np.full(2, 3.0)))
        )
        return found.x

    def bounds(xp: Any, a: Callable[[Any], Any]) -> Any:
        found = elementwise.find_minimum(
            lambda t: (t - 1) ** 2, (a(np.asarray(-1.0)), a(np.asarray(0.5)), a(np.asarray(3.0)))
        )
        return found.x

    return {
        "special.gammaln": lambda xp, a: special.gammaln(a(np.abs(x) + 1)),
        "special.erf": lambda xp, a: special.erf(a(x)),
        "special.logsumexp": lambda xp, a: special.logsumexp(a(m), axis=1),
        "special.softmax": lambda xp, a: special.softmax(a(m), axis=0),
        "special.xlogy": lambda xp, a: special.xlogy(a(x), a(np.abs(y))),
        "stats.zscore": lambda xp, a: stats.zscore(a(m), axis=0),
        "stats.skew": lambda xp, a: stats.skew(a(m), axis=0),
        "stats.kurtosis": lambda xp, a: stats.kurtosis(a(x)),
        "stats.gmean": lambda xp, a: stats.gmean(a(np.abs(m)), axis=0),
        "stats.pearsonr": lambda xp, a: stats.pearsonr(a(x), a(y)).statistic,
        "stats.ttest_ind": lambda xp, a: stats.ttest_ind(a(x), a(y)).pvalue,
        "stats.chisquare": lambda xp, a: stats.chisquare(a(np.asarray([16.0, 18, 16, 14, 12, 12]))).pvalue,
        "stats.moment": lambda xp, a: stats.moment(a(m), order=3, axis=1),
        "stats.entropy": lambda xp, a: stats.entropy(a(np.abs(m)), axis=0),
        "signal.detrend": lambda xp, a: signal.detrend(a(wave)),
        "signal.fftconvolve": lambda xp, a: signal.fftconvolve(a(wave), a(np.hanning(9)), mode="same"),
        "signal.hilbert": lambda xp, a: signal.hilbert(a(wave)),
        "signal.sosfilt": lambda xp, a: signal.sosfilt(a(signal.butter(3, 0.2, output="sos")), a(wave)),
        "fft.rfft": lambda xp, a: fft.rfft(a(wave)),
        "fft.dct": lambda xp, a: fft.dct(a(wave)),
        "ndimage.gaussian_filter": lambda xp, a: ndimage.gaussian_filter(a(image), 1.0),
        "integrate.tanhsinh": lambda xp, a: integrate.tanhsinh(
            lambda t: t**2, a(np.zeros(2)), a(np.asarray([1.0, 2.0]))
        ).integral,
        "integrate.cubature": lambda xp, a: integrate.cubature(
            lambda t: xp.sum(t**2, axis=-1), a(np.zeros(2)), a(np.ones(2))
        ).estimate,
        "integrate.trapezoid": lambda xp, a: integrate.trapezoid(a(wave)),
        "differentiate.derivative": lambda xp, a: differentiate.derivative(
            lambda t: xp.exp(t), a(np.asarray([0.5, 1.0]))
        ).df,
        "optimize.find_root": solved,
        "optimize.find_minimum": bounds,
        "cluster.whiten": lambda xp, a: vq.whiten(a(m)),
        "cluster.vq": lambda xp, a: vq.vq(a(m), a(m[:3]))[0],
        "spatial.Rotation": lambda xp, a: Rotation.from_rotvec(a(m[:, :3])).as_matrix(),
    }  # fmt: skip


def of_sklearn() -> dict[str, Program]:
    """By name."""
    from sklearn import discriminant_analysis, linear_model, metrics, preprocessing
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(6)
    x, target = rng.normal(size=(80, 4)), rng.integers(0, 3, size=80)
    real, guess = rng.normal(size=80), rng.normal(size=80)
    made: dict[str, Program] = {
        "LinearDiscriminantAnalysis": lambda xp, a: (
            discriminant_analysis.LinearDiscriminantAnalysis().fit(a(x), a(target)).transform(a(x))
        ),
        "PCA": lambda xp, a: PCA(2, svd_solver="full").fit(a(x)).explained_variance_,
        "Ridge": lambda xp, a: linear_model.Ridge(solver="svd").fit(a(x), a(real)).coef_,
    }
    for name in (
        "MaxAbsScaler",
        "MinMaxScaler",
        "Normalizer",
        "StandardScaler",
        "Binarizer",
        "KernelCenterer",
    ):
        made[name] = lambda xp, a, name=name: getattr(preprocessing, name)().fit_transform(a(x[:4]))  # type: ignore[misc]
    for name in (
        "mean_absolute_error",
        "mean_squared_error",
        "r2_score",
        "max_error",
        "explained_variance_score",
    ):
        made[name] = lambda xp, a, name=name: getattr(metrics, name)(a(real), a(guess))  # type: ignore[misc]
    for name in ("accuracy_score", "confusion_matrix", "zero_one_loss"):
        made[name] = lambda xp, a, name=name: getattr(metrics, name)(a(target), a(target[::-1].copy()))  # type: ignore[misc]
    for name in (
        "euclidean_distances",
        "cosine_similarity",
        "rbf_kernel",
        "linear_kernel",
        "polynomial_kernel",
    ):
        made[name] = lambda xp, a, name=name: getattr(metrics.pairwise, name)(a(x))  # type: ignore[misc]
    return made


def outcome(program: Program, xp: Any, own: Callable[[Any], Any]) -> Any:
    """What a program gives, as an array of NumPy, or its exception."""
    try:
        return np.asarray(program(xp, own))
    except Exception as error:  # noqa: BLE001 - whatever the library raises, it has to raise over both
        return error


def differs(found: Any, expected: Any) -> str:
    """In which way; empty where it does not."""
    if isinstance(found, Exception) or isinstance(expected, Exception):
        same = type(found) is type(expected)
        return "" if same else f"found {found!r}, expected {expected!r}"[:300]
    close = found.shape == expected.shape and np.allclose(
        found, expected, rtol=1e-9, atol=1e-12, equal_nan=True
    )
    return (
        ""
        if close
        else f"found {found.shape} {found.ravel()[:3]}, expected {expected.shape} {expected.ravel()[:3]}"
    )


def main(address: str, library: str) -> None:
    """Run all of one library, and print what came of them."""
    import dovetail_remote

    warnings.simplefilter("ignore")
    xp = dovetail_remote.namespace(address)
    told: dict[str, Any] = {"programs": {}, "failed": []}
    if library == "sklearn":
        from sklearn import set_config

        set_config(array_api_dispatch=True)
    for name, program in {"scipy": of_scipy, "sklearn": of_sklearn}[library]().items():
        expected = outcome(program, np, np.asarray)
        if isinstance(expected, Exception):
            told["failed"].append(f"{name}: {expected!r}")
        told["programs"][name] = differs(outcome(program, xp, xp.asarray), expected)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
