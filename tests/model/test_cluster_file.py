from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.errors import InputError
from dovetail.model import Cluster, Device, DeviceClass
from dovetail.model.node import NVLINK, SWITCH

CONTRACT = """\
[[node]]
name = "n[0-1]"                       # hostlist ranges
cpus = 8                              # a count, or cores = [0, 2, 3] where the node is this machine
gpus = 1                              # short for devices = [{ kind = "gpu", count = 1 }]
memory = 64e9                         # default: not limited
devices = [{ kind = "opencl", model = "pocl", cores = [1], count = 1 }]
host_cpus = 0
"""


def written(folder: Path, text: str) -> str:
    path = folder / "c.toml"
    path.write_text(text)
    return str(path)


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        Cluster.parse(text)
    message = str(caught.value)
    assert "\n" not in message
    assert "expected" in message
    return message


def parsed_or_refused(text: str) -> None:
    """Anything but an `InputError` of one line is a failure."""
    message = ""
    try:
        Cluster.parse(text)
    except InputError as error:
        message = str(error)
    assert "\n" not in message


def test_short_form() -> None:
    cluster = Cluster.parse("2x8cpu+1gpu")
    assert [node.name for node in cluster.nodes] == ["n0", "n1"]
    assert cluster.nodes[1].cores == tuple(range(8))
    assert [unit.name for unit in cluster.units] == ["n0/cpu", "n0/gpu0", "n1/cpu", "n1/gpu0"]
    assert cluster.label == "2x8cpu+1gpu"
    assert Cluster.parse("256x1cpu").total_cpus == 256


@pytest.mark.parametrize(
    "text",
    ["", "4x", "8cpu", "16x8cpu+gpu", "16x8cpu+", "-1x8cpu", "1.5x8cpu", "2 x 8cpu", "16X8CPU", "٣x8cpu"],
)
def test_a_malformed_short_form_is_named_with_an_example(text: str) -> None:
    assert "16x8cpu+1gpu" in refused(text)


@pytest.mark.parametrize("text", ["0x8cpu", "1x0cpu", "1000001x1cpu", "1x1000001cpu", "1x1cpu+10001gpu"])
def test_numbers_out_of_bounds_are_refused(text: str) -> None:
    assert repr(text) in refused(text)


def test_the_file_of_the_contract(tmp_path: Path) -> None:
    cluster = Cluster.parse(written(tmp_path, CONTRACT))
    assert [node.name for node in cluster.nodes] == ["n0", "n1"]
    node = cluster.nodes[0]
    assert node.cores == (0, 2, 3, 4, 5, 6, 7)
    assert node.devices == (Device("gpu", "", 0), Device("opencl", "pocl", 0, (1,)))
    assert node.memory == 64_000_000_000
    assert cluster.classes == (DeviceClass("cpu"), DeviceClass("gpu"), DeviceClass("opencl", "pocl"))


def test_two_unlike_devices_on_a_two_core_machine(tmp_path: Path) -> None:
    text = '[[node]]\nname = "here"\ncores = [0]\ndevices = [{ kind = "opencl", cores = [1] }]\n'
    (node,) = Cluster.parse(written(tmp_path, text)).nodes
    assert node.cores == (0,)
    assert node.devices == (Device("opencl", "", 0, (1,)),)


def test_cores_are_shared_out_among_devices_of_one_entry(tmp_path: Path) -> None:
    text = '[[node]]\nname = "a"\ncpus = 6\ndevices = [{ kind = "x", count = 2, cores = [1, 2, 3, 4] }]\n'
    (node,) = Cluster.parse(written(tmp_path, text)).nodes
    assert [device.cores for device in node.devices] == [(1, 2), (3, 4)]
    assert [device.name for device in node.devices] == ["x0", "x1"]
    assert node.cores == (0, 5)


def test_unlike_models_of_one_kind_are_numbered_on(tmp_path: Path) -> None:
    text = """
[[node]]
name = "a"
cpus = 4
host_cpus = 1
cpu_model = "epyc"
devices = [{ kind = "gpu", model = "T4" }, { kind = "gpu", model = "A100", count = 2 }]
"""
    cluster = Cluster.parse(written(tmp_path, text))
    assert [d.name for d in cluster.nodes[0].devices] == ["gpu0", "gpu1", "gpu2"]
    assert cluster.classes[1:] == (DeviceClass("gpu", "T4"), DeviceClass("gpu", "A100"))
    assert cluster.nodes[0].host_cpus == 1
    assert cluster.units[0].device_class == DeviceClass("cpu", "epyc")


def test_devices_that_are_close_to_each_other_and_to_cores(tmp_path: Path) -> None:
    """Of two links the closer one counts; cores that a device has to itself are not those of the pool."""
    text = """
[[node]]
name = "a"
cpus = 8
devices = [
    { kind = "gpu", count = 2, near = [3, 0, 1] },
    { kind = "gpu", count = 2, near = [4, 5, 7], cores = [6, 7] },
]
nvlink = ["gpu[0-1]"]
switch = ["gpu[0-2]"]
"""
    (node,) = Cluster.parse(written(tmp_path, text)).nodes
    assert [device.near for device in node.devices] == [(0, 1, 3), (0, 1, 3), (4, 5), (4, 5)]
    assert [device.links for device in node.devices] == [
        ((1, NVLINK), (2, SWITCH)), ((0, NVLINK), (2, SWITCH)), ((0, SWITCH), (1, SWITCH)), (),
    ]  # fmt: skip


def test_a_simulated_job_gets_the_devices_that_are_joined(tmp_path: Path) -> None:
    cluster = written(tmp_path, '[[node]]\nname = "a"\ncpus = 1\ngpus = 4\nnvlink = ["gpu[1,3]"]\n')
    way = '[[app.implementation]]\nname = "gpu"\ngpus = 2'
    jobs = f'[[app]]\nname = "x"\n{way}\n[[job]]\nid = "j"\napp = "x"\ntimes = {{ gpu = 1 }}\n'
    (tmp_path / "jobs.toml").write_text(jobs)
    report = dovetail.simulate(tmp_path / "jobs.toml", cluster=cluster, policy="fcfs")
    assert [job["devices"] for job in report.jobs] == [["a/gpu1", "a/gpu3"]]


HEAD = '[[node]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty file"),
        ("# nothing\n", "only comments"),
        ("[[nodes]]\nname = 'a'", "unknown key 'nodes', expected one of node, failures, checkpoints"),
        (HEAD, "node 1 'a': found neither cpus nor cores"),
        (HEAD + "cpus = 1\ncores = [0]", "both cpus and cores"),
        (HEAD + "cpus = -3", "node 1 'a', cpus: found -3, expected a whole number of at least 0"),
        (HEAD + "cpus = true", "cpus: found true"),
        (HEAD + "cpus = 2.0", "cpus: found 2.0"),
        (HEAD + "cpuss = 2", "did you mean 'cpus'?"),
        (HEAD + "cpus = 1\nmemory = inf", "memory: found inf"),
        (HEAD + "cpus = 1\nmemory = -1", "memory: found -1"),
        (HEAD + "cpus = 0", "without CPUs and devices"),
        (HEAD + "cores = [0, 0]", "cores: found core 0 twice"),
        (HEAD + "cores = []", "cores: found an empty list"),
        (HEAD + "cpus = 1\nhost_cpus = 2", "host_cpus: found 2"),
        (HEAD + "cpus = 1\ndevices = [{ kind = 'cpu' }]", "devices 1: kind: found 'cpu'"),
        (HEAD + "cpus = 1\ndevices = [{ model = 'x' }]", "devices 1, kind: found nothing"),
        (
            HEAD + "cpus = 4\ndevices = [{ kind = 'x', count = 2, cores = [1] }]",
            "found 1 cores for 2 devices",
        ),
        (HEAD + "cpus = 4\ndevices = [{kind='x', cores=[1]}, {kind='y', cores=[1]}]", "found core 1 twice"),
        (HEAD + "cpus = 1\ndevices = [{ kind = 'x', near = [1] }]", "near: found core 1, expected cores of"),
        (HEAD + "cpus = 2\ndevices = [{ kind = 'x', near = [1, 1] }]", "near: found core 1 twice"),
        (HEAD + "cpus = 1\ngpus = 2\nnvlink = ['gpu[0-2]']", "nvlink: found 'gpu2', expected devices of the"),
        (
            HEAD + "cpus = 1\ngpus = 2\nswitch = ['gpu0']",
            "switch: found 'gpu0', expected two devices or more",
        ),
        (HEAD + "cpus = 1\ngpus = 2\nnvlink = ['gpu[0,0]']", "expected two devices or more, each once"),
        (HEAD + "cpus = 1\ngpus = 200\nnvlink = ['gpu[0-199]']", "found 200 devices, expected 128 at most"),
        (HEAD + "cpus = 1\ngpus = 2\nnvlink = ['gpu[0-']", "nvlink: hostlist 'gpu[0-'"),
        (HEAD + "cpus = 1\n" + HEAD + "cpus = 1", "the node name 'a' twice"),
        ("[[node]]\nname = 'n[0-'\ncpus = 1", "node 1 'n[0-': hostlist"),
        ("[[node]]\nname = ''\ncpus = 1", "name: found ''"),
        ("node = 3", "node: found 3, expected a list"),
        ("node = []", "node: found an empty list"),
        ("[[node]\n", "line 1"),
        ("a = 1\na = 2\n", "line 2, column 6: found a key or table a second time"),
        ("a = " + "[" * 5000, "beyond all bounds"),
        ("a = " + "9" * 5000, "beyond all bounds"),
        (HEAD + "cpus = 0x" + "f" * 5000, "a number beyond all bounds"),
    ],
)
def test_malformed_files_are_answered_by_one_sentence(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    message = refused(path)
    assert message.startswith(f"{path}: ")
    assert expected in message


def test_a_missing_file_a_folder_and_binary_data(tmp_path: Path) -> None:
    assert "no such file" in refused(str(tmp_path / "nope.toml"))
    assert "a folder" in refused(str(tmp_path))
    (tmp_path / "b.toml").write_bytes(b"a = 1\n\xff\n")
    assert "line 2: found a byte 0xff" in refused(str(tmp_path / "b.toml"))
    refused("a\0b")


ODD = ["-1", "nan", "inf", "true", '""', "[]", "{}", "1e400", "1979-05-27", "'x'", "0.5", "[[0]]", "7", "]"]


@settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_any_damage_to_a_file_ends_in_a_cluster_or_a_sentence(tmp_path: Path, data: st.DataObject) -> None:
    lines = [line.partition("#")[0].rstrip() for line in CONTRACT.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        i = data.draw(st.integers(1, len(lines) - 1))
        key, _, value = lines[i].partition(" = ")
        odd = data.draw(st.sampled_from([*ODD, value]))
        lines[i] = data.draw(st.sampled_from([f"{key} = {odd}", f"{key}x = {odd}", "", lines[i] * 2]))
    parsed_or_refused(written(tmp_path, "\n".join(lines)))


@settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.binary(max_size=60))
def test_any_bytes_end_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "b.toml"
    path.write_bytes(data)
    with pytest.raises(InputError):
        Cluster.parse(str(path))


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=20))
def test_any_short_form_is_parsed_or_refused(text: str) -> None:
    parsed_or_refused(text)
