/* EASY in an order, and `lookahead?objective=wait`, of rigid jobs on one pool of processors, in counts alone.
 *
 * What `lookahead_held_out.py` tries rules with: the engine's starts to the last digit (its `check` says so), in a
 * twentieth of the time. The specification is dovetail.policies.lookahead_order; roll-outs are the package's own.
 */
#include "backfilling.c"
#include "sorting.c"

enum { FCFS, SJF, LARGEST, F1, SAF, SQRTSAF };
enum { ENDS = 256, WINDOW = 256 }; /* ends that are remembered, waiting jobs that are rolled out */
enum { AS_EXPECTED, BY_WALLTIME, AS_THEY_RUN };

typedef struct { /* jobs by submission */
    number jobs, capacity;
    const double *submit, *wall, *run;
    const number *width, *user;
} Trace;

typedef struct {
    number looks;           /* 0: EASY in the first order, by walltimes */
    number orders, tried[6]; /* the first one stands */
    number futures, firsts;  /* firsts: jobs that fit which are tried before all others */
    number lengths;          /* of jobs, as above */
    double age;
} Rule;

typedef struct {
    double end, bound;
    number job, turn;
} Placed;

typedef struct {
    const Trace *t;
    const Rule *rule;
    double now, *start;
    number free, running, waiting, head, turns;
    Placed *runs;          /* by bounds */
    number *queue, *line;  /* in the order that stands; in the one chosen now */
    double *keys;          /* of `queue` */
    char *started, *chosen;
    number past, past_user[ENDS];
    double past_wall[ENDS], past_run[ENDS];
    /* what roll-outs see: the waiting jobs of the window, then those that run */
    number *width, *users, *numbers, *running_width, *rank, *best;
    double *wall, *submit, *spent, *length, *harmonic, *bound, *drawn, *long_, *running_long;
} World;

static double key_of(number order, double width, double length, double wall, double since) {
    switch (order) {
    case FCFS: return since;
    case SJF: return length;
    case LARGEST: return -width;
    case F1: return log10(fmax(1.0, wall)) * width + 870 * log10(fmax(1.0, since));
    case SAF: return length * width;
    default: return length * sqrt(width);
    }
}

static int by_end(const void *one, const void *other) {
    const Placed *a = one, *b = other;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return a->turn < b->turn ? -1 : 1;
}

static int by_number(const void *one, const void *other) {
    number a = *(const number *)one, b = *(const number *)other;
    return (a > b) - (a < b);
}

static void start(World *w, number job) {
    const Trace *t = w->t;
    Placed new = {w->now + fmin(t->run[job], t->wall[job]), w->now + t->wall[job], job, w->turns++};
    number at = w->running++;
    for (; at > 0 && w->runs[at - 1].bound > new.bound; at--) w->runs[at] = w->runs[at - 1];
    w->runs[at] = new;
    w->start[job] = w->now;
    w->free -= t->width[job];
    w->started[job] = 1;
}

static void end_all(World *w, Placed *over) {
    const Trace *t = w->t;
    number kept = 0, ended = 0;
    for (number i = 0; i < w->running; i++) {
        if (w->runs[i].end <= w->now) over[ended++] = w->runs[i];
        else w->runs[kept++] = w->runs[i];
    }
    w->running = kept;
    qsort(over, (size_t)ended, sizeof(Placed), by_end);
    for (number i = 0; i < ended; i++) {
        number job = over[i].job;
        w->free += t->width[job];
        if (t->wall[job] <= 0) continue;
        if (w->past == ENDS) {
            w->past--;
            memmove(w->past_user, w->past_user + 1, (ENDS - 1) * sizeof(number));
            memmove(w->past_wall, w->past_wall + 1, (ENDS - 1) * sizeof(double));
            memmove(w->past_run, w->past_run + 1, (ENDS - 1) * sizeof(double));
        }
        w->past_user[w->past] = t->user[job];
        w->past_wall[w->past] = t->wall[job];
        w->past_run[w->past++] = w->now - w->start[job];
    }
}

static void line_up(World *w, number job) {
    const Trace *t = w->t;
    double key = key_of(w->rule->tried[0], (double)t->width[job], t->wall[job], t->wall[job], t->submit[job]);
    number at = w->waiting++;
    for (; at > 0 && w->keys[at - 1] > key; at--) {
        w->queue[at] = w->queue[at - 1];
        w->keys[at] = w->keys[at - 1];
    }
    w->queue[at] = job;
    w->keys[at] = key;
}

static double score(World *w, number jobs, number futures, number head, double enough) {
    double found = NAN;
    dovetail_roll_outs(w->free, w->running_width, w->running, w->running_long, futures, w->running, w->bound,
                              w->running, w->width, jobs, w->wall, jobs, w->long_, futures, jobs, w->submit, jobs,
                              jobs, w->rank, 1, jobs, head, WAIT, enough, &found, 1);
    return found;
}

static void rank_by(World *w, number order, number jobs, number *sorted) {
    double *keys = w->spent; /* used up */
    for (number i = 0; i < jobs; i++) {
        number job = w->line[i];
        keys[i] = key_of(order, (double)w->width[i], w->length[i], w->wall[i], w->t->submit[job]);
    }
    sort_by(keys, jobs, sorted); /* ties: by submission, which numbers follow */
    for (number i = 0; i < jobs; i++) w->rank[sorted[i]] = i;
}

static number see_futures(World *w, number jobs) { /* how long all run in each; how many differ */
    const Trace *t = w->t;
    const Rule *rule = w->rule;
    number all = jobs + w->running, futures = rule->futures;
    for (number i = 0; i < all; i++) {
        number at = i - jobs, job = i < jobs ? w->line[i] : w->runs[at].job;
        w->users[i] = t->user[job];
        w->numbers[i] = (number)(t->submit[job] * 1000);
        w->spent[i] = i < jobs ? 0 : w->now - w->start[job];
        w->wall[i] = fmin(t->wall[job], 1e9);
        if (i < jobs) {
            w->width[i] = t->width[job];
            w->submit[i] = t->submit[job] - w->now;
        } else {
            w->running_width[at] = t->width[job];
            w->bound[at] = fmin(fmax(w->runs[at].bound - w->now, 1.0), 1e9);
            w->wall[i] = w->spent[i] + w->bound[at];
        }
    }
    dovetail_expected(w->users, all, w->wall, all, w->past_user, w->past, w->past_wall, w->past, w->past_run, w->past,
                      w->length, all, w->harmonic, all);
    if (rule->lengths == AS_EXPECTED) {
        dovetail_futures(w->numbers, all, w->users, all, w->wall, all, w->spent, all, w->past_user, w->past,
                         w->past_wall, w->past, w->past_run, w->past, w->drawn, futures, all);
    } else {
        futures = 1;
        for (number i = 0; i < all; i++) {
            number job = i < jobs ? w->line[i] : w->runs[i - jobs].job;
            w->drawn[i] = rule->lengths == BY_WALLTIME ? w->wall[i] : fmin(t->run[job], t->wall[job]);
            w->length[i] = fmax(LEAST, w->drawn[i]);
        }
    }
    int alike = 1;
    for (number f = 1; f < futures; f++) alike &= !memcmp(w->drawn, w->drawn + f * all, sizeof(double) * (size_t)all);
    if (alike) futures = 1;
    for (number f = 0; f < futures; f++) {
        const double *drawn = w->drawn + f * all;
        for (number i = 0; i < jobs; i++) w->long_[f * jobs + i] = fmin(drawn[i], w->wall[i]);
        for (number i = 0; i < w->running; i++) {
            double spent = w->spent[jobs + i], rest = drawn[jobs + i] - spent;
            w->running_long[f * w->running + i] = fmin(rest > 0 ? rest : fmax(1.0, spent / 2), w->bound[i]);
        }
    }
    return futures;
}

static number choose_order(World *w) { /* `line` begins with the window in the order that promises most */
    const Rule *rule = w->rule;
    number jobs = w->waiting < WINDOW ? w->waiting : WINDOW, head = NONE, sorted[WINDOW], before[WINDOW];
    memcpy(w->line, w->queue, sizeof(number) * (size_t)jobs);
    int seen = w->head == NONE;
    for (number i = 0; i < jobs; i++) seen |= w->line[i] == w->head;
    if (!seen) w->line[jobs - 1] = w->head;
    qsort(w->line, (size_t)jobs, sizeof(number), by_number);
    for (number i = 0; i < jobs; i++)
        if (w->line[i] == w->head) head = i;
    number futures = see_futures(w, jobs), take = NONE, fitting = 0;
    double least = INFINITY;
    for (number o = 0; o < rule->orders; o++) {
        rank_by(w, rule->tried[o], jobs, sorted);
        double found = rule->orders + rule->firsts > 1 ? score(w, jobs, futures, head, least) : 0.0;
        if (found >= least) continue;
        least = found;
        memcpy(w->best, sorted, sizeof(sorted));
    }
    for (number i = 0; i < jobs && fitting <= rule->firsts; i++) {
        number at = w->best[i];
        if (at == head || w->width[at] > w->free || !fitting++ || fitting > rule->firsts + 1) continue;
        for (number k = 0; k < jobs; k++) w->rank[w->best[k]] = k + 1;
        w->rank[at] = 0;
        double found = score(w, jobs, futures, head, least);
        if (found >= least) continue;
        least = found;
        take = at;
    }
    number count = 0;
    if (take != NONE) before[count++] = w->line[take];
    for (number i = 0; i < jobs; i++)
        if (w->best[i] != take) before[count++] = w->line[w->best[i]];
    memcpy(w->line, before, sizeof(number) * (size_t)jobs);
    return jobs;
}

static void decide(World *w, number next) {
    const Trace *t = w->t;
    number fitting = 0, first = 0, late = 0, next_late = 0, overdue[WINDOW];
    for (number i = 0; i < w->waiting; i++) fitting += t->width[w->queue[i]] <= w->free;
    if (!w->waiting || (w->head != NONE && !fitting)) return;
    if (w->rule->looks) {
        for (number job = 0; job < next && late < WINDOW && w->now - t->submit[job] > w->rule->age; job++)
            if (!w->started[job]) overdue[late++] = job;
        int starts = w->head != NONE && t->width[w->head] <= w->free;
        if (late) memcpy(w->line, overdue, sizeof(number) * (size_t)(first = late));
        else if (w->waiting > 1 && (w->head == NONE || starts || fitting > 1)) first = choose_order(w);
    }
    for (number i = 0; i < first; i++) w->chosen[w->line[i]] = 1;
    number count = first, i = 0;
    for (number at = 0; at < w->waiting; at++)
        if (!w->chosen[w->queue[at]]) w->line[count++] = w->queue[at];
    for (number at = 0; at < first; at++) w->chosen[w->line[at]] = 0;
    if (w->head != NONE) {
        number at = 0;
        while (w->line[at] != w->head) at++;
        memmove(w->line + 1, w->line, sizeof(number) * (size_t)at);
        w->line[0] = w->head;
    }
    for (; i < count && t->width[w->line[i]] <= w->free; i++) start(w, w->line[i]);
    w->head = i < count ? w->line[i] : NONE;
    if (i < count) { /* backfill behind the head; who passes one that is overdue has ended when the head starts */
        number extra = w->free - t->width[w->head];
        double shadow = INFINITY;
        for (number r = 0; r < w->running && (extra < 0 || w->runs[r].bound <= shadow); r++) {
            extra += t->width[w->runs[r].job];
            if (extra >= 0) shadow = w->runs[r].bound;
        }
        shadow = fmax(shadow, w->now);
        for (number b = i + 1; b < count && w->free > 0; b++) {
            number job = w->line[b];
            int in_time = w->now + t->wall[job] <= shadow;
            while (next_late < late && (w->started[overdue[next_late]] || overdue[next_late] == w->head)) next_late++;
            if (t->width[job] > w->free || (!in_time && t->width[job] > extra)) continue;
            if (!in_time && next_late < late && job != overdue[next_late]) continue;
            if (!in_time) extra -= t->width[job];
            start(w, job);
        }
    }
    number left = 0;
    for (number at = 0; at < w->waiting; at++)
        if (!w->started[w->queue[at]]) {
            w->keys[left] = w->keys[at];
            w->queue[left++] = w->queue[at];
        }
    w->waiting = left;
}

/* When each job starts; every job fits the machine. 0, or OUT_OF_MEMORY. */
int simulate(const Trace *t, const Rule *rule, double *start_times) {
    size_t n = (size_t)t->jobs, all = WINDOW + n, f = all * (size_t)rule->futures;
    double *doubles = calloc(n + 7 * all + 3 * f, sizeof(double));
    number *numbers = calloc(2 * n + WINDOW + 6 * all, sizeof(number));
    Placed *placed = calloc(2 * n, sizeof(Placed));
    char *flags = calloc(2 * n, 1);
    if (!doubles || !numbers || !placed || !flags) return OUT_OF_MEMORY;
    World w = {.t = t, .rule = rule, .start = start_times, .free = t->capacity, .head = NONE, .runs = placed};
    w.started = flags, w.chosen = flags + n, w.keys = doubles, w.queue = numbers, w.line = numbers + n;
    double **column[] = {&w.wall, &w.submit, &w.spent, &w.length, &w.harmonic, &w.bound};
    for (size_t i = 0; i < 6; i++) *column[i] = doubles + n + i * all;
    w.drawn = doubles + n + 7 * all, w.long_ = w.drawn + f, w.running_long = w.long_ + f;
    number **whole[] = {&w.width, &w.users, &w.numbers, &w.running_width, &w.rank, &w.best};
    for (size_t i = 0; i < 6; i++) *whole[i] = numbers + 2 * n + WINDOW + i * all;
    for (number next = 0;;) {
        w.now = next < t->jobs ? t->submit[next] : INFINITY;
        for (number i = 0; i < w.running; i++) w.now = fmin(w.now, w.runs[i].end);
        if (w.now == INFINITY) break;
        end_all(&w, placed + n);
        while (next < t->jobs && t->submit[next] <= w.now) line_up(&w, next++);
        decide(&w, next);
    }
    free(doubles), free(numbers), free(placed), free(flags);
    return 0;
}
