/* Search for a plan of one-node jobs on unlike machines: the fast side of dovetail.kernels.assigning.
 *
 * The Python functions are the specification and say what each argument holds. `times` has a row a job and a
 * column a machine.
 */
#include "kernels.h"

enum { MIN_MIN, MAX_MIN, SUFFERAGE };
enum { LOOKED_AT = 256, ROUNDS = 100 };
static const double CLOSE_ENOUGH = 1.0005, TEMPTED = 1.002, LESS = 1.0 - 1e-12;

typedef struct {
    number jobs, machines;
    const double *times, *ready;
} Problem;

#define TIME(p, j, u) ((p)->times[(j) * (p)->machines + (u)])

static number latest(const double *load, number machines) {
    number best = 0;
    for (number u = 1; u < machines; u++)
        if (load[u] > load[best]) best = u;
    return best;
}

static double loads(const Problem *p, const number *assigned, double *load) {
    memcpy(load, p->ready, sizeof(double) * (size_t)p->machines);
    for (number j = 0; j < p->jobs; j++) load[assigned[j]] += TIME(p, j, assigned[j]);
    return load[latest(load, p->machines)];
}

/* Job after job, each where it ends first. */
static void in_order(const Problem *p, const number *order, number *assigned, double *load) {
    memcpy(load, p->ready, sizeof(double) * (size_t)p->machines);
    for (number i = 0; i < p->jobs; i++) {
        number j = order[i], best = NONE;
        double end = INFINITY;
        for (number u = 0; u < p->machines; u++)
            if (load[u] + TIME(p, j, u) < end) {
                best = u;
                end = load[u] + TIME(p, j, u);
            }
        assigned[j] = best;
        load[best] = end;
    }
}

typedef struct { /* of an open job: where it ends first and second, and when */
    number first, second;
    double best, next;
} Ends;

/* Min-min, max-min or sufferage (Maheswaran et al. 1999, section 3.3). */
static void batch(const Problem *p, number rule, number *assigned, double *load, Ends *ends, uint8_t *open) {
    memcpy(load, p->ready, sizeof(double) * (size_t)p->machines);
    memset(open, 1, (size_t)p->jobs);
    number changed = NONE;
    for (number j = 0; j < p->jobs; j++) ends[j].first = ends[j].second = NONE;
    for (number step = 0; step < p->jobs; step++) {
        number chosen = NONE;
        double score = -INFINITY;
        for (number j = 0; j < p->jobs; j++) {
            if (!open[j]) continue;
            Ends *e = &ends[j];
            if (changed < 0 || e->first == changed || e->second == changed) {
                *e = (Ends){NONE, NONE, INFINITY, INFINITY};
                for (number u = 0; u < p->machines; u++) {
                    double end = load[u] + TIME(p, j, u);
                    if (end < e->best) {
                        e->second = e->first;
                        e->next = e->best;
                        e->first = u;
                        e->best = end;
                    } else if (end < e->next) {
                        e->second = u;
                        e->next = end;
                    }
                }
            }
            double value = rule == MAX_MIN ? e->best : rule == SUFFERAGE ? e->next - e->best : -e->best;
            if (chosen < 0 || value > score) {
                chosen = j;
                score = value;
            }
        }
        open[chosen] = 0;
        assigned[chosen] = changed = ends[chosen].first;
        load[changed] = ends[chosen].best;
    }
}

/* The machine that is free first takes the job that it accelerates most (heteroprio). */
static void by_acceleration(const Problem *p, const number *kinds, number *assigned, double *load, double *gain,
                            uint8_t *open) {
    number machines = p->machines;
    for (number j = 0; j < p->jobs; j++)
        for (number u = 0; u < machines; u++) {
            double other = INFINITY, here = TIME(p, j, u);
            for (number v = 0; v < machines; v++)
                if (kinds[v] != kinds[u] && TIME(p, j, v) < other) other = TIME(p, j, v);
            gain[j * machines + u] =
                here == INFINITY ? -1.0 : other == INFINITY || here <= 0 ? INFINITY : other / here;
        }
    memcpy(load, p->ready, sizeof(double) * (size_t)machines);
    memset(open, 1, (size_t)p->jobs);
    for (number left = p->jobs; left;) {
        number u = 0, chosen = NONE;
        for (number v = 1; v < machines; v++)
            if (load[v] < load[u]) u = v;
        for (number j = 0; j < p->jobs; j++) {
            double here = gain[j * machines + u];
            if (open[j] && here >= 0 && (chosen < 0 || here > gain[chosen * machines + u])) chosen = j;
        }
        if (chosen < 0) {
            load[u] = INFINITY; /* nothing is left that it can run */
            continue;
        }
        open[chosen] = 0;
        assigned[chosen] = u;
        load[u] += TIME(p, chosen, u);
        left--;
    }
}

static double bound_of(const Problem *p, double *weight, double *load) {
    number machines = p->machines;
    double bound = 0.0;
    for (number u = 0; u < machines; u++) weight[u] = 1.0 / (double)machines;
    for (number j = 0; j < p->jobs; j++) {
        double first = INFINITY;
        for (number u = 0; u < machines; u++) first = fmin(first, TIME(p, j, u) + p->ready[u]);
        bound = fmax(bound, first);
    }
    for (number step = 0; step < ROUNDS; step++) {
        double value = 0.0;
        memcpy(load, p->ready, sizeof(double) * (size_t)machines);
        for (number j = 0; j < p->jobs; j++) {
            number best = NONE;
            double least = INFINITY;
            for (number u = 0; u < machines; u++)
                if (weight[u] * TIME(p, j, u) < least) {
                    best = u;
                    least = weight[u] * TIME(p, j, u);
                }
            if (best >= 0) {
                value += least;
                load[best] += TIME(p, j, best);
            }
        }
        for (number u = 0; u < machines; u++) value += weight[u] * p->ready[u];
        bound = fmax(bound, value);
        double top = load[latest(load, machines)], sum = 0.0, rest = 0.0;
        if (top <= 0) break;
        double pace = 1.0 / (1.0 + 0.2 * (double)step);
        for (number u = 0; u < machines; u++) sum += weight[u] *= exp((load[u] / top - 1.0) * pace);
        for (number u = 0; u < machines; u++) rest += weight[u] = fmax(weight[u] / sum, 1e-12);
        for (number u = 0; u < machines; u++) weight[u] /= rest;
    }
    return bound;
}

double dovetail_makespan_bound(const double *times, number jobs, number machines, const double *ready, number m2) {
    Problem p = {jobs, machines, times, ready};
    double *weight = malloc(sizeof(double) * 2 * (size_t)machines);
    if (!weight) return NAN;
    double bound = bound_of(&p, weight, weight + machines);
    free(weight);
    return bound;
}

/* Move or swap a job off the machine that ends last while that helps; the evaluations left. */
static number descend(const Problem *p, number *assigned, double *load, number left, uint64_t *chance) {
    number n = p->jobs, machines = p->machines;
    while (left > 0) {
        number c = latest(load, machines), job = NONE, other = NONE, target = NONE;
        double reached = load[c] * LESS;
        number before = left, first = draw(chance, n);
        for (number i = 0; i < n; i++) {
            number j = (first + i) % n;
            if (assigned[j] != c) continue;
            double rest = load[c] - TIME(p, j, c);
            for (number u = 0; u < machines; u++) {
                double end = fmax(rest, load[u] + TIME(p, j, u));
                if (u != c && end < reached) {
                    job = j;
                    target = u;
                    reached = end;
                }
            }
            left -= machines - 1;
            if (left <= 0 || (job >= 0 && before - left >= LOOKED_AT)) break;
        }
        before = left;
        for (number i = 0; i < (job < 0 ? n : 0); i++) {
            number j = (first + i) % n;
            if (assigned[j] != c) continue;
            for (number k = 0; k < n; k++) {
                number u = assigned[k];
                if (u == c) continue;
                left--;
                double end = fmax(load[c] - TIME(p, j, c) + TIME(p, k, c), load[u] - TIME(p, k, u) + TIME(p, j, u));
                if (end < reached) {
                    job = j;
                    other = k;
                    target = u;
                    reached = end;
                    if (before - left >= LOOKED_AT) break;
                }
            }
            if (left <= 0 || (job >= 0 && before - left >= LOOKED_AT)) break;
        }
        if (job < 0) return left;
        load[c] -= TIME(p, job, c);
        load[target] += TIME(p, job, target);
        assigned[job] = target;
        if (other >= 0) {
            load[target] -= TIME(p, other, target);
            load[c] += TIME(p, other, c);
            assigned[other] = c;
        }
    }
    return left;
}

/* Move two to four jobs to machines at random. */
static void kick(const Problem *p, number *assigned, uint64_t *chance) {
    for (number moves = 2 + draw(chance, 3); moves > 0; moves--) {
        number j = draw(chance, p->jobs), u = draw(chance, p->machines);
        if (TIME(p, j, u) < INFINITY) assigned[j] = u;
    }
}

/* Level what does not end last: move a job wherever the later of the two ends comes earlier by it. */
static void level(const Problem *p, number *assigned, double *load, double top) {
    for (int round = 0; round < 4; round++) {
        int moved = 0;
        for (number j = 0; j < p->jobs; j++) {
            number here = assigned[j], best = here;
            double end = load[here] * LESS;
            for (number u = 0; u < p->machines; u++)
                if (u != here && load[u] + TIME(p, j, u) < end) {
                    best = u;
                    end = load[u] + TIME(p, j, u);
                }
            if (best != here && end <= top) {
                load[here] -= TIME(p, j, here);
                load[best] = end;
                assigned[j] = best;
                moved = 1;
            }
        }
        if (!moved) return;
    }
}

typedef struct { /* what searches work in, of one allocation */
    double *load, *weight, *gain, *keys;
    Ends *ends;
    number *tried, *current, *order;
    uint8_t *open;
} Room;

static int make_room(Room *room, number jobs, number machines) {
    size_t n = (size_t)jobs, m = (size_t)machines;
    char *at = malloc(sizeof(double) * (2 * m + n * m + n) + sizeof(Ends) * n + sizeof(number) * 3 * n + n + 1);
    if (!at) return 0;
    room->load = (double *)at;
    room->weight = room->load + m;
    room->gain = room->weight + m;
    room->keys = room->gain + n * m;
    room->ends = (Ends *)(room->keys + n);
    room->tried = (number *)(room->ends + n);
    room->current = room->tried + n;
    room->order = room->current + n;
    room->open = (uint8_t *)(room->order + n);
    return 1;
}

/* The plan begun with: the best of seven; its last end. */
static double begin(const Problem *p, const number *kinds, const number *before, number given, number *best, Room *r) {
    size_t bytes = sizeof(number) * (size_t)p->jobs;
    double least = INFINITY;
    for (int start = 0; start < 7; start++) {
        if (start == 0) {
            if (given != p->jobs) continue;
            memcpy(r->tried, before, bytes);
        } else if (start == 1) {
            for (number j = 0; j < p->jobs; j++) {
                r->keys[j] = INFINITY;
                for (number u = 0; u < p->machines; u++) r->keys[j] = fmin(r->keys[j], TIME(p, j, u));
                r->keys[j] = -r->keys[j];
            }
            if (sort_by(r->keys, p->jobs, r->order)) return NAN;
            in_order(p, r->order, r->tried, r->load);
        } else if (start == 2) {
            for (number j = 0; j < p->jobs; j++) r->order[j] = j;
            in_order(p, r->order, r->tried, r->load);
        } else if (start == 6)
            by_acceleration(p, kinds, r->tried, r->load, r->gain, r->open);
        else
            batch(p, start - 3, r->tried, r->load, r->ends, r->open);
        double end = loads(p, r->tried, r->load);
        if (end < least * LESS) {
            least = end;
            memcpy(best, r->tried, bytes);
        }
    }
    return least;
}

double dovetail_least_makespan(const double *times, number jobs, number machines, const double *ready, number m2,
                               const number *kinds, number m3, const number *before, number given, number budget,
                               number seed, number *best, number n2, double *bound, number one) {
    Problem p = {jobs, machines, times, ready};
    Room r;
    if (!make_room(&r, jobs, machines)) return NAN;
    size_t bytes = sizeof(number) * (size_t)jobs;
    uint64_t chance = (uint64_t)seed;
    double least = begin(&p, kinds, before, given, best, &r), reached = least;
    if (least == least) {
        *bound = bound_of(&p, r.weight, r.load);
        memcpy(r.current, best, bytes);
        for (number left = budget; left > 0 && least > *bound * CLOSE_ENOUGH && jobs > 1;) {
            memcpy(r.tried, r.current, bytes);
            if (left < budget) kick(&p, r.tried, &chance);
            loads(&p, r.tried, r.load);
            left = descend(&p, r.tried, r.load, left - 1, &chance);
            double end = loads(&p, r.tried, r.load);
            if (end <= reached * TEMPTED) {
                memcpy(r.current, r.tried, bytes);
                reached = end;
            }
            if (end < least * LESS) {
                least = end;
                memcpy(best, r.tried, bytes);
            }
        }
        loads(&p, best, r.load);
        level(&p, best, r.load, least);
        least = loads(&p, best, r.load);
    }
    free(r.load);
    return least;
}

/* The weighted sum of completions, each machine running its jobs by time over weight. */
static double cost(const Problem *p, const double *weight, double own, const number *assigned) {
    double total = 0.0;
    for (number j = 0; j < p->jobs; j++) {
        number u = assigned[j];
        total += weight[j] * (p->ready[u] + own * TIME(p, j, u));
        for (number k = 0; k < j; k++)
            if (assigned[k] == u) total += fmin(weight[k] * TIME(p, j, u), weight[j] * TIME(p, k, u));
    }
    return total;
}

/* Move single jobs to where they cost least until none moves; the evaluations left. */
static number settle(const Problem *p, const double *weight, double own, number *assigned, number left,
                     uint64_t *chance, double *adds) {
    number n = p->jobs, still = 0, j = draw(chance, n);
    while (still < n && left > 0) {
        for (number u = 0; u < p->machines; u++) adds[u] = weight[j] * (p->ready[u] + own * TIME(p, j, u));
        for (number k = 0; k < n; k++) {
            number u = assigned[k];
            if (k != j) adds[u] += fmin(weight[k] * TIME(p, j, u), weight[j] * TIME(p, k, u));
        }
        number here = assigned[j], best = here;
        double least = adds[here] * LESS;
        for (number u = 0; u < p->machines; u++)
            if (adds[u] < least && TIME(p, j, u) < INFINITY) {
                best = u;
                least = adds[u];
            }
        still = best != here ? 0 : still + 1;
        assigned[j] = best;
        left--;
        j = (j + 1) % n;
    }
    return left;
}

number dovetail_least_total(const double *times, number jobs, number machines, const double *ready, number m2,
                            const double *weight, number n2, double own, const number *kinds, number m3,
                            const number *before, number given, number budget, number seed, number *best,
                            number n3) {
    Problem p = {jobs, machines, times, ready};
    Room r;
    if (!make_room(&r, jobs, machines)) return OUT_OF_MEMORY;
    size_t bytes = sizeof(number) * (size_t)jobs;
    uint64_t chance = (uint64_t)seed;
    double least = INFINITY;
    for (int start = 0; start < 4; start++) {
        if (start == 0) {
            if (given != jobs) continue;
            memcpy(r.tried, before, bytes);
        } else if (start == 3)
            by_acceleration(&p, kinds, r.tried, r.load, r.gain, r.open);
        else
            batch(&p, start == 1 ? MIN_MIN : SUFFERAGE, r.tried, r.load, r.ends, r.open);
        double total = cost(&p, weight, own, r.tried);
        if (total < least) {
            least = total;
            memcpy(best, r.tried, bytes);
        }
    }
    number left = settle(&p, weight, own, best, budget, &chance, r.load);
    least = cost(&p, weight, own, best);
    while (left > 0 && jobs > 1) {
        memcpy(r.tried, best, bytes);
        kick(&p, r.tried, &chance);
        left = settle(&p, weight, own, r.tried, left - 1, &chance, r.load);
        double total = cost(&p, weight, own, r.tried);
        if (total < least * LESS) {
            least = total;
            memcpy(best, r.tried, bytes);
        }
    }
    free(r.load);
    return 0;
}
