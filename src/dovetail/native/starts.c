/* Run times drawn, and the queue rolled out until jobs start: the fast side of dovetail.kernels.starts.
 *
 * The Python functions of the same names are the specification and say what each argument holds; an array is
 * followed by its shape. All sums are taken in the same order, so that the floats are the same.
 */
#include "kernels.h"

enum { FCFS, EASY, GREEDY };
enum { OWN = 64, OTHERS = 1500, CANDIDATES = OWN + OTHERS };

/* ------------------------------------------------------------------------------------------ what is drawn */

/* A number in [0, 1) that looks drawn at random, the same for the same pair. */
static double chance(number one, number other) {
    uint64_t x = (uint64_t)one * 0x9E3779B97F4A7C15u + (uint64_t)other * 0xD1B54A32D192ED03u + 0x8CB92BA72F3D8DD7u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

double dovetail_chance(number one, number other) { return chance(one, other); }

static const double RARE = 1e-9, UNKNOWN_PART = 8.0, UNKNOWN_LENGTH = 600.0, LEAST_TAIL = 0.05, COPIED = 0.5;
enum { COPIES = 1000003 };

typedef struct { /* jobs that have ended, in the order of their ends */
    const number *user, *app, *width, *before;
    const double *wall, *ran;
    number count;
} Ended;

typedef struct {
    number user, app, width, last;
    double wall;
} Kind;

typedef struct {
    number count;
    double value[CANDIDATES], upto[CANDIDATES]; /* ascending; the sum of the weights up to each */
} Lengths;

static double likeness(const Ended *e, number i, const Kind *k, const double *p) {
    double found = 1.0;
    if (e->app[i] != k->app) found *= p[2];
    if (e->width[i] != k->width) found *= exp(-p[3] * (1.0 + fabs(log((double)e->width[i] / (double)k->width))));
    if (e->wall[i] != k->wall) {
        double apart = 1.0;
        if (e->wall[i] < INFINITY && k->wall < INFINITY) apart += fabs(log((e->wall[i] + 1) / (k->wall + 1)));
        found *= exp(-p[4] * apart);
    }
    return found;
}

/* How long a job of this kind would have run instead of that one. */
static double carried(const Ended *e, number i, const Kind *k, double part) {
    double ran = e->ran[i];
    if (e->wall[i] != k->wall && e->wall[i] < INFINITY && k->wall < INFINITY && e->wall[i] > 0)
        ran *= pow(k->wall / e->wall[i], part);
    return fmin(ran, k->wall);
}

static number gather(const Ended *e, const Kind *k, const double *p, Lengths *found) {
    double value[CANDIDATES], weight[CANDIDATES], own = 0.0, others = 0.0;
    number order[CANDIDATES], n = 0, kept;
    for (number i = k->last; i >= 0 && n < OWN; i = e->before[i]) {
        value[n] = carried(e, i, k, p[5]);
        weight[n] = likeness(e, i, k, p) * exp(-(double)n / p[0]);
        own += weight[n++];
    }
    kept = n;
    for (number i = e->count - 1; i >= 0 && n < kept + OTHERS; i--) {
        if (k->last >= 0 && e->user[i] == k->user) continue;
        value[n] = carried(e, i, k, p[6]);
        weight[n] = likeness(e, i, k, p + 5) * exp(-(double)(n - kept) / p[1]);
        others += weight[n++];
    }
    if (own > 0 && others > 0) {
        double share = p[10] / (own + p[10]); /* what is known of this user makes up for the others */
        for (number i = 0; i < kept; i++) weight[i] *= (1 - share) / own;
        for (number i = kept; i < n; i++) weight[i] *= share / others;
    }
    number status = sort_by(value, n, order);
    if (status) return status;
    double sum = 0.0;
    for (number i = 0; i < n; i++) {
        found->value[i] = value[order[i]];
        found->upto[i] = sum += weight[order[i]];
    }
    found->count = n;
    return 0;
}

/* How long such a job runs that has run for so long, at a quantile. */
static double length_at(const Lengths *l, double spent, double wall, double at) {
    number low = 0, high = l->count;
    while (low < high) {
        number middle = (low + high) >> 1;
        if (l->value[middle] <= spent) low = middle + 1;
        else high = middle;
    }
    double all = l->count ? l->upto[l->count - 1] : 0.0, below = low ? l->upto[low - 1] : 0.0;
    if (all - below <= RARE * all) { /* longer than all that is known: a heavy tail */
        double from = spent > 0 ? spent : wall < INFINITY ? wall / UNKNOWN_PART : UNKNOWN_LENGTH;
        return fmin(wall, from / fmax(1.0 - at, LEAST_TAIL));
    }
    double wanted = below + at * (all - below);
    high = l->count - 1;
    while (low < high) {
        number middle = (low + high) >> 1;
        if (l->upto[middle] <= wanted) low = middle + 1;
        else high = middle;
    }
    return l->value[low];
}

static int same_kind(const Kind *a, const Kind *b) {
    return a->user == b->user && a->app == b->app && a->width == b->width && a->wall == b->wall;
}

/* Jobs of one kind as chains in their order: `first` of each kind, `next` of each job. How many kinds there are. */
static number chain_kinds(const Kind *kinds, number n, number *next, number *first, number *newest, number *slots) {
    number count = 0, size = 2 * n + 1;
    for (number i = 0; i < size; i++) slots[i] = NONE;
    for (number j = 0; j < n; j++) {
        uint64_t key = (uint64_t)kinds[j].user * 31 + (uint64_t)kinds[j].app;
        key = (key * 31 + (uint64_t)kinds[j].width) * 1000003;
        if (kinds[j].wall < 1e15) key += (uint64_t)kinds[j].wall;
        number at = (number)((key * 0x9E3779B97F4A7C15u) >> 33) % size;
        while (slots[at] != NONE && !same_kind(&kinds[first[slots[at]]], &kinds[j])) at = (at + 1) % size;
        next[j] = NONE;
        if (slots[at] == NONE) {
            slots[at] = count;
            first[count++] = j;
        } else {
            next[newest[slots[at]]] = j;
        }
        newest[slots[at]] = j;
    }
    return count;
}

number dovetail_draw_lengths(const number *user, number n, const number *app, number n2, const number *width,
                             number n3, const number *last, number n4, const double *wall, number n5,
                             const double *spent, number n6, const number *seed, number n7, const number *ended_user,
                             number e, const number *ended_app, number e2, const number *ended_width, number e3,
                             const number *ended_before, number e4, const double *ended_wall, number e5,
                             const double *ended_ran, number e6, const double *weights, number w, double *found,
                             number draws, number f2) {
    Ended ended = {ended_user, ended_app, ended_width, ended_before, ended_wall, ended_ran, e};
    size_t room = (size_t)n + 1;
    Kind *kinds = malloc(sizeof(Kind) * room);
    Lengths *l = malloc(sizeof(Lengths));
    number *next = malloc(sizeof(number) * 6 * room), *first = next + room, *newest = first + room;
    number *slots = newest + room, status = kinds && l && next ? 0 : OUT_OF_MEMORY, count = 0;
    if (!status) {
        for (number j = 0; j < n; j++) kinds[j] = (Kind){user[j], app[j], width[j], last[j], wall[j]};
        count = chain_kinds(kinds, n, next, first, newest, slots);
    }
    for (number k = 0; k < count && !status; k++) {
        number like = NONE; /* who has run for longest of those that run */
        if ((status = gather(&ended, &kinds[first[k]], weights, l))) break;
        for (number j = first[k]; j != NONE; j = next[j])
            if (spent[j] > 0 && (like == NONE || spent[j] > spent[like])) like = j;
        for (number j = first[k]; j != NONE; j = next[j])
            for (number d = 0; d < draws; d++) {
                number shared = d % 2 == 0 && user[j] >= 0;
                if (spent[j] <= 0 && like != NONE && like < j && chance(seed[like], d + COPIES) < COPIED)
                    found[d * n + j] = found[d * n + like];
                else
                    found[d * n + j] = length_at(l, spent[j], wall[j], chance(shared ? -1 - user[j] : seed[j], d));
            }
    }
    free(kinds);
    free(l);
    free(next);
    return status;
}

/* ---------------------------------------------------------------------------------------------- rolled out */

enum { CPUS, DEVICES, MEMORY, AMOUNTS };

enum { BLOCK = 64 }; /* of the line */

typedef struct { /* the least of some neighbours in the line: those that all ask for too much are passed at once */
    number width, need[AMOUNTS];
    double wall;
} Block;

typedef struct { /* jobs that run, wait or come, by numbers that grow as they come */
    number room, used;
    number *width, *need, *group; /* how many nodes, what of each, and which may serve */
    double *wall, *length;
    double *end, *bound;    /* of those that have started */
    number *held, held_room, held_used, *held_from; /* the nodes of those that have, where nodes have names */
    number *by_end, running;   /* a heap */
    number *by_bound, bounded; /* ascending; some have ended (their width is 0) */
    number *waiting, first, line; /* from `first` up to `line`, in order; who has left is NONE */
    Block *blocks;
    int named; /* whether nodes have names, so that needs count */
} Queue;

typedef struct { /* where nodes are counted `nodes` is 0, and `idle` all that there is */
    number idle, nodes;
    const number *group;
    number *free, *then, *most; /* shape (nodes, AMOUNTS); the most that any node has free */
    number *chosen, *ranks;
    uint8_t *planned;
    number ready, extra; /* nodes that fit the head at its time; those left beside it where they are counted */
} Machine;

static number grow(Queue *q, number room) {
    if (room <= q->room) return 0;
    room += room / 2;
    number **numbers[] = {&q->width, &q->group, &q->by_end, &q->by_bound, &q->waiting, &q->held_from};
    double **seconds[] = {&q->wall, &q->length, &q->end, &q->bound};
    for (int i = 0; i < 6; i++) {
        number *n = realloc(*numbers[i], sizeof(number) * (size_t)room);
        if (!n) return OUT_OF_MEMORY;
        *numbers[i] = n;
    }
    for (int i = 0; i < 4; i++) {
        double *s = realloc(*seconds[i], sizeof(double) * (size_t)room);
        if (!s) return OUT_OF_MEMORY;
        *seconds[i] = s;
    }
    number *need = realloc(q->need, sizeof(number) * AMOUNTS * (size_t)room);
    if (!need) return OUT_OF_MEMORY;
    q->need = need;
    Block *blocks = realloc(q->blocks, sizeof(Block) * (size_t)(room / BLOCK + 1));
    if (!blocks) return OUT_OF_MEMORY;
    q->blocks = blocks;
    q->room = room;
    return 0;
}

static const Block EMPTY = {INT64_MAX, {INT64_MAX, INT64_MAX, INT64_MAX}, INFINITY};

static void lessen(Block *b, const Queue *q, number job) {
    if (q->width[job] < b->width) b->width = q->width[job];
    if (q->wall[job] < b->wall) b->wall = q->wall[job];
    for (int a = 0; q->named && a < AMOUNTS; a++)
        if (q->need[job * AMOUNTS + a] < b->need[a]) b->need[a] = q->need[job * AMOUNTS + a];
}

static void line_up(Queue *q, number job) {
    if (q->line % BLOCK == 0) q->blocks[q->line / BLOCK] = EMPTY;
    lessen(&q->blocks[q->line / BLOCK], q, job);
    q->waiting[q->line++] = job;
}

static void step_out(Queue *q, number at) {
    q->waiting[at] = NONE;
    while (q->first < q->line && q->waiting[q->first] == NONE) q->first++;
    Block *b = &q->blocks[at / BLOCK];
    *b = EMPTY;
    for (number i = at / BLOCK * BLOCK; i < q->line && i < (at / BLOCK + 1) * BLOCK; i++)
        if (q->waiting[i] != NONE) lessen(b, q, q->waiting[i]);
}

/* What a job does not need may be overdrawn: what is reserved may still be held. */
static int fits(const number *free, const number *need) {
    for (int a = 0; a < AMOUNTS; a++)
        if (need[a] && free[a] < need[a]) return 0;
    return 1;
}

/* Nodes for a job, those with the fewest free devices first, not on barred ones; whether there are enough. */
static int place(Machine *m, const number *free, const Queue *q, number job, const uint8_t *barred) {
    const number *need = q->need + job * AMOUNTS;
    number wanted = q->width[job], found = 0;
    for (number i = 0; i < m->nodes; i++) {
        if ((barred && barred[i]) || !(m->group[i] & q->group[job]) || !fits(free + i * AMOUNTS, need)) continue;
        number rank = free[i * AMOUNTS + DEVICES];
        if (found == wanted) {
            if (rank >= m->ranks[found - 1]) continue;
            found--;
        }
        number at = found++;
        for (; at > 0 && m->ranks[at - 1] > rank; at--) {
            m->ranks[at] = m->ranks[at - 1];
            m->chosen[at] = m->chosen[at - 1];
        }
        m->ranks[at] = rank;
        m->chosen[at] = i;
        if (found == wanted && m->ranks[found - 1] == need[DEVICES]) break; /* none has a lower rank */
    }
    return found == wanted;
}

static void change(number *free, const Queue *q, number job, const number *nodes, number sign) {
    const number *need = q->need + job * AMOUNTS;
    for (number i = 0; i < q->width[job]; i++)
        for (int a = 0; a < AMOUNTS; a++) free[nodes[i] * AMOUNTS + a] += sign * need[a];
}

static void note_most(Machine *m) {
    for (int a = 0; a < AMOUNTS; a++) m->most[a] = 0;
    for (number i = 0; i < m->nodes * AMOUNTS; i++)
        if (m->free[i] > m->most[i % AMOUNTS]) m->most[i % AMOUNTS] = m->free[i];
}

static number fitting_then(const Machine *m, const Queue *q, number head, const number *nodes, number count) {
    number found = 0;
    for (number i = 0; i < count; i++)
        found += (m->group[nodes[i]] & q->group[head]) &&
                 fits(m->then + nodes[i] * AMOUNTS, q->need + head * AMOUNTS);
    return found;
}

/* Whether a job fits now; where nodes have names they are chosen. */
static int fits_now(Machine *m, const Queue *q, number job) {
    if (!m->nodes) return q->width[job] <= m->idle;
    return fits(m->most, q->need + job * AMOUNTS) && place(m, m->free, q, job, NULL);
}

static void sift_down(Queue *q, number at) {
    number job = q->by_end[at];
    for (;;) {
        number below = 2 * at + 1;
        if (below >= q->running) break;
        if (below + 1 < q->running && q->end[q->by_end[below + 1]] < q->end[q->by_end[below]]) below++;
        if (q->end[job] <= q->end[q->by_end[below]]) break;
        q->by_end[at] = q->by_end[below];
        at = below;
    }
    q->by_end[at] = job;
}

/* A job runs on these nodes. */
static number run(Queue *q, number job, double end, double bound, const number *nodes) {
    q->end[job] = end;
    q->bound[job] = bound;
    if (nodes) {
        number wanted = q->held_used + q->width[job];
        if (wanted > q->held_room) {
            number *held = realloc(q->held, sizeof(number) * (size_t)(2 * wanted));
            if (!held) return OUT_OF_MEMORY;
            q->held = held;
            q->held_room = 2 * wanted;
        }
        q->held_from[job] = q->held_used;
        memcpy(q->held + q->held_used, nodes, sizeof(number) * (size_t)q->width[job]);
        q->held_used = wanted;
    }
    number low = 0, high = q->bounded;
    while (low < high) {
        number middle = (low + high) >> 1;
        if (q->bound[q->by_bound[middle]] <= bound) low = middle + 1;
        else high = middle;
    }
    memmove(q->by_bound + low + 1, q->by_bound + low, sizeof(number) * (size_t)(q->bounded - low));
    q->by_bound[low] = job;
    q->bounded++;
    number at = q->running++;
    for (; at > 0 && q->end[q->by_end[(at - 1) / 2]] > end; at = (at - 1) / 2) q->by_end[at] = q->by_end[(at - 1) / 2];
    q->by_end[at] = job;
    return 0;
}

/* Start a job now that fits; its nodes are the chosen ones. */
static number start(Machine *m, Queue *q, number job, double now) {
    if (m->nodes) {
        change(m->free, q, job, m->chosen, -1);
        note_most(m);
    } else {
        m->idle -= q->width[job];
    }
    return run(q, job, now + q->length[job], now + q->wall[job], m->nodes ? m->chosen : NULL);
}

typedef struct { /* what is known to come */
    const double *begin;            /* of each job: when it may join the line */
    const number *after_from, *after; /* and after whose ends */
    number *heirs_from, *heirs;     /* of each job: who waits for its end */
    number *blockers, *seat;        /* of each job: for how many it waits; its place in the line, or NONE */
    number *by_begin, *gated, gates, begun; /* who waits for a time: as places of `gated`, by time; how many have come */
    const double *time;             /* changes of the machine */
    const number *node, *amount;
    number changes, changed;
} Ahead;

/* A job takes its seat in the line if it waits for nothing but its turn. */
static void join_line(Queue *q, Ahead *a, number job, double now) {
    number at = a->seat[job];
    if (at == NONE || a->blockers[job] || a->begin[job] > now) return;
    a->seat[job] = NONE;
    q->waiting[at] = job;
    lessen(&q->blocks[at / BLOCK], q, job);
    if (at < q->first) q->first = at;
}

/* All jobs that wait get their places in the line; of those that wait for more than their turn they stay empty. */
static void line_up_all(Queue *q, Ahead *a, number running, number jobs) {
    a->begun = a->changed = 0;
    for (number j = running; j < jobs; j++) {
        a->blockers[j] = a->after_from[j + 1] - a->after_from[j];
        a->seat[j] = NONE;
        line_up(q, j);
    }
    for (number g = 0; g < a->gates; g++) {
        number job = a->gated[g], at = job - running;
        a->seat[job] = at;
        q->waiting[at] = NONE;
    }
    for (number at = 0; a->gates && at < q->line; at += BLOCK) { /* the least of those that are there */
        q->blocks[at / BLOCK] = EMPTY;
        for (number i = at; i < q->line && i < at + BLOCK; i++)
            if (q->waiting[i] != NONE) lessen(&q->blocks[at / BLOCK], q, q->waiting[i]);
    }
    while (q->first < q->line && q->waiting[q->first] == NONE) q->first++;
}

static double next_known(const Ahead *a) {
    double begins = a->begun < a->gates ? a->begin[a->gated[a->by_begin[a->begun]]] : INFINITY;
    return a->changed < a->changes ? fmin(begins, a->time[a->changed]) : begins;
}

/* Jobs join the line whose time has come; the machine changes. */
static void meet_expected(Machine *m, Queue *q, Ahead *a, double now) {
    for (; a->begun < a->gates && a->begin[a->gated[a->by_begin[a->begun]]] <= now; a->begun++)
        join_line(q, a, a->gated[a->by_begin[a->begun]], now);
    number before = a->changed;
    for (; a->changed < a->changes && a->time[a->changed] <= now; a->changed++) {
        const number *amount = a->amount + a->changed * AMOUNTS;
        if (!m->nodes) m->idle += amount[0];
        else
            for (int i = 0; i < AMOUNTS; i++) m->free[a->node[a->changed] * AMOUNTS + i] += amount[i];
    }
    if (a->changed > before && m->nodes) note_most(m);
}

/* Those that have ended by now give back what they held, and their heirs may join the line. */
static void end_by(Machine *m, Queue *q, Ahead *a, number jobs, double now) {
    int any = 0;
    for (; q->running && q->end[q->by_end[0]] <= now; any = 1) {
        number job = q->by_end[0];
        for (number i = job < jobs ? a->heirs_from[job] : 0; job < jobs && i < a->heirs_from[job + 1]; i++) {
            a->blockers[a->heirs[i]]--;
            join_line(q, a, a->heirs[i], now);
        }
        if (m->nodes) change(m->free, q, job, q->held + q->held_from[job], 1);
        else m->idle += q->width[job];
        q->width[job] = 0;
        q->by_end[0] = q->by_end[--q->running];
        if (q->running) sift_down(q, 0);
    }
    if (any && m->nodes) note_most(m);
}

/* When the head fits by the bounds of what runs; what has ended is left out from now on. */
static double shadow_of(Machine *m, Queue *q, number head, double now) {
    double when = now;
    number kept = 0, i = 0;
    m->ready = m->idle;
    if (m->nodes) {
        memcpy(m->then, m->free, sizeof(number) * AMOUNTS * (size_t)m->nodes);
        m->ready = 0;
        for (number node = 0; node < m->nodes; node++) m->ready += fitting_then(m, q, head, &node, 1);
    }
    for (; i < q->bounded; i++) {
        number job = q->by_bound[i];
        if (!q->width[job]) continue;
        if (q->bound[job] > when) {
            if (m->ready >= q->width[head]) break;
            when = q->bound[job];
        }
        q->by_bound[kept++] = job;
        if (!m->nodes) {
            m->ready += q->width[job];
            continue;
        }
        const number *nodes = q->held + q->held_from[job];
        m->ready -= fitting_then(m, q, head, nodes, q->width[job]);
        change(m->then, q, job, nodes, 1);
        m->ready += fitting_then(m, q, head, nodes, q->width[job]);
    }
    if (kept < i) {
        memmove(q->by_bound + kept, q->by_bound + i, sizeof(number) * (size_t)(q->bounded - i));
        q->bounded -= i - kept;
    }
    m->extra = m->ready - q->width[head];
    if (m->extra < 0) m->extra = 0, when = INFINITY;
    return when;
}

static void plan_head(Machine *m, const Queue *q, number head) {
    if (!m->nodes) return;
    memset(m->planned, 0, (size_t)m->nodes);
    if (!place(m, m->then, q, head, NULL)) return;
    for (number i = 0; i < q->width[head]; i++) m->planned[m->chosen[i]] = 1;
}

/* Whether a job of any length fits such that the head still fits at its time, which is then noted. */
static int fits_beside(Machine *m, const Queue *q, number job, number head) {
    number width = q->width[job];
    if (!m->nodes) {
        if (width > m->extra) return 0;
        m->extra -= width;
        return 1;
    }
    if (!place(m, m->free, q, job, NULL)) return 0;
    int touches = 0;
    for (number i = 0; i < width; i++) touches |= m->planned[m->chosen[i]];
    number before = fitting_then(m, q, head, m->chosen, width);
    change(m->then, q, job, m->chosen, -1);
    number left = m->ready - before + fitting_then(m, q, head, m->chosen, width);
    if (touches && left < q->width[head]) { /* on others then */
        change(m->then, q, job, m->chosen, 1);
        if (!place(m, m->free, q, job, m->planned)) return 0;
        before = fitting_then(m, q, head, m->chosen, width);
        change(m->then, q, job, m->chosen, -1);
        left = m->ready - before + fitting_then(m, q, head, m->chosen, width);
    }
    m->ready = left;
    return 1;
}

typedef struct { /* submissions of the past, by time: they come again */
    const double *time, *wall, *ran;
    const number *width, *job, *need, *group; /* job: whose drawn length is taken, or NONE, then it `ran` so long */
    number count;
} Past;

typedef struct {
    number running, known, target, policy;
    double horizon, span; /* span: of the stretch of the past, after which it comes again */
    double *start;
    number left; /* how many are to start before it is over */
} Question;

static void note_start(Question *ask, number job, double now) {
    number place = job - ask->running;
    if (place >= ask->known) return;
    ask->start[place] = now;
    ask->left -= ask->target < 0 || place == ask->target;
}

/* The next place in the line from one on that may hold a job that could go; the end where there is none. */
static number next_candidate(const Machine *m, const Queue *q, number at, double now, double shadow) {
    for (; at < q->line; at++) {
        if (at % BLOCK == 0) {
            const Block *b = &q->blocks[at / BLOCK];
            int none = m->nodes ? !fits(m->most, b->need)
                                : b->width > m->idle || (now + b->wall > shadow && b->width > m->extra);
            if (none) {
                at += BLOCK - 1;
                continue;
            }
        }
        number job = q->waiting[at];
        if (job == NONE) continue;
        if (m->nodes ? fits(m->most, q->need + job * AMOUNTS) : q->width[job] <= m->idle) return at;
    }
    return q->line;
}

enum { REMEMBERED = 32 };

typedef struct { /* what did not fit in a pass: like jobs are passed over, as nothing is freed meanwhile */
    number count, width[REMEMBERED], need[REMEMBERED][AMOUNTS], group[REMEMBERED];
} Misfits;

static int is_misfit(const Misfits *f, const Queue *q, number job) {
    const number *need = q->need + job * AMOUNTS;
    for (number i = 0; i < f->count; i++) {
        int alike = f->width[i] == q->width[job] && f->group[i] == q->group[job];
        if (alike && !memcmp(f->need[i], need, sizeof f->need[i])) return 1;
    }
    return 0;
}

static void note_misfit(Misfits *f, const Queue *q, number job) {
    if (f->count == REMEMBERED) return;
    f->width[f->count] = q->width[job];
    f->group[f->count] = q->group[job];
    memcpy(f->need[f->count++], q->need + job * AMOUNTS, sizeof f->need[0]);
}

/* Who delays the head's start by its bounds may not go; others go in the order of the line. */
static number backfill(Machine *m, Queue *q, Question *ask, double now) {
    number head = q->waiting[q->first], at = q->first + 1;
    if (!m->nodes && m->idle <= 0) return 0;
    m->extra = INT64_MAX;
    if (next_candidate(m, q, at, now, INFINITY) >= q->line) return 0; /* mostly nobody fits: that is seen at once */
    double shadow = INFINITY; /* who is greedy delays the head */
    if (ask->policy == EASY) {
        shadow = shadow_of(m, q, head, now);
        plan_head(m, q, head);
    }
    Misfits never = {0}, beside = {0}; /* who fits nowhere; who would delay the head, until the next start */
    while ((at = next_candidate(m, q, at, now, shadow)) < q->line) {
        number job = q->waiting[at];
        int in_time = now + q->wall[job] <= shadow;
        if (m->nodes && (is_misfit(&never, q, job) || (!in_time && is_misfit(&beside, q, job)))) {
            at++;
            continue;
        }
        int goes = in_time ? fits_now(m, q, job) : fits_beside(m, q, job, head);
        if (m->nodes && !goes) note_misfit(in_time ? &never : &beside, q, job);
        if (goes) {
            beside.count = 0;
            if (start(m, q, job, now)) return OUT_OF_MEMORY;
            step_out(q, at);
            note_start(ask, job, now);
            if (!in_time) plan_head(m, q, head);
        }
        at++;
    }
    return 0;
}

/* Starts those that wait, in turn, until all have that are asked about; 0, or OUT_OF_MEMORY. */
static number roll(Machine *m, Queue *q, Ahead *a, Question *ask, const Past *past, double origin, number coming,
                   const double *lengths) {
    number first = coming, jobs = ask->running + ask->known;
    double now = 0.0;
    meet_expected(m, q, a, now);
    while (ask->left > 0) {
        while (q->first < q->line && fits_now(m, q, q->waiting[q->first])) { /* from the front while jobs fit */
            number job = q->waiting[q->first];
            if (start(m, q, job, now)) return OUT_OF_MEMORY;
            step_out(q, q->first);
            note_start(ask, job, now);
        }
        if (ask->left && ask->policy != FCFS && q->line > q->first + 1 && backfill(m, q, ask, now))
            return OUT_OF_MEMORY;
        if (!ask->left) break;
        double next = q->running ? q->end[q->by_end[0]] : INFINITY;
        if (coming == past->count && past->count > first) { /* the stretch comes again */
            origin -= ask->span;
            coming = first;
        }
        double arrives = coming < past->count ? past->time[coming] - origin : INFINITY;
        now = fmax(now, fmin(fmin(next, arrives), next_known(a)));
        if (!(now <= ask->horizon)) break;
        for (; coming < past->count && past->time[coming] - origin <= now; coming++) {
            if (grow(q, q->used + 1)) return OUT_OF_MEMORY;
            number job = q->used++, drawn = past->job[coming];
            q->width[job] = past->width[coming];
            q->group[job] = past->group[coming];
            memcpy(q->need + job * AMOUNTS, past->need + coming * AMOUNTS, sizeof(number) * AMOUNTS);
            q->wall[job] = past->wall[coming];
            q->length[job] = drawn == NONE ? past->ran[coming] : lengths[drawn];
            line_up(q, job);
        }
        end_by(m, q, a, jobs, now);
        meet_expected(m, q, a, now);
    }
    return 0;
}

/* The jobs that wait for each job's end, and for a time; the caller frees `heirs_from`. */
static number note_ahead(Ahead *a, number running, number jobs, number waits) {
    size_t room = (size_t)jobs + 1;
    number *space = calloc(5 * room + (size_t)waits, sizeof(number));
    double *time = malloc(sizeof(double) * room);
    if (!space || !time) return free(space), free(time), OUT_OF_MEMORY;
    a->heirs_from = space, a->blockers = space + room, a->seat = space + 2 * room;
    a->by_begin = space + 3 * room, a->gated = space + 4 * room, a->heirs = space + 5 * room;
    for (number i = a->after_from[running]; i < a->after_from[jobs]; i++) a->heirs_from[a->after[i] + 1]++;
    for (number j = 0; j < jobs; j++) a->heirs_from[j + 1] += a->heirs_from[j];
    for (number j = running; j < jobs; j++)
        for (number i = a->after_from[j]; i < a->after_from[j + 1]; i++)
            a->heirs[a->heirs_from[a->after[i]] + a->blockers[a->after[i]]++] = j;
    a->gates = 0;
    for (number j = running; j < jobs; j++)
        if (a->begin[j] > 0.0 || a->after_from[j + 1] > a->after_from[j]) {
            time[a->gates] = a->begin[j];
            a->gated[a->gates++] = j;
        }
    number status = sort_by(time, a->gates, a->by_begin);
    free(time);
    return status;
}

number dovetail_roll_starts(number idle, const number *free_now, number nodes, number amounts,
                            const number *node_group, number g, number policy, number running, const number *width,
                            number n, const double *wall, number n2, const double *spent, number n3,
                            const number *need, number n4, number amounts2, const number *group, number n5,
                            const number *held, number h, const double *lengths, number draws, number n6,
                            const double *begin, number b, const number *after_from, number b2, const number *after,
                            number b3, const double *change_time, number c, const number *change_node, number c2,
                            const number *change_amount, number c3, number amounts4, const double *past_time, number p, const number *past_width, number p2,
                            const double *past_wall, number p3, const double *past_ran, number p4,
                            const number *past_job, number p5, const number *past_need, number p6, number amounts3,
                            const number *past_group, number p7, const double *origins, number d2, double until,
                            number target, double horizon, double *starts, number d3, number w) {
    Past past = {past_time, past_wall, past_ran, past_width, past_job, past_need, past_group, p};
    Queue q = {0};
    size_t room = sizeof(number) * AMOUNTS * (size_t)(nodes + 1);
    number *space = malloc(5 * room), known = n - running;
    number status = space && !grow(&q, n + 64) ? 0 : OUT_OF_MEMORY;
    Machine m = {.nodes = nodes, .group = node_group, .free = space};
    if (space) {
        m.then = space + AMOUNTS * (nodes + 1), m.most = m.then + AMOUNTS * nodes;
        m.chosen = m.then + AMOUNTS * (nodes + 1), m.ranks = m.chosen + AMOUNTS * (nodes + 1);
        m.planned = (uint8_t *)(m.ranks + AMOUNTS * (nodes + 1));
    }
    Ahead a = {.begin = begin, .after_from = after_from, .after = after};
    a.time = change_time, a.node = change_node, a.amount = change_amount, a.changes = c;
    if (!status) status = note_ahead(&a, running, n, b3);
    for (number d = 0; d < draws && !status; d++) {
        const double *length = lengths + d * n;
        q.used = n;
        q.running = q.bounded = q.first = q.line = q.held_used = 0;
        q.named = nodes > 0;
        m.idle = idle;
        memcpy(m.free, free_now, sizeof(number) * AMOUNTS * (size_t)nodes);
        note_most(&m);
        memcpy(q.width, width, sizeof(number) * (size_t)n);
        memcpy(q.need, need, sizeof(number) * AMOUNTS * (size_t)n);
        memcpy(q.group, group, sizeof(number) * (size_t)n);
        memcpy(q.wall, wall, sizeof(double) * (size_t)n);
        memcpy(q.length, length, sizeof(double) * (size_t)n);
        const number *of = held;
        for (number j = 0; j < running && !status; of += width[j++])
            status = run(&q, j, fmax(length[j] - spent[j], 0.0), wall[j] - spent[j], nodes ? of : NULL);
        if (!status) line_up_all(&q, &a, running, n);
        for (number j = 0; j < known; j++) starts[d * w + j] = INFINITY;
        number low = 0, high = p;
        while (low < high) {
            number middle = (low + high) >> 1;
            if (past_time[middle] <= origins[d]) low = middle + 1;
            else high = middle;
        }
        Question ask = {running, known, target, policy, horizon, until - origins[d], starts + d * w, known};
        if (target >= 0) ask.left = 1;
        if (!status) status = roll(&m, &q, &a, &ask, &past, origins[d], low, length);
    }
    number *numbers[] = {q.width, q.need, q.group, q.held, q.held_from, q.by_end, q.by_bound, q.waiting, space};
    double *seconds[] = {q.wall, q.length, q.end, q.bound};
    for (int i = 0; i < 9; i++) free(numbers[i]);
    for (int i = 0; i < 4; i++) free(seconds[i]);
    free(q.blocks);
    free(a.heirs_from);
    return status;
}
