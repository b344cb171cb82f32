/* A stand-in for NVIDIA's management library: what it says stands in files of the folder $NVML_BOX.
 *
 * box: one line each, fields apart by tabs
 *   device UUID NAME MEMORY USED UTILISATION COMPUTE_MODE MIG FAULT
 *   mig PARENT UUID NAME MEMORY USED
 *   process UUID PID BYTES UTILISATION
 * processes/PID.N: "UUID BYTES UTILISATION" of a process that lives, written by itself
 * topology: "near INDEX HEXMASK" (cores), "link INDEX INDEX nvlink|switch", one a line
 * hang: while it exists, every question hangs
 * slow: milliseconds that each question for a device's memory takes
 * xid: "INDEX NUMBER", told once as an event
 * failing: "FUNCTION STATUS" of functions that fail, one a line (13: the library has no such function)
 * on_parent: while it exists, processes on MIG instances are listed with their GPU alone
 * ghosts: while it exists, processes are listed that have ended
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Status;
enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMED_OUT = 10 };
enum { MOST = 64 };

typedef struct { char uuid[96], name[96]; unsigned long long memory, used; int util, mode, mig, fault, parent; } Card;
typedef struct { char uuid[96]; unsigned pid; unsigned long long bytes; int util; } Held;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilisation;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } Process;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, enc, dec; } Sample;
typedef struct { void *device; unsigned long long kind, data; unsigned instance, compute; } Event;

static Card cards[MOST], slices[MOST];
static Held held[4 * MOST];
static int card_count, slice_count, held_count;

static const char *path_of(const char *name) {
    static char path[4096];
    const char *box = getenv("NVML_BOX");
    snprintf(path, sizeof path, "%s/%s", box ? box : "/nonexistent", name);
    return path;
}

/* A box on which nothing changes: its files are read once. So a benchmark measures all but this library. */
static int still(void) { return getenv("NVML_STILL") != NULL; }

static int failing(const char *function) {
    if (still()) return 0;
    FILE *file = fopen(path_of("failing"), "r");
    char name[128];
    int status, found = 0;
    while (file && fscanf(file, "%127s %d", name, &status) == 2) if (!strcmp(name, function)) found = status;
    if (file) fclose(file);
    return found;
}

#define FAILS do { int wrong = failing(__func__); if (wrong) return wrong; } while (0)

static void add(const char *uuid, unsigned pid, unsigned long long bytes, int util) {
    if (held_count == 4 * MOST || (access(path_of("ghosts"), F_OK) && kill((pid_t)pid, 0) && errno == ESRCH && pid < 4000000)) return;
    Held *one = &held[held_count++];
    snprintf(one->uuid, sizeof one->uuid, "%s", uuid);
    one->pid = pid; one->bytes = bytes; one->util = util;
}

static void look(void) {
    if (still() && card_count) return;
    while (!access(path_of("hang"), F_OK)) usleep(20000);
    card_count = slice_count = held_count = 0;
    FILE *file = fopen(path_of("box"), "r");
    char line[1024];
    while (file && fgets(line, sizeof line, file)) {
        char uuid[96], name[96];
        unsigned long long memory, used, bytes;
        int a, b, c, d;
        unsigned pid;
        if (sscanf(line, "device\t%95[^\t]\t%95[^\t]\t%llu\t%llu\t%d\t%d\t%d\t%d", uuid, name, &memory, &used, &a, &b, &c, &d) == 8) {
            Card *card = &cards[card_count++];
            *card = (Card){.memory = memory, .used = used, .util = a, .mode = b, .mig = c, .fault = d, .parent = -1};
            strcpy(card->uuid, uuid); strcpy(card->name, name);
        } else if (sscanf(line, "mig\t%d\t%95[^\t]\t%95[^\t]\t%llu\t%llu", &a, uuid, name, &memory, &used) == 5) {
            Card *card = &slices[slice_count++];
            *card = (Card){.memory = memory, .used = used, .util = -1, .parent = a};
            strcpy(card->uuid, uuid); strcpy(card->name, name);
        } else if (sscanf(line, "process\t%95[^\t]\t%u\t%llu\t%d", uuid, &pid, &bytes, &a) == 4) {
            add(uuid, pid, bytes, a);
        }
    }
    if (file) fclose(file);
    DIR *folder = opendir(path_of("processes"));
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char name[512], uuid[96];
        unsigned long long bytes;
        int util;
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "processes/%s", entry->d_name);
        FILE *said = fopen(path_of(name), "r");
        if (said && fscanf(said, "%95s %llu %d", uuid, &bytes, &util) == 3) add(uuid, (unsigned)atoi(entry->d_name), bytes, util);
        if (said) fclose(said);
    }
    if (folder) closedir(folder);
}

static Card *card_of(void *handle) {
    size_t number = (size_t)handle;
    look();
    if (number >= 0x1000) return number - 0x1000 < (size_t)slice_count ? &slices[number - 0x1000] : NULL;
    return number && number <= (size_t)card_count ? &cards[number - 1] : NULL;
}

#define CARD(handle) Card *card = card_of(handle); if (!card) return INVALID; if (card->fault) return card->fault

static unsigned long long used_of(const Card *card) {
    unsigned long long used = card->used;
    for (int i = 0; i < held_count; i++) if (!strcmp(held[i].uuid, card->uuid)) used += held[i].bytes;
    return used;
}

Status nvmlInitWithFlags(unsigned flags) { FAILS; (void)flags; look(); return SUCCESS; }
Status nvmlInit_v2(void) { FAILS; return nvmlInitWithFlags(0); }
Status nvmlShutdown(void) { FAILS; return SUCCESS; }
const char *nvmlErrorString(Status status) {
    switch (status) {
    case SUCCESS: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case TIMED_OUT: return "Timeout";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 999: return "Unknown Error";
    default: return "Invalid Argument";
    }
}
Status nvmlSystemGetDriverVersion(char *text, unsigned size) { FAILS; snprintf(text, size, "550.54.15"); return SUCCESS; }
Status nvmlDeviceGetCount_v2(unsigned *count) { FAILS; look(); *count = (unsigned)card_count; return SUCCESS; }
Status nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { FAILS;
    look();
    if (index >= (unsigned)card_count) return INVALID;
    if (cards[index].fault == 15 || cards[index].fault == 16) return cards[index].fault;
    *handle = (void *)(size_t)(index + 1);
    return SUCCESS;
}
Status nvmlDeviceGetName(void *handle, char *text, unsigned size) { FAILS; CARD(handle); snprintf(text, size, "%s", card->name); return SUCCESS; }
Status nvmlDeviceGetUUID(void *handle, char *text, unsigned size) { FAILS; CARD(handle); snprintf(text, size, "%s", card->uuid); return SUCCESS; }
static void be_slow(void) {
    if (still()) return;
    FILE *file = fopen(path_of("slow"), "r");
    int milliseconds = 0;
    if (file && fscanf(file, "%d", &milliseconds) == 1) usleep((useconds_t)milliseconds * 1000);
    if (file) fclose(file);
}
Status nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) { FAILS;
    CARD(handle);
    be_slow();
    memory->total = card->memory;
    memory->used = used_of(card);
    memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
    return SUCCESS;
}
Status nvmlDeviceGetComputeMode(void *handle, unsigned *mode) { FAILS; CARD(handle); *mode = (unsigned)card->mode; return SUCCESS; }
Status nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) { FAILS;
    CARD(handle);
    if (card->mig < 0) return NOT_SUPPORTED;
    *now = *later = (unsigned)card->mig;
    return SUCCESS;
}
Status nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { FAILS; CARD(handle); *count = card->mig > 0 ? 7 : 0; return SUCCESS; }
Status nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **found) { FAILS;
    CARD(handle);
    for (int i = 0; i < slice_count; i++)
        if (slices[i].parent == (int)((size_t)handle - 1) && !index--) { *found = (void *)(size_t)(0x1000 + i); return SUCCESS; }
    return NOT_FOUND;
}
Status nvmlDeviceGetUtilizationRates(void *handle, Utilisation *rates) { FAILS;
    CARD(handle);
    if (card->util < 0) return NOT_SUPPORTED;
    rates->gpu = (unsigned)card->util; rates->memory = 0;
    for (int i = 0; i < held_count; i++) if (!strcmp(held[i].uuid, card->uuid)) rates->gpu += (unsigned)held[i].util;
    if (rates->gpu > 100) rates->gpu = 100;
    return SUCCESS;
}
static int is_instance(void *handle) { return (size_t)handle >= 0x1000; }
static unsigned number_of(const Card *card) {  /* of a GPU instance: 1, 2 ... on each GPU */
    unsigned number = 0;
    for (const Card *one = slices; one <= card; one++) number += one->parent == card->parent;
    return number;
}
Status nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) { FAILS;
    CARD(handle);
    if (!is_instance(handle)) return NOT_SUPPORTED;
    *id = number_of(card);
    return SUCCESS;
}
Status nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) { FAILS;
    CARD(handle);
    if (!is_instance(handle)) return NOT_SUPPORTED;
    *id = 0;
    return SUCCESS;
}
static Status running_on(void *handle, unsigned *count, Process *found) {
    CARD(handle);
    unsigned room = *count;
    int on_parent = !access(path_of("on_parent"), F_OK);
    *count = 0;
    if (is_instance(handle) && on_parent) return NOT_SUPPORTED;
    for (int i = 0; i < held_count; i++) {
        Process one = {held[i].pid, held[i].bytes, 0xFFFFFFFF, 0xFFFFFFFF};
        int here = !strcmp(held[i].uuid, card->uuid);
        for (int s = 0; s < slice_count && on_parent && !here; s++)
            if (slices[s].parent == (int)((size_t)handle - 1) && !strcmp(held[i].uuid, slices[s].uuid)) {
                one.instance = number_of(&slices[s]);
                one.compute = 0;
                here = 1;
            }
        if (!here) continue;
        if (found && *count < room) found[*count] = one;
        ++*count;
    }
    return *count > room ? TOO_SMALL : SUCCESS;
}
Status nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, Process *found) { FAILS; return running_on(handle, count, found); }
Status nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *found) { FAILS; return running_on(handle, count, found); }
Status nvmlDeviceGetProcessUtilization(void *handle, Sample *found, unsigned *count, unsigned long long since) { FAILS;
    CARD(handle);
    (void)since;
    if (card->util < 0) return NOT_SUPPORTED;
    unsigned room = *count;
    *count = 0;
    for (int i = 0; i < held_count; i++) {
        if (strcmp(held[i].uuid, card->uuid)) continue;
        if (found && *count < room) found[*count] = (Sample){held[i].pid, 1, (unsigned)held[i].util, 0, 0, 0};
        ++*count;
    }
    if (!*count) return NOT_FOUND;
    return !found || *count > room ? TOO_SMALL : SUCCESS;
}
static int topology(const char *form, int a, int b, unsigned long long *mask, char *word) {
    FILE *file = fopen(path_of("topology"), "r");
    char line[256];
    int found = 0, x, y;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (mask && sscanf(line, form, &x, mask) == 2) found = x == a;
        if (word && sscanf(line, form, &x, &y, word) == 3) found = (x == a && y == b) || (x == b && y == a);
    }
    if (file) fclose(file);
    return found;
}
static int index_of(void *handle) { return (int)(size_t)handle - 1; }
Status nvmlDeviceGetCpuAffinity(void *handle, unsigned words, unsigned long long *mask) { FAILS;
    CARD(handle);
    memset(mask, 0, words * sizeof *mask);
    return topology("near %d %llx", index_of(handle), 0, mask, NULL) ? SUCCESS : NOT_SUPPORTED;
}
Status nvmlDeviceGetP2PStatus(void *one, void *other, int what, int *status) { FAILS;
    char word[32] = "";
    topology("link %d %d %31s", index_of(one), index_of(other), NULL, word);
    *status = what == 2 && !strcmp(word, "nvlink") ? 0 : 5;
    return SUCCESS;
}
Status nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level) { FAILS;
    char word[32] = "";
    *level = topology("link %d %d %31s", index_of(one), index_of(other), NULL, word) && !strcmp(word, "switch") ? 20 : 50;
    return SUCCESS;
}
Status nvmlEventSetCreate(void **set) { FAILS; *set = (void *)1; return SUCCESS; }
Status nvmlEventSetFree(void *set) { FAILS; (void)set; return SUCCESS; }
Status nvmlDeviceRegisterEvents(void *handle, unsigned long long kinds, void *set) { FAILS; CARD(handle); (void)kinds; (void)set; return SUCCESS; }
Status nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) { FAILS;
    int index, number;
    char path[4096];
    (void)set; (void)milliseconds;
    snprintf(path, sizeof path, "%s", path_of("xid"));
    FILE *file = fopen(path, "r");
    if (!file) return TIMED_OUT;
    int found = fscanf(file, "%d %d", &index, &number);
    fclose(file);
    unlink(path);
    if (found != 2) return TIMED_OUT;
    *event = (Event){(void *)(size_t)(index + 1), 8, (unsigned long long)number, 0, 0};
    return SUCCESS;
}
