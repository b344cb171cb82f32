"""reproduce policies: ratios against the best fixed policy, refusals left empty, bad names refused."""

from __future__ import annotations

import pytest

from dovetail.errors import InputError
from dovetail_lab.policies.queues import KINDS, noisy_model
from dovetail_lab.policies.study import _policy_figures, default_policies, make_study, policy_rows


def test_the_best_fixed_policy_has_ratio_one_and_refusals_are_empty() -> None:
    found = {
        row.policy: row
        for row in policy_rows(["gangs"], ["torque", "mct", "sufferage", "lookahead"], draws=1)
    }
    assert found["sufferage"].mean is None  # it places no gangs
    makespans = [found[name].mean["makespan"] for name in ("torque", "mct")]  # type: ignore[index]
    assert min(makespans) == 1.0
    assert found["lookahead"].mean is not None
    assert found["lookahead"].mean["makespan"] < 1.0
    cells = {line[0]: line[1] for line in make_study(list(found.values())).parts[0].rows}  # type: ignore[union-attr]
    assert cells["sufferage"] == "-"


def test_what_is_compared_where_nothing_else_is_asked_for_can_be_simulated() -> None:
    queue = KINDS["gregg"].draw(1)
    able = {name for name in default_policies() if _policy_figures(queue, name) is not None}
    assert {"history", "max-min", "fms", "easy?order=saf", "lookahead"} <= able
    assert "earliest-completion" not in default_policies()  # hands jobs to a Slurm queue


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_always_draws_the_same_queue(kind: str) -> None:
    def drawn(seed: int) -> list[tuple[object, ...]]:
        queue = KINDS[kind].draw(seed)
        truth = queue.workload.truth
        return [
            (job.id, job.submit_time, *(truth.seconds(job, c.implementation, c.request) for c in job.choices))
            for job in queue.workload.jobs
        ]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_noise_is_fixed_for_a_job_and_way_of_running_it() -> None:
    queue = KINDS["ravi, noise"].draw(1)
    model, job = noisy_model(queue.workload, 1), queue.workload.jobs[0]
    choice = job.choices[0]
    device = queue.cluster.device_classes(choice.implementation.kind)[0]
    first = model.predict(job, choice.implementation, choice.request, device)
    assert first == model.predict(job, choice.implementation, choice.request, device)
    assert first is not None
    assert first.expected != queue.workload.truth.seconds(job, choice.implementation, choice.request)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="found the queue 'bus'"):
        policy_rows(["bus"], ["easy"])
    with pytest.raises(InputError, match="no fixed policy"):
        policy_rows(["gangs"], ["lookahead"])
    assert "lookahead" in default_policies()
