"""Where gangs find room, at home or with borrowed GPUs: the compiled side of `policies.parts.lending`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from numba import njit

from dovetail_lab.stale import forget_stale

forget_stale(Path(__file__).parent)  # numba would keep what was compiled of these files before a change

uncounted = partial(njit, cache=True, _nrt=False)
"""Compiles a function that makes no arrays: it counts no references to those it is given, forty at each call,
which took most of the time."""


@uncounted(forceinline=True)
def count_bits(mask):  # type: ignore[no-untyped-def]
    """How many there are."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@uncounted(forceinline=True)
def lowest_bits(mask, wanted):  # type: ignore[no-untyped-def]
    """The lowest set bits, so many of them or all."""
    taken = 0
    while mask and wanted > 0:
        low = mask & -mask
        taken |= low
        mask ^= low
        wanted -= 1
    return taken


@uncounted(forceinline=True)
def fit_gang(jobs, j, free, count, cpus, memory, held, s):  # type: ignore[no-untyped-def]
    """Nodes with room for the gang, fewest free GPUs first, then lowest index; whether there are enough."""
    found, wanted = 0, jobs.gpus[j]
    most = 0
    for n in range(len(free)):
        most = max(most, count[n])
    # Fewest free GPUs first (best fit), which keeps whole nodes for larger jobs.
    for level in range(wanted, most + 1):
        for n in range(len(free)):
            if count[n] == level and cpus[n] >= jobs.cpus[j] and memory[n] >= jobs.memory[j]:
                held.node[s, found] = n
                found += 1
                if found == jobs.nodes[j]:
                    return True
    return False


@uncounted(forceinline=True)
def borrow_gpus(jobs, j, free, count, cpus, memory, held, lent, rest, s, how):  # type: ignore[no-untyped-def]
    """Nodes and donors as RQ chooses them; whether there are enough."""
    wanted, nodes = jobs.gpus[j], jobs.nodes[j]
    total = 0
    for n in range(len(free)):
        total += count[n]
    # Not even with every free GPU of the machine: no need to look further.
    if total < nodes * wanted:
        return False
    most = 0
    for n in range(len(free)):
        most = max(most, count[n])
    found = 0
    # Most local GPUs first, since each borrowed one costs calls over the network.
    for own in range(wanted, how.local - 1, -1):  # most local GPUs first
        for level in range(own, (most if own == wanted else own) + 1):  # then fewest free
            if found == nodes:
                break
            for n in range(len(free)):
                fits = count[n] == level and cpus[n] >= jobs.cpus[j] and memory[n] >= jobs.memory[j]
                if fits and found < nodes:
                    held.node[s, found] = n
                    found += 1
    if found < nodes:
        return False
    missing = 0
    for k in range(nodes):
        missing += max(0, wanted - count[held.node[s, k]])
    # The job's own nodes are not donors of what it takes from them itself.
    for n in range(len(free)):
        rest[n] = free[n]
    for k in range(nodes):
        n = held.node[s, k]
        rest[n] &= ~lowest_bits(free[n], wanted)
    return choose_donors(jobs, j, count, rest, held, lent, s, missing)


@uncounted(forceinline=True)
def choose_donors(jobs, j, count, rest, held, lent, s, missing):  # type: ignore[no-untyped-def]
    """Lend of the rest, from nodes with fewest of it first; whether it is enough."""
    total = 0
    most = 0
    for n in range(len(rest)):
        here = count_bits(rest[n])
        total += here
        most = max(most, here)
    if total < missing:
        return False
    lent.borrowed[s] = 0
    k = 0
    open_here = 0
    if jobs.nodes[j] > 0:
        open_here = jobs.gpus[j] - min(jobs.gpus[j], count[held.node[s, 0]])
    # From nodes with fewest left first, as the paper's RQ does: larger remainders stay whole.
    for level in range(1, most + 1):
        for n in range(len(rest)):
            if count_bits(rest[n]) != level:
                continue
            mask = rest[n]
            while mask and lent.borrowed[s] < missing:
                while open_here == 0:
                    k += 1
                    open_here = jobs.gpus[j] - min(jobs.gpus[j], count[held.node[s, k]])
                # The lowest device of the mask, so that the same choice is made in every implementation.
                low = mask & -mask
                mask ^= low
                at = lent.borrowed[s]
                lent.client[s, at] = held.node[s, k]
                lent.donor[s, at] = n
                lent.gpu[s, at] = low
                lent.borrowed[s] = at + 1
                open_here -= 1
    return True


@uncounted(forceinline=True)
def go_home(state, s):  # type: ignore[no-untyped-def]
    """Take home what has a free local GPU now, how many; what it frees elsewhere serves others later."""
    free, count, held, lent = state.free, state.idle, state.held, state.lent
    kept, freed, width = 0, 0, lent.client.shape[1]
    for k in range(lent.borrowed[s]):
        client, donor, gpu = lent.client[s, k], lent.donor[s, k], lent.gpu[s, k]
        if free[client]:
            low = free[client] & -free[client]
            free[client] ^= low
            count[client] -= 1
            for i in range(held.nodes[s]):
                if held.node[s, i] == client:
                    held.gpus[s, i] |= low
                    held.home[s, i] += 1
            freed += 1
            # Kept at the end of the list until all have been looked at: no job may take it before.
            lent.donor[s, width - freed], lent.gpu[s, width - freed] = donor, gpu
        else:
            lent.client[s, kept], lent.donor[s, kept], lent.gpu[s, kept] = client, donor, gpu
            kept += 1
    for i in range(1, freed + 1):
        n = lent.donor[s, width - i]
        free[n] |= lent.gpu[s, width - i]
        count[n] += 1
    lent.borrowed[s] = kept
    state.moves[state.job[s]] += freed
    return freed
