"""``sinfo``: the service's partitions and nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dovetail_slurm.shims.columns import Field, Layout, by_letters, by_names
from dovetail_slurm.shims.jobs import MEBIBYTE, PARTITION
from dovetail_slurm.shims.options import Given, Options, Wrong, has_option, last_value, listed_values
from dovetail_slurm.shims.service import Service
from dovetail_slurm.shims.times import format_short

OPTIONS = Options(
    "sinfo",
    "all!a .clusters=M .cluster= dead!d exact!e .federation!F Format=O format=o help! hide! iterate=i json! "
    "list-reasons!R .local! long!l Node!N nodes=n noheader!h noconvert! partition=p reservation!T "
    "responding!r sort=S states=t summarize!s usage! .verbose!v .yaml! version!V",
)
USUAL = "%9P %.5a %.10l %.6D %.6t %N"
LONG = "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
SUMMARY = "%9P %.5a %.10l %.16F %N"
NODES = "%9N %.6D %.9P %6t"
LONG_NODES = "%9N %.6D %.9P %.11T %.4c %.8z %.6m %.8d %.6w %.8f %20E"
REASONS = "%20E %9u %19H %N"


class Partition(NamedTuple):
    """A partition: its nodes, whether jobs go there that name none, and limits in seconds and nodes."""

    name: str
    nodes: tuple[Mapping[str, Any], ...]
    default: bool
    longest: float | None
    most_nodes: int | None
    walltime: float | None = None
    up: bool = True


class Group(NamedTuple):
    """Nodes of a partition that share a line."""

    partition: Partition
    nodes: tuple[Mapping[str, Any], ...]


def list_partitions(service: Service) -> list[Partition]:
    """The partitions; one of all nodes where the service has none."""
    nodes = service.get("/api/v1/nodes")["nodes"]
    info = service.get("/api/v1/info")
    known = {one["name"]: one for one in info.get("partitions", ())}
    # In the order of the nodes, as partitions have no other order in the service.
    names = list(dict.fromkeys(name for node in nodes for name in node["partitions"]))
    # Only a pause of the whole queue closes partitions; one of a kind of device leaves the others open.
    up = "all" not in info["paused"]
    if not names:
        return [Partition(PARTITION, tuple(nodes), True, None, None, None, up)]
    found = []
    for name in names:
        about = known.get(name, {})
        mine = tuple(node for node in nodes if name in node["partitions"])
        found.append(
            Partition(
                name,
                mine,
                bool(about.get("default")),
                about.get("longest"),
                about.get("most_nodes"),
                about.get("walltime"),
                up,
            )
        )
    return found


def state_of(node: Mapping[str, Any]) -> str:
    """Slurm's word for how a node stands."""
    if node["state"] == "lost":
        return "down"
    if node["state"] == "drained":
        return "draining" if node["jobs"] else "drained"
    devices = [device for device in node["devices"] if device["jobs"]]
    # By CPUs alone, as Slurm does: free GPUs are of no use without a core.
    if node["cpus_used"] >= node["cpus"]:
        return "allocated"
    return "mixed" if node["cpus_used"] or devices or node["jobs"] else "idle"


SHORT = {
    "allocated": "alloc",
    "mixed": "mix",
    "idle": "idle",
    "down": "down",
    "drained": "drain",
    "draining": "drng",
}


def _node_names(group: Group) -> str:
    from dovetail.model.hostlist import compress_names

    return compress_names([node["name"] for node in group.nodes])


def _count_states(nodes: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    states = [state_of(node) for node in nodes]
    busy = sum(state in ("allocated", "mixed") for state in states)
    idle = states.count("idle")
    return busy, idle, len(states) - busy - idle


def _cpu_counts(group: Group) -> str:
    used = idle = other = 0
    for node in group.nodes:
        mine = int(node["cpus_used"])
        used += mine
        # Slurm counts free CPUs of such nodes as "other", since no job can have them.
        if state_of(node) in ("down", "drained", "draining"):
            other += node["cpus"] - mine
        else:
            idle += node["cpus"] - mine
    return f"{used}/{idle}/{other}/{used + idle + other}"


def gres_of(node: Mapping[str, Any]) -> str:
    """``gpu:a100:2``, or ``(null)``."""
    counts: dict[str, int] = {}
    for device in node["devices"]:
        kind = device["kind"] + (f":{device['model'].replace(' ', '_').lower()}" if device["model"] else "")
        counts[kind] = counts.get(kind, 0) + 1
    return ",".join(f"{kind}:{count}" for kind, count in counts.items()) or "(null)"


def _least_value(values: Sequence[int]) -> str:
    return f"{min(values)}{'+' if max(values) > min(values) else ''}" if values else "0"


def memory_of(node: Mapping[str, Any]) -> int:
    """MiB; 1 where it is not known, as Slurm has it."""
    return int(node["memory"] or MEBIBYTE) // MEBIBYTE


FIELDS: Sequence[Field] = (
    Field("P", "partition", "PARTITION", lambda g: g.partition.name + "*" * g.partition.default),
    Field("R", "partitionname", "PARTITION", lambda g: g.partition.name),
    Field("a", "available", "AVAIL", lambda g: "up" if g.partition.up else "down"),
    Field(
        "l",
        "time",
        "TIMELIMIT",
        lambda g: "infinite" if g.partition.longest is None else format_short(g.partition.longest),
    ),
    Field(
        "L",
        "defaulttime",
        "DEFAULTTIME",
        lambda g: "n/a" if g.partition.walltime is None else format_short(g.partition.walltime),
    ),
    Field("D", "nodes", "NODES", lambda g: str(len(g.nodes))),
    Field("t", "statecompact", "STATE", lambda g: SHORT[state_of(g.nodes[0])] if g.nodes else "n/a"),
    Field("T", "statelong", "STATE", lambda g: state_of(g.nodes[0]) if g.nodes else "n/a"),
    Field("N", "nodelist", "NODELIST", _node_names),
    Field("n", "nodehost", "HOSTNAMES", _node_names),
    Field("o", "nodeaddr", "NODE_ADDR", _node_names),
    Field("c", "cpus", "CPUS", lambda g: _least_value([node["cpus"] for node in g.nodes])),
    Field("C", "cpusstate", "CPUS(A/I/O/T)", _cpu_counts),
    Field("m", "memory", "MEMORY", lambda g: _least_value([memory_of(node) for node in g.nodes])),
    Field("e", "freemem", "FREE_MEM", lambda g: "N/A"),
    Field("O", "cpusload", "CPU_LOAD", lambda g: "N/A"),
    Field("G", "gres", "GRES", lambda g: gres_of(g.nodes[0]) if g.nodes else "(null)"),
    Field("f", "features", "AVAIL_FEATURES", lambda g: "(null)"),
    Field("b", "features_act", "ACTIVE_FEATURES", lambda g: "(null)"),
    Field(
        "F",
        "nodeaiot",
        "NODES(A/I/O/T)",
        lambda g: "/".join(map(str, (*_count_states(g.nodes), len(g.nodes)))),
    ),
    Field("A", "nodeai", "NODES(A/I)", lambda g: "/".join(map(str, _count_states(g.nodes)[:2]))),
    Field("z", "socketcorethread", "S:C:T", lambda g: f"{g.nodes[0]['cpus']}:1:1" if g.nodes else "0:0:0"),
    Field("X", "sockets", "SOCKETS", lambda g: _least_value([node["cpus"] for node in g.nodes])),
    Field("Y", "cores", "CORES", lambda g: "1"),
    Field("Z", "threads", "THREADS", lambda g: "1"),
    Field("d", "disk", "TMP_DISK", lambda g: "0"),
    Field("w", "weight", "WEIGHT", lambda g: "1"),
    Field(
        "E",
        "reason",
        "REASON",
        lambda g: "none" if not g.nodes or g.nodes[0]["state"] == "up" else g.nodes[0]["state"],
    ),
    Field("u", "user", "USER", lambda g: "Unknown"),
    Field("U", "userlong", "USER", lambda g: "Unknown"),
    Field("H", "timestamp", "TIMESTAMP", lambda g: "Unknown"),
    Field("s", "size", "JOB_SIZE", lambda g: f"1-{g.partition.most_nodes or 'infinite'}"),
    Field("r", "root", "ROOT", lambda g: "no"),
    Field("h", "oversubscribe", "OVERSUBSCRIBE", lambda g: "NO"),
    Field("g", "groups", "GROUPS", lambda g: "all"),
    Field("p", "prioritytier", "PRIO_TIER", lambda g: "1"),
    Field("I", "priorityjobfactor", "PRIO_JOB_FACTOR", lambda g: "1"),
    Field("M", "preemptmode", "PREEMPT_MODE", lambda g: "OFF"),
    Field("v", "version", "VERSION", lambda g: "22.05.8"),
    Field("V", "cluster", "CLUSTER", lambda g: "dovetail"),
)


def run(words: list[str], place: str) -> int:
    """Print partitions, or nodes; exit status 1 for what is wrong."""
    given, rest = OPTIONS.read(words)
    if has_option(given, "help", "usage"):
        print(f"Usage: sinfo [OPTIONS]\n{' '.join(f'--{name}' for name in OPTIONS.values)}")
        return 0
    if rest:
        raise Wrong(
            f"sinfo: error: Unrecognized option: {rest[0]}", 'Try "sinfo --help" for more information'
        )
    layout = _choose_layout(given)
    found = list_partitions(Service("sinfo", place))
    if has_option(given, "json"):
        import json

        nodes = {node["name"]: node for one in found for node in one.nodes}
        print(
            json.dumps(
                {"meta": {}, "errors": [], "nodes": [_node_json(node) for node in nodes.values()]}, indent=2
            )
        )
        return 0
    if has_option(given, "long") and not has_option(given, "noheader"):
        print(time.strftime("%a %b %d %H:%M:%S %Y"))
    if not has_option(given, "noheader"):
        print(
            layout.header_line().rstrip()
            if "STATE NODELIST" in layout.header_line()
            else layout.header_line()
        )
    for group in _group_nodes(given, found):
        print(layout.item_line(group))
    return 0


def _node_json(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": node["name"],
        "state": state_of(node),
        "cpus": node["cpus"],
        "alloc_cpus": node["cpus_used"],
        "real_memory": memory_of(node),
        "gres": gres_of(node).replace("(null)", ""),
        "partitions": node["partitions"] or [PARTITION],
    }


def _choose_layout(given: Sequence[Given]) -> Layout:
    own = next((one for one in reversed(given) if one.name in ("format", "Format")), None)
    if own is not None and own.name == "Format":
        return by_names(own.value or "", FIELDS, "sinfo")
    if own is not None:
        return by_letters(own.value or "", FIELDS, "sinfo")
    if has_option(given, "list-reasons"):
        return by_letters(REASONS, FIELDS, "sinfo")
    if has_option(given, "summarize"):
        return by_letters(SUMMARY, FIELDS, "sinfo")
    if has_option(given, "Node"):
        return by_letters(LONG_NODES if has_option(given, "long") else NODES, FIELDS, "sinfo")
    usual = LONG if has_option(given, "long") else os.environ.get("SINFO_FORMAT", USUAL)
    return by_letters(usual, FIELDS, "sinfo")


def _group_nodes(given: Sequence[Given], found: Sequence[Partition]) -> list[Group]:
    wanted = listed_values(given, "partition")
    states = [one.lower() for one in listed_values(given, "states")]
    nodes = last_value(given, "nodes")
    chosen: set[str] | None = None
    if nodes:
        from dovetail.model.hostlist import expand_hostlist

        chosen = set(expand_hostlist(nodes))
    text = (last_value(given, "format") or "") if has_option(given, "format") else ""
    # A format without a state groups all nodes of a partition on one line.
    by_state = not has_option(given, "summarize") and (
        not text or any(f"%{x}" in _without_widths(text) for x in "tTE")
    )
    groups: list[Group] = []
    for one in found:
        if wanted and one.name not in wanted:
            continue
        mine = [node for node in one.nodes if chosen is None or node["name"] in chosen]
        mine = [node for node in mine if _in_states(state_of(node), states)]
        if has_option(given, "dead"):
            mine = [node for node in mine if node["state"] == "lost"]
        if has_option(given, "responding"):
            mine = [node for node in mine if node["state"] != "lost"]
        if has_option(given, "list-reasons"):
            mine = [node for node in mine if node["state"] != "up"]
        if has_option(given, "Node"):
            groups += [Group(one, (node,)) for node in mine]
        elif by_state:
            kinds: dict[str, list[Mapping[str, Any]]] = {}
            for node in mine:
                kinds.setdefault(state_of(node), []).append(node)
            groups += [Group(one, tuple(kind)) for kind in kinds.values()]
        elif mine:
            groups.append(Group(one, tuple(mine)))
    return groups


def _without_widths(text: str) -> str:
    """A format without widths."""
    return "".join(sign for sign in text if not sign.isdecimal() and sign != ".")


def _in_states(state: str, wanted: Sequence[str]) -> bool:
    short_form = SHORT[state]
    # Slurm's words for whole groups of states, which `startswith` alone would not find.
    near = {"drain": ("drained", "draining"), "alloc": ("allocated",), "mix": ("mixed",)}
    return not wanted or any(
        one in (state, short_form, "all") or state in near.get(one, ()) or state.startswith(one)
        for one in wanted
    )
