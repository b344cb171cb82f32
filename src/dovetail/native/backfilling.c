/* Roll-outs of EASY backfilling over counted processors: the fast side of dovetail.kernels.backfilling.
 *
 * The Python functions of the same names are the specification and say what each argument holds; an array is
 * followed by its shape. All sums are taken in the same order, so that the floats are the same.
 */
#include "kernels.h"

enum { WAIT, SLOWDOWN, LAST_END };
enum { OWN = 8 };
static const double LEAST = 10.0, PRIOR = 2.0, SURELY = 1 - 1e-9;

number dovetail_expected(const number *users, number n, const double *walls, number n2, const number *past_users,
                         number p, const double *past_walls, number p2, const double *past, number p3,
                         double *means, number n3, double *harmonic, number n4) {
    double prior = 1.0, prior_inverse = 1.0;
    if (p) {
        prior = prior_inverse = 0.0;
        for (number i = 0; i < p; i++) {
            double part = fmin(1.0, fmax(past[i], LEAST) / fmax(past_walls[i], LEAST));
            prior += part;
            prior_inverse += 1 / part;
        }
        prior /= (double)p;
        prior_inverse /= (double)p;
    }
    for (number j = 0; j < n; j++) {
        double wall = fmax(walls[j], LEAST), part = PRIOR * prior, inverse = PRIOR * prior_inverse;
        double weights = PRIOR;
        int own = 0;
        for (number i = p - 1; i >= 0; i--) {
            if (past_users[i] != users[j]) continue;
            double weight = 1 / (1 + fabs(log((past_walls[i] + 1) / (wall + 1))));
            double ratio = fmax(LEAST / wall, fmin(1.0, past[i] / past_walls[i]));
            part += weight * ratio;
            inverse += weight / ratio;
            weights += weight;
            if (++own == OWN) break;
        }
        means[j] = part / weights * wall;
        harmonic[j] = weights / inverse * wall;
    }
    return 0;
}

/* A whole number from 0 to 2^31 - 1 that looks drawn at random, the same for the same number. */
static number mixed(number from) {
    uint64_t x = (uint64_t)from * 6364136223846793005u + 1442695040888963407u;
    x = (x ^ (uint64_t)((number)x >> 29)) * 3202034522624059733u;
    x ^= (uint64_t)((number)x >> 32);
    return (number)(((number)x >> 17) & 0x7FFFFFFF);
}

number dovetail_futures(const number *numbers, number n, const number *users, number n2, const double *walls,
                        number n3, const double *spent, number n4, const number *past_users, number p,
                        const double *past_walls, number p2, const double *past, number p3, double *found,
                        number count, number n5) {
    double *parts = malloc(sizeof(double) * (size_t)(p + 1));
    if (!parts) return OUT_OF_MEMORY;
    for (number i = 0; i < p; i++) parts[i] = fmin(1.0, past[i] / fmax(past_walls[i], LEAST));
    if (sort_doubles(parts, p)) {
        free(parts);
        return OUT_OF_MEMORY;
    }
    for (number j = 0; j < n; j++) {
        double wall = fmax(walls[j], LEAST), least = spent[j] > 0 ? spent[j] / wall : -1.0, own[OWN];
        number low = 0, high = p; /* how many parts the job has outlived */
        while (low < high) {
            number middle = (low + high) >> 1;
            if (parts[middle] <= least)
                low = middle + 1;
            else
                high = middle;
        }
        number outlived = low, others = p - outlived;
        int seen = 0, kept = 0;
        for (number i = p - 1; i >= 0; i--) {
            if (past_users[i] != users[j]) continue;
            double part = fmax(LEAST / wall, fmin(1.0, past[i] / past_walls[i]));
            if (part > least) own[kept++] = part;
            if (++seen == OWN) break;
        }
        double prior = p ? PRIOR * (double)others / (double)p : 0.0;
        number drawn = mixed(numbers[j]);
        for (number f = 0; f < count; f++) {
            double place = (double)(((2 * drawn + 1) * f + (drawn >> 4)) % count) + 0.5;
            double at = place / (double)count * (prior + kept), long_;
            if (prior + kept == 0)
                long_ = p ? 1.5 * spent[j] : wall;
            else if (at < prior)
                long_ = fmax(LEAST, parts[outlived + (number)(at / prior * (double)others)] * wall);
            else
                long_ = own[(number)(at - prior)] * wall;
            found[f * n + j] = long_;
        }
    }
    free(parts);
    return 0;
}

typedef struct { /* jobs that run, by numbers; who has ended is wide nothing */
    number jobs, bounded, running;
    number *width;
    double *end, *bound;
    number *by_bound; /* `bounded` of them, ascending; some have ended */
    number *by_end;   /* a heap of those that run */
} Running;

static int ends_before(const Running *r, number a, number b) { return r->end[r->by_end[a]] < r->end[r->by_end[b]]; }

static void swap_in_heap(Running *r, number a, number b) {
    number job = r->by_end[a];
    r->by_end[a] = r->by_end[b];
    r->by_end[b] = job;
}

static void sift_down(Running *r, number at) {
    for (;;) {
        number child = 2 * at + 1;
        if (child >= r->running) return;
        if (child + 1 < r->running && ends_before(r, child + 1, child)) child++;
        if (!ends_before(r, child, at)) return;
        swap_in_heap(r, at, child);
        at = child;
    }
}

static void enter(Running *r, number width, double end, double bound) {
    number job = r->jobs++, at = r->bounded++;
    r->width[job] = width;
    r->end[job] = end;
    r->bound[job] = bound;
    for (; at > 0 && r->bound[r->by_bound[at - 1]] > bound; at--) r->by_bound[at] = r->by_bound[at - 1];
    r->by_bound[at] = job;
    at = r->running++;
    r->by_end[at] = job;
    for (; at > 0 && ends_before(r, at, (at - 1) / 2); at = (at - 1) / 2) swap_in_heap(r, at, (at - 1) / 2);
}

static double next_end(const Running *r) { return r->running ? r->end[r->by_end[0]] : INFINITY; }

/* Take out what has ended; what that held. */
static number leave(Running *r, double now) {
    number given = 0;
    while (r->running && r->end[r->by_end[0]] <= now) {
        number job = r->by_end[0];
        given += r->width[job];
        r->width[job] = 0;
        r->by_end[0] = r->by_end[--r->running];
        sift_down(r, 0);
    }
    return given;
}

static double cost(double wait, double long_, number total, number summed) {
    if (summed == WAIT) return wait;
    if (summed == SLOWDOWN) return fmax(1.0, (wait + long_) / fmax(long_, LEAST));
    return 1e-3 * wait / (double)total;
}

/* When the head can start by the bounds of what runs; `extra` becomes what is free then beside it. */
static double shadow_of(Running *r, number idle, number wanted, number *extra) {
    double when = INFINITY;
    number kept = 0, i = 0;
    *extra = idle - wanted;
    for (; i < r->bounded; i++) {
        number job = r->by_bound[i];
        if (!r->width[job]) continue; /* it has ended, and is left out from now on */
        if (*extra >= 0 && r->bound[job] > when) break;
        *extra += r->width[job];
        if (*extra >= 0) when = r->bound[job];
        r->by_bound[kept++] = job;
    }
    if (kept < i) {
        memmove(r->by_bound + kept, r->by_bound + i, sizeof(number) * (size_t)(r->bounded - i));
        r->bounded -= i - kept;
    }
    if (*extra < 0) *extra = 0;
    return when;
}

static double easy(number idle, Running *r, const number *width, number total, const double *wall,
                   const double *long_, const double *submit, number known, const number *rank, number head,
                   number summed, double enough, number *waiting) {
    number m = known, coming = known, narrowest = 0; /* none that waits behind the head is narrower than that, */
    double now = 0.0, score = 0.0, last = 0.0, shortest = 0.0; /* or has a shorter walltime */
    double came = 0.0;                                         /* the sum of when those came who wait */
    for (number j = 0; j < known; j++) came += submit[j];
    while (m > 0 || coming < total) {
        for (; coming < total && submit[coming] <= now; coming++) { /* keep the line in its order */
            number at = m++;
            for (; at > 0 && rank[waiting[at - 1]] > rank[coming]; at--) waiting[at] = waiting[at - 1];
            waiting[at] = coming;
            came += submit[coming];
            if (width[coming] < narrowest) narrowest = width[coming];
            if (wall[coming] < shortest) shortest = wall[coming];
        }
        while (m > 0) { /* start from the front while jobs fit; who does not becomes the head, and stays it */
            number j = head >= 0 ? head : waiting[0], at = 0;
            if (width[j] > idle) {
                head = j;
                break;
            }
            head = NONE;
            while (waiting[at] != j) at++;
            memmove(waiting + at, waiting + at + 1, sizeof(number) * (size_t)(--m - at));
            idle -= width[j];
            enter(r, width[j], now + long_[j], now + wall[j]);
            score += cost(now - submit[j], long_[j], total, summed);
            came -= submit[j];
            last = fmax(last, now + long_[j]);
        }
        if (m > 1 && idle > 0 && idle >= narrowest) { /* backfill behind the head */
            number extra, kept = 0, i = 0, least = narrowest;
            double shadow = fmax(shadow_of(r, idle, width[head], &extra), now), soonest = shortest;
            int any = now + shortest <= shadow || narrowest <= extra;
            narrowest = INT64_MAX;
            shortest = INFINITY;
            for (; any && idle >= least && i < m; i++) {
                number j = waiting[i];
                int in_time = now + wall[j] <= shadow;
                if (j == head || width[j] > idle || !(in_time || width[j] <= extra)) {
                    waiting[kept++] = j;
                    if (j != head && width[j] < narrowest) narrowest = width[j];
                    if (j != head && wall[j] < shortest) shortest = wall[j];
                    continue;
                }
                if (!in_time) extra -= width[j];
                idle -= width[j];
                enter(r, width[j], now + long_[j], now + wall[j]);
                score += cost(now - submit[j], long_[j], total, summed);
                came -= submit[j];
                last = fmax(last, now + long_[j]);
            }
            if (i < m) { /* nobody fits who is left */
                memmove(waiting + kept, waiting + i, sizeof(number) * (size_t)(m - i));
                narrowest = least;
                shortest = soonest;
            }
            m += kept - i;
        }
        double unseen = SURELY * ((double)m * now - came); /* what they have waited until now */
        if (summed != WAIT) unseen = summed == LAST_END ? last : (double)(m + total - coming); /* 1 at least */
        if (score + unseen > enough) return INFINITY;
        now = coming < total ? fmin(next_end(r), submit[coming]) : next_end(r);
        if (now == INFINITY) return INFINITY; /* what is left never fits */
        idle += leave(r, now);
    }
    return summed == LAST_END ? score + last : score;
}

number dovetail_roll_outs(number idle, const number *running_width, number n, const double *running_long,
                          number futures, number n2, const double *running_bound, number n3, const number *width,
                          number total, const double *wall, number t2, const double *long_, number f2, number t3,
                          const double *submit, number t4, number known, const number *ranks, number orders,
                          number t5, number head, number summed, double enough, double *scores, number o2) {
    size_t all = (size_t)(n + total) + 1;
    double *keys = malloc((sizeof(double) + sizeof(number)) * 3 * all + sizeof(number) * 2 * (size_t)total);
    if (!keys) return OUT_OF_MEMORY;
    Running r = {n, n, n, (number *)(keys + 3 * all), keys + all, keys + 2 * all, NULL, NULL};
    r.by_bound = r.width + all;
    r.by_end = r.by_bound + all;
    number *line = r.by_end + all, *waiting = line + total, status = 0;
    double waited = 0.0; /* the least that a future can come to */
    for (number j = 0; summed == WAIT && j < known; j++) waited += SURELY * fmax(0.0, -submit[j]);
    for (number o = 0; o < orders; o++) {
        const number *rank = ranks + o * total;
        double score = 0.0;
        for (number j = 0; j < known; j++) keys[j] = (double)rank[j];
        if ((status = sort_by(keys, known, line))) break;
        for (number f = 0; f < futures && score != INFINITY; f++) {
            r.jobs = r.bounded = r.running = n;
            memcpy(r.width, running_width, sizeof(number) * (size_t)n);
            memcpy(r.end, running_long + f * n, sizeof(double) * (size_t)n);
            memcpy(r.bound, running_bound, sizeof(double) * (size_t)n);
            memcpy(waiting, line, sizeof(number) * (size_t)known);
            for (number i = 0; i < n; i++) r.by_bound[i] = r.by_end[i] = i;
            for (number i = n / 2 - 1; i >= 0; i--) sift_down(&r, i);
            score += easy(idle, &r, width, total, wall, long_ + f * total, submit, known, rank, head, summed,
                          enough - score - waited * (double)(futures - 1 - f), waiting);
        }
        scores[o] = score;
        enough = fmin(enough, score);
    }
    free(keys);
    return status;
}

number dovetail_worth_keeping(number width, double long_, double second, number idle, const double *ends, number n,
                              const number *widths, number n2, const number *coming_width, number kinds,
                              const double *coming_long, number k2, double rate) {
    if (!n) return 0;
    double soon = fmax(1.0, ends[0]), spared = 0.0;
    for (number i = 0; i < kinds; i++) {
        number room = idle - width;
        double wait = 0.0;
        if (!(room < coming_width[i] && coming_width[i] <= idle)) continue;
        for (number k = 0; k < n; k++) {
            room += widths[k];
            if (room >= coming_width[i]) {
                wait = ends[k];
                break;
            }
        }
        wait = room >= coming_width[i] ? fmin(wait, long_) : long_;
        double in = fmin(soon, wait); /* it comes at any moment until then */
        double slowdown = (wait * in - in * in / 2) / fmax(coming_long[i], LEAST);
        spared += rate * fmax(0.0, slowdown - in * coming_long[i] * second);
    }
    return spared > soon * second;
}
