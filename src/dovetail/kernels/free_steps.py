"""Free nodes over time where nodes are alike: a number, and the promises that are made in it.

**The profile** is a step function, searched and changed in about √n. A step lasts until the next one
begins, the last for ever; neighbours with the same number are made one. Steps lie in blocks of at most
`CAPACITY`, and all is in two arrays (numba counts the references of every array that a kernel is given,
which takes longer than many a kernel's work):

``times`` float64, shape ``(blocks, CAPACITY)``: when the steps of each block begin.

``counts`` int64, shape ``(blocks + 1, CAPACITY + 6)``: how many nodes are free in each step, then of each
block: how many steps it has (`COUNT`), what is to be added to all its numbers (`ADDED`), the least and the
greatest of the sums (`LOW`, `HIGH`). Column `ORDER` lists the blocks in use by time, column `SPARE` those
not in use; the last row begins with how many these are, and the *version*: how often nodes were given back.

A position is (place in `ORDER`, step of that block). Past the last step it is (blocks in use, 0).

**The promises** of a queue are made anew in turn after an early end (`compress`): each moves to the first
gap before its start, all others in place. To look for gaps from the beginning, for all promises and at
every early end, would cost the square of the queue. Three things save that:

- Promises of like jobs (same nodes, same limit) that follow each other and start together are one *run*:
  they move together as far as there is room.
- A promise that could not move earlier can only do so where nodes have been given back since. For each
  *class* of numbers of nodes a log says as of which version, and from when on, a step has come to hold so
  many. Each run knows the version as of which it has no earlier gap.
- Of the last jobs of each kind it is remembered before which time there was no gap for them.

``runs`` int64, shape ``(runs, 4)``: nodes, jobs, class, version; ``slots`` float64, shape ``(runs, 2)``:
start, duration. ``classes`` int64: the class of each number of nodes (`classes_up_to`). ``log`` int64,
shape ``(classes, DEPTH + 3)``: versions, ascending, then where they begin and end in the row, and the last
version noted; ``since`` float64, shape ``(classes, DEPTH)``: the times, ascending too. ``memo`` float64,
shape ``(MEMO, 4)``: nodes, duration, version, time.

The readable twin is `dovetail.engine.plain_profile`. The kernels live in one file: numba's cache follows
changes of a kernel's own file alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiler import njit

__all__ = [
    "DEPTH",
    "MEMO",
    "VERSION",
    "Floats",
    "Ints",
    "add",
    "classes_up_to",
    "compress",
    "drop_past",
    "first_gap",
    "forget_log",
    "gap_before",
    "give",
    "given_first",
    "least",
    "move",
    "note_all",
    "room_for",
    "steps_of",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CAPACITY = 64
COUNT, ADDED, LOW, HIGH, ORDER, SPARE = range(CAPACITY, CAPACITY + 6)
USED, UNUSED, VERSION = range(3)  # in the last row
DEPTH = 64
FROM, TO, SEEN = range(DEPTH, DEPTH + 3)
MEMO = 256


def steps_of(times: Floats, free: Ints) -> tuple[Ints, Floats]:
    """The arrays of a step function from the times at which its steps begin, ascending, and their numbers."""
    changes = np.flatnonzero(np.concatenate(([True], free[1:] != free[:-1])))
    times, free, half = times[changes], free[changes], CAPACITY // 2
    used = -(-len(times) // half)
    counts = np.zeros((used + 1, CAPACITY + 6), np.int64)
    steps = np.zeros((used, CAPACITY))
    for b in range(used):
        part = free[b * half : (b + 1) * half]
        counts[b, : len(part)], counts[b, COUNT] = part, len(part)
        counts[b, LOW], counts[b, HIGH], counts[b, ORDER] = part.min(), part.max(), b
        steps[b, : len(part)] = times[b * half : (b + 1) * half]
    counts[-1, USED] = used
    return counts, steps


@njit(cache=True)
def room_for(counts: Ints, times: Floats, more: int) -> tuple[Ints, Floats]:
    """The same arrays, or larger ones, with room for so many more steps wherever they are put."""
    used, spare, blocks = counts[-1, USED], counts[-1, UNUSED], len(times)
    needed = used + 2 * more // CAPACITY + 1  # of each block in use, and of each that it fills, one may split
    if spare >= needed:
        return counts, times
    new = 2 * (blocks + needed)
    larger, longer = np.zeros((new + 1, counts.shape[1]), np.int64), np.zeros((new, CAPACITY))
    larger[:blocks], larger[-1], longer[:blocks] = counts[:-1], counts[-1], times
    larger[spare : spare + new - blocks, SPARE] = np.arange(new - 1, blocks - 1, -1)
    larger[-1, UNUSED] = spare + new - blocks
    return larger, longer


@njit(cache=True)
def find(counts: Ints, times: Floats, when: float) -> tuple[int, int]:
    """The position of the step in force at a time; the first one for times before it."""
    low, high = 0, counts[-1, USED]
    while low < high:
        middle = (low + high) >> 1
        if times[counts[middle, ORDER], 0] <= when:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return 0, 0
    place = low - 1
    b = counts[place, ORDER]
    low, high = 0, counts[b, COUNT]
    while low < high:
        middle = (low + high) >> 1
        if times[b, middle] <= when:
            low = middle + 1
        else:
            high = middle
    return place, low - 1


@njit(cache=True)
def number(counts: Ints, place: int, step: int) -> int:
    """Nodes that are free in a step."""
    b = counts[place, ORDER]
    return int(counts[b, step] + counts[b, ADDED])


@njit(cache=True)
def _summarise(counts: Ints, b: int) -> None:
    low = high = counts[b, 0]
    for step in range(1, counts[b, COUNT]):
        low, high = min(low, counts[b, step]), max(high, counts[b, step])
    counts[b, LOW], counts[b, HIGH] = low + counts[b, ADDED], high + counts[b, ADDED]


@njit(cache=True)
def _divide(counts: Ints, times: Floats, when: float) -> tuple[int, int]:
    """The position of the step that begins at a time, which is made if there is none."""
    place, step = find(counts, times, when)
    b = counts[place, ORDER]
    if times[b, step] == when:
        return place, step
    if counts[b, COUNT] == CAPACITY:
        half = CAPACITY // 2
        counts[-1, UNUSED] -= 1
        new = counts[counts[-1, UNUSED], SPARE]
        for k in range(half):
            times[new, k], counts[new, k] = times[b, half + k], counts[b, half + k]
        counts[b, COUNT], counts[new, COUNT] = half, half
        counts[new, ADDED] = counts[b, ADDED]
        for k in range(counts[-1, USED], place + 1, -1):
            counts[k, ORDER] = counts[k - 1, ORDER]
        counts[place + 1, ORDER] = new
        counts[-1, USED] += 1
        _summarise(counts, b)
        _summarise(counts, new)
        if step >= half:
            place, step, b = place + 1, step - half, new
    for k in range(counts[b, COUNT], step + 1, -1):
        times[b, k], counts[b, k] = times[b, k - 1], counts[b, k - 1]
    step += 1
    times[b, step], counts[b, step] = when, counts[b, step - 1]
    counts[b, COUNT] += 1
    return place, step


@njit(cache=True)
def _discard(counts: Ints, place: int) -> None:
    """Take a block out of use."""
    counts[counts[-1, UNUSED], SPARE] = counts[place, ORDER]
    counts[-1, UNUSED] += 1
    counts[-1, USED] -= 1
    for k in range(place, counts[-1, USED]):
        counts[k, ORDER] = counts[k + 1, ORDER]


@njit(cache=True)
def _join(counts: Ints, times: Floats, when: float) -> None:
    """Make one step of that which begins at a time and the one before, if they have the same number."""
    place, step = find(counts, times, when)
    b = counts[place, ORDER]
    if times[b, step] != when or (place == 0 and step == 0):
        return
    if step > 0:
        before = counts[b, step - 1]
    else:
        a = counts[place - 1, ORDER]
        before = counts[a, counts[a, COUNT] - 1] + counts[a, ADDED] - counts[b, ADDED]
    if before != counts[b, step]:
        return
    counts[b, COUNT] -= 1
    if counts[b, COUNT] == 0:
        _discard(counts, place)
        return
    for k in range(step, counts[b, COUNT]):
        times[b, k], counts[b, k] = times[b, k + 1], counts[b, k + 1]
    if step == 0:
        _summarise(counts, b)


@njit(cache=True)
def add(counts: Ints, times: Floats, start: float, end: float, nodes: int) -> None:
    """Add so many nodes from a time on to another, infinite perhaps. O(blocks between, and two of them)."""
    if end < np.inf:
        _divide(counts, times, end)
    place, step = _divide(counts, times, start)
    while place < counts[-1, USED]:
        b = counts[place, ORDER]
        if times[b, 0] >= end:
            break
        if step == 0 and times[b, counts[b, COUNT] - 1] < end:
            counts[b, ADDED] += nodes
            counts[b, LOW] += nodes
            counts[b, HIGH] += nodes
        else:
            for k in range(step, counts[b, COUNT]):
                if times[b, k] >= end:
                    break
                counts[b, k] += nodes
            _summarise(counts, b)
        place, step = place + 1, 0
    if end < np.inf:
        _join(counts, times, end)
    _join(counts, times, start)


@njit(cache=True)
def next_with(counts: Ints, nodes: int, place: int, step: int) -> tuple[int, int]:
    """The first step, from a position on, in which so many nodes are free."""
    while place < counts[-1, USED]:
        b = counts[place, ORDER]
        if counts[b, HIGH] >= nodes:
            bar = nodes - counts[b, ADDED]
            for k in range(step, counts[b, COUNT]):
                if counts[b, k] >= bar:
                    return place, k
        place, step = place + 1, 0
    return place, 0


@njit(cache=True)
def next_without(counts: Ints, nodes: int, place: int, step: int) -> tuple[int, int]:
    """The first step, from a position on, in which so many nodes are not free."""
    while place < counts[-1, USED]:
        b = counts[place, ORDER]
        if counts[b, LOW] < nodes:
            bar = nodes - counts[b, ADDED]
            for k in range(step, counts[b, COUNT]):
                if counts[b, k] < bar:
                    return place, k
        place, step = place + 1, 0
    return place, 0


@njit(cache=True)
def run_begin(counts: Ints, nodes: int, place: int, step: int) -> tuple[int, int]:
    """The first of the steps, without a break up to this one, in which so many nodes are free."""
    while True:
        b = counts[place, ORDER]
        if counts[b, LOW] >= nodes:
            step = 0
        else:
            bar = nodes - counts[b, ADDED]
            while step > 0 and counts[b, step - 1] >= bar:
                step -= 1
        if step > 0 or place == 0:
            return place, step
        before = counts[place - 1, ORDER]
        last = counts[before, COUNT] - 1
        if counts[before, last] + counts[before, ADDED] < nodes:
            return place, step
        place, step = place - 1, last


@njit(cache=True)
def least(counts: Ints, times: Floats, start: float, end: float) -> int:
    """The least number that is free between two times, the first of them before the other."""
    place, step = find(counts, times, start)
    found = number(counts, place, step)
    while place < counts[-1, USED]:
        b = counts[place, ORDER]
        if step == 0 and times[b, counts[b, COUNT] - 1] < end:
            found = min(found, counts[b, LOW])
        else:
            for k in range(step, counts[b, COUNT]):
                if times[b, k] >= end:
                    return int(found)
                found = min(found, counts[b, k] + counts[b, ADDED])
        place, step = place + 1, 0
    return int(found)


@njit(cache=True)
def drop_past(counts: Ints, times: Floats, now: float) -> None:
    """Forget the steps that are over; the first one begins at this instant then."""
    while counts[-1, USED] > 1 and times[counts[1, ORDER], 0] <= now:
        _discard(counts, 0)
    b = counts[0, ORDER]
    over = 0
    while over + 1 < counts[b, COUNT] and times[b, over + 1] <= now:
        over += 1
    if over:
        counts[b, COUNT] -= over
        for k in range(counts[b, COUNT]):
            times[b, k], counts[b, k] = times[b, k + over], counts[b, k + over]
        _summarise(counts, b)
    times[b, 0] = now


def classes_up_to(most: int) -> Ints:
    """The class of each number of nodes from 0 on: eight to every doubling, each its own up to 15."""
    numbers = np.arange(1, most + 1)
    octave = np.maximum(0, np.log2(numbers).astype(np.int64) - 3)
    return np.concatenate(([0], 8 * octave + (numbers >> octave) - 1))


@njit(cache=True)
def _note(log: Ints, since: Floats, c: int, version: int, when: float) -> None:
    """A step that begins at this time has come to hold enough for a class."""
    end = log[c, TO]
    while end > log[c, FROM] and since[c, end - 1] >= when:
        end -= 1  # what is newer and earlier stands for it
    if end == DEPTH:
        begin = log[c, FROM]
        if begin == 0:  # no room: the earliest stands for all
            log[c, 0], log[c, TO] = version, 1
            return
        for k in range(begin, end):
            log[c, k - begin], since[c, k - begin] = log[c, k], since[c, k]
        log[c, FROM], end = 0, end - begin
    log[c, end], since[c, end], log[c, TO] = version, when, end + 1


def note_all(counts: Ints, log: Ints, since: Floats, when: float) -> None:
    """From this time on enough for any class may have been given back."""
    counts[-1, VERSION] += 1
    for c in range(len(log)):
        _note(log, since, c, counts[-1, VERSION], when)


@njit(cache=True)
def _given_since(log: Ints, since: Floats, c: int, version: int) -> float:
    """The earliest time at which enough for the class has been given back after a version."""
    low, high = log[c, FROM], log[c, TO]
    if low == high or log[c, high - 1] <= version:
        return np.inf
    while low < high:
        middle = (low + high) >> 1
        if log[c, middle] <= version:
            low = middle + 1
        else:
            high = middle
    return float(since[c, low])


@njit(cache=True)
def given_first(log: Ints, since: Floats, reach: Floats) -> None:
    """Write for each class the earliest time, of those logged, at which enough was given back for it."""
    for c in range(len(log)):
        reach[c] = since[c, log[c, FROM]] if log[c, FROM] < log[c, TO] else np.inf


@njit(cache=True)
def forget_log(log: Ints, version: int) -> None:
    """Forget what was given back up to a version: all promises have been looked at since."""
    for c in range(len(log)):
        while log[c, FROM] < log[c, TO] and log[c, log[c, FROM]] <= version:
            log[c, FROM] += 1


@njit(cache=True)
def give(
    counts: Ints,
    times: Floats,
    classes: Ints,
    log: Ints,
    since: Floats,
    start: float,
    end: float,
    nodes: int,
) -> None:
    """Give nodes back from a time on to another, and log it for the classes that may now fit."""
    counts[-1, VERSION] += 1
    version = counts[-1, VERSION]
    place, step = find(counts, times, start)
    while place < counts[-1, USED]:
        b = counts[place, ORDER]
        if times[b, 0] >= end:
            break
        for k in range(step, counts[b, COUNT]):
            if times[b, k] >= end:
                break
            before = counts[b, k] + counts[b, ADDED]
            for c in range(classes[before + 1], classes[before + nodes] + 1):
                if log[c, SEEN] != version:
                    log[c, SEEN] = version
                    _note(log, since, c, version, max(start, times[b, k]))
        place, step = place + 1, 0
    add(counts, times, start, end, nodes)


@njit(cache=True)
def first_gap(counts: Ints, times: Floats, nodes: int, duration: float, start: float, after: float) -> float:
    """The first time, before ``start``, from which so many nodes are free for so long, or until ``start``.

    From then on the job itself holds them. Looked at are gaps that have not ended by the time ``after``.
    Infinite if there is none; ``start`` is infinite for a job that holds nothing.
    """
    place, step = find(counts, times, after)
    place, step = next_with(counts, nodes, place, step)
    if place == counts[-1, USED] or times[counts[place, ORDER], step] >= start:
        return np.inf
    place, step = run_begin(counts, nodes, place, step)
    while place < counts[-1, USED]:
        found = times[counts[place, ORDER], step]
        if found >= start:
            return np.inf
        place, step = next_without(counts, nodes, place, step)
        if place == counts[-1, USED]:
            return float(found)
        if times[counts[place, ORDER], step] >= min(found + duration, start):
            return float(found)
        place, step = next_with(counts, nodes, place, step)
    return np.inf


@njit(cache=True)
def _step_before(counts: Ints, times: Floats, when: float) -> tuple[int, int]:
    """The position of the step in force just before a time."""
    place, step = find(counts, times, when)
    if times[counts[place, ORDER], step] < when:
        return place, step
    return (place, step - 1) if step else (place - 1, counts[counts[place - 1, ORDER], COUNT] - 1)


@njit(cache=True)
def _emit(
    runs: Ints,
    slots: Floats,
    count: int,
    nodes: int,
    jobs: int,
    c: int,
    version: int,
    start: float,
    duration: float,
) -> int:
    """Add so many jobs to the runs, to the last one if it is the same; how many runs there are then."""
    if count:
        last = count - 1
        if runs[last, 0] == nodes and slots[last, 0] == start and slots[last, 1] == duration:
            runs[last, 1] += jobs
            runs[last, 3] = min(runs[last, 3], version)
            return count
    runs[count, 0], runs[count, 1], runs[count, 2], runs[count, 3] = nodes, jobs, c, version
    slots[count, 0], slots[count, 1] = start, duration
    return count + 1


@njit(cache=True)
def gap_before(
    counts: Ints,
    times: Floats,
    log: Ints,
    since: Floats,
    memo: Floats,
    now: float,
    nodes: int,
    duration: float,
    c: int,
    version: int,
    start: float,
) -> float:
    """The first gap before the promised ``start`` of a job of this class that had none at a version.

    Infinite if there is none. What is found is remembered for jobs of its kind.
    """
    after = _given_since(log, since, c, version)
    if after >= start:
        return np.inf
    m = (nodes * 31 + (np.int64(duration) if duration < 1e15 else 0)) % MEMO
    if memo[m, 0] == nodes and memo[m, 1] == duration:
        known = min(memo[m, 3], _given_since(log, since, c, np.int64(memo[m, 2])))
        if known > after:
            # No gap before that; but for a job that holds what begins at its start there may be one
            # that ends there.
            after = known
            place, step = _step_before(counts, times, start)
            if number(counts, place, step) >= nodes:
                after = min(after, times[counts[place, ORDER], step])
            if after >= start:
                return np.inf
    found: float = first_gap(counts, times, nodes, duration, start, max(after, now))
    memo[m, 0], memo[m, 1] = nodes, duration
    memo[m, 2], memo[m, 3] = counts[-1, VERSION], min(found, start)
    return found


@njit(cache=True)
def move(
    counts: Ints,
    times: Floats,
    classes: Ints,
    log: Ints,
    since: Floats,
    nodes: int,
    start: float,
    found: float,
    duration: float,
) -> None:
    """Move nodes that are held from ``start`` on to an earlier time; what is held before and after stays."""
    end = found + duration
    if end > start:
        if start + duration > end:
            give(counts, times, classes, log, since, end, start + duration, nodes)
        add(counts, times, found, start, -nodes)
    else:
        give(counts, times, classes, log, since, start, start + duration, nodes)
        add(counts, times, found, end, -nodes)


@njit(cache=True)
def compress(
    counts: Ints,
    times: Floats,
    classes: Ints,
    log: Ints,
    since: Floats,
    memo: Floats,
    now: float,
    runs: Ints,
    slots: Floats,
    new_runs: Ints,
    new_slots: Floats,
) -> tuple[int, int]:
    """Make every promise anew in turn; gives how many new runs there are, and how many jobs have moved.

    The arrays of the new runs must have room for one run a job.
    """
    count = moved = 0
    for r in range(len(runs)):
        nodes, jobs, c, version = runs[r, 0], runs[r, 1], runs[r, 2], runs[r, 3]
        start, duration = slots[r, 0], slots[r, 1]
        while jobs and start > now:
            found = gap_before(counts, times, log, since, memo, now, nodes, duration, c, version, start)
            if found >= start:
                break
            some = min(jobs, least(counts, times, found, min(start, found + duration)) // nodes)
            move(counts, times, classes, log, since, some * nodes, start, found, duration)
            jobs, moved = jobs - some, moved + some
            at = counts[-1, VERSION]
            count = _emit(new_runs, new_slots, count, nodes, some, c, at, found, duration)
        if jobs:
            at = counts[-1, VERSION]
            count = _emit(new_runs, new_slots, count, nodes, jobs, c, at, start, duration)
    return count, moved
