"""Placing of one gang: the nodes on which it starts first, and what it then holds of them.

A *column* of a node is a lane of its CPU pool (the first ``lanes`` columns) or a device. ``ready``: float64,
shape ``(nodes, columns)``, the second at which a column will be free, never before now, and infinite where
there is none. A gang takes from each node ``pool`` lanes and ``count`` devices out of ``eligible`` (bool,
of ``ready``'s shape; lanes are not looked up in it), on nodes that are ``able``. `native/gangs.c`
is the compiled side.
"""

from __future__ import annotations

from dovetail.files.arrays import Bools, Floats, Ints, np
from dovetail.native.library import kernel


def _kth(row: Floats, eligible: Bools, lanes: int, first: int, last: int, k: int) -> float:
    """The k-th smallest (k >= 1) of the lanes or eligible devices from ``first`` to before ``last``."""
    if k == 1:
        least = np.inf
        for c in range(first, last):
            if (c < lanes or eligible[c]) and row[c] < least:
                least = row[c]
        return least
    for c in range(first, last):
        if row[c] == np.inf or not (c < lanes or eligible[c]):
            continue
        before, ties = 0, 0
        for d in range(first, last):
            if d < lanes or eligible[d]:
                if row[d] < row[c]:
                    before += 1
                elif row[d] == row[c]:
                    ties += 1
        # Ties count as one stretch of places: with equal times no column would be the k-th alone.
        if before < k <= before + ties:
            return float(row[c])
    return np.inf


def node_ready(row: Floats, lanes: int, pool: int, count: int, eligible: Bools) -> float:
    """When a node can give a share: so many lanes and devices."""
    at = -np.inf
    if pool:
        at = _kth(row, eligible, lanes, 0, lanes, pool)
    if count:
        at = max(at, _kth(row, eligible, lanes, lanes, len(row), count))
    return at


def _others_busy(row: Floats, lanes: int, pool: int, count: int, eligible: Bools, start: float) -> float:
    """The summed ready times of what a share leaves of the node; -1 where it leaves nothing."""
    total = 0.0
    left = 0
    cpus = 0
    devices = 0
    for c in range(len(row)):
        if row[c] == np.inf:
            continue
        if c < lanes and row[c] <= start and cpus < pool:
            cpus += 1
        elif c >= lanes and eligible[c] and row[c] <= start and devices < count:
            devices += 1
        else:
            total += row[c]
            left += 1
    return total if left else -1.0


def _insert(chosen: Ints, keys: Floats, found: int, wanted: int, node: int, key: float) -> int:
    """Keep the ``wanted`` nodes of the smallest keys, sorted, the earlier first where equal; how many."""
    if found == wanted and key >= keys[wanted - 1]:
        return found
    k = found if found < wanted else wanted - 1
    while k > 0 and keys[k - 1] > key:
        keys[k] = keys[k - 1]
        chosen[k] = chosen[k - 1]
        k -= 1
    keys[k] = key
    chosen[k] = node
    return min(found + 1, wanted)


def choose(
    ready: Floats,
    lanes: int,
    pool: int,
    count: int,
    eligible: Bools,
    at: Floats,
    start: float,
    wanted: int,
    chosen: Ints,
    keys: Floats,
) -> int:
    """Choose, of the nodes that are ready by ``start``, those that break up least; how many were found.

    They are the nodes whose other columns are busy longest (where there are none: the latest ready), ties to
    the lowest index. ``at`` is when each node can give its share. O(nodes · wanted).
    """
    found = 0
    for node in range(ready.shape[0]):
        if at[node] > start:
            continue
        busy = _others_busy(ready[node], lanes, pool, count, eligible[node], start)
        found = _insert(chosen, keys, found, wanted, node, -(at[node] if busy < 0 else busy))
    return found


compiled_choose = kernel(choose)


def place(
    ready: Floats,
    lanes: int,
    pool: int,
    count: int,
    eligible: Bools,
    able: Bools,
    wanted: int,
    packed: bool,
    chosen: Ints,
    keys: Floats,
    at: Floats,
) -> float:
    """Choose nodes for a gang; writes them to ``chosen[:wanted]``, returns its start (infinite: nowhere).

    The start is the earliest possible. The nodes are those that are ready first; or, ``packed``, of all
    that are ready by then, those that `choose` takes. Ties go to the lowest index. ``keys`` is scratch of at
    least ``wanted``, ``at`` of all nodes.
    O(nodes · wanted).
    """
    found = 0
    for node in range(ready.shape[0]):
        at[node] = np.inf
        if not able[node]:
            continue
        at[node] = node_ready(ready[node], lanes, pool, count, eligible[node])
        if at[node] < np.inf:
            found = _insert(chosen, keys, found, wanted, node, at[node])
    if found < wanted:
        return np.inf
    start = keys[wanted - 1]
    # A second pass, so that idle nodes stay whole for wide gangs.
    if packed:
        choose(ready, lanes, pool, count, eligible, at, start, wanted, chosen, keys)
    return float(start)


compiled_place = kernel(place)


def occupy(
    ready: Floats,
    lanes: int,
    pool: int,
    count: int,
    eligible: Bools,
    chosen: Ints,
    wanted: int,
    start: float,
    end: float,
) -> None:
    """Let a gang hold its share of the chosen nodes until ``end``: of the ready columns the first ones."""
    for k in range(wanted):
        node = chosen[k]
        cpus = 0
        devices = 0
        for c in range(ready.shape[1]):
            if ready[node, c] > start:
                continue
            if c < lanes and cpus < pool:
                ready[node, c] = end
                cpus += 1
            elif c >= lanes and eligible[node, c] and devices < count:
                ready[node, c] = end
                devices += 1
