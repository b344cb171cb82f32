"""Roll-outs of EASY backfilling over counted processors: what an order of the queue would lead to.

Times are seconds from now. Jobs are numbered: first those that wait, then those that are thought to come, by
``submit``. A roll-out knows of each job its ``width`` (processors), its ``wall`` (the bound that EASY plans
with) and how ``long`` it is assumed to run. `native/backfilling.c` is the compiled side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dovetail.files.arrays import Floats, Ints, np
from dovetail.native.library import kernel

WAIT, SLOWDOWN, LAST_END = 0, 1, 2
"""What is summed: waits, bounded slowdowns (10 s), or the last end alone with a little of the waits."""
SURELY = 1 - 1e-9
"""Of a sum that is taken in another order: rounding is not to pass for more than enough."""
LEAST = 10.0
"""Shorter jobs count as so long: the threshold of the bounded slowdown."""
OWN, PRIOR = 8, 2.0
"""Of each user's runs the last eight predict how long the next takes, against two of the average user."""


def expected(
    users: Ints, walls: Floats, past_users: Ints, past_walls: Floats, past: Floats
) -> tuple[Floats, Floats]:
    """How long each job is expected to run, in seconds; lengths below `LEAST` count as `LEAST`.

    What is known are past runs, oldest first: whose (users are numbers), their walltimes and their lengths.
    Averaged are the parts of their walltimes that a user's last `OWN` runs took, those of about this walltime
    counting most, with `PRIOR` runs of the average user. Returns the means, and the harmonic means: a job's
    slowdown grows by one over the latter a second. O(jobs · past runs).
    """
    means, harmonic = np.empty(len(walls)), np.empty(len(walls))
    _expected(users, walls, past_users, past_walls, past, means, harmonic)
    return means, harmonic


@kernel
def _expected(
    users: Ints,
    walls: Floats,
    past_users: Ints,
    past_walls: Floats,
    past: Floats,
    means: Floats,
    harmonic: Floats,
) -> None:
    prior, prior_inverse = 1.0, 1.0
    if len(past):
        prior, prior_inverse = 0.0, 0.0
        for i in range(len(past)):
            part = min(1.0, max(past[i], LEAST) / max(past_walls[i], LEAST))
            prior += part
            prior_inverse += 1 / part
        prior /= len(past)
        prior_inverse /= len(past)
    for j in range(len(walls)):
        wall = max(walls[j], LEAST)
        part, inverse, weights, own = PRIOR * prior, PRIOR * prior_inverse, PRIOR, 0
        for i in range(len(past) - 1, -1, -1):
            if past_users[i] != users[j]:
                continue
            weight = 1 / (1 + abs(math.log((past_walls[i] + 1) / (wall + 1))))
            ratio = max(LEAST / wall, min(1.0, past[i] / past_walls[i]))
            part += weight * ratio
            inverse += weight / ratio
            weights += weight
            own += 1
            if own == OWN:
                break
        means[j] = part / weights * wall
        harmonic[j] = weights / inverse * wall


def _mixed(number: int) -> int:
    """A whole number from 0 to 2^31 - 1 that looks drawn at random, the same for the same number."""
    x = number * 6364136223846793005 + 1442695040888963407
    x = (x ^ (x >> 29)) * 3202034522624059733
    x = x ^ (x >> 32)
    return int((x >> 17) & 0x7FFFFFFF)


def futures(
    count: int,
    numbers: Ints,
    users: Ints,
    walls: Floats,
    spent: Floats,
    past_users: Ints,
    past_walls: Floats,
    past: Floats,
) -> Floats:
    """How long each job, which has run for ``spent`` seconds, runs in so many futures; a row is a future.

    As `expected`, but each of the parts that own runs and all runs took has its share of the futures; which
    ones is a matter of the job's number. Parts that a running job has outlived count no more. ``count`` is a
    power of two, so that an odd step comes to each future once. O(jobs · (past runs + futures)).
    """
    found = np.empty((count, len(walls)))
    _futures(numbers, users, walls, spent, past_users, past_walls, past, found)
    return found


@kernel
def _futures(
    numbers: Ints,
    users: Ints,
    walls: Floats,
    spent: Floats,
    past_users: Ints,
    past_walls: Floats,
    past: Floats,
    found: Floats,
) -> None:
    parts = np.sort(np.minimum(1.0, past / np.maximum(past_walls, LEAST)))
    own, count = np.empty(OWN), len(found)
    for j in range(len(walls)):
        wall = max(walls[j], LEAST)
        least = spent[j] / wall if spent[j] > 0 else -1.0
        outlived = int(np.searchsorted(parts, least, side="right"))
        seen, kept = 0, 0
        for i in range(len(past) - 1, -1, -1):
            if past_users[i] != users[j]:
                continue
            part = max(LEAST / wall, min(1.0, past[i] / past_walls[i]))
            if part > least:
                own[kept] = part
                kept += 1
            seen += 1
            if seen == OWN:
                break
        others = len(parts) - outlived
        prior = PRIOR * others / len(parts) if len(parts) else 0.0
        drawn = _mixed(numbers[j])
        for f in range(count):
            # 2 · drawn + 1 is odd, hence prime to `count`: each future gets another of the job's parts, and
            # all parts have their share, with one multiplication and without a table.
            at = (((2 * drawn + 1) * f + (drawn >> 4)) % count + 0.5) / count * (prior + kept)
            # Nothing known has lasted that long: half as much again, or the walltime where nothing is known.
            if prior + kept == 0:
                found[f, j] = 1.5 * spent[j] if len(parts) else wall
            elif at < prior:
                found[f, j] = max(LEAST, parts[outlived + int(at / prior * others)] * wall)
            else:
                found[f, j] = own[int(at - prior)] * wall


def _enter(width: int, end: float, bound: float, n: int, widths: Ints, ends: Floats, bounds: Floats) -> None:
    """Put a job that starts among the ``n`` running ones, which stand by their bounds."""
    at = n
    while at > 0 and bounds[at - 1] > bound:
        widths[at], ends[at], bounds[at] = widths[at - 1], ends[at - 1], bounds[at - 1]
        at -= 1
    widths[at], ends[at], bounds[at] = width, end, bound


def _leave(now: float, n: int, widths: Ints, ends: Floats, bounds: Floats) -> tuple[int, int, float]:
    """Take out of the running jobs those that have ended.

    Returns how many are left, what the others held, and when the next one ends.
    """
    kept, given, following = 0, 0, np.inf
    for i in range(n):
        if ends[i] > now:
            widths[kept], ends[kept], bounds[kept] = widths[i], ends[i], bounds[i]
            following = min(following, ends[i])
            kept += 1
        else:
            given += widths[i]
    return kept, given, following


class Jobs(NamedTuple):
    """What runs, by ascending bounds, and what waits (``known`` of them) or is thought to come.

    ``free`` processors, and of each job those that it takes, how ``long`` it is assumed to run, and the bound
    that EASY plans with (``running_bound``, ``wall``). Times are seconds from now.
    """

    free: int
    running_width: Ints
    running_long: Floats
    running_bound: Floats
    width: Ints
    wall: Floats
    long: Floats
    submit: Floats
    known: int


def roll_out(jobs: Jobs, rank: Ints, head: int, summed: int, enough: float) -> float:
    """The score if EASY goes on in this order; stops with infinity once it is above ``enough``.

    ``rank`` is each job's place in the order, ``head`` the one that holds a promise, or -1.
    O(events · jobs waiting).
    """
    free, running_width, running_long, running_bound, width, wall, long, submit, known = jobs
    total = len(width)
    n = len(running_width)
    widths, ends, bounds = np.empty(n + total, np.int64), np.empty(n + total), np.empty(n + total)
    widths[:n], ends[:n], bounds[:n] = running_width, running_long, running_bound
    following = running_long.min() if n else np.inf
    waiting = np.empty(total, np.int64)
    waiting[:known] = np.argsort(rank[:known])
    m, coming = known, known
    now, score, last = 0.0, 0.0, 0.0
    # The sum of the submission times of what waits: with it the waits until now are one subtraction.
    came = 0.0
    for j in range(known):
        came += submit[j]
    while m > 0 or coming < total:
        # Keep the line in its order.
        while coming < total and submit[coming] <= now:
            at = m
            while at > 0 and rank[waiting[at - 1]] > rank[coming]:
                waiting[at] = waiting[at - 1]
                at -= 1
            waiting[at] = coming
            came += submit[coming]
            m += 1
            coming += 1
        # Start from the front while jobs fit. One that does not becomes the head, and stays it even if a
        # job of a better rank comes: it holds a promise, as under EASY.
        while m > 0:
            j = head if head >= 0 else waiting[0]
            if width[j] > free:
                head = j
                break
            head = -1
            kept = 0
            for i in range(m):
                if waiting[i] != j:
                    waiting[kept] = waiting[i]
                    kept += 1
            m = kept
            free -= width[j]
            _enter(width[j], now + long[j], now + wall[j], n, widths, ends, bounds)
            n += 1
            following = min(following, now + long[j])
            score += _cost(now - submit[j], long[j], total, summed)
            came -= submit[j]
            last = max(last, now + long[j])
        if m > 1 and free > 0:  # backfill behind the head
            shadow, extra = _shadow(free, width[head], n, widths, bounds)
            # A bound may have passed (an overrun): nothing starts in the past.
            shadow = max(shadow, now)
            kept = 0
            for i in range(m):
                j = waiting[i]
                in_time = now + wall[j] <= shadow
                if j == head or width[j] > free or not (in_time or width[j] <= extra):
                    waiting[kept] = j
                    kept += 1
                    continue
                if not in_time:
                    extra -= width[j]
                free -= width[j]
                _enter(width[j], now + long[j], now + wall[j], n, widths, ends, bounds)
                n += 1
                following = min(following, now + long[j])
                score += _cost(now - submit[j], long[j], total, summed)
                came -= submit[j]
                last = max(last, now + long[j])
            m = kept
        # A bound of the final score, so that a hopeless order is given up early: waits until now are certain.
        if summed == WAIT:
            # Compared with a sum that was added up in another order: `SURELY` leaves room for rounding.
            unseen = SURELY * (m * now - came)
        else:
            # The others' slowdowns are 1 at least.
            unseen = last if summed == LAST_END else (m + total - coming) * 1.0
        if score + unseen > enough:
            return np.inf
        now = min(following, submit[coming]) if coming < total else following
        if now == np.inf:
            return np.inf  # what is left never fits
        if following <= now:
            n, given, following = _leave(now, n, widths, ends, bounds)
            free += given
    return score + last if summed == LAST_END else score


@kernel
def roll_outs(jobs: Jobs, ranks: Ints, head: int, summed: int, enough: float, scores: Floats) -> None:
    """Fill in the score of each order (a row of ``ranks``): the sum of `roll_out` over all futures.

    ``running_long`` and ``long`` have a row for each future. Infinity stands for what is above ``enough``, or
    above the score of an order before.
    """
    # The least that a future can come to.
    waited = 0.0
    if summed == WAIT:
        for j in range(jobs.known):
            waited += SURELY * max(0.0, -jobs.submit[j])
    for order, rank in enumerate(ranks):
        score = 0.0
        for future in range(len(jobs.long)):
            one = jobs._replace(running_long=jobs.running_long[future], long=jobs.long[future])
            others = waited * (len(jobs.long) - 1 - future)
            score += roll_out(one, rank, head, summed, enough - score - others)
            if score == np.inf:
                break
        scores[order] = score
        enough = min(enough, score)


def _cost(wait: float, long: float, total: int, summed: int) -> float:
    """What a start adds to the score."""
    if summed == WAIT:
        return wait
    if summed == SLOWDOWN:
        return max(1.0, (wait + long) / max(long, LEAST))
    return 1e-3 * wait / total


def _shadow(free: int, wanted: int, n: int, widths: Ints, bounds: Floats) -> tuple[float, int]:
    """When the head can start by the bounds of what runs, and what is free then beside it."""
    extra = free - wanted
    when = np.inf
    for i in range(n):
        if extra >= 0 and bounds[i] > when:
            break
        extra += widths[i]
        if extra >= 0:
            when = bounds[i]
    return when, max(extra, 0)


@kernel
def worth_keeping(
    width: int,
    long: float,
    second: float,
    free: int,
    ends: Floats,
    widths: Ints,
    coming_width: Ints,
    coming_long: Floats,
    rate: float,
) -> bool:
    """Whether a job had better wait for the next end, so that others find room that are likely to come.

    The job is ``long`` and fits now; ``second`` is what each second costs in which it does not run. Running
    jobs are given by their ascending ``ends``. Of each kind of coming job ``rate`` come a second: one
    that fits now and would not beside the job is spared its wait for enough ends, of which its slowdown is
    the part of its length; the job waits for its end in turn. O(kinds · running jobs).
    """
    if not len(ends):
        return False
    soon = max(1.0, ends[0])
    spared = 0.0
    for i in range(len(coming_width)):
        room, wait = free - width, 0.0
        # Only jobs that cannot start beside this one, and could without it, are in question.
        if not room < coming_width[i] <= free:
            continue
        for k in range(len(ends)):
            room += widths[k]
            if room >= coming_width[i]:
                wait = ends[k]
                break
        wait = min(wait, long) if room >= coming_width[i] else long
        # It comes at any moment until then.
        within = min(soon, wait)
        slowdown = (wait * within - within * within / 2) / max(coming_long[i], LEAST)
        spared += rate * max(0.0, slowdown - within * coming_long[i] * second)
    return bool(spared > soon * second)
