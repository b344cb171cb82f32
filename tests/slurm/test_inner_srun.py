"""What srun inside a job of an allocation is asked, and what of the job's it gets."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from dovetail_slurm.inner_srun import chosen_nodes, count_of, hold_places, parse_words, part_of, slice_of

SHARES: dict[str, Any] = {
    "n1": {"cores": [4, 5, 6, 7], "cpus": 8, "pick": {"CUDA_VISIBLE_DEVICES": [1, 3]}},
    "n2": {"cores": [0, 1, 2, 3], "cpus": 8, "pick": {"CUDA_VISIBLE_DEVICES": [0, 1]}},
}


@pytest.mark.parametrize(
    ("words", "found", "rest", "command"),
    [
        ("-n4 -N 1 prog -N 2", {"ntasks": "4", "nodes": "1"}, ["-n4"], ["prog", "-N", "2"]),
        ("--exact -lc2 --unbuffered a", {"exact": "", "cpus-per-task": "2"}, ["-l", "--unbuffered"], ["a"]),
        ("--mpi pmi2 --gres=nvme:1 -- a -b", {}, ["--mpi", "pmi2", "--gres=nvme:1"], ["a", "-b"]),
        (
            "-K1 --kill-on-bad-exit=1 -G2 -t 1 a",
            {"gpus": "2"},
            ["-K1", "--kill-on-bad-exit=1", "-t", "1"],
            ["a"],
        ),
    ],
)
def test_options_that_are_ours_are_told_apart(
    words: str, found: dict[str, str], rest: list[str], command: list[str]
) -> None:
    assert parse_words(words.split()) == (found, rest, command)


def test_a_step_is_on_nodes_of_the_job() -> None:
    assert chosen_nodes({}, ["n1", "n2"]) == ["n1", "n2"]
    assert chosen_nodes({"nodes": "1-1"}, ["n1", "n2"]) == ["n1"]
    assert chosen_nodes({"nodelist": "n2"}, ["n1", "n2"]) == ["n2"]
    with pytest.raises(SystemExit, match=r"found node n7, expected of the job's own: n1, n2"):
        chosen_nodes({"nodelist": "n2,n7"}, ["n1", "n2"])
    with pytest.raises(SystemExit, match="found 3 nodes, expected at most the 2"):
        chosen_nodes({"nodes": "3"}, ["n1", "n2"])


def test_a_part_is_counted_for_each_node_and_all_of_it_is_no_part() -> None:
    nodes = ["n1", "n2"]
    assert part_of({}, nodes, SHARES) == {}
    assert part_of({"cpus-per-task": "2"}, nodes, SHARES) == {"cores": 2}
    assert part_of({"cpus-per-task": "2", "ntasks": "4"}, nodes, SHARES) == {}
    assert part_of({"exact": "", "ntasks": "1", "gres": "gpu:a:1"}, ["n1"], SHARES) == {"cores": 1, "gpus": 1}
    assert part_of({"gpus": "2"}, nodes, SHARES) == {"gpus": 1}
    assert part_of({"gpus-per-task": "1", "ntasks": "2"}, ["n1"], SHARES) == {}
    with pytest.raises(SystemExit, match="found 3 gpus a node, expected at most the job's 2"):
        part_of({"gres": "gpu:3"}, nodes, SHARES)
    assert [count_of(text) for text in ("2", "a100:2", "gpu:2,x:1", "gpu")] == [2, 2, 2, 1]


def test_what_another_step_holds_is_not_given_again(tmp_path: Path) -> None:
    folder = str(tmp_path / "job")
    lock = os.open(f"{folder}.gpus.0", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert hold_places({"gpus": 1, "cores": 2}, {"gpus": 2, "cores": 4}, folder) == {
        "gpus": [1],
        "cores": [0, 1],
    }
    os.close(lock)


def test_tasks_share_out_what_their_node_has() -> None:
    assert [slice_of([4, 5, 6, 7], local, 2) for local in (0, 1)] == [[4, 5], [6, 7]]
    assert slice_of([4], 1, 2) == [4]
