"""Jobs come back from a journal as they went in."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dovetail.engine.journal.checked import check_fields
from dovetail.engine.journal.codec import Codec, decode_cluster, encode_cluster
from dovetail.engine.journal.plausible import check_nodes
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Command,
    Communication,
    Dependency,
    Implementation,
    Job,
    Request,
    Submitted,
)
from dovetail.model.node import Numbered, uniform_node


def test_every_field_of_a_job_survives() -> None:
    implementation = Implementation("gpu", "gpu", Request(2, 1, (("gpu", 2.0),)), Command(("./a", "{n}")))
    app = App("a", (implementation,), restartable=True)
    job = Job(
        "j",
        app,
        (Choice(implementation, implementation.request),),
        index=3,
        submit_time=1.5,
        inputs={"n": 2.0},
        nodes=2,
        walltime=10.0,
        user="u",
        group="g",
        queue="q",
        priority=1,
        implementation="gpu",
        sequential=4.0,
        speedup={"gpu": 2.0},
        depends=(Dependency("afterok", "a:1"), Dependency("afterany", "b")),
        retries=2,
        communication=Communication(100.0, 1e6, 1e9, 3.0, 4.0),
        batch_options=("--account=x",),
    )
    text = json.dumps(Codec().encode_event(Submitted(job)))
    found = Codec().event_from(json.loads(text))
    assert isinstance(found, Submitted)
    for field in dataclasses.fields(Job):
        if field.name not in ("app", "choices"):
            assert getattr(found.job, field.name) == getattr(job, field.name), field.name
    assert found.job.app.name == "a"
    assert found.job.app.restartable
    assert found.job.choices == job.choices


def test_large_clusters_are_written_by_their_shapes() -> None:
    """Each name where names have no numbers; both read back as the same nodes."""
    node = uniform_node(8, 1)
    numbered = Cluster.uniform(30_000, 8, 1)
    named = Cluster.of([(node, ["login", *(f"c{i}" for i in range(25_000))]), (node, Numbered("n", 2))])
    for cluster, most in ((numbered, 1000), (named, 300_000)):
        text = json.dumps(encode_cluster(cluster))
        assert len(text) < most
        read = check_nodes(check_fields(decode_cluster(json.loads(text))))
        assert read.label == cluster.label
        assert list(read.nodes) == list(cluster.nodes)


@pytest.mark.parametrize("names", [["n", 10**7], ["n", 0], [1, 2], ["n", True], [["n"], 3], ["a", None, "b"]])
def test_names_of_a_large_cluster_that_are_none(names: object) -> None:
    node = encode_cluster(Cluster.uniform(1, 8))["nodes"][0]
    with pytest.raises(ValueError, match="node"):
        decode_cluster({"label": "", "groups": [{"node": node, "names": names}]})
