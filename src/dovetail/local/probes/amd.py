"""Lists AMD GPUs from the kernel's KFD topology: what ROCm itself enumerates, in its order.

With ``--watch`` every line on standard input is answered with one JSON line: what the devices hold now.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from dovetail.local.probes.nvidia import numbers_in

AMD = 4098
XGMI = 11
"""KFD's type of a link by which GPUs reach each other's memory: AMD's NVLink."""


def read_properties(path: Path) -> dict[str, int]:
    """A node's ``name value`` lines."""
    pairs = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def probe(root: Path = Path("/"), places: bool = True) -> dict[str, Any]:
    """Devices, or the reason why there are none. ``root`` stands for ``/`` in tests.

    ``places``: also what is near each, which does not change.
    """
    topology = root / "sys/class/kfd/kfd/topology/nodes"
    if not topology.is_dir():
        return {"devices": [], "why": "the kernel driver amdgpu (KFD) is not loaded"}
    devices: list[dict[str, Any]] = []
    nodes: dict[int, dict[str, Any]] = {}
    for node in sorted(topology.iterdir(), key=lambda p: int(p.name)):
        about = read_properties(node / "properties")
        if not about.get("simd_count") or about.get("vendor_id") != AMD:
            continue  # a CPU
        devices.append(describe_gpu(root, node, about, len(devices)))
        nodes[int(node.name)] = devices[-1]
        if places:
            devices[-1] |= near_of(root, about)
    if places:
        link_devices(topology, nodes)
    return {"devices": devices, "why": "" if devices else "the KFD topology lists no GPU"}


def describe_gpu(root: Path, node: Path, about: dict[str, int], index: int) -> dict[str, Any]:
    """One GPU."""
    version = about.get("gfx_target_version", 0)
    target = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
    name = root / f"sys/class/drm/renderD{about.get('drm_render_minor', -1)}/device/product_name"
    model = name.read_text(encoding="utf-8").strip() if name.is_file() else ""
    memory = 0
    for bank in (node / "mem_banks").glob("*/properties"):
        found = read_properties(bank)
        if found.get("heap_type") in (1, 2):  # frame buffer, public and private
            memory += found.get("size_in_bytes", 0)
    device: dict[str, Any] = {"index": index, "model": f"AMD {model or target}".replace("AMD AMD", "AMD")}
    device |= {"memory": memory, "driver": target, **state_of(root, node, about)}
    if about.get("unique_id"):
        device["uuid"] = f"GPU-{about['unique_id']:016x}"  # as ROCm calls it
    if not os.access(root / "dev/kfd", os.R_OK | os.W_OK):
        device["unusable"] = "/dev/kfd cannot be opened (is this user in the groups render and video?)"
    return device


def near_of(root: Path, about: dict[str, int]) -> dict[str, Any]:
    """The NUMA node of a GPU and its cores, where they are known."""
    card = root / f"sys/class/drm/renderD{about.get('drm_render_minor', -1)}/device"
    numa = number_in(card / "numa_node")
    found: dict[str, Any] = {} if numa is None or numa < 0 else {"numa": numa}  # -1: the machine has none
    with suppress(OSError, ValueError):
        found["near"] = numbers_in((card / "local_cpulist").read_text(encoding="ascii"))
    return found


def link_devices(topology: Path, nodes: dict[int, dict[str, Any]]) -> None:
    """Note of each GPU which others are joined to it directly. ``nodes``: the GPUs by their number in KFD."""
    # Parts of one GPU have one number of the maker's: it names none of them.
    named = Counter(device.get("uuid") for device in nodes.values())
    for device in nodes.values():
        if named[device.get("uuid")] > 1:
            device.pop("uuid", None)
    for number, device in nodes.items():
        for link in (topology / str(number) / "io_links").glob("*/properties"):
            about = read_properties(link)
            other = nodes.get(about.get("node_to", -1), {}).get("uuid")
            if about.get("type") == XGMI and other and "uuid" in device:
                device.setdefault("links", {})[other] = "xgmi"


def state_of(root: Path, node: Path, about: dict[str, int]) -> dict[str, Any]:
    """Bytes of memory in use and utilisation from 0 to 1, where they are known, and compute processes."""
    card = root / f"sys/class/drm/renderD{about.get('drm_render_minor', -1)}/device"
    busy = number_in(card / "gpu_busy_percent")
    number = number_in(node / "gpu_id")
    processes = [
        {"pid": int(folder.name), "memory": held}
        for folder in (root / "sys/class/kfd/kfd/proc").glob("[0-9]*")
        if (held := number_in(folder / f"vram_{number}"))
    ]
    return {
        "memory_used": number_in(card / "mem_info_vram_used"),
        "utilisation": None if busy is None else busy / 100,
        "processes": processes,
    }


def number_in(path: Path) -> int | None:
    """The number in a file of the kernel; ``None`` where there is none."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def watch() -> None:
    """Answer every line of standard input until it ends."""
    for _ in sys.stdin:
        began = time.monotonic()
        devices = probe(places=False)["devices"]
        for device in devices:
            if "unusable" in device:
                device["fault"] = device.pop("unusable")
            device["memory_used"] = device["memory_used"] or 0
            del device["model"], device["driver"]
        print(json.dumps({"devices": devices, "took": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    if "--watch" in sys.argv:
        watch()
    else:
        print(json.dumps(probe(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("/"))))
