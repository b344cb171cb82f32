/* Placing gangs on nodes that are partly busy, and searches over that: the fast side of dovetail.kernels.gangs,
 * .molding and the rule of dovetail.policies.fms, which are the specifications and say what each argument holds.
 *
 * `ready` has a row a node and a column a lane of its CPU pool (the first `lanes`) or a device.
 */
#include "kernels.h"

typedef struct { /* what a gang asks of each node, and on which nodes it may be */
    number lanes, pool, count;
    const uint8_t *eligible; /* nodes x columns */
    const uint8_t *able;     /* nodes */
} Shape;

typedef struct {
    number nodes, columns;
    double *ready;
} Nodes;

static double *row_of(const Nodes *n, number node) { return n->ready + node * n->columns; }

/* The k-th smallest (k >= 1) of the lanes or eligible devices from `first` to before `last`. */
static double kth(const double *row, const uint8_t *eligible, number lanes, number first, number last, number k) {
    if (k == 1) {
        double least = INFINITY;
        for (number c = first; c < last; c++)
            if ((c < lanes || eligible[c]) && row[c] < least) least = row[c];
        return least;
    }
    for (number c = first; c < last; c++) {
        number before = 0, ties = 0;
        if (row[c] == INFINITY || !(c < lanes || eligible[c])) continue;
        for (number d = first; d < last; d++)
            if (d < lanes || eligible[d]) {
                before += row[d] < row[c];
                ties += row[d] == row[c];
            }
        if (before < k && k <= before + ties) return row[c];
    }
    return INFINITY;
}

/* When a node can give a share: so many lanes and devices. */
static double node_ready(const Nodes *n, const Shape *s, number node) {
    const double *row = row_of(n, node);
    const uint8_t *eligible = s->eligible + node * n->columns;
    double at = -INFINITY;
    if (s->pool) at = kth(row, eligible, s->lanes, 0, s->lanes, s->pool);
    if (s->count) at = fmax(at, kth(row, eligible, s->lanes, s->lanes, n->columns, s->count));
    return at;
}

/* The summed ready times of what a share leaves of the node; -1 where it leaves nothing. */
static double others_busy(const Nodes *n, const Shape *s, number node, double start) {
    const double *row = row_of(n, node);
    const uint8_t *eligible = s->eligible + node * n->columns;
    double total = 0.0;
    number left = 0, cpus = 0, devices = 0;
    for (number c = 0; c < n->columns; c++) {
        if (row[c] == INFINITY) continue;
        if (c < s->lanes && row[c] <= start && cpus < s->pool)
            cpus++;
        else if (c >= s->lanes && eligible[c] && row[c] <= start && devices < s->count)
            devices++;
        else {
            total += row[c];
            left++;
        }
    }
    return left ? total : -1.0;
}

/* Keep the `wanted` nodes of the smallest keys, sorted, the earlier first where equal; how many. */
static number insert(number *chosen, double *keys, number found, number wanted, number node, double key) {
    if (found == wanted && key >= keys[wanted - 1]) return found;
    number k = found < wanted ? found : wanted - 1;
    for (; k > 0 && keys[k - 1] > key; k--) {
        keys[k] = keys[k - 1];
        chosen[k] = chosen[k - 1];
    }
    keys[k] = key;
    chosen[k] = node;
    return found < wanted ? found + 1 : wanted;
}

/* Of the nodes that are ready by then those whose other columns are busy longest; how many. */
static number choose(const Nodes *n, const Shape *s, const double *at, double start, number wanted, number *chosen,
                     double *keys) {
    number found = 0;
    for (number node = 0; node < n->nodes; node++) {
        if (at[node] > start) continue;
        double busy = others_busy(n, s, node, start);
        found = insert(chosen, keys, found, wanted, node, -(busy < 0 ? at[node] : busy));
    }
    return found;
}

static double place(const Nodes *n, const Shape *s, number wanted, int packed, number *chosen, double *keys,
                    double *at) {
    number found = 0;
    for (number node = 0; node < n->nodes; node++) {
        at[node] = INFINITY;
        if (!s->able[node]) continue;
        at[node] = node_ready(n, s, node);
        if (at[node] < INFINITY) found = insert(chosen, keys, found, wanted, node, at[node]);
    }
    if (found < wanted) return INFINITY;
    double start = keys[wanted - 1];
    if (packed) choose(n, s, at, start, wanted, chosen, keys);
    return start;
}

static void occupy(Nodes *n, const Shape *s, const number *chosen, number wanted, double start, double end) {
    for (number k = 0; k < wanted; k++) {
        double *row = row_of(n, chosen[k]);
        const uint8_t *eligible = s->eligible + chosen[k] * n->columns;
        number cpus = 0, devices = 0;
        for (number c = 0; c < n->columns; c++) {
            if (row[c] > start) continue;
            if (c < s->lanes && cpus < s->pool) {
                row[c] = end;
                cpus++;
            } else if (c >= s->lanes && eligible[c] && devices < s->count) {
                row[c] = end;
                devices++;
            }
        }
    }
}

double dovetail_place(double *ready, number nodes, number columns, number lanes, number pool, number count,
                      const uint8_t *eligible, number n2, number c2, const uint8_t *able, number n3, number wanted,
                      number packed, number *chosen, number w2, double *keys, number w3, double *at, number n4) {
    Nodes n = {nodes, columns, ready};
    Shape s = {lanes, pool, count, eligible, able};
    return place(&n, &s, wanted, packed != 0, chosen, keys, at);
}

number dovetail_choose(double *ready, number nodes, number columns, number lanes, number pool, number count,
                       const uint8_t *eligible, number n2, number c2, const double *at, number n3, double start,
                       number wanted, number *chosen, number w2, double *keys, number w3) {
    Nodes n = {nodes, columns, ready};
    Shape s = {lanes, pool, count, eligible, NULL};
    return choose(&n, &s, at, start, wanted, chosen, keys);
}

number dovetail_occupy(double *ready, number nodes, number columns, number lanes, number pool, number count,
                       const uint8_t *eligible, number n2, number c2, const number *chosen, number w2, number wanted,
                       double start, double end) {
    Nodes n = {nodes, columns, ready};
    Shape s = {lanes, pool, count, eligible, NULL};
    occupy(&n, &s, chosen, wanted, start, end);
    return 0;
}

/* --------------------------------------------------------------------------------- two gangs: FMS's rule */

enum { POOL = 1 }; /* lanes of a node: its pool is given to one gang at a time */
static const double MICROSECOND = 1e6;

typedef struct { /* shapes, by their numbers */
    number lanes, nodes, columns;
    const uint8_t *flags;   /* whether a shape asks for the pool; or else: */
    const number *pools;    /* how many lanes it asks for */
    const number *counts;
    const uint8_t *eligible, *able;
} Shapes;

static Shape shape_of(const Shapes *all, number s) {
    return (Shape){all->lanes, all->flags ? all->flags[s] : all->pools[s], all->counts[s],
                   all->eligible + s * all->nodes * all->columns, all->able + s * all->nodes};
}

typedef struct { /* room to work in, for all nodes */
    double *keys, *at, *times;
    number *order, *chosen;
} Scratch;

/* The nodes by the time at which they can give their share, then index; how many, negative without memory. */
static number sort_nodes(const Nodes *n, const Shape *s, Scratch *w) {
    number known = 0;
    for (number node = 0; node < n->nodes; node++) {
        w->at[node] = s->able[node] ? node_ready(n, s, node) : INFINITY;
        known += w->at[node] < INFINITY;
    }
    if (sort_by(w->at, n->nodes, w->order)) return OUT_OF_MEMORY;
    for (number k = 0; k < known; k++) w->keys[k] = w->at[w->order[k]];
    return known;
}

/* Take the first `wanted` nodes out of the sorted list, and put them back with their new times. */
static void put_back(Scratch *w, number known, number wanted) {
    number *nodes = w->chosen, *order = w->order, write = 0, new = 0;
    double *times = w->times, *keys = w->keys;
    for (number k = 1; k < wanted; k++) { /* insertion sort: few, and mostly in order */
        number node = nodes[k], i = k;
        double time = times[k];
        for (; i > 0 && (times[i - 1] > time || (times[i - 1] == time && nodes[i - 1] > node)); i--) {
            nodes[i] = nodes[i - 1];
            times[i] = times[i - 1];
        }
        nodes[i] = node;
        times[i] = time;
    }
    for (number read = wanted; read < known; read++) { /* merge in place: writing never overtakes reading */
        while (new < wanted && (times[new] < keys[read] || (times[new] == keys[read] && nodes[new] < order[read]))) {
            order[write] = nodes[new];
            keys[write++] = times[new++];
        }
        number node = order[read];
        double key = keys[read];
        order[write] = node;
        keys[write++] = key;
    }
    while (new < wanted) {
        order[write] = nodes[new];
        keys[write++] = times[new++];
    }
}

/* The last end if the jobs follow in order, each on the nodes that are ready first; NAN without memory. */
static double follow(Nodes *n, const Shapes *all, const number *jobs, number count, const double *seconds,
                     double latest, double enough, Scratch *w) {
    number shape = NONE, known = 0;
    Shape s = {0};
    for (number j = 0; j < count; j++) {
        number wanted = jobs[2 * j + 1];
        if (jobs[2 * j] != shape) {
            shape = jobs[2 * j];
            s = shape_of(all, shape);
            known = sort_nodes(n, &s, w);
            if (known < 0) return NAN;
        }
        if (known < wanted) continue;
        double start = w->keys[wanted - 1], end = start + seconds[j];
        if (end > latest) {
            latest = end;
            if (latest > enough) return latest;
        }
        memcpy(w->chosen, w->order, sizeof(number) * (size_t)wanted);
        occupy(n, &s, w->chosen, wanted, start, end);
        for (number k = 0; k < wanted; k++) w->times[k] = node_ready(n, &s, w->chosen[k]);
        put_back(w, known, wanted);
    }
    return latest;
}

/* Place a gang and let it hold its nodes; its end (infinite: nowhere). */
static double put(Nodes *n, const Shapes *all, const number *option, double seconds, Scratch *w) {
    Shape s = shape_of(all, option[0]);
    double start = place(n, &s, option[1], 1, w->chosen, w->keys, w->at);
    if (start == INFINITY) return INFINITY;
    occupy(n, &s, w->chosen, option[1], start, start + seconds);
    return start + seconds;
}

static double area_of(const Shapes *all, const number *option, double seconds) {
    number devices = (all->flags[option[0]] ? 1 : 0) + all->counts[option[0]];
    return (double)(devices * option[1]) * seconds;
}

/* The place in order of the best pair of options; OUT_OF_MEMORY. */
static number best_pair(const double *ready, double latest, const Shapes *all, const number *first, number firsts,
                        const double *first_seconds, const number *second, number seconds_,
                        const double *second_seconds, const number *rest, number rests, const double *rest_seconds,
                        int roll_out, Nodes *led, Nodes *state, Scratch *w) {
    number alone = seconds_ == 0, width = alone ? 1 : seconds_, best = NONE;
    double best_end = INFINITY, best_area = INFINITY, best_sum = INFINITY;
    size_t bytes = sizeof(double) * (size_t)(all->nodes * all->columns);
    for (int swapped = 0; swapped < (alone ? 1 : 2); swapped++) {
        const number *lead = swapped ? second : first, *tail = swapped ? first : second;
        const double *lead_seconds = swapped ? second_seconds : first_seconds;
        const double *tail_seconds = swapped ? first_seconds : second_seconds;
        number leads = swapped ? seconds_ : firsts, tails = alone ? 1 : swapped ? firsts : seconds_;
        for (number x = 0; x < leads; x++) {
            memcpy(led->ready, ready, bytes); /* what the leading option makes of the nodes serves all that follow */
            double lead_end = put(led, all, lead + 2 * x, lead_seconds[x], w);
            double lead_area = area_of(all, lead + 2 * x, lead_seconds[x]);
            for (number y = 0; y < tails; y++) {
                memcpy(state->ready, led->ready, bytes);
                double end = fmax(latest, lead_end), area = lead_area, total = lead_end;
                if (!alone) {
                    double tail_end = put(state, all, tail + 2 * y, tail_seconds[y], w);
                    end = fmax(end, tail_end);
                    total += tail_end;
                    area += area_of(all, tail + 2 * y, tail_seconds[y]);
                }
                if (roll_out && end != INFINITY) {
                    end = follow(state, all, rest, rests, rest_seconds, end, (best_end + 1.0) / MICROSECOND, w);
                    if (end != end) return OUT_OF_MEMORY;
                }
                end = rint(end * MICROSECOND);
                area = rint(area * MICROSECOND);
                total = rint(total * MICROSECOND);
                number place_in_order = (swapped ? y * width + x : x * width + y) * 2 + swapped;
                int better = end < best_end;
                if (end == best_end) {
                    better = area < best_area;
                    if (area == best_area) better = total < best_sum || (total == best_sum && place_in_order < best);
                }
                if (better || best < 0) {
                    best = place_in_order;
                    best_end = end;
                    best_area = area;
                    best_sum = total;
                }
            }
        }
    }
    return best;
}

static int make_scratch(Scratch *w, number nodes) {
    size_t n = (size_t)nodes + 1;
    w->keys = malloc(sizeof(double) * 3 * n + sizeof(number) * 2 * n);
    if (!w->keys) return 0;
    w->at = w->keys + n;
    w->times = w->at + n;
    w->order = (number *)(w->times + n);
    w->chosen = w->order + n;
    return 1;
}

number dovetail_best_pair(const double *ready, number nodes, number columns, double latest, const uint8_t *pool,
                          number s1, const number *count, number s2, const uint8_t *eligible, number s3, number n3,
                          number c3, const uint8_t *able, number s4, number n4, const number *first, number firsts,
                          number two, const double *first_seconds, number f2, const number *second, number seconds_,
                          number two2, const double *second_seconds, number q2, const number *rest, number rests,
                          number two3, const double *rest_seconds, number r2, number roll_out, number *found,
                          number three) {
    Shapes all = {POOL, nodes, columns, pool, NULL, count, eligible, able};
    Scratch w = {0};
    size_t cells = (size_t)(nodes * columns);
    double *states = malloc(sizeof(double) * (2 * cells + 1));
    number status = OUT_OF_MEMORY;
    if (states && make_scratch(&w, nodes)) {
        Nodes led = {nodes, columns, states}, state = {nodes, columns, states + cells};
        number place = best_pair(ready, latest, &all, first, firsts, first_seconds, second, seconds_, second_seconds, rest,
                           rests, rest_seconds, roll_out != 0, &led, &state, &w);
        number width = seconds_ ? seconds_ : 1, option = place / 2;
        status = place == OUT_OF_MEMORY ? OUT_OF_MEMORY : 0;
        found[0] = option / width;
        found[1] = seconds_ ? option % width : NONE;
        found[2] = place % 2;
    }
    free(w.keys);
    free(states);
    return status;
}

/* --------------------------------------------------------------------- a queue of moldable gangs: annealing */

static const double HOT = 0.05, COLD = 0.0002;

typedef struct {
    number jobs;
    Shapes shapes;
    const number *shape, *nodes; /* of each option */
    const double *seconds, *weight;
    double own, stretch, level;
    const number *bounds; /* of each job's options */
} Gangs;

typedef struct { /* a plan, and the state before each of its places */
    number *order, *option;
    double *states, *ends, *totals;
} Plan;

/* Place the jobs from place `first` of the order on; the plan's score, or infinity above `enough`. */
static double decode(const Gangs *g, Plan *p, number first, double enough, Scratch *w) {
    number cells = g->shapes.nodes * g->shapes.columns, known = 0;
    for (number i = first; i < g->jobs; i++) {
        number j = p->order[i], o = p->option[j];
        Shape s = shape_of(&g->shapes, g->shape[o]);
        Nodes state = {g->shapes.nodes, g->shapes.columns, p->states + (i + 1) * cells};
        memcpy(state.ready, p->states + i * cells, sizeof(double) * (size_t)cells);
        double start = place(&state, &s, g->nodes[o], 1, w->chosen, w->keys, w->at);
        if (start == INFINITY) return INFINITY;
        double end = start + g->seconds[o];
        occupy(&state, &s, w->chosen, g->nodes[o], start, end);
        p->ends[i + 1] = fmax(p->ends[i], end);
        p->totals[i + 1] = p->totals[i] + g->weight[j] * (g->own > 0 ? end : start);
        if (g->stretch * p->ends[i + 1] + p->totals[i + 1] > enough) return INFINITY;
    }
    double total = 0.0;
    const double *last = p->states + g->jobs * cells;
    for (number c = 0; c < cells; c++)
        if (last[c] < INFINITY) {
            total += last[c];
            known++;
        }
    return g->stretch * p->ends[g->jobs] + p->totals[g->jobs] + g->level * total / (double)(known > 1 ? known : 1);
}

/* Change an option (40 %), move a job (30 %) or swap two (30 %); the first place that is affected. */
static number random_change(const Gangs *g, Plan *p, number fixed, uint64_t *chance) {
    number n = g->jobs, kind = draw(chance, 10);
    if (kind < 4 || n - fixed < 2) {
        number at = draw(chance, n), j = p->order[at], low = g->bounds[j], width = g->bounds[j + 1] - low;
        if (width > 1) {
            p->option[j] = low + (p->option[j] - low + 1 + draw(chance, width - 1)) % width;
            return at;
        }
        if (n - fixed < 2) return n;
    }
    number a = fixed + draw(chance, n - fixed), b = fixed + draw(chance, n - fixed);
    if (a == b) return n;
    number job = p->order[a];
    if (kind < 7) {
        number step = b > a ? 1 : -1;
        for (number i = a; i != b; i += step) p->order[i] = p->order[i + step];
        p->order[b] = job;
    } else {
        p->order[a] = p->order[b];
        p->order[b] = job;
    }
    return a < b ? a : b;
}

static int make_plan(Plan *p, const Gangs *g, number options) {
    size_t n = (size_t)g->jobs, cells = (size_t)(g->shapes.nodes * g->shapes.columns);
    p->states = calloc((n + 1) * (cells + 2) + 2 * n + (size_t)options, sizeof(double));
    if (!p->states) return 0;
    p->ends = p->states + (n + 1) * cells;
    p->totals = p->ends + n + 1;
    p->order = (number *)(p->totals + n + 1);
    p->option = p->order + n;
    return 1;
}

static void copy_plan(const Plan *from, Plan *to, number jobs) {
    memcpy(to->order, from->order, sizeof(number) * (size_t)jobs);
    memcpy(to->option, from->option, sizeof(number) * (size_t)jobs);
}

static void copy_states(const Plan *from, Plan *to, number first, number count, number cells) {
    size_t many = (size_t)count;
    memcpy(to->states + first * cells, from->states + first * cells, sizeof(double) * many * (size_t)cells);
    memcpy(to->ends + first, from->ends + first, sizeof(double) * many);
    memcpy(to->totals + first, from->totals + first, sizeof(double) * many);
}

static double search(const Gangs *g, number fixed, number decodes, uint64_t *chance, double best, Plan *found,
                     Plan *now, Plan *tried, Scratch *w) {
    number n = g->jobs, cells = g->shapes.nodes * g->shapes.columns;
    double current = best;
    copy_plan(found, now, n);
    decode(g, now, 0, INFINITY, w);
    copy_plan(now, tried, n);
    copy_states(now, tried, 0, n + 1, cells);
    for (number step = 0; step < decodes; step++) {
        number first = random_change(g, tried, fixed, chance);
        if (first >= n) continue;
        double heat = best * HOT * pow(COLD / HOT, (double)step / (double)decodes);
        double enough = current - heat * log((double)(draw(chance, 1000000) + 1) / 1000000);
        copy_states(now, tried, first, 1, cells);
        double score = decode(g, tried, first, enough, w);
        if (score <= enough && score < INFINITY) {
            current = score;
            copy_states(tried, now, first, n + 1 - first, cells);
            copy_plan(tried, now, n);
            if (score < best * (1.0 - 1e-12)) {
                best = score;
                copy_plan(now, found, n);
            }
        } else
            copy_plan(now, tried, n);
    }
    return best;
}

double dovetail_anneal(const double *ready, number nodes, number columns, double last, number lanes,
                       const number *shape, number o1, const number *wanted, number o2, const double *seconds,
                       number o3, const number *bounds, number j1, const number *pool, number s1, const number *count,
                       number s2, const uint8_t *eligible, number s3, number n3, number c3, const uint8_t *able,
                       number s4, number n4, const double *weight, number j2, double own, double stretch,
                       double level, const number *orders, number rows, number n, const number *options, number r2,
                       number n5, number fixed, number decodes, number seed, number *best_order, number n6,
                       number *best_option, number n7) {
    Gangs g = {n, {lanes, nodes, columns, NULL, pool, count, eligible, able}, shape, wanted, seconds, weight, own,
               stretch, level, bounds};
    Plan now = {0}, tried = {0}, found = {best_order, best_option, NULL, NULL, NULL};
    Scratch w = {0};
    uint64_t chance = (uint64_t)seed;
    double best = NAN;
    if (make_plan(&now, &g, n) && make_plan(&tried, &g, n) && make_scratch(&w, nodes)) {
        best = INFINITY;
        memcpy(now.states, ready, sizeof(double) * (size_t)(nodes * columns));
        now.ends[0] = last;
        for (number row = 0; row < rows; row++) {
            memcpy(now.order, orders + row * n, sizeof(number) * (size_t)n);
            memcpy(now.option, options + row * n, sizeof(number) * (size_t)n);
            double score = decode(&g, &now, 0, INFINITY, &w);
            if (row == 0 || score < best) {
                best = score;
                copy_plan(&now, &found, n);
            }
        }
        if (best < INFINITY && !(n == 1 && bounds[1] - bounds[0] < 2))
            best = search(&g, fixed, decodes, &chance, best, &found, &now, &tried, &w);
    }
    free(now.states);
    free(tried.states);
    free(w.keys);
    return best;
}

number dovetail_where(const double *ready, number nodes, number columns, number lanes, const number *shape, number o1,
                      const number *wanted, number o2, const double *seconds, number o3, const number *bounds,
                      number j1, const number *pool, number s1, const number *count, number s2, const uint8_t *eligible, number s3, number n3,
                      number c3, const uint8_t *able, number s4, number n4, const number *order, number n,
                      const number *option, number n5, double *starts, number n6, number *chosen, number n7,
                      number n8) {
    Shapes all = {lanes, nodes, columns, NULL, pool, count, eligible, able};
    size_t cells = (size_t)(nodes * columns);
    Nodes state = {nodes, columns, malloc(sizeof(double) * (cells + 1))};
    Scratch w = {0};
    number status = OUT_OF_MEMORY;
    if (state.ready && make_scratch(&w, nodes)) {
        memcpy(state.ready, ready, sizeof(double) * cells);
        for (number i = 0; i < n; i++) {
            number j = order[i], o = option[j];
            Shape s = shape_of(&all, shape[o]);
            double start = place(&state, &s, wanted[o], 1, w.chosen, w.keys, w.at);
            if (start == INFINITY) continue;
            occupy(&state, &s, w.chosen, wanted[o], start, start + seconds[o]);
            starts[j] = start;
            memcpy(chosen + j * nodes, w.chosen, sizeof(number) * (size_t)wanted[o]);
        }
        status = 0;
    }
    free(w.keys);
    free(state.ready);
    return status;
}
