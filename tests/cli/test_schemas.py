import tomllib
from pathlib import Path

import jsonschema
import pytest

from dovetail.cli.schema import all_schemas, schema_text
from dovetail.model.remote_costs import RemoteCosts, remote_costs_text
from dovetail.workloads.jobfile_writer import dump_jobfile
from dovetail.workloads.load import load_workload

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "schemas"
JOB = "[[app]]\nname = 'm'\non = ['cpu']\n[[job]]\napp = 'm'\n"


@pytest.mark.parametrize("name", all_schemas())
def test_the_committed_schemas_are_those_of_the_models(name: str) -> None:
    assert (FOLDER / f"{name}.schema.json").read_text() == schema_text(all_schemas()[name])


@pytest.mark.parametrize(
    "spec", ["published:gregg-table2", "published:ravi-multi-table", "published:ravi-single"]
)
def test_exported_job_files_satisfy_the_schema(spec: str) -> None:
    jsonschema.validate(tomllib.loads(dump_jobfile(load_workload(spec))), all_schemas()["jobfile"])


@pytest.mark.parametrize(
    "line",
    [
        "submit = -1",
        "nodes = 0",
        "tims = {}",
        "times = { cpu = { 0 = 1 } }",
        "inputs = { n = true }",
        "count = 1.5",
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(line: str) -> None:
    jsonschema.validate(tomllib.loads(JOB), all_schemas()["jobfile"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(JOB + line), all_schemas()["jobfile"])


def test_the_cluster_schema() -> None:
    good = {"node": [{"name": "n[0-1]", "cpus": 2, "devices": [{"kind": "opencl", "cores": [1]}]}]}
    jsonschema.validate(good, all_schemas()["clusterfile"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"node": [{"name": "n0", "cpus": -2}]}, all_schemas()["clusterfile"])


def test_the_schema_of_remote_costs() -> None:
    good = tomllib.loads(remote_costs_text(RemoteCosts(), "here"))
    jsonschema.validate(good, all_schemas()["remotecosts"])
    for wrong in ({"value": -1.0}, {"unit": "ms"}):
        bad = {"gpu_latency": {**good["gpu_latency"], **wrong}}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, all_schemas()["remotecosts"])
