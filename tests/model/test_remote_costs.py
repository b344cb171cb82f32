from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import InputError
from dovetail.model.remote_costs import CONSTANTS, RemoteCosts, read_remote_costs, remote_costs_text


def test_defaults_are_the_papers() -> None:
    costs = RemoteCosts()
    assert (costs.remote_latency, costs.remote_overhead) == (50.62e-6, 1.03)
    assert (costs.record_per_call, costs.record_constant) == (0.2825e-6, 0.3437e-3)
    assert (costs.replay_per_call, costs.replay_constant) == (1.031e-6, 1.243)
    assert (costs.copy_bandwidth_per_byte, costs.copy_bandwidth) == (47210.0, 4.78e9)
    assert (costs.sync_per_byte, costs.sync_constant) == (0.057e-9, 0)
    assert (costs.helper_per_byte, costs.helper_per_call, costs.helper_constant) == (
        0.687e-9,
        9.983e-6,
        2.934e-3,
    )
    assert (costs.network_latency, costs.network_bandwidth) == (1.2e-6, 7e9)
    assert (costs.gpu_latency, costs.gpu_bandwidth) == (10e-6, 7e9)
    assert costs.active_memory == 6e9


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    costs = RemoteCosts(remote_latency=8.25e-6, replay_constant=0.0125, sources={"remote_latency": "here"})
    path.write_text(remote_costs_text(costs, 'today, "here"'))
    again = read_remote_costs(path)
    assert again == costs
    assert again.sources["remote_latency"] == "here"
    assert again.sources["replay_per_call"] == CONSTANTS["replay_per_call"].source


def test_a_file_may_give_some(tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    path.write_text('[gpu_latency]\nvalue = 3e-6\nunit = "s"\nsource = "mine"\n')
    costs = read_remote_costs(path)
    assert costs.gpu_latency == 3e-6
    assert costs.remote_latency == RemoteCosts().remote_latency
    assert [c.source for c in costs.described_constants() if c.name == "gpu_latency"] == ["mine"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[gpu_latency]\nvalue = 3\nunit = "us"\nsource = ""', "gpu_latency, unit: found 'us', expected 's'"),
        ('[gpu_latency]\nvalue = -3\nunit = "s"\nsource = ""', "gpu_latency, value: found -3"),
        ('[gpu_bandwidth]\nvalue = 0\nunit = "B/s"\nsource = ""', "a finite number above 0"),
        ('[gpu_latency]\nvalue = inf\nunit = "s"\nsource = ""', "gpu_latency, value: found inf"),
        ("[gpu_latency]\nvalue = 3", "found nothing, expected it to be given"),
        ('[gpu_latencies]\nvalue = 3\nunit = "s"\nsource = ""', "did you mean 'gpu_latency'"),
        ("gpu_latency = 3", "gpu_latency: found 3, expected a table"),
    ],
)
def test_faults_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "costs.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_remote_costs(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
