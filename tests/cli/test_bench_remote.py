"""``dovetail bench-remote``: real measurements, at a small size, and the file that simulations read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from dovetail_command import load, run_command

from dovetail.model.remote_costs import CONSTANTS, RemoteCosts, read_remote_costs
from dovetail_lab.remote_costs import Measured

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("remote")]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(["bench-remote", *arguments], Path.cwd(), os.environ)


def test_constants_are_measured_and_written(tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    done = bench("--rounds", "1", "--size", "2000000", "--out", str(path), "--json")
    assert done.returncode == 0, done.stderr
    found = load(done)
    costs = read_remote_costs(path)
    for name, constant in CONSTANTS.items():
        assert found["constants"][name]["value"] == getattr(costs, name)
        assert found["constants"][name]["unit"] == constant.unit
        measured = name != "active_memory"
        assert found["constants"][name]["source"].startswith("measured 20") == measured
    assert found["measured"]["memory"] > 10e6
    assert found["measured"]["remote_call_cpu"] > 0
    assert set(found["measured"]["shares"]) == {"put", "get", "put_first", "get_first"}
    assert set(found["measured"]["pauses"]) == {"0", "20000", "200000", "2000000"}
    assert costs.remote_latency + costs.network_latency == pytest.approx(found["measured"]["remote_call"])
    assert costs.gpu_latency == found["measured"]["local_call"]


def test_the_table_names_the_paper(tmp_path: Path) -> None:
    done = bench("--rounds", "1", "--size", "1000000")
    assert done.returncode == 0
    assert "call sent ahead to the server" in done.stdout
    assert "51.82 us" in done.stdout
    assert "medians of 1 rounds" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "/nothing/there.toml"], "/nothing/there.toml: found no folder for it"),
        (["--device", "abacus"], "device 'abacus' is not known"),
        (["--server", "nowhere"], "device 'nowhere': found no address"),
        (["--server", "local:numpy"], "expected a server"),
        (["--size", "5"], "--size"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: list[str], message: str) -> None:
    done = bench(*arguments)
    assert done.returncode in (2, 3)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_costs_of_a_made_up_machine() -> None:
    """Hand-checked: 5 us sent ahead, 4 us network, 1 GB/s of 2 GB/s, migrations of 10 ms and 3 ns a byte."""
    measured = Measured(
        local_call=1e-6,
        remote_call=5e-6,
        recorded_call=7e-6,
        round_trip=8e-6,
        raw_bandwidth=2e9,
        put=1e9,
        get=1.5e9,
        local_put=4e9,
        pauses={0: 0.01, 10**6: 0.013, 10**8: 0.31},
        returns={},
        prepared=0.1,
    )
    constants = measured.rate_constants()
    costs = RemoteCosts(**constants, sources=dict.fromkeys(constants, "here"))
    assert (costs.network_latency, costs.remote_latency) == (4e-6, pytest.approx(1e-6))
    assert (costs.remote_overhead, costs.network_bandwidth) == (2, 2e9)
    assert costs.record_per_call == pytest.approx(2e-6)
    assert costs.replay_constant == pytest.approx(0.01)
    # 3 ns a byte, of which 1 is the transfer (2 / 2e9) and 0.25 the copy (1 / 4e9)
    assert costs.sync_per_byte == pytest.approx(1.75e-9)
    assert costs.helper_per_call == costs.replay_per_call == 0
    assert costs.sources["gpu_latency"] == "here"
