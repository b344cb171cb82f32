"""Figures 3 to 5 of Gregg 2011 on this machine's own devices."""

from __future__ import annotations

import json

import pytest

from dovetail.cli.main import status_of
from dovetail.model import Cluster
from dovetail_lab.apps.bench.suite import two_devices
from dovetail_lab.claims import Chosen, Claim, Verdict
from dovetail_lab.gregg import live as module
from dovetail_lab.gregg.claims import CONSTANTS
from dovetail_lab.gregg.live import (
    CONSTANT,
    MIXED,
    PLACEMENTS,
    Live,
    LivePlacement,
    PaperTimes,
    made_up_pair,
    one_of_each,
    run_live,
)
from dovetail_lab.gregg.live_claims import live_claims, live_table
from dovetail_lab.gregg.study import make_study


def test_two_small_apps_run_under_every_placement_and_stand_beside_their_simulation() -> None:
    if two_devices().total_devices == 0:
        pytest.skip("no device besides the CPU")
    heard: list[tuple[float, float]] = []
    apps = ("eigenvalue", "fft")
    found = run_live(
        one_of_each(),
        rounds=1,
        sizes="small",
        apps=apps,
        progress=lambda done, total: heard.append((done, total)),
    )
    assert set(found.sizes) == set(found.alone) == set(apps)
    assert {kind for own in found.alone.values() for kind in own} == {"cpu", found.device}
    assert {p.name for p in PLACEMENTS if p.figure == 3} <= set(found.rounds)
    assert ("dynamic-5" in found.rounds) == (len(found.faster) == 2)
    cpu, gpu = found.rounds["cpu-only"][0], found.rounds["gpu-only"][0]
    assert cpu.cpu > 0
    assert gpu.cpu == 0
    assert cpu.slower == gpu.slower == pytest.approx(1.0)  # they are what was measured alone
    for kind, ran in (("cpu", cpu), (found.device, gpu)):
        assert ran.simulated == pytest.approx(sum(own[kind] for own in found.alone.values()))
        assert ran.seconds > 0
    done, total = heard[-1]
    assert 1 + len(found.rounds) < done <= total == 2 + len(PLACEMENTS)

    # A single round has no interval: nothing is claimed. The JSON has the claims' usual form.
    chosen = Chosen.of((*CONSTANTS, CONSTANT), ["live_sizes=small"])
    told = json.loads(make_study(repetitions=1, orders=1, queues=(), chosen=chosen, live=found).json_text())
    claims = [claim for claim in told["claims"] if claim["text"].startswith("Live: ")]
    assert len(claims) >= 5
    assert {claim["verdict"] for claim in claims} == {"open"}
    assert all(claim["rests_on"] == ["tolerance", "live_sizes"] for claim in claims)
    assert told["constants"]["live_sizes"]["values"] == ["small"]
    assert [p["name"] for p in told["live"]["placements"]] == [
        p.name for p in PLACEMENTS if p.name in found.rounds
    ]


@pytest.mark.holds("gregg", "Live, the paper's times: ")
def test_programs_that_take_the_papers_times_run_anywhere_under_every_placement() -> None:
    """Without any device: each program takes at least its time; Figure 5 has the thirteen of the table."""
    times = PaperTimes(scale=0.05)
    apps = ("BinarySearch", "DCT", "MatrixMult")
    found = run_live(made_up_pair(), rounds=1, apps=apps, times=times)
    for app in apps:
        wanted = times.seconds(app)
        assert set(found.alone[app]) == {"cpu", found.device} == set(wanted)
        assert all(found.alone[app][kind] >= seconds for kind, seconds in wanted.items())
    assert set(found.rounds) == {p.name for p in PLACEMENTS}
    assert found.rounds["gpu-only"][0].seconds >= sum(times.seconds(app)[found.device] for app in apps)
    # MatrixMult takes 0.25 s on the CPU and 0.025 s on the GPU: the rules have learned that by then.
    assert found.rounds["dynamic"][0].simulated < found.rounds["cpu-only"][0].simulated
    assert len(found.faster) == 13
    assert found.faster[0] == "BitonicSort"
    table = live_table(found)
    assert "this tests scheduler, driver and overhead, not kernels" in table.note
    assert float(table.rows[1][3]) == pytest.approx(found.rounds["gpu-only"][0].seconds / 0.05, rel=0.05)
    told = live_claims(found, 0.1)
    assert {claim.rests_on for claim in told} == {("tolerance", "gpu_cost", "cpu_cost")}
    assert all(claim.text.startswith(("Live, the paper's times: ", "... and")) for claim in told)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--times", "table2"), "--times: found without --live, expected both"),
        (("--live", "--times", "table3"), "--times: found 'table3', expected 'table2'"),
        (("--live", "--suite", "spec"), "--suite: found 'spec', expected 'bench'"),
        (("--live", "--times", "table2", "--suite", "bench"), "--times, --suite: found both, expected one"),
        (("--live", "--scale", "0.4"), "--scale: found without --times, expected both"),
        (("--live", "--times", "table2", "--scale", "0"), "--scale: found 0, expected 0.01 to 10"),
    ],
)
def test_what_live_cannot_run_is_one_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(["reproduce", "gregg", *words]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


def _found(**seconds: tuple[float, ...]) -> Live:
    """Rounds of so many seconds by placement; half of the CPU is used."""
    rounds = {
        name.replace("_", "-"): [LivePlacement(s, 0.5, 1.0, s / 2, 0.5) for s in own]
        for name, own in seconds.items()
    }
    return Live("two cores", "opencl", dict(MIXED), {}, ("fft", "sobel"), rounds)


def _by_figure(found: Live) -> dict[str, Claim]:
    return {
        claim.text.rpartition("(Fig. ")[2].removesuffix(")") + claim.paper: claim
        for claim in live_claims(found, 0.1)
    }


@pytest.mark.holds("gregg", "Live, the paper's times: ")
def test_live_verdicts_follow_the_rounds() -> None:
    told = _by_figure(
        _found(
            gpu_only=(10.0, 10.1, 10.0),
            static=(8.0, 9.0, 12.0),
            cold=(12.0, 12.1, 12.2),
            dynamic=(6.1, 6.2, 6.1),
            gpu_only_5=(5.0, 5.0, 5.0),
            dynamic_5=(6.0, 6.1, 6.2),
        )
    )
    assert {figure: claim.verdict for figure, claim in told.items()} == {
        "2longer": Verdict.YES,
        "329%": Verdict.OPEN,  # 24 %, 31 %, 49 %: it cannot be known
        "339%": Verdict.YES,
        "4(a)17%": Verdict.NO,
        "4(b)67%": Verdict.NO,
        "51.33, on thirteen": Verdict.NO,
        "5(b)90%": Verdict.NO,
    }
    assert told["339%"].reference == "39 ± 1 % simulated"
    assert told["339%"].readings_text == "this machine (two cores)"


def test_without_two_apps_for_figure_5_it_is_left_out_in_words() -> None:
    found = _found(gpu_only=(1.0, 1.0), static=(1.0, 1.0), cold=(1.0, 1.0), dynamic=(1.0, 1.0))
    assert not any("Fig. 5" in claim.text for claim in live_claims(found, 0.1))
    table = live_table(found)
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert "nothing to place" in table.note


def test_one_cpu_and_one_device_of_a_larger_machine() -> None:
    cluster = one_of_each(Cluster.parse("2x8cpu+4gpu"))
    assert [unit.kind for unit in cluster.units] == ["cpu", "gpu"]


def test_a_missing_device_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "two_devices", lambda: Cluster.parse("1x2cpu"))
    assert status_of(["reproduce", "gregg", "--live"]) == 2
    said = capsys.readouterr()
    assert " ".join(said.err.split()).endswith(
        "--live: found cpu only, expected a CPU and one other device: a GPU, or PoCL and two cores "
        "(dovetail devices lists what is here)"
    )
    assert not said.out


def test_its_sizes_are_a_constant_of_live_runs_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["reproduce", "gregg", "--set", "live_sizes=small"]) == 2
    assert "found 'live_sizes'" in capsys.readouterr().err
    assert status_of(["reproduce", "gregg", "--live", "--set", "live_sizes=tiny"]) == 2
    assert "expected one of mixed, small, medium, large" in " ".join(capsys.readouterr().err.split())
