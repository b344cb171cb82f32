/* Free nodes over time where nodes are alike, and the promises that are made in it.
 *
 * dovetail.native.steps makes the arrays and calls this. The specification is dovetail.engine.profile.nodes, which
 * says the same node by node; property tests hold it to that.
 *
 * The profile is a step function, searched and changed in about the square root of its steps. A step lasts
 * until the next one begins, the last for ever; neighbours with the same number are made one. Steps lie in
 * blocks, each of which knows how many it has, what is to be added to all its numbers, and the least and the
 * greatest of the sums. A position is (place in the order of the blocks, step of that block); past the last
 * step it is (blocks in use, 0).
 *
 * The promises of a queue are made anew in turn after an early end: each moves to the first gap before its
 * start, all others in place. To look for gaps from the beginning, for all promises and at every early end,
 * would cost the square of the queue. Three things save that:
 * - Promises of like jobs (same nodes, same limit) that follow each other and start together are one run: they
 *   move together as far as there is room.
 * - A promise that could not move earlier can only do so where nodes have been given back since. For each class
 *   of numbers of nodes a log says as of which version, and from when on, a step has come to hold so many. Each
 *   run knows the version as of which it has no earlier gap.
 * - Of the last jobs of each kind it is remembered before which time there was no gap for them.
 */
#include "kernels.h"

enum { CAPACITY = 64, DEPTH = 64, MEMO = 256 };

typedef struct {
    number count, added, low, high;
    number free[CAPACITY];
    double since[CAPACITY];
} Block;

typedef struct { /* of a class: when enough was given back, and as of which version; both ascend */
    number from, to, seen;
    number version[DEPTH];
    double when[DEPTH];
} Log;

typedef struct {
    number nodes, version;
    double duration, before;
} Memo;

typedef struct {
    number room, used, unused, version, looked_at, classes, most;
    Block *blocks;            /* room of them */
    number *order, *spare;    /* the blocks in use by time; those that are not in use */
    const number *class_of;   /* the class of each number of nodes */
    Log *logs;                /* of each class */
    Memo *memos;
} Steps;

typedef struct {
    number place, step;
} Position;

static Block *block_at(const Steps *s, number place) { return &s->blocks[s->order[place]]; }

static int is_end(const Steps *s, Position at) { return at.place == s->used; }

static double time_at(const Steps *s, Position at) { return block_at(s, at.place)->since[at.step]; }

/* How many of ascending values are at most so large. */
static number until(const double *values, number n, double most) {
    number low = 0, high = n;
    while (low < high) {
        number middle = (low + high) >> 1;
        if (values[middle] <= most)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The step in force at a time; the first one for times before it. */
static Position find(const Steps *s, double when) {
    number low = 0, high = s->used;
    while (low < high) {
        number middle = (low + high) >> 1;
        if (block_at(s, middle)->since[0] <= when)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return (Position){0, 0};
    const Block *b = block_at(s, low - 1);
    return (Position){low - 1, until(b->since, b->count, when) - 1};
}

static number free_in(const Steps *s, Position at) {
    const Block *b = block_at(s, at.place);
    return b->free[at.step] + b->added;
}

static void summarise(Block *b) {
    number low = b->free[0], high = b->free[0];
    for (number k = 1; k < b->count; k++) {
        if (b->free[k] < low) low = b->free[k];
        if (b->free[k] > high) high = b->free[k];
    }
    b->low = low + b->added;
    b->high = high + b->added;
}

static void move_steps(Block *to, number at, const Block *from, number first, number count) {
    memmove(to->free + at, from->free + first, sizeof(number) * (size_t)count);
    memmove(to->since + at, from->since + first, sizeof(double) * (size_t)count);
}

/* The step that begins at a time; it is made if there is none. */
static Position divide(Steps *s, double when) {
    Position at = find(s, when);
    Block *b = block_at(s, at.place);
    if (b->since[at.step] == when) return at;
    if (b->count == CAPACITY) {
        number half = CAPACITY / 2, fresh = s->spare[--s->unused];
        Block *other = &s->blocks[fresh];
        move_steps(other, 0, b, half, half);
        b->count = other->count = half;
        other->added = b->added;
        memmove(s->order + at.place + 2, s->order + at.place + 1, sizeof(number) * (size_t)(s->used - at.place - 1));
        s->order[at.place + 1] = fresh;
        s->used++;
        summarise(b);
        summarise(other);
        if (at.step >= half) {
            at = (Position){at.place + 1, at.step - half};
            b = other;
        }
    }
    at.step++;
    move_steps(b, at.step + 1, b, at.step, b->count - at.step);
    b->since[at.step] = when;
    b->free[at.step] = b->free[at.step - 1];
    b->count++;
    return at;
}

/* Take a block out of use. */
static void discard(Steps *s, number place) {
    s->spare[s->unused++] = s->order[place];
    s->used--;
    memmove(s->order + place, s->order + place + 1, sizeof(number) * (size_t)(s->used - place));
}

/* Make one step of that which begins at a time and the one before, if they have the same number. */
static void join(Steps *s, double when) {
    Position at = find(s, when);
    Block *b = block_at(s, at.place);
    if (b->since[at.step] != when || (at.place == 0 && at.step == 0)) return;
    Position before = at.step > 0 ? (Position){at.place, at.step - 1}
                                  : (Position){at.place - 1, block_at(s, at.place - 1)->count - 1};
    if (free_in(s, before) != free_in(s, at)) return;
    if (--b->count == 0) {
        discard(s, at.place);
        return;
    }
    move_steps(b, at.step, b, at.step + 1, b->count - at.step);
    if (at.step == 0) summarise(b);
}

/* Add so many nodes from a time on to another, infinite perhaps. O(blocks between, and two of them). */
void dovetail_steps_add(Steps *s, double start, double end, number nodes) {
    if (end < INFINITY) divide(s, end);
    Position at = divide(s, start);
    for (; !is_end(s, at); at = (Position){at.place + 1, 0}) {
        Block *b = block_at(s, at.place);
        if (b->since[0] >= end) break;
        if (at.step == 0 && b->since[b->count - 1] < end) {
            b->added += nodes;
            b->low += nodes;
            b->high += nodes;
        } else {
            for (number k = at.step; k < b->count && b->since[k] < end; k++) b->free[k] += nodes;
            summarise(b);
        }
    }
    if (end < INFINITY) join(s, end);
    join(s, start);
}

/* The first step, from a position on, in which so many nodes are free (or, without, are not). */
static Position next(const Steps *s, number nodes, Position at, int without) {
    for (; !is_end(s, at); at = (Position){at.place + 1, 0}) {
        const Block *b = block_at(s, at.place);
        number bar = nodes - b->added;
        if (without ? b->low >= nodes : b->high < nodes) continue;
        for (number k = at.step; k < b->count; k++)
            if ((b->free[k] < bar) == without) return (Position){at.place, k};
    }
    return at;
}

/* The first of the steps, without a break up to this one, in which so many nodes are free. */
static Position run_begin(const Steps *s, number nodes, Position at) {
    for (;;) {
        const Block *b = block_at(s, at.place);
        if (b->low >= nodes)
            at.step = 0;
        else
            while (at.step > 0 && b->free[at.step - 1] >= nodes - b->added) at.step--;
        if (at.step > 0 || at.place == 0) return at;
        Position before = {at.place - 1, block_at(s, at.place - 1)->count - 1};
        if (free_in(s, before) < nodes) return at;
        at = before;
    }
}

/* The least number that is free between two times, the first of them before the other. */
number dovetail_steps_least(const Steps *s, double start, double end) {
    Position at = find(s, start);
    number found = free_in(s, at);
    for (; !is_end(s, at); at = (Position){at.place + 1, 0}) {
        const Block *b = block_at(s, at.place);
        if (at.step == 0 && b->since[b->count - 1] < end) {
            if (b->low < found) found = b->low;
            continue;
        }
        for (number k = at.step; k < b->count; k++) {
            if (b->since[k] >= end) return found;
            if (b->free[k] + b->added < found) found = b->free[k] + b->added;
        }
    }
    return found;
}

/* Forget the steps that are over; the first one begins at this instant then. */
void dovetail_steps_advance(Steps *s, double now) {
    while (s->used > 1 && block_at(s, 1)->since[0] <= now) discard(s, 0);
    Block *b = block_at(s, 0);
    number over = until(b->since + 1, b->count - 1, now);
    if (over) {
        b->count -= over;
        move_steps(b, 0, b, over, b->count);
        summarise(b);
    }
    b->since[0] = now;
}

/* A step that begins at this time has come to hold enough for a class. */
static void note(Log *log, number version, double when) {
    number end = log->to;
    while (end > log->from && log->when[end - 1] >= when) end--; /* what is newer and earlier stands for it */
    if (end == DEPTH) {
        number begin = log->from;
        if (begin == 0) { /* no room: the earliest stands for all */
            log->version[0] = version;
            log->to = 1;
            return;
        }
        end -= begin;
        memmove(log->version, log->version + begin, sizeof(number) * (size_t)end);
        memmove(log->when, log->when + begin, sizeof(double) * (size_t)end);
        log->from = 0;
    }
    log->version[end] = version;
    log->when[end] = when;
    log->to = end + 1;
}

/* From this time on enough for any class may have been given back. */
void dovetail_steps_note_all(Steps *s, double when) {
    s->version++;
    for (number c = 0; c < s->classes; c++) note(&s->logs[c], s->version, when);
}

/* The earliest time at which enough for the class has been given back after a version. */
static double given_since(const Log *log, number version) {
    number low = log->from, high = log->to;
    if (low == high || log->version[high - 1] <= version) return INFINITY;
    while (low < high) {
        number middle = (low + high) >> 1;
        if (log->version[middle] <= version)
            low = middle + 1;
        else
            high = middle;
    }
    return log->when[low];
}

/* Give nodes back from a time on to another, and log it for the classes that may now fit. */
void dovetail_steps_give(Steps *s, double start, double end, number nodes) {
    number version = ++s->version;
    for (Position at = find(s, start); !is_end(s, at); at = (Position){at.place + 1, 0}) {
        const Block *b = block_at(s, at.place);
        if (b->since[0] >= end) break;
        for (number k = at.step; k < b->count && b->since[k] < end; k++) {
            number before = b->free[k] + b->added, after = before + nodes;
            if (before < 0 || after > s->most) continue; /* given back without being held: of no use any more */
            for (number c = s->class_of[before + 1]; c <= s->class_of[after]; c++)
                if (s->logs[c].seen != version) {
                    s->logs[c].seen = version;
                    note(&s->logs[c], version, fmax(start, b->since[k]));
                }
        }
    }
    dovetail_steps_add(s, start, end, nodes);
}

/* The first time, before `start`, from which so many nodes are free for so long, or until `start`: from then on
 * the job itself holds them. Looked at are gaps that have not ended by the time `after`. Infinite if there is
 * none; `start` is infinite for a job that holds nothing. */
double dovetail_steps_first_gap(const Steps *s, number nodes, double duration, double start, double after) {
    Position at = next(s, nodes, find(s, after), 0);
    if (is_end(s, at) || time_at(s, at) >= start) return INFINITY;
    at = run_begin(s, nodes, at);
    while (!is_end(s, at)) {
        double found = time_at(s, at);
        if (found >= start) return INFINITY;
        at = next(s, nodes, at, 1);
        if (is_end(s, at) || time_at(s, at) >= fmin(found + duration, start)) return found;
        at = next(s, nodes, at, 0);
    }
    return INFINITY;
}

typedef struct {
    number nodes, jobs, class_, version;
} Run;

typedef struct {
    double start, duration;
} Slot;

/* The first gap before the promised start of a run that had none at its version; infinite if there is none. What
 * is found is remembered for jobs of its kind. */
static double gap_before(Steps *s, double now, const Run *run, const Slot *slot) {
    const Log *log = &s->logs[run->class_];
    double after = given_since(log, run->version), start = slot->start;
    if (after >= start) return INFINITY;
    Memo *memo = &s->memos[(run->nodes * 31 + (slot->duration < 1e15 ? (number)slot->duration : 0)) % MEMO];
    if (memo->nodes == run->nodes && memo->duration == slot->duration) {
        double known = fmin(memo->before, given_since(log, memo->version));
        if (known > after) {
            /* No gap before that; but for a job that holds what begins at its start there may be one that ends
             * there. */
            after = known;
            Position at = find(s, start);
            if (time_at(s, at) >= start)
                at = at.step ? (Position){at.place, at.step - 1}
                             : (Position){at.place - 1, block_at(s, at.place - 1)->count - 1};
            if (free_in(s, at) >= run->nodes) after = fmin(after, time_at(s, at));
            if (after >= start) return INFINITY;
        }
    }
    double found = dovetail_steps_first_gap(s, run->nodes, slot->duration, start, fmax(after, now));
    *memo = (Memo){run->nodes, s->version, slot->duration, fmin(found, start)};
    return found;
}

/* Move nodes that are held from the slot's start on to an earlier time; what is held before and after stays. */
static void move(Steps *s, number nodes, const Slot *slot, double found) {
    double end = found + slot->duration, last = slot->start + slot->duration;
    if (end > slot->start) {
        if (last > end) dovetail_steps_give(s, end, last, nodes);
        dovetail_steps_add(s, found, slot->start, -nodes);
    } else {
        dovetail_steps_give(s, slot->start, last, nodes);
        dovetail_steps_add(s, found, end, -nodes);
    }
}

/* Add so many jobs to the runs, to the last one if it is the same; how many runs there are then. */
static number emit(Run *runs, Slot *slots, number count, Run run, Slot slot) {
    if (count) {
        Run *last = &runs[count - 1];
        const Slot *at = &slots[count - 1];
        if (last->nodes == run.nodes && at->start == slot.start && at->duration == slot.duration) {
            last->jobs += run.jobs;
            if (run.version < last->version) last->version = run.version;
            return count;
        }
    }
    runs[count] = run;
    slots[count] = slot;
    return count + 1;
}

/* Make every promise anew in turn; how many new runs there are. `moved` becomes the number of jobs that moved. The
 * arrays of the new runs must have room for one run a job. */
number dovetail_steps_compress(Steps *s, double now, const Run *runs, const Slot *slots, number n, Run *new_runs,
                               Slot *new_slots, number *moved) {
    number count = 0;
    for (number c = 0; c < s->classes; c++) { /* all promises have been looked at since then */
        Log *log = &s->logs[c];
        while (log->from < log->to && log->version[log->from] <= s->looked_at) log->from++;
    }
    s->looked_at = s->version;
    *moved = 0;
    for (number r = 0; r < n; r++) {
        Run run = runs[r];
        Slot slot = slots[r];
        while (run.jobs && slot.start > now) {
            double found = gap_before(s, now, &run, &slot);
            if (found >= slot.start) break;
            number some = dovetail_steps_least(s, found, fmin(slot.start, found + slot.duration)) / run.nodes;
            if (some > run.jobs) some = run.jobs;
            move(s, some * run.nodes, &slot, found);
            run.jobs -= some;
            *moved += some;
            Run part = {run.nodes, some, run.class_, s->version};
            count = emit(new_runs, new_slots, count, part, (Slot){found, slot.duration});
        }
        if (run.jobs) {
            run.version = s->version;
            count = emit(new_runs, new_slots, count, run, slot);
        }
    }
    return count;
}
