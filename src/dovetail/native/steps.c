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
 * would cost the square of the queue. Four things save that:
 * - Promises of like jobs (same nodes, same limit) that follow each other and start together are one run: they
 *   move together as far as there is room.
 * - A promise that could not move earlier can only do so where nodes have been given back since. For each class
 *   of numbers of nodes a log says as of which version, and from when on, a step has come to hold so many. Each
 *   run knows the version as of which it has no earlier gap.
 * - It is remembered before which time there was no gap for the last jobs of each class, by half octaves of
 *   their limits:
 *   there was none either for jobs that need more nodes, or for longer.
 * - Each block knows, class by class, how long its runs of steps are that hold enough: most are passed over whole.
 */
#include "kernels.h"

enum { CAPACITY = 64, DEPTH = 64, MEMO = 8 };

typedef struct {
    number count, added, low, high, stamp; /* stamp: another one after each change of its runs */
    number free[CAPACITY];
    double since[CAPACITY];
} Block;

typedef struct { /* of a block and a class: its steps with enough for the least of the class, run by run */
    number stamp;  /* the block's when this was found */
    double opens;  /* when the run ends that the block begins with; its own begin: there is none, infinite: never */
    double closes; /* when the run begins that goes on behind the block; infinite: there is none */
    double longest; /* how long the longest of the others is */
} Runs;

typedef struct { /* of a class: when enough was given back, and as of which version; both ascend */
    number from, to, seen;
    number version[DEPTH];
    double when[DEPTH];
} Log;

typedef struct { /* there is no gap for so many nodes and so long before that time */
    number nodes;
    double duration, before;
} Memo;

typedef struct {
    number room, used, unused, version, looked_at, classes, most, stamps;
    Block *blocks;            /* room of them */
    number *order, *spare;    /* the blocks in use by time; those that are not in use */
    const number *class_of;   /* the class of each number of nodes */
    const number *least_of;   /* the least number of nodes of each class */
    Log *logs;                /* of each class */
    Memo *memos;
    Runs *runs;               /* of each block, of each class */
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

static void summarise(Steps *s, Block *b) {
    b->stamp = ++s->stamps;
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
        summarise(s, b);
        summarise(s, other);
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
    if (at.step == 0) summarise(s, b);
}

/* Add so many nodes from a time on to another, infinite perhaps. O(blocks between, and two of them). */
void dovetail_steps_add(Steps *s, double start, double end, number nodes) {
    if (end < INFINITY) divide(s, end);
    Position at = divide(s, start);
    for (; !is_end(s, at); at = (Position){at.place + 1, 0}) {
        Block *b = block_at(s, at.place);
        if (b->since[0] >= end) break;
        if (at.step == 0 && b->since[b->count - 1] < end) {
            b->stamp = ++s->stamps;
            b->added += nodes;
            b->low += nodes;
            b->high += nodes;
        } else {
            for (number k = at.step; k < b->count && b->since[k] < end; k++) b->free[k] += nodes;
            summarise(s, b);
        }
    }
    if (end < INFINITY) join(s, end);
    join(s, start);
}

/* The first step, from a position on, in which so many nodes are free. */
static Position next(const Steps *s, number nodes, Position at) {
    for (; !is_end(s, at); at = (Position){at.place + 1, 0}) {
        const Block *b = block_at(s, at.place);
        number bar = nodes - b->added;
        if (b->high < nodes) continue;
        for (number k = at.step; k < b->count; k++)
            if (b->free[k] >= bar) return (Position){at.place, k};
    }
    return at;
}

/* The first step, from a position on, that begins before a time and has not so many nodes free. */
static Position first_without(const Steps *s, number nodes, Position at, double until) {
    for (; !is_end(s, at); at = (Position){at.place + 1, 0}) {
        const Block *b = block_at(s, at.place);
        if (b->since[at.step] >= until) break;
        if (b->low >= nodes) continue;
        for (number k = at.step; k < b->count && b->since[k] < until; k++)
            if (b->free[k] + b->added < nodes) return (Position){at.place, k};
    }
    return (Position){s->used, 0};
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
        summarise(s, b);
    }
    b->since[0] = now;
    b->stamp = ++s->stamps;
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

/* The runs of a block that hold enough for the least of a class. O(steps of the block) after a change of it. */
static const Runs *runs_of(const Steps *s, number place, number class_) {
    number index = s->order[place];
    const Block *b = &s->blocks[index];
    Runs *r = &s->runs[index * s->classes + class_];
    if (r->stamp == b->stamp) return r;
    number bar = s->least_of[class_] - b->added;
    double begin = b->since[0];
    int within = b->free[0] >= bar;
    *r = (Runs){b->stamp, within ? INFINITY : begin, INFINITY, 0};
    for (number k = 1; k < b->count; k++) {
        if ((b->free[k] >= bar) == within) continue;
        double end = b->since[k], length = end - begin + 1e-15 * (fabs(begin) + fabs(end)); /* never too little */
        if (within && begin == b->since[0]) r->opens = end;
        else if (within && length > r->longest) r->longest = length;
        within = !within;
        begin = end;
    }
    if (within) r->closes = begin;
    return r;
}

/* The first time, before `start`, from which so many nodes are free for so long, or until `start`: from then on
 * the job itself holds them. Looked at are gaps that have not ended by the time `after`. Infinite if there is
 * none; `start` is infinite for a job that holds nothing. O(blocks between), and the steps of a few: blocks are
 * passed over by what is known of their runs for the job's class, which last at least as long as those for it. */
double dovetail_steps_first_gap(const Steps *s, number nodes, double duration, double start, double after) {
    const number class_ = s->class_of[nodes];
    Position at = next(s, nodes, find(s, after));
    if (is_end(s, at)) return INFINITY;
    at = run_begin(s, nodes, at);
    double begin = INFINITY; /* of the run that goes on; infinite: none does */
    int is_own = 1;          /* whether it is a run for this job, not only for its class */
    for (number place = at.place, step = at.step; place < s->used; place++, step = 0) {
        const Block *b = block_at(s, place);
        if (b->since[step] >= start) return INFINITY;
        double next_block = place + 1 < s->used ? block_at(s, place + 1)->since[0] : INFINITY;
        if (place > at.place && next_block < start) {
            const Runs *r = runs_of(s, place, class_);
            if (begin == INFINITY && r->opens > b->since[0]) {
                begin = b->since[0];
                is_own = 0;
            }
            if (begin == INFINITY || r->opens < begin + duration) {
                begin = INFINITY;
                is_own = 1;
                if (r->longest < duration) {
                    begin = r->closes;
                    is_own = 0;
                    continue;
                }
            }
        }
        if (!is_own && begin < INFINITY) { /* look through that run from its beginning, step by step */
            at = next(s, nodes, find(s, begin));
            if (is_end(s, at)) return INFINITY;
            begin = INFINITY;
            is_own = 1;
            place = at.place;
            step = at.step;
            b = block_at(s, place);
            next_block = place + 1 < s->used ? block_at(s, place + 1)->since[0] : INFINITY;
        }
        const number bar = nodes - b->added;
        for (number k = step; k < b->count; k++) {
            if ((b->free[k] >= bar) == (begin < INFINITY)) continue;
            double when = b->since[k];
            if (begin == INFINITY) {
                if (when >= start) return INFINITY;
                begin = when;
            } else {
                if (when >= begin + duration || when >= start) return begin;
                begin = INFINITY;
            }
        }
        if (begin < INFINITY && (next_block >= begin + duration || next_block >= start)) return begin;
    }
    return INFINITY;
}

/* Nodes were given back from a time on to another: the first gap for what a memo remembers may begin there now. */
static void look_again(const Steps *s, Memo *memo, double from, double to) {
    const number nodes = memo->nodes;
    if (nodes > s->most || memo->before <= block_at(s, 0)->since[0]) return;
    Position at = find(s, from);
    if (free_in(s, at) >= nodes) at = run_begin(s, nodes, at);
    else at = next(s, nodes, at);
    while (!is_end(s, at)) {
        double begin = time_at(s, at);
        if (begin >= to || begin >= memo->before) return;
        at = first_without(s, nodes, at, begin + memo->duration);
        if (is_end(s, at)) {
            memo->before = begin;
            return;
        }
        at = next(s, nodes, at);
    }
}

/* Give nodes back from a time on to another, and log it for the classes that may now fit. O(blocks between), and
 * the steps about them for each class. */
void dovetail_steps_give(Steps *s, double start, double end, number nodes) {
    number version = ++s->version, least = s->classes, greatest = 0;
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
                    if (c < least) least = c;
                    if (c > greatest) greatest = c;
                }
        }
    }
    dovetail_steps_add(s, start, end, nodes);
    for (number c = least; c <= greatest; c++)
        if (s->logs[c].seen == version)
            for (number k = 0; k < MEMO; k++) look_again(s, &s->memos[c * MEMO + k], start, end);
}

typedef struct {
    number nodes, jobs, class_, version;
} Run;

typedef struct {
    double start, duration;
} Slot;

/* Before which time there is no gap for a job of this kind: as far as is remembered of kinds that need less. */
static double none_before(const Steps *s, const Run *run, double duration) {
    const Memo *memos = &s->memos[run->class_ * MEMO];
    double known = -INFINITY;
    for (number k = 0; k < MEMO; k++)
        if (memos[k].nodes <= run->nodes && memos[k].duration <= duration) known = fmax(known, memos[k].before);
    return known;
}

/* Remember that there is no gap for a job of this kind before that time. */
static void remember(Steps *s, const Run *run, double duration, double before) {
    number half_octave = duration < INFINITY ? (number)floor(2 * log2(duration)) : 0;
    Memo *memo = &s->memos[run->class_ * MEMO + (half_octave & (MEMO - 1))];
    if (memo->nodes <= run->nodes && memo->duration <= duration && memo->before >= before)
        return; /* who needs less has none either */
    *memo = (Memo){run->nodes, duration, before};
}

/* The first gap before the promised start of a run that had none at its version; infinite if there is none. */
static double gap_before(Steps *s, double now, const Run *run, const Slot *slot) {
    double after = given_since(&s->logs[run->class_], run->version), start = slot->start;
    if (after >= start) return INFINITY;
    double known = none_before(s, run, slot->duration);
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
    double found = dovetail_steps_first_gap(s, run->nodes, slot->duration, start, fmax(after, now));
    remember(s, run, slot->duration, fmin(found, start));
    return found;
}

/* Move nodes that are held from the slot's start on to an earlier time; what is held before and after stays. */
static void move(Steps *s, number nodes, const Slot *slot, double found) {
    double end = found + slot->duration, last = slot->start + slot->duration;
    dovetail_steps_add(s, found, fmin(end, slot->start), -nodes); /* first: it is no room for others */
    if (last > end) dovetail_steps_give(s, fmax(end, slot->start), last, nodes);
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
