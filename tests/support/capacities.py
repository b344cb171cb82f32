"""What two states of one cluster have in common, for oracles."""

from __future__ import annotations

from dovetail.engine.capacity.free import FreeCapacity, Layout


def meet(layout: Layout, one: FreeCapacity, other: FreeCapacity) -> FreeCapacity:
    """On every node only what is free in both."""
    met = FreeCapacity(layout, {})
    for node in range(len(layout.cluster)):
        met.set_state(node, layout.common_state(one.state_of(node), other.state_of(node)))
    return met
