"""Gregg 2011: Table 2, kernel times of sixteen OpenCL applications on one GPU and one CPU; section 5.4."""

from __future__ import annotations

from dovetail.errors import InputError
from dovetail.model import App, Choice, Implementation, Job, Seconds, TableTruth, Workload, request_for

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


_FORMS = tuple(Implementation(kind, kind, request_for(kind)) for kind in ("cpu", "gpu"))


def _make_job(id: str, app: App, index: int) -> Job:
    choices = tuple(Choice(form, form.request) for form in app.implementations)
    return Job(id, app, choices, index=index)


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
        jobs.append(_make_job(name, App(name, _FORMS), len(jobs)))
        table[name, "cpu", 1] = cpu / 1000 + cpu_cost
        table[name, "gpu", 1] = gpu / 1000 + gpu_cost
    return Workload("published:gregg-table2", jobs, TableTruth(table))


def gregg_identical(jobs: int = 10, speedup: float = 5.0) -> Workload:
    """Gregg 2011, section 5.4: identical applications, each so many times faster on the GPU, 1 s there.

    All at t = 0; the example of the paper has ten.
    """
    if not 1 <= jobs <= 1_000_000:
        raise InputError(f"jobs: found {jobs}, expected 1 to 1000000")
    if not speedup > 0:
        raise InputError(f"speedup: found {speedup:g}, expected a number above 0")
    app = App("identical", _FORMS)
    made = [_make_job(f"identical-{i + 1}", app, i) for i in range(jobs)]
    times = {(job.id, kind, 1): seconds for job in made for kind, seconds in (("cpu", speedup), ("gpu", 1.0))}
    return Workload("published:gregg-identical", made, TableTruth(times))
