"""Clusters as people write them: a TOML file, or the short form ``COUNTxCPUScpu[+GPUSgpu]``.

A node's CPU pool is its cores less those that are given to its devices.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, groupby
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from dovetail.errors import InputError
from dovetail.files.fields import Bytes, Entry, Name, default_values, real_number, validate_data, whole_number
from dovetail.files.sentences import file_name, show_value
from dovetail.files.toml import read_toml, toml_lines
from dovetail.model.cluster import Cluster
from dovetail.model.conditions import NO_CONDITIONS, Conditions
from dovetail.model.hostlist import MOST_NAMES, compress_names, expand_hostlist
from dovetail.model.node import CPU, NVLINK, SWITCH, Device, Node
from dovetail.model.short_form import SHORT, parse_short_form
from dovetail.spec.values import MOST_CPUS, MOST_DEVICES

_LIKE_SHORT = re.compile(r"[-+.0-9]+\s*x|[^/\\]*cpu(\+[^/\\]*)?$", re.IGNORECASE)

Count = Annotated[int, Field(ge=1, le=MOST_DEVICES), BeforeValidator(whole_number(1, MOST_DEVICES))]
Devices = Annotated[int, Field(ge=0, le=MOST_DEVICES), BeforeValidator(whole_number(0, MOST_DEVICES))]
Cpus = Annotated[int, Field(ge=0, le=MOST_CPUS), BeforeValidator(whole_number(0, MOST_CPUS))]
Core = Annotated[int, Field(ge=0, le=MOST_CPUS), BeforeValidator(whole_number(0, MOST_CPUS))]

Bandwidth = Annotated[float, Field(gt=0), BeforeValidator(real_number("bytes a second", above_zero=True))]


MOST_JOINED = 128
"""Devices of a node that are joined with each other: every two of them are a pair."""


class DeviceEntry(Entry):
    """Devices of one kind and model."""

    kind: Name = Field(description="gpu, opencl, or any other name but cpu")
    model: str = Field(default="", description="a T4 and an A100 are two classes and share no history")
    cores: list[Core] = Field(
        default_factory=list,
        description="cores that host the devices, shared out evenly; they leave the node's CPU pool",
    )
    memory: Bytes | None = Field(
        default=None, description="bytes of each device's own memory; default: not limited", gt=0
    )
    count: Count = Field(default=1, description="number of devices")
    mps: bool = Field(
        default=False,
        strict=True,
        description="jobs that share such a device of this machine do so through a daemon of NVIDIA's MPS",
    )
    near: list[Core] = Field(
        default_factory=list,
        description="cores of the node that are near each of the devices: preferred for jobs on them",
    )


class NodeEntry(Entry):
    """One node, or several alike."""

    name: Name = Field(description="a name, or a hostlist such as n[0-1]")
    cpus: Cpus | None = Field(default=None, description="number of CPUs: cores 0, 1, …")
    cores: list[Core] | None = Field(
        default=None, description="core ids, instead of cpus, where the node is this machine", min_length=1
    )
    gpus: Devices = Field(default=0, description="short for devices = [{ kind = 'gpu', count = … }]")
    memory: Bytes | None = Field(default=None, description="bytes; default: not limited")
    devices: list[DeviceEntry] = Field(default_factory=list)
    nvlink: list[Name] = Field(
        default_factory=list,
        description="hostlists of devices that NVLink joins with each other, such as gpu[0-3]",
    )
    switch: list[Name] = Field(
        default_factory=list, description="hostlists of devices that one PCIe switch joins with each other"
    )
    host_cpus: Cpus = Field(default=0, description="CPUs that a job on a device takes by default")
    cpu_model: str = Field(default="", description="keeps the history of unlike CPUs apart")
    partitions: list[Name] = Field(default_factory=list, description="to which the node belongs; for traces")
    network_bandwidth: Bandwidth | None = Field(
        default=None, description="bytes a second of its network; default 7e9, as in Markthub 2015"
    )
    gpu_bandwidth: Bandwidth | None = Field(
        default=None, description="bytes a second between its memory and a GPU; default 7e9"
    )


class NodesFile(Entry):
    """A cluster file that has nodes alone; `conditions_file.ClusterFile` has all that there may be."""

    node: list[NodeEntry] = Field(min_length=1)


Group: TypeAlias = tuple[Node, Sequence[str]]
"""What the nodes of an entry are like, and their names."""


def parse_groups(text: str | os.PathLike[str]) -> tuple[list[Group], str, Conditions]:
    """The nodes of a short form (``16x8cpu+1gpu``) or of a cluster file (TOML), and what to call the cluster.

    And the conditions that a file gives for simulations. Raises `InputError`, which names the file and the
    entry. Linear in the entries and the names in them.
    """
    if not isinstance(text, str | os.PathLike):
        raise InputError(
            f"cluster: found {show_value(text)}, expected a short form such as {SHORT} or a path"
        )
    text = os.fspath(text).strip()
    # First the short form: a file of such a name is named with a folder, ./16x8cpu.
    if (found := parse_short_form(text)) is not None:
        return *found, NO_CONDITIONS
    # What looks like a short form and is no file is a mistake in one, and no missing file.
    if not os.path.exists(text) and (not text or (_LIKE_SHORT.match(text) and not text.endswith(".toml"))):
        raise InputError(
            f"cluster: found {show_value(text)}, expected a short form such as {SHORT} or the path of a file"
        )
    return _from_file(text)


def _from_file(path: str) -> tuple[list[Group], str, Conditions]:
    data = read_toml(path, f"a cluster file with [[node]] entries or a short form such as {SHORT}")
    source = file_name(path)
    if data.keys() <= {"node"}:
        return _read_nodes(validate_data(NodesFile, data, source), source), path, NO_CONDITIONS
    # Its forms take milliseconds to make: most files have none of them.
    from dovetail.model.conditions_file import ClusterFile, conditions_of

    whole = validate_data(ClusterFile, data, source)
    groups = _read_nodes(whole, source)
    return groups, path, conditions_of(whole, groups, path)


def _read_nodes(data: NodesFile, source: str) -> list[Group]:
    groups: list[Group] = []
    entries, total = data.node, 0
    for number, entry in enumerate(entries, 1):
        where = f"{source}: node {number} {entry.name!r}"
        try:
            names = expand_hostlist(entry.name)
        except InputError as error:
            raise InputError(str(error), where=where) from None
        # Counted before the nodes are made: a hostlist may name billions.
        total += len(names)
        if total > MOST_NAMES:
            raise InputError(f"found more than {MOST_NAMES} nodes, expected fewer", where=where)
        groups.append((_read_node(names[0], entry, where), names))
    counts = Counter(name for _, names in groups for name in names)
    if len(counts) < total:
        twice = next(name for name, count in counts.items() if count > 1)
        raise InputError(f"found the node name {twice!r} twice, expected each name once", where=source)
    return groups


def _read_node(name: str, entry: NodeEntry, where: str) -> Node:
    if (entry.cpus is None) == (entry.cores is None):
        found = "neither cpus nor cores" if entry.cpus is None else "both cpus and cores"
        raise InputError(f"found {found}, expected one of them", where=where)
    cores = tuple(range(entry.cpus)) if entry.cpus is not None else tuple(entry.cores or ())
    _check_unique(cores, "cores", where)
    devices: list[Device] = []
    counted: Counter[str] = Counter()

    def add_devices(
        kind: str,
        model: str,
        hosts: tuple[int, ...],
        memory: int | None,
        count: int,
        near: tuple[int, ...] = (),
        mps: bool = False,
    ) -> None:
        # Cores are shared out in their order: device k gets the k-th part.
        share = len(hosts) // count
        for k in range(count):
            cores = hosts[k * share : (k + 1) * share]
            devices.append(Device(kind, model, counted[kind], cores, memory=memory, near=near, mps=mps))
            counted[kind] += 1

    hosts = [core for device in entry.devices for core in device.cores]
    given = set(hosts)
    # Hosts of devices leave the pool, or a job on CPUs would slow the host threads.
    pool = tuple(sorted(core for core in cores if core not in given))
    if entry.gpus:
        add_devices("gpu", "", (), None, entry.gpus)
    for number, device in enumerate(entry.devices, 1):
        place = f"{where}, devices {number}"
        if device.kind == CPU or "+" in device.kind:
            raise InputError(
                f"kind: found {device.kind!r}, expected a kind of device other than a CPU, such as 'gpu'",
                where=place,
            )
        if len(device.cores) % device.count:
            raise InputError(
                f"cores: found {len(device.cores)} cores for {device.count} devices, "
                "expected the same number for each",
                where=place,
            )
        _check_unique(device.near, "near", place)
        far = set(device.near).difference(cores)
        if far:
            raise InputError(f"near: found core {min(far)}, expected cores of the node", where=place)
        near = tuple(sorted(set(device.near) - given))
        hosted = tuple(device.cores)
        add_devices(device.kind, device.model, hosted, device.memory, device.count, near, device.mps)
    _check_unique(hosts, "devices: cores", where)
    links = _read_links(entry, devices, where)
    if links:
        devices = [replace(device, links=tuple(links.get(d, ()))) for d, device in enumerate(devices)]
    if not pool and not devices:
        raise InputError("found a node without CPUs and devices, expected at least one", where=where)
    if entry.host_cpus > len(pool):
        raise InputError(
            f"host_cpus: found {entry.host_cpus}, expected at most the {len(pool)} CPUs of the node's pool",
            where=where,
        )
    return Node(
        name,
        pool,
        tuple(devices),
        entry.memory,
        entry.host_cpus,
        entry.cpu_model,
        tuple(dict.fromkeys(entry.partitions)),
        entry.network_bandwidth,
        entry.gpu_bandwidth,
    )


def _read_links(entry: NodeEntry, devices: Sequence[Device], where: str) -> dict[int, list[tuple[int, int]]]:
    """Of each device the others that are close to it, and how close; the closer of two links counts."""
    places = {device.name: d for d, device in enumerate(devices)}
    closeness: dict[tuple[int, int], int] = {}
    for field, link in (("switch", SWITCH), ("nvlink", NVLINK)):
        for text in getattr(entry, field):
            try:
                names = expand_hostlist(text)
            except InputError as error:
                raise InputError(f"{field}: {error}", where=where) from None
            for name in names:
                if name not in places:
                    known = ", ".join(places) or "none"
                    raise InputError(
                        f"{field}: found {name!r}, expected devices of the node: {known}", where=where
                    )
            if len(names) < 2 or len(set(names)) < len(names):
                raise InputError(
                    f"{field}: found {text!r}, expected two devices or more, each once", where=where
                )
            if len(names) > MOST_JOINED:
                raise InputError(
                    f"{field}: found {len(names)} devices, expected {MOST_JOINED} at most", where=where
                )
            for pair in combinations(sorted(places[name] for name in names), 2):
                closeness[pair] = link
    links: dict[int, list[tuple[int, int]]] = {}
    for (one, other), link in sorted(closeness.items()):
        links.setdefault(one, []).append((other, link))
        links.setdefault(other, []).append((one, link))
    return {d: sorted(found) for d, found in links.items()}


def _check_unique(cores: tuple[int, ...] | list[int], what: str, where: str) -> None:
    if len(set(cores)) < len(cores):
        core = next(core for core, count in Counter(cores).items() if count > 1)
        raise InputError(f"{what}: found core {core} twice, expected each core once", where=where)


# -- writing -------------------------------------------------------------------------------------------

LONGEST_NAME = 200
"""Characters that a cluster file takes for a name."""


def cluster_as_toml(cluster: Cluster) -> str:
    """A cluster file with the same nodes in the same order; alike neighbours share an entry. O(nodes).

    Raises `InputError` for a cluster without nodes.
    """
    if not cluster.nodes:
        raise InputError(f"{cluster.label or 'cluster'}: found no node, expected at least one")
    lines = [f"# {' '.join(cluster.label.split())}"]
    for group in cluster.groups:
        names = [node.name for node in cluster.nodes[group.first : group.first + group.count]]
        for name in _short_hostlists(names):
            entry = {"name": name, **_node_entry(group.node)}
            lines += ["", "[[node]]", *toml_lines(entry, default_values(NodeEntry))]
    return "\n".join(lines) + "\n"


def _short_hostlists(names: list[str]) -> list[str]:
    """Hostlists that are short enough for a name, and keep the order, which breaks ties."""
    together = compress_names(names)
    # Only names that expand to this very order: nodes are known by their index.
    if len(names) == 1 or (len(together) <= LONGEST_NAME and expand_hostlist(together) == names):
        return [together]
    half = len(names) // 2
    return _short_hostlists(names[:half]) + _short_hostlists(names[half:])


def _node_entry(node: Node) -> dict[str, Any]:
    hosts = [core for device in node.devices for core in device.cores]
    cores = sorted({*node.cores, *hosts})
    alike = groupby(
        node.devices,
        key=lambda device: (
            *(device.kind, device.model, device.memory or 0),
            *(len(device.cores), device.near, device.mps),
        ),
    )
    # A count is shorter, and means the same on any machine.
    plain = cores == list(range(len(cores)))
    content: dict[str, Any] = {"cpus": len(cores)} if plain else {"cores": cores}
    content["devices"] = [_device_entry(list(devices)) for _, devices in alike]
    for field, link in (("nvlink", NVLINK), ("switch", SWITCH)):
        groups = _linked_groups(node.devices, link)
        content[field] = [compress_names([node.devices[d].name for d in group]) for group in groups]
    fields = ("memory", "host_cpus", "cpu_model", "partitions", "network_bandwidth", "gpu_bandwidth")
    return content | {field: getattr(node, field) for field in fields}


def _linked_groups(devices: Sequence[Device], link: int) -> list[list[int]]:
    """Devices all of which are so close to each other; every such pair is in a group."""
    pairs = {
        (d, other)
        for d, device in enumerate(devices)
        for other, how in device.links
        if how == link and d < other
    }
    left, groups = set(pairs), []
    while left:
        group = list(min(left))
        for d in range(group[-1] + 1, len(devices)):
            if all((member, d) in pairs for member in group):
                group.append(d)
        left -= set(combinations(group, 2))
        groups.append(group)
    return groups


def _device_entry(devices: Sequence[Device]) -> dict[str, Any]:
    content: dict[str, Any] = {"kind": devices[0].kind, "model": devices[0].model}
    content["cores"] = [core for device in devices for core in device.cores]
    content["memory"] = devices[0].memory
    content["near"] = list(devices[0].near)
    content["mps"] = devices[0].mps
    return {field: value for field, value in content.items() if value} | {"count": len(devices)}
