/* Run times drawn, and the queue rolled out until jobs start: the fast side of dovetail.kernels.starts.
 *
 * The Python functions of the same names are the specification and say what each argument holds; an array is
 * followed by its shape. All sums are taken in the same order, so that the floats are the same.
 */
#include "kernels.h"

enum { FCFS, EASY };
enum { OWN = 64, OTHERS = 200, CANDIDATES = OWN + OTHERS };

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

static const double RARE = 1e-9, UNKNOWN_PART = 8.0, UNKNOWN_LENGTH = 600.0, COPIED = 0.5;
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
        return fmin(wall, from / (1.0 - at));
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

/* Kinds by jobs: `kind_of` is the number of each job's, `first` the first job of each kind. How many there are. */
static number number_kinds(const Kind *kinds, number n, number *kind_of, number *first, number *slots) {
    number count = 0, size = 2 * n + 1;
    for (number i = 0; i < size; i++) slots[i] = NOBODY;
    for (number j = 0; j < n; j++) {
        uint64_t key = (uint64_t)kinds[j].user * 31 + (uint64_t)kinds[j].app;
        key = (key * 31 + (uint64_t)kinds[j].width) * 1000003;
        if (kinds[j].wall < 1e15) key += (uint64_t)kinds[j].wall;
        number at = (number)((key * 0x9E3779B97F4A7C15u) >> 33) % size;
        while (slots[at] != NOBODY && !same_kind(&kinds[first[slots[at]]], &kinds[j])) at = (at + 1) % size;
        if (slots[at] == NOBODY) {
            first[count] = j;
            slots[at] = count++;
        }
        kind_of[j] = slots[at];
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
    number *kind_of = malloc(sizeof(number) * 5 * room), *first = kind_of + room, *sibling = first + room;
    Lengths *tables = NULL;
    number status = kinds && kind_of ? 0 : OUT_OF_MEMORY, count = 0;
    if (!status) {
        for (number j = 0; j < n; j++) kinds[j] = (Kind){user[j], app[j], width[j], last[j], wall[j]};
        count = number_kinds(kinds, n, kind_of, first, sibling + room);
        if (!(tables = malloc(sizeof(Lengths) * (size_t)(count + 1)))) status = OUT_OF_MEMORY;
    }
    for (number k = 0; k < count && !status; k++) {
        status = gather(&ended, &kinds[first[k]], weights, &tables[k]);
        sibling[k] = NOBODY;
    }
    for (number j = 0; j < n && !status; j++) /* of each kind the one that has run for longest */
        if (spent[j] > 0 && (sibling[kind_of[j]] == NOBODY || spent[j] > spent[sibling[kind_of[j]]]))
            sibling[kind_of[j]] = j;
    for (number d = 0; d < draws && !status; d++) {
        double *row = found + d * n;
        for (number j = 0; j < n; j++) {
            const Lengths *l = &tables[kind_of[j]];
            number like = sibling[kind_of[j]];
            number key = d % 2 == 0 && user[j] >= 0 ? -1 - user[j] : seed[j];
            double at = chance(key, d);
            row[j] = length_at(l, spent[j], wall[j], at);
            if (spent[j] <= 0 && like != NOBODY && like < j && chance(seed[like], d + COPIES) < COPIED) row[j] = row[like];
        }
    }
    free(kinds);
    free(kind_of);
    free(tables);
    return status;
}

/* ---------------------------------------------------------------------------------------------- rolled out */

typedef struct { /* jobs that run, and those that wait or come, by numbers that grow as they come */
    number room, used;    /* of the columns below */
    number *width;
    double *wall, *length;
    double *end, *bound; /* of those that have started */
    number *by_end, running;   /* a heap */
    number *by_bound, bounded; /* ascending; some have ended (their width is 0) */
    number *waiting, line;
} Queue;

static number grow(Queue *q, number room) {
    if (room <= q->room) return 0;
    room += room / 2;
    number *numbers[] = {q->width, q->by_end, q->by_bound, q->waiting};
    double *seconds[] = {q->wall, q->length, q->end, q->bound};
    for (int i = 0; i < 4; i++) {
        number *n = realloc(numbers[i], sizeof(number) * (size_t)room);
        if (n) numbers[i] = n;
        double *s = realloc(seconds[i], sizeof(double) * (size_t)room);
        if (s) seconds[i] = s;
        if (!n || !s) room = -1;
        if (room < 0) break;
    }
    q->width = numbers[0], q->by_end = numbers[1], q->by_bound = numbers[2], q->waiting = numbers[3];
    q->wall = seconds[0], q->length = seconds[1], q->end = seconds[2], q->bound = seconds[3];
    if (room < 0) return OUT_OF_MEMORY;
    q->room = room;
    return 0;
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

static void run(Queue *q, number job, double end, double bound) {
    q->end[job] = end;
    q->bound[job] = bound;
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
}

/* What those held that have ended by now. */
static number ended_by(Queue *q, double now) {
    number given = 0;
    while (q->running && q->end[q->by_end[0]] <= now) {
        number job = q->by_end[0];
        given += q->width[job];
        q->width[job] = 0;
        q->by_end[0] = q->by_end[--q->running];
        if (q->running) sift_down(q, 0);
    }
    return given;
}

/* When so many are free by the bounds of what runs; `extra` becomes what is free then beside them. */
static double shadow_of(Queue *q, number idle, number wanted, number *extra) {
    double when = INFINITY;
    number kept = 0, i = 0;
    *extra = idle - wanted;
    for (; i < q->bounded; i++) {
        number job = q->by_bound[i];
        if (!q->width[job]) continue;
        if (*extra >= 0 && q->bound[job] > when) break;
        *extra += q->width[job];
        if (*extra >= 0) when = q->bound[job];
        q->by_bound[kept++] = job;
    }
    if (kept < i) {
        memmove(q->by_bound + kept, q->by_bound + i, sizeof(number) * (size_t)(q->bounded - i));
        q->bounded -= i - kept;
    }
    if (*extra < 0) *extra = 0;
    return when;
}

typedef struct { /* submissions of the past, by time: they come again */
    const double *time, *wall;
    const number *width, *job; /* job: whose length is drawn here, as it has not ended; or NOBODY, then `ran` */
    const double *ran;
    number count;
} Past;

typedef struct {
    number known, target, policy, idle;
    double horizon, span; /* span: of the stretch of the past, after which it comes again */
} Question;

/* Starts the jobs that wait, in turn, until the target has (or all known ones have); 0, or OUT_OF_MEMORY. */
static number roll(Queue *q, const Question *ask, const Past *past, double origin, number coming, const double *lengths,
                   double *start) {
    number idle = ask->idle, left = ask->target >= 0 ? 1 : q->line, waits_from = q->used - q->line;
    number base = waits_from, narrowest = 0, first = coming;
    double now = 0.0, shortest = 0.0;
    while (left > 0) {
        number at = 0;
        while (at < q->line && q->width[q->waiting[at]] <= idle) { /* from the front while jobs fit */
            number job = q->waiting[at++];
            idle -= q->width[job];
            run(q, job, now + q->length[job], now + q->wall[job]);
            if (job - base < ask->known) {
                start[job - base] = now;
                left -= ask->target < 0 || job - base == ask->target;
            }
        }
        memmove(q->waiting, q->waiting + at, sizeof(number) * (size_t)(q->line -= at));
        if (at) narrowest = 0, shortest = 0.0;
        if (!left) break;
        if (ask->policy == EASY && q->line > 1 && idle > 0 && idle >= narrowest) {
            number extra, kept = 1, i = 1, least = narrowest;
            double shadow = fmax(shadow_of(q, idle, q->width[q->waiting[0]], &extra), now), soonest = shortest;
            int any = now + shortest <= shadow || narrowest <= extra;
            narrowest = INT64_MAX;
            shortest = INFINITY;
            for (; any && idle >= least && i < q->line; i++) {
                number job = q->waiting[i];
                int in_time = now + q->wall[job] <= shadow;
                if (q->width[job] > idle || !(in_time || q->width[job] <= extra)) {
                    q->waiting[kept++] = job;
                    if (q->width[job] < narrowest) narrowest = q->width[job];
                    if (q->wall[job] < shortest) shortest = q->wall[job];
                    continue;
                }
                if (!in_time) extra -= q->width[job];
                idle -= q->width[job];
                run(q, job, now + q->length[job], now + q->wall[job]);
                if (job - base < ask->known) {
                    start[job - base] = now;
                    left -= ask->target < 0 || job - base == ask->target;
                }
            }
            if (i < q->line) {
                memmove(q->waiting + kept, q->waiting + i, sizeof(number) * (size_t)(q->line - i));
                narrowest = least;
                shortest = soonest;
            }
            q->line += kept - i;
            if (!left) break;
        }
        double next = q->running ? q->end[q->by_end[0]] : INFINITY;
        double arrives = coming < past->count ? past->time[coming] - origin : INFINITY;
        if (arrives == INFINITY && past->count > first) { /* the stretch comes again */
            origin -= ask->span;
            coming = first;
            arrives = past->time[coming] - origin;
        }
        now = fmax(now, fmin(next, arrives));
        if (now > ask->horizon) break;
        for (; coming < past->count && past->time[coming] - origin <= now; coming++) {
            if (grow(q, q->used + 1)) return OUT_OF_MEMORY;
            number job = q->used++, drawn = past->job[coming];
            q->width[job] = past->width[coming];
            q->wall[job] = past->wall[coming];
            q->length[job] = drawn == NOBODY ? past->ran[coming] : lengths[drawn];
            q->waiting[q->line++] = job;
            if (q->width[job] < narrowest) narrowest = q->width[job];
            if (q->wall[job] < shortest) shortest = q->wall[job];
        }
        idle += ended_by(q, now);
    }
    return 0;
}

number dovetail_roll_starts(number idle, number policy, number running, const number *width, number n,
                            const double *wall, number n2, const double *spent, number n3, const double *lengths,
                            number draws, number n4, const double *past_time, number p, const number *past_width,
                            number p2, const double *past_wall, number p3, const double *past_ran, number p4,
                            const number *past_job, number p5, const double *origins, number d2, double span_end,
                            number target, double horizon, double *starts, number d3, number w) {
    Past past = {past_time, past_wall, past_width, past_job, past_ran, p};
    Queue q = {0};
    number status = grow(&q, n + 64), known = n - running;
    for (number d = 0; d < draws && !status; d++) {
        const double *length = lengths + d * n;
        q.used = n;
        q.running = q.bounded = q.line = 0;
        memcpy(q.width, width, sizeof(number) * (size_t)n);
        memcpy(q.wall, wall, sizeof(double) * (size_t)n);
        memcpy(q.length, length, sizeof(double) * (size_t)n);
        for (number j = 0; j < running; j++) run(&q, j, fmax(length[j] - spent[j], 0.0), wall[j] - spent[j]);
        for (number j = running; j < n; j++) q.waiting[q.line++] = j;
        for (number j = 0; j < known; j++) starts[d * w + j] = INFINITY;
        number low = 0, high = p;
        while (low < high) {
            number middle = (low + high) >> 1;
            if (past_time[middle] <= origins[d]) low = middle + 1;
            else high = middle;
        }
        Question ask = {known, target, policy, idle, horizon, span_end - origins[d]};
        status = roll(&q, &ask, &past, origins[d], low, length, starts + d * w);
    }
    free(q.width), free(q.wall), free(q.length), free(q.end), free(q.bound);
    free(q.by_end), free(q.by_bound), free(q.waiting);
    return status;
}
