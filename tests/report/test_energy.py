"""Busy and idle processor-seconds, and joules: by hand, and against what packs say of themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError
from dovetail.model import Cluster, Result
from dovetail.report.energy import ResourceUse, Watts, energy_metrics, use_of
from dovetail_lab.packing.registry import solve

GOLDEN = [
    [60, 32, 24, 20],
    [48, 30, 22, 18],
    [40, 21, 15, 12],
    [30, 18, 14, 12],
    [24, 14, 11, 10],
    [12, 8, 6, 5],
]


def result_of(folder: Path, text: str, cluster: str, policy: str) -> Result:
    path = folder / "jobs.toml"
    path.write_text(text)
    return dovetail.simulate(path, cluster=Cluster.parse(cluster), policy=policy).result


def test_packs_of_the_golden_instance(tmp_path: Path) -> None:
    text = '[[app]]\nname = "t"\n[[app.implementation]]\nname = "cpu"\n'
    for row in GOLDEN:
        table = ", ".join(f"{j} = {t}" for j, t in enumerate(row, 1))
        text += f'[[job]]\napp = "t"\ntimes.cpu = {{ {table} }}\n'
    result = result_of(tmp_path, text, "4x1cpu", "pack?algorithm=matching&k=2")
    metrics = solve(np.array(GOLDEN, float), 2, "matching").metrics
    found = energy_metrics(result, Watts(10.0, 100.0))
    assert found["busy_processor_seconds"] == pytest.approx(metrics.busy) == 247.0
    assert found["idle_processor_seconds"] == pytest.approx(metrics.idle) == 13.0
    assert found["busy_device_seconds"] is None
    assert found["energy"] == pytest.approx(metrics.energy_joules(10.0, 100.0)) == 24830.0
    assert energy_metrics(result)["energy"] is None


def test_devices_count_apart(tmp_path: Path) -> None:
    text = """
[[app]]
name = "a"
[[app.implementation]]
name = "gpu"
cpus = 1
time = 10.0
[[job]]
app = "a"
[[job]]
app = "a"
submit = 5.0
"""
    # One after the other on the only GPU: 20 s, one of two CPUs held all the time.
    use = use_of(result_of(tmp_path, text, "1x2cpu+1gpu", "fcfs"))
    assert use == ResourceUse(busy=20.0, idle=20.0, device_busy=20.0, device_idle=0.0)
    assert use.energy_joules(Watts(1.0, 5.0, device_idle=30.0, device_busy=250.0)) == 20 + 100 + 5000


def test_nothing_ran() -> None:
    nothing = Result("fcfs", "none", Cluster.parse("2x4cpu"), ())
    assert use_of(nothing) == ResourceUse(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((-1.0, 5.0), "idle watts are -1.0"),
        ((1.0, float("inf")), "busy watts are inf"),
        ((6.0, 5.0), "busy watts are 5.0, expected at least the 6.0"),
        ((1.0, 5.0, 3.0, 2.0), "busy watts of a device are 2.0"),
        ((1.0, 5.0, float("nan"), 2.0), "idle watts of a device are nan"),
    ],
)
def test_refusals(values: tuple[float, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Watts(*values)
