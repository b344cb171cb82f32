"""Compiled inner loops of the pack heuristics; ``packing_plain`` holds the readable twin of each.

Every kernel takes ``times``: float64, shape ``(n, p)``, seconds; ``times[i, j - 1]`` is the time of
task ``i`` on ``j`` processors, non-increasing along a row.  Kernels allocate little and take their
random numbers as arrays, so that a kernel and its twin can be held equal draw by draw.

Kernels that call one another live in one file: numba's cache follows changes of the file alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(cache=True)
def one_pack(times: Floats, tasks: Ints, size: int, sigma: Ints, current: Floats) -> float:
    """Algorithm 1 for ``tasks[:size]``: write the processors to ``sigma[:size]``, return the cost.

    One processor each; every further one goes to the longest task (ties: the earlier in ``tasks``).
    O((p - size) size), which for pack sizes beats a heap.  ``current`` is scratch.
    """
    p = times.shape[1]
    for a in range(size):
        sigma[a] = 1
        current[a] = times[tasks[a], 0]
    for _ in range(p - size):
        # A scan instead of a heap: packs hold few tasks.
        longest = 0
        for a in range(1, size):
            if current[a] > current[longest]:
                longest = a
        # The longest gets the next processor: only it can lower the cost of the pack.
        sigma[longest] += 1
        current[longest] = times[tasks[longest], sigma[longest] - 1]
    cost = 0.0
    for a in range(size):
        cost = max(cost, current[a])
    return cost


@njit(cache=True)
def pack_cost(times: Floats, tasks: Ints, size: int, sigma: Ints, current: Floats) -> float:
    """The cost that Algorithm 1 reaches: from ``sigma`` on, or by bisection for two tasks.

    Stops as soon as the cost is known.  Changes ``sigma``, which must be a state on the greedy path:
    all ones, or for some time T the least processors with which each task takes at most T.
    """
    p = times.shape[1]
    left = p
    for a in range(size):
        left -= sigma[a]
        current[a] = times[tasks[a], sigma[a] - 1]
    if size == 1:
        # Alone it takes the whole machine, as times never grow with processors.
        return float(times[tasks[0], p - 1])
    if size == 2:
        # One time falls and the other grows with the first's share: the best is where they cross.
        low = 1
        high = p - 1
        while low < high:
            share = (low + high) // 2
            if times[tasks[0], share - 1] <= times[tasks[1], p - share - 1]:
                high = share
            else:
                low = share + 1
        cost = max(float(times[tasks[0], low - 1]), float(times[tasks[1], p - low - 1]))
        # The crossing lies between two shares: one of them is on each side of it.
        if low > 1:
            cost = min(cost, max(float(times[tasks[0], low - 2]), float(times[tasks[1], p - low])))
        return cost
    while True:
        longest = 0
        for a in range(1, size):
            if current[a] > current[longest]:
                longest = a
        # At its shortest the longest task cannot be helped, whatever is left.
        if left == 0 or current[longest] == times[tasks[longest], p - 1]:
            return float(current[longest])
        left -= 1
        sigma[longest] += 1
        current[longest] = times[tasks[longest], sigma[longest] - 1]


@njit(cache=True)
def fill_packs(times: Floats, pack_of: Ints, packs: int, sigma: Ints, costs: Floats) -> float:
    """Algorithm 1 in every pack: writes the processors of each task and the cost of each pack.

    Task ``i`` is in pack ``pack_of[i]``; returns the sum of the costs.  O(n p).
    """
    n = times.shape[0]
    # Counted first, then placed: all packs' tasks in one array, without lists.
    first = np.zeros(packs + 1, np.int64)  # where a pack's tasks begin in ``tasks``
    for i in range(n):
        first[pack_of[i] + 1] += 1
    for b in range(packs):
        first[b + 1] += first[b]
    tasks = np.empty(n, np.int64)
    filled = first.copy()
    for i in range(n):
        tasks[filled[pack_of[i]]] = i
        filled[pack_of[i]] += 1
    given = np.empty(n, np.int64)
    current = np.empty(n)
    total = 0.0
    for b in range(packs):
        size = first[b + 1] - first[b]
        members = tasks[first[b] : first[b + 1]]
        costs[b] = one_pack(times, members, size, given, current)
        total += costs[b]
        for a in range(size):
            sigma[members[a]] = given[a]
    return total


@njit(cache=True)
def make_pack(times: Floats, order: Ints, sigma: Ints, k: int, pack_of: Ints) -> float:
    """Algorithm 2: first fit in ``order``; writes ``pack_of``, returns the cost under ``sigma``.

    ``order`` lists the tasks by non-increasing ``times[i, sigma[i] - 1]``, so the first task of a pack
    is its longest.  O(n * packs).
    """
    n, p = times.shape
    free = np.empty(n, np.int64)
    count = np.empty(n, np.int64)
    packs = 0
    first_open = 0  # packs before it are full and never looked at again
    cost = 0.0
    for position in range(n):
        i = order[position]
        need = sigma[i]
        # Full packs in front are skipped for good, which makes first fit nearly linear.
        b = first_open
        while b < packs and (free[b] < need or count[b] >= k):
            b += 1
        # In this order the first task of a pack is its longest, so it alone adds to the cost.
        if b == packs:
            free[b] = p
            count[b] = 0
            packs += 1
            cost += times[i, need - 1]
        free[b] -= need
        count[b] += 1
        pack_of[i] = b
        while first_open < packs and (free[first_open] == 0 or count[first_open] >= k):
            first_open += 1
    return cost


@njit(cache=True)
def pack_approx(times: Floats, order: Ints, k: int, best_pack_of: Ints, best_sigma: Ints) -> float:
    """Algorithm 3: writes the partition and processors of the cheapest step, returns its cost.

    ``order`` lists the tasks by non-increasing time on one processor, ties by index.  At most
    n(p-1)+1 steps of O(n * packs).
    """
    n, p = times.shape
    # A copy, since the order is kept sorted in place from step to step.
    order = order.copy()
    sigma = np.ones(n, np.int64)
    pack_of = np.empty(n, np.int64)
    # Total work is kept up to date, not summed anew, at each of up to n p steps.
    work = 0.0
    for i in range(n):
        work += times[i, 0]
    best = np.inf
    while True:
        cost = make_pack(times, order, sigma, k, pack_of)
        if cost < best:
            best = cost
            best_pack_of[:] = pack_of
            best_sigma[:] = sigma
        j = order[0]
        longest = times[j, sigma[j] - 1]
        # Below this the longest task is no longer the bottleneck: the work is (the stop of Algorithm 3).
        if work / p > longest or sigma[j] == p:
            return best
        work -= sigma[j] * longest
        sigma[j] += 1
        work += sigma[j] * times[j, sigma[j] - 1]
        _reinsert_head(times, order, 0, n, sigma)


@njit(cache=True)
def _reinsert_head(times: Floats, order: Ints, head: int, n: int, sigma: Ints) -> None:
    """Move ``order[head]``, whose time has shrunk, to its place (ties by lowest index)."""
    task = order[head]
    time = times[task, sigma[task] - 1]
    position = head
    while position + 1 < n:
        other = order[position + 1]
        other_time = times[other, sigma[other] - 1]
        if other_time > time or (other_time == time and other < task):
            order[position] = other
            position += 1
        else:
            break
    order[position] = task


@njit(cache=True)
def pack_by_pack(times: Floats, start_order: Ints, k: int, epsilon: float, pack_of: Ints) -> float:
    """pack-by-pack(epsilon): writes ``pack_of``, returns the cost after Algorithm 1 in every pack.

    ``start_order`` lists the tasks by non-increasing time on one processor, ties by index.  The list
    keeps times beside tasks, so that the scans run over contiguous memory.
    """
    n, p = times.shape
    order = start_order.copy()
    sigma = np.ones(n, np.int64)
    listed = np.empty(n)
    for position in range(n):
        listed[position] = times[order[position], 0]
    tasks = np.empty(p, np.int64)
    given = np.empty(p, np.int64)
    current = np.empty(p)
    head = 0
    packs = 0
    cost = 0.0
    while head < n:
        first = order[head]
        # Tasks within epsilon of the longest go into one pack, if together they fill the machine.
        threshold = (1.0 - epsilon) * listed[head]
        requested = 0
        position = head
        while position < n and requested < p and listed[position] >= threshold:
            requested += sigma[order[position]]
            position += 1
        if requested < p and sigma[first] < p:
            # Not enough work close to the longest task: it gets one more processor and moves down.
            sigma[first] += 1
            time = times[first, sigma[first] - 1]
            # Its place is just before ``low``: a bisection, then one plain copy, which is vectorised.
            low = head + 1
            high = n
            while low < high:
                middle = (low + high) // 2
                if listed[middle] > time or (listed[middle] == time and order[middle] < first):
                    low = middle + 1
                else:
                    high = middle
            for position in range(head, low - 1):
                listed[position] = listed[position + 1]
                order[position] = order[position + 1]
            listed[low - 1] = time
            order[low - 1] = first
            continue
        size = 0
        used = 0
        position = head
        while position < n and size < k and listed[position] >= threshold:
            task = order[position]
            if used + sigma[task] > p:
                break
            used += sigma[task]
            tasks[size] = task
            given[size] = sigma[task]
            pack_of[task] = packs
            size += 1
            position += 1
        head += size
        packs += 1
        cost += pack_cost(times, tasks, size, given, current)
    return cost


@njit(cache=True)
def insert_cost(
    times: Floats, tasks: Ints, size: int, sigma: Ints, lost: Floats, level: float, used: int, task: int
) -> tuple[float, int]:
    """Add ``task`` to an optimally filled pack; return its new cost and the processors in use.

    The greedy of Algorithm 1 run backwards: the new task gets the least processors that keep the cost,
    then processors are taken back where that costs least, until p suffice.  ``lost[a]`` is the time of
    task ``a`` with one processor less.  O(size) for each processor taken back; grows the arrays by one.
    """
    p = times.shape[1]
    level = max(level, times[task, p - 1])
    need = 1
    while times[task, need - 1] > level:
        need += 1
    tasks[size] = task
    sigma[size] = need
    lost[size] = times[task, need - 2] if need > 1 else np.inf
    size += 1
    used += need
    while used > p:
        cheapest = 0
        for a in range(1, size):
            if lost[a] < lost[cheapest]:
                cheapest = a
        level = max(level, lost[cheapest])
        sigma[cheapest] -= 1
        used -= 1
        count = sigma[cheapest]
        lost[cheapest] = times[tasks[cheapest], count - 2] if count > 1 else np.inf
    return level, used


@njit(cache=True)
def contiguous(times: Floats, order: Ints, k: int, best: Floats, cut: Ints) -> float:
    """Best packs that are runs of ``order``: f(i) = min over m of f(i - m) + cost(last m tasks).

    Writes ``best[i]`` = f(i) and ``cut[i]``, the size of the last pack (both of length n + 1).  A run
    grows by one task at a time and its cost with it (``insert_cost``): O(n k p) in all.
    """
    n = times.shape[0]
    tasks = np.empty(k, np.int64)
    sigma = np.empty(k, np.int64)
    lost = np.empty(k)
    best[0] = 0.0
    cut[0] = 0
    for i in range(1, n + 1):
        best[i] = np.inf
        level = 0.0
        used = np.int64(0)
        for m in range(1, min(k, i) + 1):
            level, used = insert_cost(times, tasks, m - 1, sigma, lost, level, used, order[i - m])
            if best[i - m] + level < best[i]:
                best[i] = best[i - m] + level
                cut[i] = m
    return float(best[n])


@njit(cache=True)
def _cost_of(times: Floats, tasks: Ints, size: int, sigma: Ints, current: Floats) -> float:
    """``pack_cost`` from one processor each."""
    if size == 0:
        return 0.0
    for a in range(size):
        sigma[a] = 1
    return float(pack_cost(times, tasks, size, sigma, current))


@njit(cache=True)
def anneal(
    times: Floats,
    members: Ints,
    sizes: Ints,
    costs: Floats,
    packs: int,
    draws: Floats,
    hot: float,
    cold: float,
    best_members: Ints,
    best_sizes: Ints,
    best_total: float,
) -> tuple[int, int, float]:
    """Simulated annealing over partitions: one move for each row of ``draws`` (shape ``(steps, 4)``).

    A move takes a random task and a random other pack (or an empty one): it relocates the task or
    swaps it with a random task there; costs come from Algorithm 1.  The temperature falls
    geometrically from ``hot`` to ``cold``.  ``members[b, :sizes[b]]`` are the tasks of pack ``b``;
    ``members`` has a row for every task and a column for every task that a pack may hold.
    Returns the packs now, the packs of the best (-1: no better one was seen), and its cost.
    """
    n = times.shape[0]
    steps = draws.shape[0]
    k = members.shape[1]
    place = np.empty((n, 2), np.int64)
    for b in range(packs):
        for s in range(sizes[b]):
            place[members[b, s], 0] = b
            place[members[b, s], 1] = s
    here = np.empty(k + 1, np.int64)
    there = np.empty(k + 1, np.int64)
    sigma = np.empty(k + 1, np.int64)
    current = np.empty(k + 1)
    total = 0.0
    for b in range(packs):
        total += costs[b]
    best_packs = -1
    cooling = (cold / hot) ** (1.0 / max(steps, 1))
    temperature = hot
    for step in range(steps):
        temperature *= cooling
        i = int(draws[step, 0] * n)
        a = place[i, 0]
        b = int(draws[step, 1] * (packs + 1))  # ``packs`` stands for an empty pack
        if b == a or (b == packs and (sizes[a] == 1 or packs == n)):
            continue
        there_size = sizes[b] if b < packs else 0
        # A slot past the last task means relocation; a full pack only swaps.
        slot = int(draws[step, 2] * (there_size + (1 if there_size < k else 0)))
        size_here = 0
        for s in range(sizes[a]):
            if members[a, s] != i:
                here[size_here] = members[a, s]
                size_here += 1
        for s in range(there_size):
            there[s] = members[b, s]
        if slot < there_size:
            here[size_here] = there[slot]
            size_here += 1
            there[slot] = i
            size_there = there_size
        else:
            there[there_size] = i
            size_there = there_size + 1
        cost_here = _cost_of(times, here, size_here, sigma, current)
        old = costs[a] + (costs[b] if b < packs else 0.0)
        # What the move may cost at most is drawn first: half of the moves then need one cost only.
        allowed = old - temperature * np.log(1.0 - draws[step, 3])
        if cost_here > allowed:
            continue
        cost_there = _cost_of(times, there, size_there, sigma, current)
        if cost_here + cost_there > allowed:
            continue
        total += cost_here + cost_there - old
        if b == packs:
            packs += 1
        for s in range(size_here):
            members[a, s] = here[s]
            place[here[s], 0] = a
            place[here[s], 1] = s
        for s in range(size_there):
            members[b, s] = there[s]
            place[there[s], 0] = b
            place[there[s], 1] = s
        sizes[a] = size_here
        sizes[b] = size_there
        costs[a] = cost_here
        costs[b] = cost_there
        if size_here == 0:
            packs -= 1
            for s in range(sizes[packs]):
                members[a, s] = members[packs, s]
                place[members[a, s], 0] = a
                place[members[a, s], 1] = s
            sizes[a] = sizes[packs]
            costs[a] = costs[packs]
        if total < best_total - 1e-12 * best_total:
            best_total = total
            best_packs = packs
            for c in range(packs):  # loops compile in a fraction of the time of array assignments
                best_sizes[c] = sizes[c]
                for s in range(sizes[c]):
                    best_members[c, s] = members[c, s]
    return packs, best_packs, best_total
