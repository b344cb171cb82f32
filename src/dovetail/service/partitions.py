"""Partitions of a service: names for some of its nodes, with limits (``serve --partitions FILE``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from dovetail.errors import InputError
from dovetail.files.fields import Entry, Name, duration_check, validate_data, whole_number
from dovetail.files.sentences import file_name, suggest_closest
from dovetail.files.toml import read_toml
from dovetail.model import Cluster, Seconds
from dovetail.model.hostlist import expand_hostlist
from dovetail.records import dataclass
from dovetail.spec.jobs import JobSpec
from dovetail.spec.values import MOST_NODES

Limit = Annotated[float, BeforeValidator(duration_check(above_zero=True))]
Nodes = Annotated[int, BeforeValidator(whole_number(1, MOST_NODES))]


class PartitionEntry(Entry):
    """One partition."""

    name: Name = Field(description="its name, as --partition has it")
    nodes: Name | None = Field(default=None, description="a hostlist such as n[0-3]; default: all nodes")
    devices: list[Name] = Field(
        default_factory=list, description="of these nodes only those that have devices of one of these kinds"
    )
    default: bool = Field(default=False, description="jobs that name no partition go there")
    walltime: Limit | None = Field(default=None, description="seconds; of jobs that give none")
    longest: Limit | None = Field(default=None, description="seconds; walltimes above it are refused")
    most_nodes: Nodes | None = Field(default=None, description="nodes of one job")


class PartitionFile(Entry):
    """A file of partitions."""

    partition: list[PartitionEntry] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Partition:
    """A name for nodes, and what jobs there may be. Walltimes are in seconds; ``None``: not limited."""

    name: str
    nodes: str | None = None
    devices: tuple[str, ...] = ()
    default: bool = False
    walltime: Seconds | None = None
    longest: Seconds | None = None
    most_nodes: int | None = None


def read_partitions(path: str) -> tuple[Partition, ...]:
    """The partitions of a TOML file. Raises `InputError`."""
    data = validate_data(PartitionFile, read_toml(path, "a file of partitions"), file_name(path))
    found = tuple(
        Partition(**{**entry.model_dump(), "devices": tuple(entry.devices)}) for entry in data.partition
    )
    for number, one in enumerate(found):
        if one.name in [other.name for other in found[:number]]:
            raise InputError(
                f"partition: found {one.name!r} twice, expected each name once", where=file_name(path)
            )
    if sum(one.default for one in found) > 1:
        raise InputError("default: found several partitions, expected one", where=file_name(path))
    return found


def with_partitions(cluster: Cluster, partitions: Iterable[Partition]) -> Cluster:
    """The cluster whose nodes belong to these partitions, beside those of its own. Raises `InputError`."""
    named: dict[str, list[str]] = {}
    known = {node.name: node for node in cluster.nodes}
    for one in partitions:
        names = list(known) if one.nodes is None else expand_hostlist(one.nodes)
        for name in names:
            if name not in known:
                where = f"partition {one.name!r}: nodes"
                raise InputError(f"found {name!r}{suggest_closest(name, list(known))}", where=where)
        kinds = set(one.devices)
        there = [name for name in names if not kinds or kinds & {d.kind for d in known[name].devices}]
        if not there:
            raise InputError(f"partition {one.name!r}: found no node with {' or '.join(one.devices)}")
        for name in there:
            named.setdefault(name, []).append(one.name)
    nodes = tuple(
        replace(node, partitions=tuple(dict.fromkeys((*node.partitions, *named.get(node.name, ())))))
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)


def in_partition(spec: JobSpec, partitions: Mapping[str, Partition], where: str) -> JobSpec:
    """The job with what its partition gives, checked against its limits. Raises `InputError`."""
    if not partitions:
        return spec
    if spec.partition is None:
        default = next((one.name for one in partitions.values() if one.default), None)
        if default is None:
            return spec
        spec = replace(spec, partition=default)
    one = next((partitions[name] for name in str(spec.partition).split(",") if name in partitions), None)
    if one is None:
        return spec  # refused by name, or a partition of the cluster's own
    changed: dict[str, Any] = {}
    if spec.walltime is None and (one.walltime or one.longest):
        changed["walltime"] = one.walltime or one.longest
    found = changed.get("walltime", spec.walltime)
    if one.longest is not None and found is not None and found > one.longest:
        most = f"expected at most {one.longest:g} in partition {one.name}"
        raise InputError(f"walltime: found {found:g} s, {most}", where=where)
    if one.most_nodes is not None and (spec.nodes or 1) > one.most_nodes:
        most = f"expected at most {one.most_nodes} in partition {one.name}"
        raise InputError(f"nodes: found {spec.nodes}, {most}", where=where)
    return replace(spec, **changed) if changed else spec
