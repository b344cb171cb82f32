"""A whole simulation of gangs on borrowed GPUs, compiled: FCFS, RQ, MRQ, and one that looks ahead.

The specification is `dovetail_remote.policies.rq`, `mrq`, `mrq_aware` and the rate model
`dovetail_remote.rates`, run by the engine (Markthub 2015). This kernel does the same operations in
the same order on arrays, so that starts, ends and migrations are the same floats; a property test holds
it to that.
"""

from __future__ import annotations

import numpy as np

from dovetail_lab.markthub.borrowing_arrays import (
    ARRIVED,
    FIRST,
    LAST,
    RUNNING,
    SPARES,
    Borrowing,
    Columns,
    Costs,
    Machine,
    State,
    new_state,
)
from dovetail_lab.markthub.borrowing_room import (
    borrow_gpus,
    count_bits,
    fit_gang,
    go_home,
    lowest_bits,
    uncounted,
)
from dovetail_lab.markthub.borrowing_times import (
    count_processes,
    fraction_done,
    longest_stall,
    pays_to_move,
    recount_processes,
    time_as_it_stands,
)

LEAST_GAIN = 1e-9
"""Part of what waiting costs by which borrowing must cost less: roundings are no gain."""


def simulate_borrowing(jobs: Columns, machine: Machine, costs: Costs, how: Borrowing) -> State:
    """Run all jobs to their ends. O(jobs · (nodes + running jobs · their nodes, GPUs)), roll-outs apart."""
    state = new_state(jobs, machine)
    # The scratch state is only for roll-outs; without them the same one serves.
    _simulate_instants(jobs, machine, costs, how, state, new_state(jobs, machine) if how.looks else state)
    return state


def worth_borrowing(
    jobs: Columns, machine: Machine, costs: Costs, how: Borrowing, state: State, scratch: State, now: float
) -> bool:
    """Whether the head of the queue is to start with borrowed GPUs now, by roll-outs over who waits."""
    return bool(_is_worth_borrowing(jobs, machine, costs, how, state, scratch, now))


@uncounted(forceinline=True)
def _end_due_jobs(jobs, how, state, now):  # type: ignore[no-untyped-def]
    """Jobs that are due give back what they hold."""
    held, lent, free, count = state.held, state.lent, state.free, state.idle
    kept = 0
    # Compacted in place: slots of ended jobs leave the order without a copy of it.
    for i in range(state.at[RUNNING]):
        s = state.order[i]
        if state.due[s] > now:
            state.order[kept] = s
            kept += 1
            continue
        j = state.job[s]
        state.ends[j] = now
        # Before what it holds is given back, while its nodes are still known.
        count_processes(jobs, how, state.processes, state.touched, j, s, held, lent, -1)
        for k in range(held.nodes[s]):
            n = held.node[s, k]
            free[n] |= held.gpus[s, k]
            state.cpus[n] += jobs.cpus[j]
            state.memory[n] += jobs.memory[j]
            count[n] = count_bits(free[n])
        for k in range(lent.borrowed[s]):
            n = lent.donor[s, k]
            free[n] |= lent.gpu[s, k]
            count[n] = count_bits(free[n])
        state.spare[state.at[SPARES]] = s
        state.at[SPARES] += 1
    state.at[RUNNING] = kept


@uncounted(forceinline=True)
def _migrate_home(jobs, machine, costs, how, state, now):  # type: ignore[no-untyped-def]
    """Migrations, until nothing changes; stalls by what was there before anything moves."""
    lent, before = state.lent, state.before
    any_moved = False
    for i in range(state.at[RUNNING]):
        s = state.order[i]
        state.moved[s] = False
        before.borrowed[s] = lent.borrowed[s]
        # Moving must pay for itself (Equations 5 to 7 against Equation 12), where the policy looks.
        if lent.borrowed[s] and how.looks and not pays_to_move(jobs, machine, costs, how, state, s, now):
            before.borrowed[s] = 0  # it stays where it is
        for k in range(before.borrowed[s]):
            before.client[s, k] = lent.client[s, k]
            before.donor[s, k], before.gpu[s, k] = lent.donor[s, k], lent.gpu[s, k]
    # Again and again: a GPU that one job frees by going home may be another job's way home.
    again = True
    while again:
        again = False
        for i in range(state.at[RUNNING]):
            s = state.order[i]
            if before.borrowed[s] and lent.borrowed[s] and go_home(state, s):
                again = any_moved = state.moved[s] = True
    if not any_moved:
        return
    # All stalls first, by the processes of before: the daemons that leave would make them too short.
    for i in range(state.at[RUNNING]):
        s = state.order[i]
        if state.moved[s]:
            j, done = state.job[s], fraction_done(jobs, state, s, now)
            state.stall[s] = longest_stall(jobs, machine, costs, state.processes, j, s, done, before, lent)
    for i in range(state.at[RUNNING]):
        s = state.order[i]
        if state.moved[s]:
            recount_processes(state.processes, state.touched, s, state.held, before, lent)


@uncounted(forceinline=True)
def _start_job(jobs, how, state, s, j, now):  # type: ignore[no-untyped-def]
    """Job j takes the nodes and lent GPUs that slot s lists."""
    held, lent, free, count = state.held, state.lent, state.free, state.idle
    held.nodes[s] = jobs.nodes[j]
    for k in range(jobs.nodes[j]):
        n = held.node[s, k]
        mask = lowest_bits(free[n], jobs.gpus[j])
        held.gpus[s, k], held.home[s, k] = mask, 0
        free[n] &= ~mask
        state.cpus[n] -= jobs.cpus[j]
        state.memory[n] -= jobs.memory[j]
        count[n] = count_bits(free[n])
    for k in range(lent.borrowed[s]):
        n = lent.donor[s, k]
        free[n] &= ~lent.gpu[s, k]
        # After the nodes: what is lent belongs to nodes that the job does not list.
        count[n] = count_bits(free[n])
    state.job[s] = j
    state.order[state.at[RUNNING]] = s
    state.at[RUNNING] += 1
    state.left[s], state.since[s], state.rate[s] = jobs.base[j], now, 1.0
    state.due[s], state.took[s] = now + jobs.base[j], jobs.base[j]
    state.moved[s] = False
    count_processes(jobs, how, state.processes, state.touched, j, s, held, lent, 1)


@uncounted(forceinline=True)
def _update_rates(jobs, machine, costs, how, state, now, started):  # type: ignore[no-untyped-def]
    """New rates where something changed; ``started``: running jobs before this instant's starts."""
    held, lent = state.held, state.lent
    for i in range(state.at[RUNNING]):
        s = state.order[i]
        # A job is touched if it moved, has just started, or shares a node with what changed.
        stirred = state.moved[s] or i >= started
        for k in range(held.nodes[s]):
            stirred = stirred or state.touched[held.node[s, k]]
        for k in range(lent.borrowed[s]):
            stirred = stirred or state.touched[lent.donor[s, k]]
        if not stirred:
            continue
        j = state.job[s]
        lasts = time_as_it_stands(jobs, machine, costs, how, state.processes, j, s, held, lent)
        # The same time as before: its end need not be reckoned again.
        if lasts == state.took[s] and not state.moved[s]:
            continue
        if now > state.since[s]:
            state.left[s] = max(0.0, state.left[s] - (now - state.since[s]) * state.rate[s])
            state.since[s] = now
        if lasts != state.took[s]:
            state.took[s] = lasts
            state.rate[s] = jobs.base[j] / lasts
        # While it stalls nothing gets done, so its progress counts from the end of the stall.
        if state.moved[s]:
            state.since[s] += state.stall[s]
            state.moved[s] = False
        state.due[s] = state.since[s] + state.left[s] / state.rate[s]
    state.touched[:] = False


@uncounted(forceinline=True)
def _next_end(state):  # type: ignore[no-untyped-def]
    now = np.inf
    for i in range(state.at[RUNNING]):
        now = min(now, state.due[state.order[i]])
    return now


@uncounted(forceinline=True)
def _find_nodes(jobs, how, state, j, s, may_borrow):  # type: ignore[no-untyped-def]
    """0: no room; 1: room at home; 2: with borrowed GPUs. The slot then lists the places."""
    free, count, cpus, memory = state.free, state.idle, state.cpus, state.memory
    state.lent.borrowed[s] = 0
    if fit_gang(jobs, j, free, count, cpus, memory, state.held, s):
        return 1
    if may_borrow and borrow_gpus(
        jobs, j, free, count, cpus, memory, state.held, state.lent, state.rest, s, how
    ):
        return 2
    state.lent.borrowed[s] = 0
    return 0


@uncounted(forceinline=True)
def _pop_from_queue(state, at):  # type: ignore[no-untyped-def]
    """The job at a place leaves the queue; those that were passed stay in front."""
    for k in range(at, state.at[FIRST], -1):
        state.queue[k] = state.queue[k - 1]
    state.at[FIRST] += 1


@uncounted()
def _copy_state(source, target, looks):  # type: ignore[no-untyped-def]
    """A state to try something on: what runs, and the first so many that wait."""
    for k in range(len(source.at)):
        target.at[k] = source.at[k]
    target.at[LAST] = min(source.at[LAST], source.at[FIRST] + looks)
    for n in range(len(source.free)):
        target.free[n], target.cpus[n], target.memory[n] = source.free[n], source.cpus[n], source.memory[n]
        target.idle[n], target.processes[n] = source.idle[n], source.processes[n]
        target.touched[n] = source.touched[n]
    for k in range(source.at[SPARES]):
        target.spare[k] = source.spare[k]
    for i in range(source.at[RUNNING]):
        s = source.order[i]
        target.order[i] = s
        target.job[s], target.left[s], target.since[s] = source.job[s], source.left[s], source.since[s]
        target.rate[s], target.due[s], target.took[s] = source.rate[s], source.due[s], source.took[s]
        target.stall[s], target.moved[s] = source.stall[s], source.moved[s]
        held, lent = source.held, source.lent
        target.held.nodes[s], target.lent.borrowed[s] = held.nodes[s], lent.borrowed[s]
        for k in range(held.nodes[s]):
            target.held.node[s, k], target.held.gpus[s, k] = held.node[s, k], held.gpus[s, k]
            target.held.home[s, k] = held.home[s, k]
        for k in range(lent.borrowed[s]):
            target.lent.client[s, k], target.lent.donor[s, k] = lent.client[s, k], lent.donor[s, k]
            target.lent.gpu[s, k] = lent.gpu[s, k]
    for k in range(target.at[FIRST], target.at[LAST]):
        target.queue[k] = source.queue[k]


@uncounted()
def _roll_out(jobs, machine, costs, how, state, now, borrow_now, borrow_later, enough):  # type: ignore[no-untyped-def]
    """From here to the end of all that runs or waits, nothing else coming; the sum of the ends from now.

    Infinite where that is at least ``enough``, or the head never starts; who never finds room behind it is
    counted with the last end.
    """
    total, started, head = 0.0, state.at[RUNNING], state.at[FIRST]
    may, began = borrow_now, now
    while True:
        while state.at[FIRST] < state.at[LAST]:
            s = state.spare[state.at[SPARES] - 1]
            j = state.queue[state.at[FIRST]]
            if not _find_nodes(jobs, how, state, j, s, may):
                break
            state.at[SPARES] -= 1
            _start_job(jobs, how, state, s, j, now)
            _pop_from_queue(state, state.at[FIRST])
            may = borrow_later
        _update_rates(jobs, machine, costs, how, state, now, started)
        before, waiting = state.at[RUNNING], state.at[LAST] - state.at[FIRST]
        if before == 0:
            return np.inf if state.at[FIRST] == head else total + waiting * (now - began)
        now = _next_end(state)
        if total + (before + waiting) * (now - began) >= enough:  # no job ends sooner than that
            return np.inf
        _end_due_jobs(jobs, how, state, now)
        total += (before - state.at[RUNNING]) * (now - began)
        _migrate_home(jobs, machine, costs, how, state, now)
        started = state.at[RUNNING]
        may = borrow_later


@uncounted()
def _is_worth_borrowing(jobs, machine, costs, how, state, scratch, now):  # type: ignore[no-untyped-def]
    """Borrow now, or wait: whatever is done about those behind, which of the two ends everything sooner."""
    best = np.inf
    for borrow_now in (False, True):
        if borrow_now:
            best *= 1 - LEAST_GAIN
        for later in (False, True):
            _copy_state(state, scratch, how.looks)
            found = _roll_out(jobs, machine, costs, how, scratch, now, borrow_now, later, best)
            if borrow_now and found < best:
                return True
            best = min(best, found)
    return False


@uncounted()
def _simulate_instants(jobs, machine, costs, how, state, scratch):  # type: ignore[no-untyped-def]
    """From instant to instant: ends, submissions, migrations, starts, rates."""
    total = len(jobs.submit)
    at = state.at
    while True:
        now = _next_end(state)
        if at[ARRIVED] < total:
            now = min(now, jobs.submit[at[ARRIVED]])
        if now == np.inf:
            break
        _end_due_jobs(jobs, how, state, now)
        while at[ARRIVED] < total and jobs.submit[at[ARRIVED]] <= now:
            state.queue[at[LAST]] = at[ARRIVED]
            at[LAST] += 1
            at[ARRIVED] += 1
        if how.migrates:
            _migrate_home(jobs, machine, costs, how, state, now)
        started, place, passed = at[RUNNING], at[FIRST], 0
        while place < at[LAST]:
            j, s = state.queue[place], state.spare[at[SPARES] - 1]
            may = how.borrows and passed == 0
            found = _find_nodes(jobs, how, state, j, s, may)
            if (
                found == 2
                and how.looks
                and not _is_worth_borrowing(jobs, machine, costs, how, state, scratch, now)
            ):
                found = 0
            if not found:
                passed += 1
                if passed > how.skip:
                    break
                place += 1
                continue
            at[SPARES] -= 1
            _start_job(jobs, how, state, s, j, now)
            state.starts[j], state.borrowed[j] = now, state.lent.borrowed[s]
            _pop_from_queue(state, place)
            place += 1
        _update_rates(jobs, machine, costs, how, state, now, started)
