"""What borrowing costs running jobs: the compiled side of `dovetail_remote.rates`.

The same operations in the same order as `dovetail.model.remote_times`, so that the floats are the same.
"""

from __future__ import annotations

import numpy as np

from dovetail_lab.markthub.borrowing_room import count_bits, uncounted


@uncounted(forceinline=True)
def share_of_network(machine, processes, n):  # type: ignore[no-untyped-def]
    """Equation 2."""
    return machine.network[n] / processes[n]


@uncounted(forceinline=True)
def time_as_it_stands(jobs, machine, costs, how, processes, j, s, held, lent):  # type: ignore[no-untyped-def]
    """Equation 9 of job j in slot s, as things stand."""
    calls, size = jobs.calls[j], jobs.size[j]
    slowest = np.inf
    worst = 0.0
    for k in range(held.nodes[s]):
        n = held.node[s, k]
        slowest = min(slowest, share_of_network(machine, processes, n))
        if held.gpus[s, k]:
            took = calls * costs.gpu_latency + size / machine.gpu[n]
            if not how.per_gpu and held.home[s, k] >= 2:
                took += costs.helper_per_byte * size + costs.helper_per_call * calls + costs.helper_constant
            worst = max(worst, took)
    for k in range(lent.borrowed[s]):
        here = share_of_network(machine, processes, lent.client[s, k])
        there = share_of_network(machine, processes, lent.donor[s, k])
        latency = costs.remote_latency + costs.network_latency
        took = calls * latency + costs.remote_overhead * size / min(here, there)
        if how.recorded:
            took += costs.record_per_call * calls + costs.record_constant
        worst = max(worst, took)
    network = costs.network_latency * jobs.net_calls[j] + jobs.net_size[j] / slowest
    return network + worst + jobs.other[j]


@uncounted(forceinline=True)
def stall(jobs, costs, j, done, bandwidth):  # type: ignore[no-untyped-def]
    """Equations 5 to 7."""
    replay = costs.replay_per_call * (jobs.calls[j] * done) + costs.replay_constant
    # At most what the GPU holds at a time is copied, whatever went through it before.
    size = min(jobs.size[j], costs.active_memory)
    copy = 0.0
    if size > 0:
        # Small copies do not reach the full bandwidth: it grows with the size up to a limit.
        copy = size / min(size * costs.copy_bandwidth_per_byte, costs.copy_bandwidth)
    sync = copy + costs.sync_per_byte * size + costs.sync_constant
    latency = costs.remote_latency + costs.network_latency
    return replay + sync + (latency + costs.remote_overhead * size / bandwidth)


@uncounted(forceinline=True)
def fraction_done(jobs, state, s, now):  # type: ignore[no-untyped-def]
    """Of its work, by now."""
    # Never below zero: a stalled job counts from the end of its stall, which lies ahead.
    ahead = state.left[s] - max(0.0, now - state.since[s]) * state.rate[s]
    return 1.0 - max(0.0, ahead) / jobs.base[state.job[s]]


@uncounted(forceinline=True)
def pays_to_move(jobs, machine, costs, how, state, s, now):  # type: ignore[no-untyped-def]
    """Whether having all its GPUs at home would save a job more time than the longest stall costs.

    With a network to itself then, so that it is never too careful.
    """
    j, held, lent = state.job[s], state.held, state.lent
    worst = 0.0
    for k in range(held.nodes[s]):
        came = held.home[s, k]
        for i in range(lent.borrowed[s]):
            came += lent.client[s, i] == held.node[s, k]
        took = jobs.calls[j] * costs.gpu_latency + jobs.size[j] / machine.gpu[held.node[s, k]]
        # One process for a node gets a helper when a second GPU comes home (not with one a GPU).
        if not how.per_gpu and came >= 2:
            took += (
                costs.helper_per_byte * jobs.size[j]
                + costs.helper_per_call * jobs.calls[j]
                + costs.helper_constant
            )
        worst = max(worst, took)
    network = costs.network_latency * jobs.net_calls[j] + jobs.net_size[j] / costs.network_bandwidth
    at_home = network + worst + jobs.other[j]
    done = fraction_done(jobs, state, s, now)
    longest = 0.0
    for k in range(lent.borrowed[s]):
        here = share_of_network(machine, state.processes, lent.client[s, k])
        there = share_of_network(machine, state.processes, lent.donor[s, k])
        longest = max(longest, stall(jobs, costs, j, done, min(here, there)))
    return (1.0 - done) * (state.took[s] - at_home) > longest


@uncounted(forceinline=True)
def still_lent(lent, s, donor, gpu):  # type: ignore[no-untyped-def]
    """Whether a job still holds a GPU that it has borrowed of a donor."""
    for k in range(lent.borrowed[s]):  # noqa: SIM110 - compiled
        if lent.donor[s, k] == donor and lent.gpu[s, k] == gpu:
            return True
    return False


@uncounted(forceinline=True)
def longest_stall(jobs, machine, costs, processes, j, s, done, before, lent):  # type: ignore[no-untyped-def]
    """Over the GPUs that move, by the processes and daemons before anything moves."""
    longest = 0.0
    for k in range(before.borrowed[s]):
        client, donor = before.client[s, k], before.donor[s, k]
        if not still_lent(lent, s, donor, before.gpu[s, k]):
            here = share_of_network(machine, processes, client)
            there = share_of_network(machine, processes, donor)
            longest = max(longest, stall(jobs, costs, j, done, min(here, there)))
    return longest


@uncounted(forceinline=True)
def count_processes(jobs, how, processes, touched, j, s, held, lent, sign):  # type: ignore[no-untyped-def]
    """Add or take away processes and daemons."""
    for k in range(held.nodes[s]):
        n = held.node[s, k]
        processes[n] += sign * (count_bits(held.gpus[s, k]) if how.per_gpu else 1)
        touched[n] = True
    for k in range(lent.borrowed[s]):
        if how.per_gpu:
            processes[lent.client[s, k]] += sign
        processes[lent.donor[s, k]] += sign
        touched[lent.donor[s, k]] = True


@uncounted(forceinline=True)
def recount_processes(processes, touched, s, held, before, lent):  # type: ignore[no-untyped-def]
    """The daemons of what has moved are gone; a process's GPUs stay its own, wherever they are."""
    for k in range(held.nodes[s]):
        touched[held.node[s, k]] = True
    for k in range(before.borrowed[s]):
        donor = before.donor[s, k]
        touched[donor] = True
        if not still_lent(lent, s, donor, before.gpu[s, k]):
            processes[donor] -= 1
