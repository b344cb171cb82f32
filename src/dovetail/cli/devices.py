"""``dovetail devices``: what this machine has, and why something was not found; or what a cluster has."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from dovetail.cli import options as opt
from dovetail.local.claims import list_holders
from dovetail.local.discovery import Inventory, take_inventory
from dovetail.model import Cluster, Node
from dovetail.model.hostlist import compress_names
from dovetail.plugins import named_backend


@opt.takes_options("devices")
def devices(executor: str, as_json: bool, timeout: float) -> None:
    """Show the cores, GPUs and OpenCL devices of this machine, and why something was not found.

    With --executor slurm, slurm-queue or ray: the nodes of the cluster, as Dovetail sees them.
    """
    if executor != "local":
        _show_cluster(executor, named_backend(executor).discover(), as_json)
        return
    found, using = take_inventory(timeout), list_holders()
    if as_json:
        claims = [{"run": h.uid, "process": h.pid, "user": h.user, "units": sorted(h.units)} for h in using]
        print(json.dumps({**found.as_dict(), "claims": claims}, indent=2))
    else:
        Console(highlight=False, markup=False, emoji=False, soft_wrap=True).print(_device_table(found))
        for line in _device_notes(found):
            print(line)
        for holder in using:
            print(f"in use by {holder.label}: {', '.join(sorted(holder.units))}")


def _show_cluster(executor: str, cluster: Cluster, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                {"executor": executor, "cluster": cluster.label, "nodes": _node_rows(cluster)}, indent=2
            )
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("NODES", "CPUS", "MODEL", "MEMORY", "DEVICES", "PARTITIONS"):
        table.add_column(name, overflow="fold")
    alike: dict[Node, list[str]] = {}
    for node in cluster.nodes:
        alike.setdefault(replace(node, name=""), []).append(node.name)
    for node, names in alike.items():
        counts = Counter(device.device_class for device in node.devices)
        held = ", ".join(f"{count} {device}" for device, count in counts.items())
        closed = cluster.closed
        partitions = ", ".join(f"{name} (by name)" if name in closed else name for name in node.partitions)
        memory = "not limited" if node.memory is None else _format_gigabytes(node.memory)
        table.add_row(compress_names(names), str(node.cpus), node.cpu_model, memory, held, partitions)
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(table)
    print(
        f"{cluster.label}: {len(cluster)} nodes, {cluster.total_cpus} CPUs, {cluster.total_devices} devices"
    )


def _node_rows(cluster: Cluster) -> list[dict[str, object]]:
    return [
        {
            "name": node.name,
            "cpus": node.cpus,
            "cpu_model": node.cpu_model,
            "memory": node.memory,
            "partitions": list(node.partitions),
            "devices": [
                {"kind": d.kind, "model": d.model, "number": d.local, "memory": d.memory}
                for d in node.devices
            ],
        }
        for node in cluster.nodes
    ]


def _device_table(found: Inventory) -> Table:
    cores = found.cores
    measured = any(one.memory_used is not None or one.utilisation is not None for one in found.devices)
    use = ("IN USE", "BUSY") if measured else ()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("KIND", "MODEL", "COUNT OR NUMBER", "MEMORY", *use, "SCHEDULED", "DRIVER"):
        table.add_column(name, overflow="fold")
    usable = f"{len(cores.usable)} of {cores.machine} cores"
    table.add_row(
        "cpu", cores.model or "?", usable, _format_gigabytes(cores.memory), *("" for _ in use), "yes", ""
    )
    for device in found.devices:
        scheduled = "yes" if device.used else "no"
        used = "" if device.memory_used is None else f"{device.memory_used / 1e9:.1f} GB"
        busy = "" if device.utilisation is None else f"{device.utilisation:.0%}"
        shown = (used, busy) if measured else ()
        about = (device.kind, device.model, str(device.number), _format_gigabytes(device.memory))
        table.add_row(*about, *shown, scheduled, device.driver)
    return table


def _device_notes(found: Inventory) -> list[str]:
    lines = [f"cores that may be used: {_format_ranges(found.cores.usable)}"]
    if found.cores.quota is not None:
        lines.append(f"a cgroup limits CPU time to that of {found.cores.quota:g} cores")
    lines += [f"{d.kind} {d.number} ({d.model}): {d.note}" for d in found.devices if d.note]
    for device in found.devices:
        for process in device.processes:
            memory = "" if process.memory is None else f", {_format_gigabytes(process.memory)}"
            lines.append(
                f"on {device.kind} {device.number} ({device.model}): {process.process_label}{memory}"
            )
    lines += [f"{m.probe}: nothing found: {m.reason}" for m in found.missing]
    return lines


def _format_gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size else "?"


def _format_ranges(cores: tuple[int, ...]) -> str:
    """``0-3,8`` for (0, 1, 2, 3, 8)."""
    parts: list[str] = []
    first = 0
    for i, core in enumerate(cores):
        if i + 1 == len(cores) or cores[i + 1] != core + 1:
            parts.append(str(core) if first == i else f"{cores[first]}-{core}")
            first = i + 1
    return ",".join(parts)
