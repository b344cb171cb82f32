/* A whole simulation of rigid jobs on like nodes: FCFS, EASY and conservative backfilling.
 *
 * It stands in for the engine. The specification is dovetail.policies.fcfs, .easy and .conservative, run by
 * dovetail.engine on nodes that are all alike, whole or shared, with devices of one class or none. All times
 * are the same sums of the same floats, so starts, ends, places and promises are the same job by job;
 * property tests hold it to that. dovetail.native.rigid calls it, and says what each array holds.
 *
 * Jobs come in order of submission and are known by their place in it. Devices of a node are bits.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FCFS, EASY, CONSERVATIVE };
enum { PACK, SPREAD, FIRST, PACK_CPUS }; /* PACK_CPUS: PACK where no node has devices */
enum { NONE = -1 };

typedef int64_t number;

typedef struct {
    number jobs;
    const double *submit, *seconds; /* when it comes; how long it takes */
    const double *bound, *limit;    /* how long at most, as known beforehand; when it is ended */
    const number *nodes, *cpus, *devices, *memory; /* how many nodes, and what of each */
    const number *by_rank;                         /* jobs in the order of the queue */
    const number *line;                            /* the same number for jobs that ask for the same */
    number lines;
    number machine_nodes, machine_cpus, machine_devices, machine_memory, placement;
    number counted; /* whether all jobs take whole nodes: any free nodes are as good as any others */
    number policy, skip; /* skip: how many that do not fit FCFS passes over */
    /* What comes of it. A job's nodes and devices are those from first[job] on, up to the next job's. */
    double *start, *end, *promised;
    uint8_t *killed;
    const number *first;
    number *node, *device_bits, *events; /* events: a job for its start, ~job for its end */
    number broken, by_overrun;
} Simulation;

typedef struct {
    number nodes, cpus, devices, memory;
} Demand;

static Demand demand_of(const Simulation *s, number job) {
    return (Demand){s->nodes[job], s->cpus[job], s->devices[job], s->memory[job]};
}

static number count_bits(number bits) { return __builtin_popcountll((uint64_t)bits); }

static number lowest_bits(number bits, number count) {
    number chosen = 0;
    for (; count > 0; count--) chosen |= (bits & ~chosen) & -(bits & ~chosen);
    return chosen;
}

static int fits(number cpus, number devices, number memory, const Demand *d) {
    return cpus >= d->cpus && memory >= d->memory && count_bits(devices) >= d->devices;
}

/* ------------------------------------------------------------------------------------------------- memory */

typedef struct Piece {
    struct Piece *next;
} Piece;

typedef struct {
    Piece *pieces;
    int failed;
} Memory; /* everything that a simulation allocates, freed together */

static void *get(Memory *m, size_t count, size_t size) {
    Piece *piece = calloc(1, sizeof(Piece) + (count + 1) * size);
    if (!piece) {
        m->failed = 1;
        return NULL;
    }
    piece->next = m->pieces;
    m->pieces = piece;
    return piece + 1;
}

static void free_all(Memory *m) {
    while (m->pieces) {
        Piece *next = m->pieces->next;
        free(m->pieces);
        m->pieces = next;
    }
}

#define NUMBERS(m, count) ((number *)get(m, (size_t)(count), sizeof(number)))
#define SECONDS(m, count) ((double *)get(m, (size_t)(count), sizeof(double)))

/* ----------------------------------------------------------------------------------------- sets of places */

typedef struct {
    uint64_t *words[11]; /* level after level: a bit for every word below that is not empty */
    number size[11];
    int levels;
} Set;

static Set new_set(Memory *m, number count) {
    Set set = {.levels = 0};
    do {
        count = (count + 63) / 64;
        if (count < 1) count = 1;
        set.size[set.levels] = count;
        set.words[set.levels++] = get(m, (size_t)count, sizeof(uint64_t));
    } while (count > 1);
    return set;
}

static void set_add(Set *set, number place) {
    for (int level = 0; level < set->levels; level++, place /= 64) {
        uint64_t before = set->words[level][place / 64];
        set->words[level][place / 64] = before | (uint64_t)1 << place % 64;
        if (before) return;
    }
}

static void set_remove(Set *set, number place) {
    for (int level = 0; level < set->levels; level++, place /= 64) {
        set->words[level][place / 64] &= ~((uint64_t)1 << place % 64);
        if (set->words[level][place / 64]) return;
    }
}

/* The first place from one on; NONE if there is none. */
static number set_next(const Set *set, number place) {
    for (int level = 0; level < set->levels; level++) {
        if (place / 64 >= set->size[level]) return NONE;
        uint64_t rest = set->words[level][place / 64] & ~(uint64_t)0 << place % 64;
        if (rest) {
            place = place / 64 * 64 + __builtin_ctzll(rest);
            while (level > 0) {
                level--;
                place = place * 64 + __builtin_ctzll(set->words[level][place]);
            }
            return place;
        }
        place = place / 64 + 1;
    }
    return NONE;
}

/* ------------------------------------------------------------------------------- what runs, and promises */

typedef struct {
    double end;
    number job, turn; /* turn: in which the jobs started, the last tie-break */
} Running;

typedef struct {
    Simulation *s;
    Memory memory;
    Running *heap;
    number running, turns, happened, submitted;
    number head; /* who holds EASY's promise */
    double promise, made, overran; /* its start, when it was made; when somebody last ran past its bound */
} World;

static int sooner(const Running *a, const Running *b) {
    return a->end < b->end || (a->end == b->end && a->turn < b->turn);
}

static void begin(World *w, number job, double now) {
    Simulation *s = w->s;
    double end = now + s->seconds[job], limit = now + s->limit[job];
    s->start[job] = now;
    if (end > limit) {
        end = limit;
        s->killed[job] = 1;
    }
    s->events[w->happened++] = job;
    Running new = {end, job, ++w->turns};
    number at = w->running++;
    for (; at > 0 && sooner(&new, &w->heap[(at - 1) / 2]); at = (at - 1) / 2) w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = new;
}

static double next_end(const World *w) { return w->running ? w->heap[0].end : INFINITY; }

/* End the job that ends next. */
static number end_next(World *w, double now) {
    number job = w->heap[0].job, at = 0, count = --w->running;
    Running last = w->heap[count];
    for (;;) {
        number below = 2 * at + 1;
        if (below >= count) break;
        if (below + 1 < count && sooner(&w->heap[below + 1], &w->heap[below])) below++;
        if (sooner(&last, &w->heap[below])) break;
        w->heap[at] = w->heap[below];
        at = below;
    }
    w->heap[at] = last;
    w->s->end[job] = now;
    w->s->events[w->happened++] = ~job;
    return job;
}

/* When a job ends, is submitted, or what is due happens, whichever comes next; infinite: none of it. */
static double next_instant(const World *w, double due) {
    double now = fmin(next_end(w), due);
    return w->submitted < w->s->jobs ? fmin(now, w->s->submit[w->submitted]) : now;
}

/* The head of EASY's queue is promised a start, unless it holds one as early. */
static void promise(World *w, number head, double start, double now) {
    if (start >= (head == w->head ? w->promise : INFINITY)) return;
    if (head != w->head) w->made = now;
    w->head = head;
    w->promise = start;
}

/* The job starts: the promise that it holds, if it does, is kept or broken. */
static void settle(World *w, number job, double now) {
    if (job != w->head) return;
    w->s->promised[job] = w->promise;
    w->head = NONE;
    if (now > w->promise + 1e-9 * fmax(1.0, fabs(w->promise))) {
        w->s->broken++;
        w->s->by_overrun += w->overran >= w->made;
    }
}

/* ------------------------------------------------------------------------------------------ free capacity */

typedef struct {
    number cpus, devices, memory;
} Free;

typedef struct {
    Free free;
    number nodes;
} State; /* how many nodes have that free */

typedef struct {
    Free *node;
    number *state_of;
    State *states; /* of nodes; those without any are empty */
    number used;
    Set idle; /* where nodes are counted: those on which nothing runs */
} Capacity;

static Capacity all_free(Memory *m, const Simulation *s) {
    number n = s->machine_nodes;
    Free whole = {s->machine_cpus, (number)(((uint64_t)1 << s->machine_devices) - 1), s->machine_memory};
    Capacity c = {.node = get(m, (size_t)n, sizeof(Free)), .state_of = NUMBERS(m, n), .used = 1};
    c.states = get(m, (size_t)n + 1, sizeof(State));
    if (m->failed) return c;
    for (number i = 0; i < n; i++) c.node[i] = whole;
    c.states[0] = (State){whole, n};
    c.idle = new_set(m, n);
    for (number i = 0; i < n && !m->failed; i++) set_add(&c.idle, i);
    return c;
}

static number state_like(Capacity *c, Free free) {
    number spare = c->used;
    for (number i = 0; i < c->used; i++) {
        Free *known = &c->states[i].free;
        if (!c->states[i].nodes) spare = i;
        else if (known->cpus == free.cpus && known->devices == free.devices && known->memory == free.memory)
            return i;
    }
    c->states[spare].free = free;
    if (spare == c->used) c->used++;
    return spare;
}

/* Take what a job holds of a node (-1), or give it back (1). */
static void change(Free *free, const Demand *d, number bits, number sign) {
    free->cpus += sign * d->cpus;
    free->devices ^= bits;
    free->memory += sign * d->memory;
}

static void change_all(Capacity *c, const Demand *d, const number *node, const number *bits, number sign) {
    number before = NONE, after = NONE, held = 0; /* neighbours are mostly alike */
    for (number i = 0; i < d->nodes; i++) {
        if (sign < 0) set_remove(&c->idle, node[i]);
        else set_add(&c->idle, node[i]);
    }
    for (number i = 0; i < d->nodes; i++) {
        Free *free = &c->node[node[i]];
        number state = c->state_of[node[i]];
        change(free, d, bits[i], sign);
        if (state != before || bits[i] != held) {
            before = state, held = bits[i];
            after = state_like(c, *free);
        }
        c->states[state].nodes--;
        c->states[after].nodes++;
        c->state_of[node[i]] = after;
    }
}

/* How many nodes could each give what is demanded of one. O(states). */
static number how_many_fit(const Capacity *c, const Demand *d) {
    number found = 0;
    for (number i = 0; i < c->used; i++) {
        const Free *free = &c->states[i].free;
        if (fits(free->cpus, free->devices, free->memory, d)) found += c->states[i].nodes;
    }
    return found;
}

typedef struct {
    number *node, *bits, *ranks; /* ranks is space; by rank, of like rank by index */
    number found;
} Choice;

/* Take a node that fits among those of least rank; nodes come by index. */
static void consider(Choice *c, const Demand *d, number placement, const Free *free, number node) {
    number rank = 0;
    if (placement == PACK) rank = count_bits(free->devices);
    if (placement == PACK_CPUS) rank = free->cpus;
    if (placement == SPREAD) rank = -(count_bits(free->devices) * ((number)1 << 40) + free->cpus);
    if (c->found == d->nodes) {
        if (rank >= c->ranks[c->found - 1]) return;
        c->found--;
    }
    number at = c->found++;
    for (; at > 0 && c->ranks[at - 1] > rank; at--) {
        c->ranks[at] = c->ranks[at - 1];
        c->node[at] = c->node[at - 1];
        c->bits[at] = c->bits[at - 1];
    }
    c->ranks[at] = rank;
    c->node[at] = node;
    c->bits[at] = lowest_bits(free->devices, d->devices);
}

/* Where a demand is met by the placement rule, on nodes that are not barred; whether it is. O(nodes). */
static int place(const Free *free, number nodes, const Demand *d, number placement, const uint8_t *barred,
                 number *node, number *bits, number *ranks) {
    Choice choice = {node, bits, ranks, 0};
    for (number i = 0; i < nodes; i++) {
        if ((barred && barred[i]) || !fits(free[i].cpus, free[i].devices, free[i].memory, d)) continue;
        consider(&choice, d, placement, &free[i], i);
        int full = choice.found == d->nodes;
        number least = placement == PACK ? d->devices : d->cpus; /* no node that fits has a lower rank */
        if (full && (placement == FIRST || (placement != SPREAD && ranks[d->nodes - 1] == least))) break;
    }
    return choice.found == d->nodes;
}

/* The same where nodes are counted: the lowest on which nothing runs. */
static void place_lowest(const Capacity *c, number count, number *node) {
    for (number i = 0, at = 0; i < count; i++, at++) node[i] = at = set_next(&c->idle, at);
}

/* -------------------------------------------------------------------------------- who waits (FCFS, EASY) */

typedef struct {
    Set ranks, lines; /* ranks of those who wait; lines in which somebody waits */
    number *rank, *counts;
    number *begins, *place_of, *job_at; /* jobs line after line, in each by rank */
    double *least; /* a binary tree over places: the least bound of those who wait, NaN where none does */
    number leaves;
} Waiting;

static Waiting nobody_waits(World *w) {
    const Simulation *s = w->s;
    Memory *m = &w->memory;
    Waiting q = {.ranks = new_set(m, s->jobs), .lines = new_set(m, s->lines), .leaves = 1};
    while (q.leaves < s->jobs) q.leaves *= 2;
    q.rank = NUMBERS(m, s->jobs);
    q.counts = NUMBERS(m, s->lines);
    q.begins = NUMBERS(m, s->lines + 1);
    q.place_of = NUMBERS(m, s->jobs);
    q.job_at = NUMBERS(m, s->jobs);
    q.least = SECONDS(m, 2 * q.leaves);
    number *filled = NUMBERS(m, s->lines);
    if (m->failed) return q;
    for (number i = 0; i < 2 * q.leaves; i++) q.least[i] = NAN;
    for (number job = 0; job < s->jobs; job++) q.begins[s->line[job] + 1]++;
    for (number line = 0; line < s->lines; line++) {
        q.begins[line + 1] += q.begins[line];
        filled[line] = q.begins[line];
    }
    for (number i = 0; i < s->jobs; i++) {
        number job = s->by_rank[i];
        q.rank[job] = i;
        q.place_of[job] = filled[s->line[job]]++;
        q.job_at[q.place_of[job]] = job;
    }
    return q;
}

static void tell_tree(Waiting *q, number place, double bound) {
    number at = q->leaves + place;
    q->least[at] = bound;
    for (at /= 2; at > 0; at /= 2) q->least[at] = fmin(q->least[2 * at], q->least[2 * at + 1]); /* NaN: none */
}

static void arrive(Waiting *q, const Simulation *s, number job) {
    set_add(&q->ranks, q->rank[job]);
    if (!q->counts[s->line[job]]++) set_add(&q->lines, s->line[job]);
    tell_tree(q, q->place_of[job], s->bound[job]);
}

static void leave(Waiting *q, const Simulation *s, number job) {
    set_remove(&q->ranks, q->rank[job]);
    if (!--q->counts[s->line[job]]) set_remove(&q->lines, s->line[job]);
    tell_tree(q, q->place_of[job], NAN);
}

/* The waiting job of least rank from one on. */
static number first_waiting(const Waiting *q, const Simulation *s, number rank) {
    number found = set_next(&q->ranks, rank);
    return found == NONE ? NONE : s->by_rank[found];
}

static int in_time(double bound, double now, double end, int any) {
    return bound == bound && (any || now + bound <= end);
}

/* The first place from one on, before another, whose job waits and has ended by `end` (or any); NONE. */
static number next_in_time(const Waiting *q, number place, number stop, double now, double end, int any) {
    number at = q->leaves + place;
    if (place >= stop) return NONE;
    while (!in_time(q->least[at], now, end, any)) { /* up, to the next neighbour to the right */
        while (at & 1) at /= 2;
        if (at == 0) return NONE;
        at++;
    }
    while (at < q->leaves) {
        at *= 2;
        if (!in_time(q->least[at], now, end, any)) at++;
    }
    return at - q->leaves < stop ? at - q->leaves : NONE;
}

/* The first place of a line whose job, waiting or not, comes after a rank. */
static number place_after(const Waiting *q, number line, number rank) {
    number low = q->begins[line], high = q->begins[line + 1];
    while (low < high) {
        number middle = (low + high) / 2;
        if (q->rank[q->job_at[middle]] <= rank) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* --------------------------------------------------------------------------------------- FCFS and EASY */

typedef struct {
    World *w;
    Waiting q;
    Capacity now_free;
    Free *then; /* what is free when the head starts */
    number ready; /* how many nodes fit the head then */
    uint8_t *planned; /* the nodes on which it would start */
    double *bounds; /* running jobs by when they end by their bounds, ascending */
    number *bound_jobs, by_bound;
    number *ranks, *space_node, *space_bits;
    number *nowhere, turn; /* of each line the last turn in which nobody of it fitted */
} Backfilling;

static number at_or_after(const double *times, number count, double time, int after) {
    number low = 0, high = count;
    while (low < high) {
        number middle = (low + high) / 2;
        if (times[middle] < time || (after && times[middle] == time)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void start(Backfilling *b, number job, const Demand *d, double now) {
    World *w = b->w;
    Simulation *s = w->s;
    number first = s->first[job];
    leave(&b->q, s, job);
    settle(w, job, now);
    begin(w, job, now);
    change_all(&b->now_free, d, s->node + first, s->device_bits + first, -1);
    double bound = now + s->bound[job];
    number at = at_or_after(b->bounds, b->by_bound, bound, 1), rest = b->by_bound++ - at;
    memmove(b->bounds + at + 1, b->bounds + at, (size_t)rest * sizeof(double));
    memmove(b->bound_jobs + at + 1, b->bound_jobs + at, (size_t)rest * sizeof(number));
    b->bounds[at] = bound;
    b->bound_jobs[at] = job;
}

static void end_one(Backfilling *b, double now) {
    World *w = b->w;
    Simulation *s = w->s;
    number job = end_next(w, now), first = s->first[job];
    Demand d = demand_of(s, job);
    change_all(&b->now_free, &d, s->node + first, s->device_bits + first, 1);
    double bound = s->start[job] + s->bound[job];
    if (now > bound) w->overran = now;
    number at = at_or_after(b->bounds, b->by_bound, bound, 0);
    while (b->bound_jobs[at] != job) at++;
    number rest = --b->by_bound - at;
    memmove(b->bounds + at, b->bounds + at + 1, (size_t)rest * sizeof(double));
    memmove(b->bound_jobs + at, b->bound_jobs + at + 1, (size_t)rest * sizeof(number));
}

/* Nodes for a job that fits, by the placement rule. */
static void place_now(Backfilling *b, const Demand *d, number job) {
    Simulation *s = b->w->s;
    number *node = s->node + s->first[job], *bits = s->device_bits + s->first[job];
    if (s->counted) place_lowest(&b->now_free, d->nodes, node);
    else place(b->now_free.node, s->machine_nodes, d, s->placement, NULL, node, bits, b->ranks);
}

/* Start the job if it fits; whether it does. */
static int claim(Backfilling *b, number job, double now) {
    Simulation *s = b->w->s;
    Demand d = demand_of(s, job);
    if (how_many_fit(&b->now_free, &d) < d.nodes) return 0;
    place_now(b, &d, job);
    start(b, job, &d, now);
    return 1;
}

/* From the front of the queue, while jobs fit; so many that do not are passed over. */
static void fcfs(Backfilling *b, double now) {
    Simulation *s = b->w->s;
    number passed = 0;
    for (number job = first_waiting(&b->q, s, 0); job != NONE; job = first_waiting(&b->q, s, b->q.rank[job] + 1))
        if (!claim(b, job, now) && ++passed > s->skip) return;
}

static number fitting_then(const Backfilling *b, const Demand *head, const number *node, number count) {
    number found = 0;
    for (number i = 0; i < count; i++) {
        const Free *free = &b->then[node[i]];
        found += fits(free->cpus, free->devices, free->memory, head);
    }
    return found;
}

static void change_then(Backfilling *b, const Demand *d, const number *node, const number *bits, number sign) {
    for (number i = 0; i < d->nodes; i++) change(&b->then[node[i]], d, bits[i], sign);
}

/* When the head fits, as running jobs end by their bounds; `then` is what is free at that time.
 *
 * What ends at that very time is free then too, and what should have ended is as good as free. */
static double shadow_time(Backfilling *b, const Demand *head, double now) {
    Simulation *s = b->w->s;
    if (!s->counted) memcpy(b->then, b->now_free.node, (size_t)s->machine_nodes * sizeof(Free));
    b->ready = how_many_fit(&b->now_free, head);
    double time = now;
    for (number at = 0; at < b->by_bound; at++) {
        double when = fmax(b->bounds[at], now);
        if (when > time) {
            if (b->ready >= head->nodes) break;
            time = when;
        }
        number job = b->bound_jobs[at], first = s->first[job];
        Demand d = demand_of(s, job);
        if (s->counted) {
            b->ready += d.nodes;
            continue;
        }
        b->ready -= fitting_then(b, head, s->node + first, d.nodes);
        change_then(b, &d, s->node + first, s->device_bits + first, 1);
        b->ready += fitting_then(b, head, s->node + first, d.nodes);
    }
    return time;
}

static void plan_head(Backfilling *b, const Demand *head) {
    Simulation *s = b->w->s;
    if (s->counted) return;
    memset(b->planned, 0, (size_t)s->machine_nodes);
    if (place(b->then, s->machine_nodes, head, s->placement, NULL, b->space_node, b->space_bits, b->ranks))
        for (number i = 0; i < head->nodes; i++) b->planned[b->space_node[i]] = 1;
}

/* Nodes for a job of any length, such that the head still fits at its time; whether there are.
 *
 * Tried are the normal placement, and nodes outside those planned for the head. Only `whether` is asked where
 * `node` is NULL. */
static int place_extra(Backfilling *b, const Demand *d, const Demand *head, number *node, number *bits) {
    Simulation *s = b->w->s;
    int only_whether = !node;
    if (only_whether) {
        if (b->ready - d->nodes >= head->nodes) return 1; /* no node is lost twice */
        if (s->counted) return 0; /* every node that it takes is lost */
        node = b->space_node, bits = b->space_bits;
    }
    if (!place(b->now_free.node, s->machine_nodes, d, s->placement, NULL, node, bits, b->ranks)) return 0;
    int touches = 0;
    for (number i = 0; i < d->nodes; i++) touches |= b->planned[node[i]];
    if (!touches) return 1;
    number left = b->ready - fitting_then(b, head, node, d->nodes);
    change_then(b, d, node, bits, -1);
    left += fitting_then(b, head, node, d->nodes);
    change_then(b, d, node, bits, 1);
    if (left >= head->nodes) return 1;
    return place(b->now_free.node, s->machine_nodes, d, s->placement, b->planned, node, bits, b->ranks);
}

/* The first job of the queue behind a rank that may be backfilled.
 *
 * A line in which none fits is not looked at again in this turn: there is less room after every start. */
static number next_to_backfill(Backfilling *b, const Demand *head, double now, double end, number after) {
    Simulation *s = b->w->s;
    Waiting *q = &b->q;
    number best = NONE;
    for (number line = set_next(&q->lines, 0); line != NONE; line = set_next(&q->lines, line + 1)) {
        if (b->nowhere[line] == b->turn) continue;
        number at = place_after(q, line, after), stop = q->begins[line + 1];
        if (at == stop || (best != NONE && q->rank[q->job_at[at]] > q->rank[best])) continue;
        Demand d = demand_of(s, q->job_at[at]);
        if (how_many_fit(&b->now_free, &d) < d.nodes) {
            b->nowhere[line] = b->turn;
            continue;
        }
        int ends = in_time(q->least[q->leaves + at], now, end, 0);
        int any = !ends && place_extra(b, &d, head, NULL, NULL);
        at = next_in_time(q, at, stop, now, end, any);
        if (at != NONE && (best == NONE || q->rank[q->job_at[at]] < q->rank[best])) best = q->job_at[at];
    }
    return best;
}

/* From the front while jobs fit; the head is promised its shadow time; who does not delay it may go. */
static void easy(Backfilling *b, double now) {
    World *w = b->w;
    Simulation *s = w->s;
    number head = w->head != NONE ? w->head : first_waiting(&b->q, s, 0);
    while (head != NONE && claim(b, head, now)) head = first_waiting(&b->q, s, 0);
    if (head == NONE) return;
    Demand needs = demand_of(s, head);
    double shadow = shadow_time(b, &needs, now), end = shadow < INFINITY ? shadow : -INFINITY;
    plan_head(b, &needs);
    promise(w, head, shadow, now);
    b->turn++;
    for (number after = -1, job; (job = next_to_backfill(b, &needs, now, end, after)) != NONE;) {
        number *node = s->node + s->first[job], *bits = s->device_bits + s->first[job];
        Demand d = demand_of(s, job);
        after = b->q.rank[job];
        if (now + s->bound[job] <= end) {
            place_now(b, &d, job);
        } else if (s->counted) {
            place_now(b, &d, job);
            b->ready -= d.nodes;
        } else {
            place_extra(b, &d, &needs, node, bits);
            b->ready -= fitting_then(b, &needs, node, d.nodes);
            change_then(b, &d, node, bits, -1);
            b->ready += fitting_then(b, &needs, node, d.nodes);
            plan_head(b, &needs);
        }
        start(b, job, &d, now);
    }
}

static void simulate_queue(World *w) {
    Simulation *s = w->s;
    Memory *m = &w->memory;
    number n = s->machine_nodes;
    Backfilling b = {.w = w, .q = nobody_waits(w), .now_free = all_free(m, s)};
    b.then = get(m, (size_t)n, sizeof(Free));
    b.planned = get(m, (size_t)n, 1);
    b.bounds = SECONDS(m, s->jobs);
    b.bound_jobs = NUMBERS(m, s->jobs);
    b.ranks = NUMBERS(m, n), b.space_node = NUMBERS(m, n), b.space_bits = NUMBERS(m, n);
    b.nowhere = NUMBERS(m, s->lines);
    if (m->failed) return;
    for (double now; (now = next_instant(w, INFINITY)) < INFINITY;) {
        while (next_end(w) <= now) end_one(&b, now);
        for (; w->submitted < s->jobs && s->submit[w->submitted] <= now; w->submitted++)
            arrive(&b.q, s, w->submitted);
        if (b.by_bound && b.bounds[0] < now) w->overran = now;
        if (s->policy == FCFS) fcfs(&b, now);
        else easy(&b, now);
    }
}

/* -------------------------------------------------------------------------- what is free over time, by node */

typedef struct {
    double time; /* from when on; until the next step, the last for ever */
    Free free;
} Step;

typedef struct {
    Step *steps;
    number count, room;
} Timeline; /* of one node */

static number step_at(const Timeline *t, double when) {
    number low = 0, high = t->count;
    while (low < high) {
        number middle = (low + high) / 2;
        if (t->steps[middle].time <= when) low = middle + 1;
        else high = middle;
    }
    return low > 0 ? low - 1 : 0;
}

static int step_fits(const Step *step, const Demand *d) {
    return fits(step->free.cpus, step->free.devices, step->free.memory, d);
}

/* The first time, from `after` on and before `before`, from which a node fits for so long; or infinite. */
static double following(const Timeline *t, const Demand *d, double duration, double after, double before) {
    for (number step = step_at(t, after); step < t->count;) {
        double start = fmax(t->steps[step].time, after);
        if (start >= before) return INFINITY;
        if (!step_fits(&t->steps[step], d)) {
            step++;
            continue;
        }
        number devices = t->steps[step].free.devices, from = step;
        double end = start + duration;
        for (number at = step + 1; at < t->count && t->steps[at].time < end; at++) {
            if (!step_fits(&t->steps[at], d)) {
                step = at + 1; /* whatever begins before that step and reaches it fails too */
                break;
            }
            devices &= t->steps[at].free.devices;
            if (count_bits(devices) < d->devices) {
                step++; /* only not the same devices throughout */
                break;
            }
        }
        if (step == from) return start;
    }
    return INFINITY;
}

/* CPUs and devices that are free throughout. */
static Free least_free(const Timeline *t, double start, double end) {
    number step = step_at(t, start);
    Free free = t->steps[step].free;
    for (step++; step < t->count && t->steps[step].time < end; step++) {
        if (t->steps[step].free.cpus < free.cpus) free.cpus = t->steps[step].free.cpus;
        free.devices &= t->steps[step].free.devices;
    }
    return free;
}

/* Whether the node fits just before a time. */
static int fits_before(const Timeline *t, const Demand *d, double when) {
    number step = step_at(t, when);
    if (step > 0 && t->steps[step].time >= when) step--;
    return step_fits(&t->steps[step], d);
}

static number split(Timeline *t, double when, Memory *m) {
    number step = step_at(t, when);
    if (t->steps[step].time >= when) return step;
    if (t->count == t->room) {
        Step *larger = realloc(t->steps, 2 * (size_t)t->room * sizeof(Step));
        if (!larger) {
            m->failed = 1;
            return step;
        }
        t->steps = larger;
        t->room *= 2;
    }
    step++;
    memmove(t->steps + step + 1, t->steps + step, (size_t)(t->count++ - step) * sizeof(Step));
    t->steps[step] = (Step){when, t->steps[step - 1].free};
    return step;
}

/* Make one step of two that are alike. */
static void join(Timeline *t, number step) {
    if (step == 0 || step >= t->count) return;
    Free *a = &t->steps[step - 1].free, *b = &t->steps[step].free;
    if (a->cpus != b->cpus || a->devices != b->devices || a->memory != b->memory) return;
    memmove(t->steps + step, t->steps + step + 1, (size_t)(--t->count - step) * sizeof(Step));
}

/* Take a slot of a node (-1) or give it back (1); steps that are over are forgotten. */
static void change_slot(Timeline *t, const Demand *d, number bits, double from, double to, double now, number sign,
                        Memory *m) {
    number over = step_at(t, now);
    memmove(t->steps, t->steps + over, (size_t)(t->count - over) * sizeof(Step));
    t->count -= over;
    split(t, to, m);
    number first = split(t, from, m), step = first;
    for (; step < t->count && t->steps[step].time < to; step++) change(&t->steps[step].free, d, bits, sign);
    join(t, step);
    join(t, first);
}

/* -------------------------------------------------------------------------------- conservative backfilling */

typedef struct {
    number job;
    double start;
    number version; /* as of which it is known to have no earlier gap */
} Promise;

/* Where nodes are counted, the plan knows one node that has as many CPUs as there are nodes: a slot needs no
 * names, since whoever starts finds as many nodes as were counted.
 *
 * A promise can only move to where something was given back since it was looked at. Nodes note when they were
 * given something last. The one node that stands for all notes from when on it came to have enough for each
 * class of widths, since the last renewal began and in the one before: most promises start before that. */
typedef struct {
    World *w;
    Timeline *nodes;
    number count; /* of those */
    Capacity now_free; /* where nodes are counted: by names, as jobs run */
    Promise *line; /* who holds a promise, in the order of the queue */
    number waiting, version; /* version: how often nodes were given something */
    number *rank, *given; /* given: of each node, the version as of which it was last given something */
    double *firsts, *later;
    number *space_node, *space_bits, *ranks, *starting;
    number everywhere[2]; /* the one node that stands for all, and no devices of it */
    number *class_of, classes; /* of each width */
    double *risen, *risen_before;
} Plan;

static int ascending(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* The first gap that begins before a time, with nodes by the placement rule; infinite if there is none.
 *
 * firsts[node]: when the node fits first, as far as that is known. */
static double earliest(Plan *p, const Demand *d, double duration, double now, double before, number *node,
                       number *bits) {
    number n = p->count;
    for (number i = 0; i < n; i++) p->firsts[i] = now;
    for (double start = now; start < before;) {
        double until = before;
        number ready = 0, later = 0;
        for (number i = 0; i < n; i++) {
            if (p->firsts[i] <= start) {
                p->firsts[i] = following(&p->nodes[i], d, duration, start, until);
                if (d->nodes == 1 && p->firsts[i] < until)
                    until = nextafter(p->firsts[i], INFINITY); /* later ones are of no use */
            }
            ready += p->firsts[i] == start;
        }
        if (ready >= d->nodes) {
            Choice choice = {node, bits, p->ranks, 0};
            for (number i = 0; i < n; i++) {
                if (p->firsts[i] != start) continue;
                Free free = least_free(&p->nodes[i], start, start + duration);
                consider(&choice, d, p->w->s->placement, &free, i);
            }
            return start;
        }
        for (number i = 0; i < n; i++)
            if (p->firsts[i] > start && p->firsts[i] < before) p->later[later++] = p->firsts[i];
        if (later < d->nodes - ready) return INFINITY;
        qsort(p->later, (size_t)later, sizeof(double), ascending);
        start = p->later[d->nodes - ready - 1]; /* no earlier than this are there enough */
    }
    return INFINITY;
}

/* What a job asks of the nodes that the plan knows. */
static Demand planned_demand(const Plan *p, number job) {
    if (p->w->s->counted) return (Demand){1, p->w->s->nodes[job], 0, 0};
    return demand_of(p->w->s, job);
}

/* Where the plan has a job: nodes and devices of its own, or the one that stands for all. */
static number *planned_node(Plan *p, number job) {
    return p->w->s->counted ? p->everywhere : p->w->s->node + p->w->s->first[job];
}

static number *planned_bits(Plan *p, number job) {
    return p->w->s->counted ? p->everywhere + 1 : p->w->s->device_bits + p->w->s->first[job];
}

static void change_place(Plan *p, const Demand *d, number job, double from, double to, double now, number sign) {
    number *node = planned_node(p, job), *bits = planned_bits(p, job);
    for (number i = 0; i < d->nodes; i++)
        change_slot(&p->nodes[node[i]], d, bits[i], from, to, now, sign, &p->w->memory);
}

static void note_given(Plan *p, number job, number nodes) {
    number *node = planned_node(p, job);
    p->version++;
    for (number i = 0; i < nodes; i++) p->given[node[i]] = p->version;
}

/* Where nodes are counted: so many have just been given back for this time. */
static void note_risen(Plan *p, number width, double from, double to) {
    const Timeline *t = &p->nodes[0];
    for (number step = step_at(t, from); step < t->count && t->steps[step].time < to; step++) {
        number free = t->steps[step].free.cpus;
        double when = fmax(t->steps[step].time, from);
        for (number c = p->class_of[free - width + 1]; c <= p->class_of[free]; c++)
            if (when < p->risen[c]) p->risen[c] = when;
    }
}

/* Where nodes are counted: the first time before a job's start from which so many are free for so long, or until
 * its start, since from then on the job itself holds them. No gap has ended by `after`. Infinite: there is none. */
static double gap_before(const Timeline *t, number width, double duration, double after, double now, double start) {
    number step = step_at(t, after);
    while (step < t->count && t->steps[step].free.cpus < width) step++;
    if (step == t->count || t->steps[step].time >= start) return INFINITY;
    while (step > 0 && t->steps[step - 1].free.cpus >= width) step--;
    while (step < t->count) {
        double found = fmax(t->steps[step].time, now);
        if (found >= start) return INFINITY;
        double until = fmin(found + duration, start);
        while (step < t->count && t->steps[step].free.cpus >= width && t->steps[step].time < until) step++;
        if (step == t->count || t->steps[step].time >= until) return found;
        while (step < t->count && t->steps[step].free.cpus < width) step++;
    }
    return INFINITY;
}

/* Whether a node that was given something since may have room earlier, or the job's own just before. */
static int may_move(Plan *p, const Demand *d, const Promise *held, double now) {
    Simulation *s = p->w->s;
    number *node = planned_node(p, held->job);
    for (number i = 0; i < p->count; i++)
        if (p->given[i] > held->version &&
            following(&p->nodes[i], d, s->bound[held->job], now, held->start) < held->start)
            return 1;
    for (number i = 0; i < d->nodes; i++)
        if (p->given[node[i]] > held->version && fits_before(&p->nodes[node[i]], d, held->start)) return 1;
    return 0;
}

/* Move the job's slot to the first gap that begins earlier, if there is one. */
static void pull(Plan *p, const Demand *d, Promise *held, double now) {
    Simulation *s = p->w->s;
    number job = held->job;
    double bound = s->bound[job];
    change_place(p, d, job, held->start, held->start + bound, now, 1);
    double found = earliest(p, d, bound, now, held->start, p->space_node, p->space_bits);
    if (found < held->start) {
        note_given(p, job, d->nodes);
        memcpy(planned_node(p, job), p->space_node, (size_t)d->nodes * sizeof(number));
        memcpy(planned_bits(p, job), p->space_bits, (size_t)d->nodes * sizeof(number));
        held->start = found;
        if (found > now) s->promised[job] = found;
    }
    change_place(p, d, job, held->start, held->start + bound, now, -1);
}

/* The same where nodes are counted. */
static void pull_count(Plan *p, Promise *held, double now) {
    Simulation *s = p->w->s;
    number job = held->job, width = s->nodes[job], c = p->class_of[width];
    double bound = s->bound[job], old = held->start, after = fmin(p->risen[c], p->risen_before[c]);
    if (after >= old) return;
    double found = gap_before(&p->nodes[0], width, bound, fmax(after, now), now, old);
    if (found >= old) return;
    Demand d = planned_demand(p, job);
    change_place(p, &d, job, old, old + bound, now, 1);
    change_place(p, &d, job, found, found + bound, now, -1);
    note_risen(p, width, fmax(found + bound, old), old + bound);
    held->start = found;
    if (found > now) s->promised[job] = found;
}

/* Make every promise anew in turn. */
static void renew(Plan *p, double now) {
    if (p->w->s->counted) {
        double *before = p->risen_before;
        p->risen_before = p->risen;
        p->risen = before;
        for (number c = 0; c < p->classes; c++) before[c] = INFINITY;
        for (number at = 0; at < p->waiting; at++)
            if (now < p->line[at].start) pull_count(p, &p->line[at], now);
        return;
    }
    for (number at = 0; at < p->waiting; at++) {
        Promise *held = &p->line[at];
        if (now >= held->start || held->version >= p->version) continue;
        Demand d = planned_demand(p, held->job);
        if (may_move(p, &d, held, now)) pull(p, &d, held, now);
        held->version = p->version;
    }
}

/* Take out, in order, who starts now; how many these are. */
static number take_due(Plan *p, double now) {
    number chosen = 0, left = 0;
    for (number at = 0; at < p->waiting; at++) {
        if (p->line[at].start <= now) p->starting[chosen++] = p->line[at].job;
        else p->line[left++] = p->line[at];
    }
    p->waiting = left;
    return chosen;
}

static double next_due(const Plan *p) {
    double due = INFINITY;
    for (number at = 0; at < p->waiting; at++) due = fmin(due, p->line[at].start);
    return due;
}

static void line_up(Plan *p, number job, double start) {
    number at = p->waiting++;
    for (; at > 0 && p->rank[p->line[at - 1].job] > p->rank[job]; at--) p->line[at] = p->line[at - 1];
    p->line[at] = (Promise){job, start, p->version};
}

/* A job is submitted: find its first gap, and take it. Returns how many are starting. */
static number plan_new(Plan *p, number job, double now, number chosen) {
    Simulation *s = p->w->s;
    Demand d = planned_demand(p, job);
    double start = earliest(p, &d, s->bound[job], now, INFINITY, planned_node(p, job), planned_bits(p, job));
    change_place(p, &d, job, start, start + s->bound[job], now, -1);
    if (start <= now) {
        p->starting[chosen++] = job;
    } else {
        s->promised[job] = start;
        line_up(p, job, start);
    }
    return chosen;
}

static void plan_until_over(Plan *p) {
    World *w = p->w;
    Simulation *s = w->s;
    number *arrived = p->starting + s->jobs; /* space behind */
    double due = INFINITY;
    for (double now; (now = next_instant(w, due)) < INFINITY && !w->memory.failed;) {
        int early = 0;
        while (next_end(w) <= now) {
            number job = end_next(w, now);
            double bound = s->start[job] + s->bound[job];
            if (now < bound) {
                Demand d = planned_demand(p, job);
                early = 1;
                change_place(p, &d, job, now, bound, now, 1);
                if (s->counted) note_risen(p, d.cpus, now, bound);
                else note_given(p, job, d.nodes);
            }
            if (s->counted) {
                Demand d = demand_of(s, job);
                change_all(&p->now_free, &d, s->node + s->first[job], s->device_bits + s->first[job], 1);
            }
        }
        if (early) renew(p, now);
        number chosen = take_due(p, now), count = 0;
        for (; w->submitted < s->jobs && s->submit[w->submitted] <= now; w->submitted++) {
            number at = count++; /* those of one instant in the order of the queue */
            for (; at > 0 && p->rank[arrived[at - 1]] > p->rank[w->submitted]; at--) arrived[at] = arrived[at - 1];
            arrived[at] = w->submitted;
        }
        for (number i = 0; i < count; i++) chosen = plan_new(p, arrived[i], now, chosen);
        for (number i = 0; i < chosen; i++) {
            number job = p->starting[i], first = s->first[job];
            begin(w, job, now);
            if (!s->counted) continue;
            Demand d = demand_of(s, job);
            place_lowest(&p->now_free, d.nodes, s->node + first);
            change_all(&p->now_free, &d, s->node + first, s->device_bits + first, -1);
        }
        due = next_due(p);
    }
}

static void simulate_plan(World *w) {
    Simulation *s = w->s;
    Memory *m = &w->memory;
    number n = s->machine_nodes;
    Plan p = {.w = w, .count = s->counted ? 1 : n, .now_free = all_free(m, s)};
    p.nodes = get(m, (size_t)n, sizeof(Timeline));
    p.line = get(m, (size_t)s->jobs, sizeof(Promise));
    p.rank = NUMBERS(m, s->jobs), p.given = NUMBERS(m, n), p.starting = NUMBERS(m, 2 * s->jobs);
    p.firsts = SECONDS(m, n), p.later = SECONDS(m, n);
    p.space_node = NUMBERS(m, n), p.space_bits = NUMBERS(m, n), p.ranks = NUMBERS(m, n);
    if (m->failed) return;
    for (number i = 0; i < s->jobs; i++) p.rank[s->by_rank[i]] = i;
    p.class_of = NUMBERS(m, n + 1);
    p.risen = SECONDS(m, n + 1), p.risen_before = SECONDS(m, n + 1);
    if (m->failed) return;
    for (number width = 1, octave = 1; width <= n; width++) { /* eight to a doubling */
        while (width >= 16 * octave) octave *= 2;
        if (width == 1 || width % octave == 0) p.classes++;
        p.class_of[width] = p.classes - 1;
    }
    for (number c = 0; c < p.classes; c++) p.risen[c] = p.risen_before[c] = INFINITY;
    Free idle = s->counted ? (Free){n, 0, 0} : p.now_free.node[0];
    for (number i = 0; i < p.count; i++) {
        p.nodes[i] = (Timeline){malloc(8 * sizeof(Step)), 1, 8};
        if (p.nodes[i].steps) p.nodes[i].steps[0] = (Step){-INFINITY, idle};
        else m->failed = 1;
    }
    if (!m->failed) plan_until_over(&p);
    for (number i = 0; i < p.count; i++) free(p.nodes[i].steps);
}

/* Fills in what comes of it; 0, or -1 where there is not enough memory. */
int dovetail_simulate(Simulation *s) {
    World w = {.s = s, .head = NONE, .overran = -INFINITY};
    s->broken = s->by_overrun = 0;
    w.heap = get(&w.memory, (size_t)s->jobs, sizeof(Running));
    if (!w.memory.failed) {
        if (s->policy == CONSERVATIVE) simulate_plan(&w);
        else simulate_queue(&w);
    }
    free_all(&w.memory);
    return w.memory.failed ? -1 : 0;
}
