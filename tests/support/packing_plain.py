"""Plain-Python twins of the pack kernels: slow, short, and the oracle of the tests.

Each says what its kernel computes in the paper's own terms, with lists, heaps and sorted sequences
instead of scratch arrays.  Ties go to the lowest index.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "anneal",
    "anneal_list",
    "best_ratio",
    "contiguous",
    "list_schedule",
    "listed_program",
    "make_pack",
    "one_pack",
    "pack_approx",
    "pack_by_pack",
    "partitions",
    "subset_program",
]

Floats = NDArray[np.float64]


def one_pack(times: Floats, tasks: Sequence[int]) -> tuple[float, list[int]]:
    """Algorithm 1: (cost, processors of each task), by a heap, in O(p log n)."""
    sigma = dict.fromkeys(tasks, 1)
    heap = [(-times[i, 0], rank, i) for rank, i in enumerate(tasks)]
    heapq.heapify(heap)
    for _ in range(times.shape[1] - len(tasks) if tasks else 0):
        _, rank, longest = heapq.heappop(heap)
        sigma[longest] += 1
        heapq.heappush(heap, (-times[longest, sigma[longest] - 1], rank, longest))
    cost = max((float(times[i, sigma[i] - 1]) for i in tasks), default=0.0)
    return cost, [sigma[i] for i in tasks]


def make_pack(
    times: Floats, order: Sequence[int], sigma: Sequence[int], k: int
) -> tuple[float, list[list[int]]]:
    """Algorithm 2: first fit of the tasks in ``order`` (non-increasing time under ``sigma``)."""
    p = times.shape[1]
    packs: list[list[int]] = []
    for i in order:
        for pack in packs:
            if len(pack) < k and sum(sigma[other] for other in pack) + sigma[i] <= p:
                pack.append(i)
                break
        else:
            packs.append([i])
    return sum(max(float(times[i, sigma[i] - 1]) for i in pack) for pack in packs), packs


def pack_approx(times: Floats, k: int) -> tuple[float, list[list[int]], list[int]]:
    """Algorithm 3: (cost, packs, processors) of the cheapest step."""
    n, p = times.shape
    sigma = [1] * n
    best: tuple[float, list[list[int]], list[int]] | None = None
    while True:
        order = sorted(range(n), key=lambda i: (-times[i, sigma[i] - 1], i))
        cost, packs = make_pack(times, order, sigma, k)
        if best is None or cost < best[0]:
            best = cost, packs, list(sigma)
        longest = order[0]
        work = sum(sigma[i] * times[i, sigma[i] - 1] for i in range(n))
        if work / p > times[longest, sigma[longest] - 1] or sigma[longest] == p:
            return best
        sigma[longest] += 1


def pack_by_pack(times: Floats, k: int, epsilon: float) -> tuple[float, list[list[int]]]:
    """pack-by-pack(epsilon) of section 5: (cost after Algorithm 1, packs)."""
    n, p = times.shape
    sigma = [1] * n
    left = list(range(n))
    packs: list[list[int]] = []
    while left:
        left.sort(key=lambda i: (-times[i, sigma[i] - 1], i))
        first = left[0]
        longest = times[first, sigma[first] - 1]
        close = [i for i in left if times[i, sigma[i] - 1] >= (1.0 - epsilon) * longest]
        if sum(sigma[i] for i in close) < p and sigma[first] < p:
            sigma[first] += 1
            continue
        pack: list[int] = []
        for i in close:
            if len(pack) == k or sum(sigma[other] for other in pack) + sigma[i] > p:
                break
            pack.append(i)
        packs.append(pack)
        left = [i for i in left if i not in pack]
    return sum(one_pack(times, pack)[0] for pack in packs), packs


def contiguous(times: Floats, order: Sequence[int], k: int) -> tuple[float, list[list[int]]]:
    """The best packs that are runs of ``order``, each run costed anew by Algorithm 1."""
    n = len(order)
    best: list[tuple[float, int]] = [(0.0, 0)]
    for i in range(1, n + 1):
        best.append(
            min(
                ((best[i - m][0] + one_pack(times, order[i - m : i])[0], m) for m in range(1, min(k, i) + 1)),
                key=lambda entry: entry[0],
            )
        )
    packs: list[list[int]] = []
    i = n
    while i > 0:
        m = best[i][1]
        packs.append(list(order[i - m : i]))
        i -= m
    return best[n][0], packs


def anneal(
    times: Floats, k: int, packs: Sequence[Sequence[int]], draws: Floats, hot: float, cold: float
) -> tuple[list[list[int]], float, list[list[int]] | None]:
    """Annealing over partitions: (packs at the end, best cost, best packs or None if none was better).

    ``draws`` has one row (task, pack, slot, acceptance) for each move, uniform in [0, 1).
    """
    n = times.shape[0]
    now = [list(pack) for pack in packs]
    costs = [one_pack(times, pack)[0] for pack in now]
    best_total, best = sum(costs), None
    total = best_total
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(len(draws), 1))
    for u_task, u_pack, u_slot, u_accept in draws:
        temperature *= cooling
        i = int(u_task * n)
        a = next(index for index, pack in enumerate(now) if i in pack)
        b = int(u_pack * (len(now) + 1))
        if b == a or (b == len(now) and (len(now[a]) == 1 or len(now) == n)):
            continue
        there = list(now[b]) if b < len(now) else []
        here = [other for other in now[a] if other != i]
        slot = int(u_slot * (len(there) + (1 if len(there) < k else 0)))
        if slot < len(there):
            here.append(there[slot])
            there[slot] = i
        else:
            there.append(i)
        cost_here, cost_there = one_pack(times, here)[0], one_pack(times, there)[0]
        old = costs[a] + (costs[b] if b < len(now) else 0.0)
        if cost_here + cost_there > old - temperature * math.log(1.0 - u_accept):
            continue
        total += cost_here + cost_there - old
        if b == len(now):
            now.append([])
            costs.append(0.0)
        now[a], costs[a] = here, cost_here
        now[b], costs[b] = there, cost_there
        if not here:
            now[a], costs[a] = now[-1], costs[-1]
            now.pop()
            costs.pop()
        if total < best_total - 1e-12 * best_total:
            best_total, best = total, [list(pack) for pack in now]
    return now, best_total, best


def subset_program(times: Floats, k: int) -> float:
    """The optimal cost, by f(S) = min over packs A that hold the lowest task of S."""
    memory: dict[tuple[int, ...], float] = {(): 0.0}

    def cheapest(tasks: tuple[int, ...]) -> float:
        if tasks not in memory:
            memory[tasks] = min(
                one_pack(times, (tasks[0], *others))[0]
                + cheapest(tuple(i for i in tasks[1:] if i not in others))
                for size in range(min(k, times.shape[1], len(tasks)))
                for others in combinations(tasks[1:], size)
            )
        return memory[tasks]

    return cheapest(tuple(range(times.shape[0])))


def listed_program(n: int, packs: Sequence[tuple[float, frozenset[int]]]) -> float:
    """The least cost of listed packs, (cost, tasks), that hold each of n tasks once; infinite if none do."""
    memory: dict[frozenset[int], float] = {frozenset(): 0.0}

    def cheapest(tasks: frozenset[int]) -> float:
        if tasks not in memory:
            memory[tasks] = min(
                (
                    cost + cheapest(tasks - pack)
                    for cost, pack in packs
                    if min(tasks) in pack and pack <= tasks
                ),
                default=math.inf,
            )
        return memory[tasks]

    return cheapest(frozenset(range(n)))


def partitions(times: Floats, k: int) -> float:
    """The optimal cost over all partitions into packs of at most ``k`` tasks, one by one."""
    n, p = times.shape

    def extend(i: int, packs: list[list[int]]) -> float:
        if i == n:
            return sum(one_pack(times, pack)[0] for pack in packs)
        least = extend(i + 1, [*packs, [i]])
        for b, pack in enumerate(packs):
            if len(pack) < min(k, p):
                least = min(least, extend(i + 1, [*packs[:b], [*pack, i], *packs[b + 1 :]]))
        return least

    return extend(0, [])


def best_ratio(times: Floats, prices: Floats, k: int, extra: Floats | None = None) -> float:
    """The largest (price of a pack + extra[T]) / T over all packs of at most ``k`` tasks.

    T runs over the distinct times from the pack's cost on; without ``extra`` the cost itself is best.
    """
    n, p = times.shape
    levels = np.unique(times)
    by_level = [0.0] * len(levels) if extra is None else extra.tolist()
    return max(
        (sum(float(prices[i]) for i in pack) + float(price)) / float(level)
        for size in range(1, min(k, p, n) + 1)
        for pack in combinations(range(n), size)
        for level, price in zip(levels.tolist(), by_level, strict=True)
        if level >= one_pack(times, pack)[0]
    )


def list_schedule(times: Floats, sigma: Sequence[int], order: Sequence[int]) -> tuple[float, list[float]]:
    """Graham's list scheduling of rigid tasks: (makespan, start of each task)."""
    n, p = times.shape
    starts = [0.0] * n
    waiting = list(order)
    running: list[tuple[float, int]] = []
    now = 0.0
    while waiting:
        free = p - sum(width for _, width in running)
        for task in list(waiting):
            if sigma[task] <= free:
                starts[task] = now
                running.append((now + float(times[task, sigma[task] - 1]), sigma[task]))
                free -= sigma[task]
                waiting.remove(task)
        now = min((end for end, _ in running), default=now)
        running = [(end, width) for end, width in running if end > now]
    return max(starts[i] + float(times[i, sigma[i] - 1]) for i in range(n)), starts


def anneal_list(
    times: Floats, order: Sequence[int], sigma: Sequence[int], draws: Floats, hot: float, cold: float
) -> tuple[float, list[int], list[int]]:
    """Annealing of list and processors: (best makespan, its order, its processors)."""
    n, p = times.shape
    list_now, sigma_now = list(order), list(sigma)
    makespan = list_schedule(times, sigma_now, list_now)[0]
    best = makespan, list(list_now), list(sigma_now)
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(len(draws), 1))
    for u_position, u_kind, u_where, u_accept in draws:
        temperature *= cooling
        position = int(u_position * n)
        new_list, new_sigma = list(list_now), list(sigma_now)
        task = list_now[position]
        if u_kind < 0.5:
            new_sigma[task] += 1 if u_where < 0.5 else -1
            if not 1 <= new_sigma[task] <= p:
                continue
        else:
            new_list.insert(int(u_where * n), new_list.pop(position))
        candidate = list_schedule(times, new_sigma, new_list)[0]
        # The kernel's cut-off is strict and a rounding error wide.
        if candidate >= (makespan - temperature * math.log(1.0 - u_accept)) * (1.0 + 1e-12):
            continue
        list_now, sigma_now, makespan = new_list, new_sigma, candidate
        if makespan < best[0]:
            best = makespan, list(list_now), list(sigma_now)
    return best
