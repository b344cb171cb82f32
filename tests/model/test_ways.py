"""The ways to run a job: which device classes count, and which way is the fastest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.model import (
    Allocation,
    App,
    Choice,
    Cluster,
    Device,
    DeviceClass,
    Donor,
    Implementation,
    Job,
    Node,
    Part,
    Prediction,
    Request,
    class_of,
    class_on,
    classes_for,
    fastest_choice,
    predicted_way,
    way_with_given_times,
)
from dovetail.model.ways import ModelOn, considered_predictions

CLUSTER = Cluster((Node("n0", (0, 1), (Device("gpu", "T4"), Device("gpu", "A100", 1)), cpu_model="EPYC"),))
T4, A100 = DeviceClass("gpu", "T4"), DeviceClass("gpu", "A100")


def job_of(models: tuple[str, ...] = (), **fields: object) -> Job:
    cpu = Implementation("cpu", "cpu", Request(1, 1))
    gpu = Implementation("gpu", "gpu", Request(1, 0, (("gpu", 1),), 0, models))
    app = App("a", (cpu, gpu))
    return Job("a", app, tuple(Choice(i, i.request) for i in app.implementations), **fields)  # type: ignore[arg-type]


def knowing(seconds: dict[str, float]) -> ModelOn:
    """Predictions by device class, as text."""

    def predict(job: Job, implementation: Implementation, request: Request, device: DeviceClass):
        found = seconds.get(str(device))
        return None if found is None else Prediction(found, found, 1, "told")

    return ModelOn(CLUSTER, predict)


def test_models_restrict_the_classes_of_devices_only() -> None:
    cpu, gpu = job_of(("A100",)).choices
    assert classes_for(CLUSTER, gpu) == (A100,)
    assert classes_for(CLUSTER, replace(cpu, request=Request(1, 1, (), 0, ("A100",)))) == (
        DeviceClass("cpu", "EPYC"),
    )
    assert classes_for(CLUSTER, job_of().choices[1]) == (T4, A100)


def test_a_choice_is_as_fast_as_on_the_best_class_that_it_may_use() -> None:
    times = knowing({"gpu:T4": 1.0, "gpu:A100": 5.0, "cpu:EPYC": 3.0})
    assert predicted_way(times, job_of(), job_of().choices[1]).seconds == 1.0
    assert fastest_choice(times, job_of()).implementation.name == "gpu"
    picky = job_of(("A100",))
    assert predicted_way(times, picky, picky.choices[1]).seconds == 5.0
    assert fastest_choice(times, picky).implementation.name == "cpu"
    assert [str(device) for device, _ in considered_predictions(times, picky, picky.choices[1])] == [
        "gpu:A100"
    ]


def test_without_predictions_the_first_choice_and_ties_too() -> None:
    assert fastest_choice(knowing({}), job_of()).implementation.name == "cpu"
    assert fastest_choice(knowing({"gpu:T4": 3.0, "cpu:EPYC": 3.0}), job_of()).implementation.name == "cpu"
    assert fastest_choice(knowing({"gpu:T4": 3.0}), job_of()).implementation.name == "gpu"
    unknown = predicted_way(knowing({}), job_of(), job_of().choices[0])
    assert (unknown.seconds, unknown.least_seconds) == (None, 0.0)


def test_what_the_job_tells_stands_in_where_nothing_is_predicted() -> None:
    job = job_of(sequential=40.0, speedup={"gpu": 8.0})
    told = [way_with_given_times(knowing({"cpu:EPYC": 7.0}), job, choice).seconds for choice in job.choices]
    assert told == [7.0, 5.0]
    assert predicted_way(knowing({}), job, job.choices[1]).seconds is None


@pytest.mark.parametrize(
    ("kind", "part", "donors", "expected"),
    [
        ("cpu", Part(1, 2), (), "cpu:EPYC"),
        ("gpu", Part(1, 0, (1,)), (), "gpu:A100"),
        ("cpu+gpu", Part(1, 2, (0,)), (), "cpu+gpu:T4"),
        ("gpu", Part(1, 0), (Donor(0, 0, 1),), "gpu:A100"),
    ],
)
def test_the_class_of_an_allocation(kind: str, part: Part, donors: tuple[Donor, ...], expected: str) -> None:
    implementation = Implementation(kind, kind, Request())
    allocation = Allocation(implementation.request, (part,), donors=donors)
    assert str(class_of(CLUSTER, implementation, allocation)) == expected


def test_the_class_on_a_unit() -> None:
    both = Implementation("both", "cpu+gpu", Request())
    assert [str(class_on(both, unit)) for unit in CLUSTER.units[1:]] == ["cpu+gpu:T4", "cpu+gpu:A100"]
    assert class_on(Implementation("gpu", "gpu", Request()), CLUSTER.units[1]) == T4
