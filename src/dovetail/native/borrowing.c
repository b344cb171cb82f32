/* A whole simulation of gangs that may borrow devices of other nodes: in order of submission, with or without
 * borrowing, with or without moves home (Markthub 2015).
 *
 * It stands in for the engine with the rate model of borrowed devices; the specification is the policies fcfs,
 * rq and mrq and the rate model remote_gpu. All times are the same sums of the same floats, so starts, ends,
 * places and moves are the same job by job; property tests hold it to that. dovetail.native.borrowing calls it,
 * and describes each array.
 *
 * Jobs are known by their place in the order of submission, running ones also by a slot. Devices of a node are
 * bits. Nodes may differ.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t number;

enum { STARTED, ENDED, MOVED }; /* entries of the log */
enum { WORD = 62 }; /* nodes in one number of the log */
enum { NO_ROOM, AT_HOME, BORROWED };

typedef struct {
    double remote_latency, remote_overhead, network_latency, network_bandwidth, gpu_latency, gpu_bandwidth;
    double record_per_call, record_constant, replay_per_call, replay_constant, copy_bandwidth_per_byte;
    double copy_bandwidth, sync_per_byte, sync_constant, helper_per_byte, helper_per_call, helper_constant;
    double active_memory;
} Costs;

typedef struct {
    number jobs, nodes;
    const double *submit;
    const number *gang, *gpus, *cpus; /* nodes of a job, and what it takes of each */
    const double *memory, *base;      /* bytes of each node; seconds alone */
    const double *other, *calls, *size, *net_calls, *net_size;
    const number *node_cpus, *node_gpus; /* of the machine: counts, and bits */
    const double *node_memory, *network, *gpu;
    number borrows, migrates, local, skip, recorded, per_gpu;
    Costs costs;
    double *start, *end; /* what comes of it, by job */
    number *log, logged, room; /* what each job held from when on */
} Borrowing;

typedef struct {
    number client, donor, gpu;
} Lent;

typedef struct {
    number job, gang, lent, lent_before, moved;
    number nodes_room, loans_room; /* for how many there is room below */
    number *node, *gpus, *home; /* its nodes, their devices that it holds, how many of these came home */
    number *cores;              /* of each node, as bits; none where it takes the whole pool */
    Lent *loans, *loans_before; /* before: as of before the moves of an instant */
    double left, since, rate, due, took, stall;
} Slot;

typedef struct {
    Borrowing *b;
    number *free, *cpus, *cores, *idle, *rest, *processes; /* free devices and cores as bits */
    uint8_t *touched;
    double *memory;
    Slot *slots;
    number *order, *spare, *queue;
    number running, spares, first, last, arrived;
    number *space; /* devices given back by a job that goes home, until it has been looked at whole */
    int failed;
} World;

static number count(number bits) { return __builtin_popcountll((uint64_t)bits); }

static number lowest(number mask, number wanted) {
    number taken = 0;
    while (mask && wanted-- > 0) {
        taken |= mask & -mask;
        mask &= mask - 1;
    }
    return taken;
}

static number least(number a, number b) { return a < b ? a : b; }
static number most(number a, number b) { return a > b ? a : b; }

/* --------------------------------------------------------------------------------------------------- the log */

static void note(World *w, number value) {
    Borrowing *b = w->b;
    if (b->logged == b->room) {
        number room = b->room ? 2 * b->room : 1 << 16;
        number *log = realloc(b->log, (size_t)room * sizeof(number));
        if (!log) {
            w->failed = 1;
            return;
        }
        b->log = log, b->room = room;
    }
    b->log[b->logged++] = value;
}

/* Nodes that give the same devices together, groups as their first nodes stand, in each by index. */
static number group_nodes(Slot *s) {
    number groups = 0;
    for (number at = 0; at < s->gang; groups++) {
        number devices = s->gpus[at], first = at;
        for (number k = at; k < s->gang; k++) {
            if (s->gpus[k] != devices) continue;
            number node = s->node[k], home = s->home[k], cores = s->cores[k], to = at++;
            for (number i = k; i > to; i--) /* those between keep their order */
                s->node[i] = s->node[i - 1], s->gpus[i] = s->gpus[i - 1], s->home[i] = s->home[i - 1],
                s->cores[i] = s->cores[i - 1];
            for (; to > first && s->node[to - 1] > node; to--)
                s->node[to] = s->node[to - 1], s->home[to] = s->home[to - 1], s->cores[to] = s->cores[to - 1];
            s->node[to] = node, s->gpus[at - 1] = devices, s->gpus[to] = devices;
            s->home[to] = home, s->cores[to] = cores;
        }
    }
    return groups;
}

/* A job holds this from now on. */
static void note_place(World *w, number what, Slot *s, double now) {
    number when, words = (w->b->nodes + WORD - 1) / WORD, groups = group_nodes(s);
    memcpy(&when, &now, sizeof when);
    note(w, what), note(w, s->job), note(w, s->lent), note(w, when), note(w, groups);
    for (number at = 0; at < s->gang;) {
        number devices = s->gpus[at], first = w->b->logged + 1;
        note(w, devices);
        for (number i = 0; i < words; i++) note(w, 0);
        for (; at < s->gang && s->gpus[at] == devices && !w->failed; at++)
            w->b->log[first + s->node[at] / WORD] |= (number)1 << s->node[at] % WORD;
        if (w->failed) return;
    }
    for (number k = 0; k < s->lent; k++)
        note(w, s->loans[k].client), note(w, s->loans[k].donor), note(w, s->loans[k].gpu);
    if (what != STARTED) return;
    number named = 0;
    for (number k = 0; k < s->gang; k++) named += s->cores[k] != 0;
    note(w, named);
    for (number k = 0; k < s->gang; k++)
        if (s->cores[k]) note(w, s->node[k]), note(w, s->cores[k]);
}

/* ------------------------------------------------------------------------------------- what borrowing costs */

static double share_of_network(const World *w, number node) {
    return w->b->network[node] / (double)w->processes[node]; /* Equation 2 */
}

static double between(const World *w, const Lent *loan) {
    double here = share_of_network(w, loan->client), there = share_of_network(w, loan->donor);
    return there < here ? there : here;
}

/* Equation 9, as things stand. */
static double time_as_it_stands(const World *w, const Slot *s) {
    const Borrowing *b = w->b;
    const Costs *c = &b->costs;
    double calls = b->calls[s->job], size = b->size[s->job], slowest = INFINITY, worst = 0.0;
    for (number k = 0; k < s->gang; k++) {
        double share = share_of_network(w, s->node[k]);
        if (share < slowest) slowest = share;
        if (!s->gpus[k]) continue;
        double took = calls * c->gpu_latency + size / b->gpu[s->node[k]];
        if (!b->per_gpu && s->home[k] >= 2)
            took += c->helper_per_byte * size + c->helper_per_call * calls + c->helper_constant;
        if (took > worst) worst = took;
    }
    for (number k = 0; k < s->lent; k++) {
        double latency = c->remote_latency + c->network_latency;
        double took = calls * latency + c->remote_overhead * size / between(w, &s->loans[k]);
        if (b->recorded) took += c->record_per_call * calls + c->record_constant;
        if (took > worst) worst = took;
    }
    double network = c->network_latency * b->net_calls[s->job] + b->net_size[s->job] / slowest;
    return network + worst + b->other[s->job];
}

/* Equations 5 to 7. */
static double stall(const Borrowing *b, number job, double done, double bandwidth) {
    const Costs *c = &b->costs;
    double replay = c->replay_per_call * (b->calls[job] * done) + c->replay_constant;
    double size = b->size[job] < c->active_memory ? b->size[job] : c->active_memory, copy = 0.0;
    if (size > 0) {
        double speed = size * c->copy_bandwidth_per_byte;
        copy = size / (speed < c->copy_bandwidth ? speed : c->copy_bandwidth);
    }
    double sync = copy + c->sync_per_byte * size + c->sync_constant;
    double latency = c->remote_latency + c->network_latency;
    return replay + sync + (latency + c->remote_overhead * size / bandwidth);
}

static double fraction_done(const World *w, const Slot *s, double now) {
    double ahead = s->left - fmax(0.0, now - s->since) * s->rate;
    return 1.0 - fmax(0.0, ahead) / w->b->base[s->job];
}

static int still_lent(const Slot *s, const Lent *loan) {
    for (number k = 0; k < s->lent; k++)
        if (s->loans[k].donor == loan->donor && s->loans[k].gpu == loan->gpu) return 1;
    return 0;
}

/* Add or take away a job's processes and daemons. */
static void count_processes(World *w, const Slot *s, number sign) {
    number per_gpu = w->b->per_gpu;
    for (number k = 0; k < s->gang; k++) {
        w->processes[s->node[k]] += sign * (per_gpu ? count(s->gpus[k]) : 1);
        w->touched[s->node[k]] = 1;
    }
    for (number k = 0; k < s->lent; k++) {
        if (per_gpu) w->processes[s->loans[k].client] += sign;
        w->processes[s->loans[k].donor] += sign;
        w->touched[s->loans[k].donor] = 1;
    }
}

/* The daemons of what has moved are gone; a process's devices stay its own, wherever they are. */
static void recount(World *w, const Slot *s) {
    for (number k = 0; k < s->gang; k++) w->touched[s->node[k]] = 1;
    for (number k = 0; k < s->lent_before; k++) {
        w->touched[s->loans_before[k].donor] = 1;
        if (!still_lent(s, &s->loans_before[k])) w->processes[s->loans_before[k].donor]--;
    }
}

/* --------------------------------------------------------------------------------------------- finding room */

static int has_room(const World *w, number job, number node) {
    return w->cpus[node] >= w->b->cpus[job] && w->memory[node] >= w->b->memory[job];
}

/* Nodes with room for the gang, fewest free devices first, then lowest index; whether there are enough. */
static int fit(const World *w, number job, Slot *s) {
    const Borrowing *b = w->b;
    number found = 0, top = 0;
    for (number n = 0; n < b->nodes; n++) top = most(top, w->idle[n]);
    for (number level = b->gpus[job]; level <= top; level++)
        for (number n = 0; n < b->nodes; n++) {
            if (w->idle[n] != level || !has_room(w, job, n)) continue;
            s->node[found++] = n;
            if (found == b->gang[job]) return 1;
        }
    return 0;
}

/* Lend of what is left, from nodes with fewest of it first; whether it is enough. */
static int lend(World *w, number job, Slot *s, number missing) {
    const Borrowing *b = w->b;
    number total = 0, top = 0, k = 0, wanted = b->gpus[job];
    for (number n = 0; n < b->nodes; n++) {
        number here = count(w->rest[n]);
        total += here;
        top = most(top, here);
    }
    if (total < missing) return 0;
    number open = wanted - least(wanted, w->idle[s->node[0]]);
    for (number level = 1; level <= top; level++)
        for (number n = 0; n < b->nodes; n++) {
            if (count(w->rest[n]) != level) continue;
            for (number mask = w->rest[n]; mask && s->lent < missing; mask &= mask - 1, open--) {
                while (!open) k++, open = wanted - least(wanted, w->idle[s->node[k]]);
                s->loans[s->lent++] = (Lent){s->node[k], n, mask & -mask};
            }
        }
    return 1;
}

/* Nodes and donors with as few borrowed devices as possible; whether there are enough. */
static int borrow(World *w, number job, Slot *s) {
    const Borrowing *b = w->b;
    number wanted = b->gpus[job], gang = b->gang[job], total = 0, top = 0, found = 0, missing = 0;
    for (number n = 0; n < b->nodes; n++) {
        total += w->idle[n];
        top = most(top, w->idle[n]);
    }
    if (total < gang * wanted) return 0;
    for (number own = wanted; own >= b->local; own--) /* most devices of its own first, then fewest free */
        for (number level = own; level <= (own == wanted ? top : own) && found < gang; level++)
            for (number n = 0; n < b->nodes && found < gang; n++)
                if (w->idle[n] == level && has_room(w, job, n)) s->node[found++] = n;
    if (found < gang) return 0;
    memcpy(w->rest, w->free, (size_t)b->nodes * sizeof(number));
    for (number k = 0; k < gang; k++) {
        number n = s->node[k];
        missing += most(0, wanted - w->idle[n]);
        w->rest[n] &= ~lowest(w->free[n], wanted);
    }
    return lend(w, job, s, missing);
}

/* Room for what a job may hold; whether there is. Wide gangs are few, so that not every slot has room for them. */
static int make_room(World *w, number job, Slot *s) {
    number nodes = w->b->gang[job], loans = nodes * w->b->gpus[job];
    if (nodes > s->nodes_room) {
        number **lists[] = {&s->node, &s->gpus, &s->home, &s->cores};
        for (int i = 0; i < 4; i++) {
            number *list = realloc(*lists[i], (size_t)nodes * sizeof(number));
            if (!list) return 0;
            *lists[i] = list;
        }
        s->nodes_room = nodes;
    }
    if (loans > s->loans_room) {
        Lent **lists[] = {&s->loans, &s->loans_before};
        for (int i = 0; i < 2; i++) {
            Lent *list = realloc(*lists[i], (size_t)loans * sizeof(Lent));
            if (!list) return 0;
            *lists[i] = list;
        }
        s->loans_room = loans;
    }
    return 1;
}

static int find(World *w, number job, Slot *s, int may_borrow) {
    s->lent = 0;
    if (!make_room(w, job, s)) {
        w->failed = 1;
        return NO_ROOM;
    }
    if (fit(w, job, s)) return AT_HOME;
    if (may_borrow && borrow(w, job, s)) return BORROWED;
    s->lent = 0;
    return NO_ROOM;
}

/* ------------------------------------------------------------------------------------------- what happens */

static void begin(World *w, number slot, number job, double now) {
    const Borrowing *b = w->b;
    Slot *s = &w->slots[slot];
    s->job = job, s->gang = b->gang[job], s->moved = 0;
    for (number k = 0; k < s->gang; k++) {
        number n = s->node[k];
        s->gpus[k] = lowest(w->free[n], b->gpus[job]);
        s->home[k] = 0;
        s->cores[k] = b->cpus[job] == b->node_cpus[n] ? 0 : lowest(w->cores[n], b->cpus[job]);
        w->cores[n] &= ~s->cores[k];
        w->free[n] &= ~s->gpus[k];
        w->cpus[n] -= b->cpus[job];
        w->memory[n] -= b->memory[job];
        w->idle[n] = count(w->free[n]);
    }
    for (number k = 0; k < s->lent; k++) {
        number n = s->loans[k].donor;
        w->free[n] &= ~s->loans[k].gpu;
        w->idle[n] = count(w->free[n]);
    }
    w->order[w->running++] = slot;
    s->left = s->took = b->base[job];
    s->since = now, s->rate = 1.0, s->due = now + b->base[job];
    count_processes(w, s, 1);
    b->start[job] = now;
    note_place(w, STARTED, s, now);
}

/* Jobs that are due give back what they hold. */
static void end_due(World *w, double now) {
    const Borrowing *b = w->b;
    number kept = 0;
    for (number i = 0; i < w->running; i++) {
        number slot = w->order[i];
        Slot *s = &w->slots[slot];
        if (s->due > now) {
            w->order[kept++] = slot;
            continue;
        }
        b->end[s->job] = now;
        note(w, ENDED), note(w, s->job);
        count_processes(w, s, -1);
        for (number k = 0; k < s->gang; k++) {
            number n = s->node[k];
            w->free[n] |= s->gpus[k];
            w->cpus[n] += b->cpus[s->job];
            w->cores[n] |= s->cores[k];
            w->memory[n] += b->memory[s->job];
            w->idle[n] = count(w->free[n]);
        }
        for (number k = 0; k < s->lent; k++) {
            w->free[s->loans[k].donor] |= s->loans[k].gpu;
            w->idle[s->loans[k].donor] = count(w->free[s->loans[k].donor]);
        }
        w->spare[w->spares++] = slot;
    }
    w->running = kept;
}

/* Take home what has a free device there now; what it frees elsewhere serves others later. */
static int go_home(World *w, Slot *s, double now) {
    number kept = 0, freed = 0;
    for (number k = 0; k < s->lent; k++) {
        Lent loan = s->loans[k];
        if (!w->free[loan.client]) {
            s->loans[kept++] = loan;
            continue;
        }
        number low = w->free[loan.client] & -w->free[loan.client];
        w->free[loan.client] ^= low;
        w->idle[loan.client]--;
        for (number i = 0; i < s->gang; i++)
            if (s->node[i] == loan.client) s->gpus[i] |= low, s->home[i]++;
        w->space[2 * freed] = loan.donor, w->space[2 * freed + 1] = loan.gpu;
        freed++;
    }
    for (number i = 0; i < freed; i++) {
        w->free[w->space[2 * i]] |= w->space[2 * i + 1];
        w->idle[w->space[2 * i]]++;
    }
    s->lent = kept;
    if (freed) note_place(w, MOVED, s, now);
    return freed > 0;
}

/* Moves home, until nothing changes; stalls by what was there before anything moves. */
static void migrate(World *w, double now) {
    int moved = 0;
    for (number i = 0; i < w->running; i++) {
        Slot *s = &w->slots[w->order[i]];
        s->moved = 0;
        s->lent_before = s->lent;
        if (s->lent) memcpy(s->loans_before, s->loans, (size_t)s->lent * sizeof(Lent));
    }
    for (int again = 1; again;) {
        again = 0;
        for (number i = 0; i < w->running; i++) {
            Slot *s = &w->slots[w->order[i]];
            if (s->lent && go_home(w, s, now)) again = moved = 1, s->moved = 1;
        }
    }
    if (!moved) return;
    for (number i = 0; i < w->running; i++) {
        Slot *s = &w->slots[w->order[i]];
        if (!s->moved) continue;
        double done = fraction_done(w, s, now);
        s->stall = 0.0;
        for (number k = 0; k < s->lent_before; k++) {
            const Lent *loan = &s->loans_before[k];
            if (!still_lent(s, loan)) s->stall = fmax(s->stall, stall(w->b, s->job, done, between(w, loan)));
        }
    }
    for (number i = 0; i < w->running; i++)
        if (w->slots[w->order[i]].moved) recount(w, &w->slots[w->order[i]]);
}

static int stirred(const World *w, const Slot *s) {
    if (s->moved) return 1;
    for (number k = 0; k < s->gang; k++)
        if (w->touched[s->node[k]]) return 1;
    for (number k = 0; k < s->lent; k++)
        if (w->touched[s->loans[k].donor]) return 1;
    return 0;
}

/* New rates where something changed; `started`: running jobs before this instant's starts. */
static void change_rates(World *w, double now, number started) {
    const Borrowing *b = w->b;
    for (number i = 0; i < w->running; i++) {
        Slot *s = &w->slots[w->order[i]];
        if (i < started && !stirred(w, s)) continue;
        double lasts = time_as_it_stands(w, s);
        if (lasts == s->took && !s->moved) continue;
        if (now > s->since) {
            s->left = fmax(0.0, s->left - (now - s->since) * s->rate);
            s->since = now;
        }
        if (lasts != s->took) {
            s->took = lasts;
            s->rate = b->base[s->job] / lasts;
        }
        if (s->moved) {
            s->since += s->stall;
            s->moved = 0;
        }
        s->due = s->since + s->left / s->rate;
    }
    memset(w->touched, 0, (size_t)b->nodes);
}

/* The queue from the front, each at home where there is room; only the head borrows. */
static void start_waiting(World *w, double now) {
    const Borrowing *b = w->b;
    for (number place = w->first, passed = 0; place < w->last;) {
        number job = w->queue[place], slot = w->spare[w->spares - 1];
        if (!find(w, job, &w->slots[slot], b->borrows && !passed)) {
            if (++passed > b->skip) return;
            place++;
            continue;
        }
        w->spares--;
        begin(w, slot, job, now);
        for (number k = place; k > w->first; k--) w->queue[k] = w->queue[k - 1]; /* who was passed stays in front */
        w->first++;
        place++;
    }
}

static void simulate(World *w) {
    const Borrowing *b = w->b;
    for (;;) {
        double now = INFINITY;
        for (number i = 0; i < w->running; i++) now = fmin(now, w->slots[w->order[i]].due);
        if (w->arrived < b->jobs) now = fmin(now, b->submit[w->arrived]);
        if (now == INFINITY || w->failed) return;
        end_due(w, now);
        while (w->arrived < b->jobs && b->submit[w->arrived] <= now) w->queue[w->last++] = w->arrived++;
        if (b->migrates) migrate(w, now);
        number started = w->running;
        start_waiting(w, now);
        change_rates(w, now, started);
    }
}

/* ------------------------------------------------------------------------------------------------- its memory */

static void *get(World *w, number items, size_t size) {
    void *found = calloc((size_t)items + 1, size);
    if (!found) w->failed = 1;
    return found;
}

/* Fills in what comes of it; 0, or -1 where there is not enough memory. The log is the caller's to give back. */
int dovetail_borrow(Borrowing *b) {
    number gpus = 0, loans = 1, plain = 0, n = b->nodes;
    for (number i = 0; i < n; i++) gpus += count(b->node_gpus[i]);
    for (number j = 0; j < b->jobs; j++) {
        loans = most(loans, b->gang[j] * b->gpus[j]);
        plain += b->gpus[j] == 0;
    }
    number slots = (plain ? b->jobs : least(b->jobs, gpus)) + 1;
    World w = {.b = b, .spares = slots};
    b->log = NULL, b->logged = b->room = 0;
    w.free = get(&w, n, sizeof(number)), w.cpus = get(&w, n, sizeof(number)), w.idle = get(&w, n, sizeof(number));
    w.cores = get(&w, n, sizeof(number)), w.rest = get(&w, n, sizeof(number)), w.processes = get(&w, n, sizeof(number)), w.touched = get(&w, n, 1);
    w.memory = get(&w, n, sizeof(double)), w.slots = get(&w, slots, sizeof(Slot));
    w.order = get(&w, slots, sizeof(number)), w.spare = get(&w, slots, sizeof(number));
    w.queue = get(&w, b->jobs, sizeof(number)), w.space = get(&w, 2 * loans, sizeof(number));
    if (!w.failed) {
        for (number i = 0; i < slots; i++) w.spare[i] = slots - 1 - i;
        for (number i = 0; i < n; i++) {
            w.free[i] = b->node_gpus[i], w.cpus[i] = b->node_cpus[i], w.memory[i] = b->node_memory[i];
            w.idle[i] = count(w.free[i]);
            w.cores[i] = (number)(((uint64_t)1 << b->node_cpus[i]) - 1);
        }
        simulate(&w);
        for (number i = 0; i < slots; i++) {
            Slot *s = &w.slots[i];
            free(s->node), free(s->gpus), free(s->home), free(s->cores), free(s->loans), free(s->loans_before);
        }
    }
    void *all[] = {w.free, w.cpus, w.cores, w.idle, w.rest, w.processes, w.touched, w.memory, w.slots, w.order, w.spare,
                   w.queue, w.space};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    return w.failed ? -1 : 0;
}

void dovetail_forget(number *log) { free(log); }
