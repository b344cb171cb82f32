"""What a map has noted of its items in its run folder, for ``dovetail runs`` and ``explain``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dovetail.process.processes import is_alive, standing_of

FILE = "map.json"


def read_items(folder: Path) -> dict[str, Any] | None:
    """The note; ``None`` where the folder is no map's, or holds none that can be read.

    ``alive``: the map's Dovetail has not ended, or is on another host, which alone can see whether it has.
    """
    try:
        found = json.loads((folder / FILE).read_bytes())
        alive = found.pop("boot"), found.pop("pid")
        place = {name: found.pop(name) for name in ("host", "boot_id", "ns") if name in found}
        standing = standing_of(place)
        lives = standing == "here" and alive[0] is not None and is_alive(alive[1], alive[0])
        return {**found, "alive": lives or standing in ("host", "namespace")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_alive_map(folder: Path) -> bool:
    """Whether the Dovetail of a map lives."""
    found = read_items(folder)
    return found is not None and found["alive"] is True


def worker_sentences(items: Mapping[str, Any]) -> Iterator[str]:
    """Of each kind of worker: what it has done, what failed on it, why it was suspended."""
    for kind in dict.fromkeys((*items["tasks"], *items["failed_on"], *items["suspended"])):
        parts = [f"{items['tasks'].get(kind, 0)} items"]
        if kind in items["mean_seconds"]:
            parts[0] += f" of {items['mean_seconds'][kind]:.3g} s"
        if kind in items["failed_on"]:
            parts.append(f"{items['failed_on'][kind]} tries failed")
        if kind in items["suspended"]:
            parts.append(
                f"suspended for {items['suspended'][kind]:.3g} s, since it failed where others succeed"
            )
        why = f" ({items['reasons'][kind]})" if kind in items["reasons"] else ""
        yield f"{kind}: {', '.join(parts)}{why}"
    more = [f"{items[name]} {name}" for name in ("retried", "duplicated") if items[name]]
    if more:
        yield ", ".join(more)
    for one in items["failed"]:
        yield f"item {one['index']} failed: {one['reason']}"
