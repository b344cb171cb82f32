"""Gregg 2011, Table 2: kernel times of sixteen OpenCL applications on one GPU and one CPU."""

from __future__ import annotations

from dovetail.errors import InputError
from dovetail.model import App, Choice, Implementation, Job, Seconds, TableTruth, Workload
from dovetail.workloads.jobfile import request_for

__all__ = ["TABLE_2", "gregg_table2"]

TABLE_2: tuple[tuple[str, float, float], ...] = (
    ("BinarySearch", 60, 4),
    ("BitonicSort", 933, 9122),
    ("FastWalshTrans", 77, 236),
    ("DCT", 49, 503),
    ("DwtHaar1D", 842, 924),
    ("EigenValue", 712, 1448),
    ("FFT", 1.6, 0.2),
    ("FloydWarshall", 45, 527),
    ("MatrixMult", 41, 4475),
    ("MatrixTranspose", 999, 3736),
    ("PrefixSum", 112, 3),
    ("QuasiRandSeq", 18, 441),
    ("Reduction", 26, 340),
    ("ScanLargeArrays", 17, 154),
    ("SimpleConv", 287, 481),
    ("SobelFilter", 8, 13),
)
"""(application, milliseconds on the GPU, milliseconds on the CPU), as printed."""


def gregg_table2(only: str = "", gpu_cost: Seconds = 0.0, cpu_cost: Seconds = 0.0) -> Workload:
    """Gregg 2011, Table 2, in table order, all at t = 0.

    ``only=gpu-faster`` keeps the thirteen applications of section 5.4. ``gpu_cost`` and ``cpu_cost`` are
    seconds that every application takes beside its kernel; with 0.46 each, the figures of the paper come
    out, which show times of applications, not of kernels. The ids are the applications' names.
    """
    if only not in ("", "gpu-faster"):
        raise InputError(f"only: found {only!r}, expected 'gpu-faster'")
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], Seconds] = {}
    for name, gpu, cpu in TABLE_2:
        if only and cpu <= gpu:
            continue
        forms = tuple(Implementation(kind, kind, request_for(kind)) for kind in ("cpu", "gpu"))
        choices = tuple(Choice(form, form.request) for form in forms)
        jobs.append(Job(name, App(name, forms), choices, index=len(jobs)))
        table[name, "cpu", 1] = cpu / 1000 + cpu_cost
        table[name, "gpu", 1] = gpu / 1000 + gpu_cost
    return Workload("published:gregg-table2", jobs, TableTruth(table))
