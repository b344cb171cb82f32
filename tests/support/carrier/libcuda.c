/* A client library of a made-up carrier: a few calls of CUDA's driver API, carried to the servers that LUPINE_SERVER
 * names. Devices of this process are counted before them unless LUPINE_DISABLE_LOCAL is 1; nothing computes on those.
 */
#define _POSIX_C_SOURCE 200809L
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OK = 0, FAILED = 999, MOST = 16, LINE = 256 };
static FILE *server[MOST];
static char name_of[MOST][LINE];
static int own, all, current;

static int say(int d, const char *line) {
    if (!server[d] || fprintf(server[d], "%s\n", line) < 0 || fflush(server[d])) return FAILED;
    return OK;
}

static int hear(int d, char *line) {
    if (!fgets(line, LINE, server[d])) return FAILED;
    line[strcspn(line, "\n")] = 0;
    return OK;
}

static FILE *connect_to(char *address) {
    char *colon = strrchr(address, ':');
    struct addrinfo want = {0}, *found = NULL;
    want.ai_socktype = SOCK_STREAM;
    if (!colon) return NULL;
    *colon = 0;
    if (getaddrinfo(address, colon + 1, &want, &found)) return NULL;
    int s = socket(found->ai_family, found->ai_socktype, 0);
    int failed = s < 0 || connect(s, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return failed ? NULL : fdopen(s, "r+");
}

int cuInit(unsigned flags) {
    char *visible = getenv("CUDA_VISIBLE_DEVICES"), *hidden = getenv("LUPINE_DISABLE_LOCAL");
    char *servers = getenv("LUPINE_SERVER"), *rest = NULL;
    (void)flags;
    if (all) return OK;
    if (visible && *visible && !(hidden && *hidden == '1')) {
        char *copy = strdup(visible);
        for (char *word = strtok_r(copy, ",", &rest); word && all < MOST; word = strtok_r(NULL, ",", &rest))
            snprintf(name_of[all++], LINE, "own %s", word);
    }
    own = all;
    if (servers) {
        char *copy = strdup(servers);
        for (char *word = strtok_r(copy, ",", &rest); word && all < MOST; word = strtok_r(NULL, ",", &rest)) {
            server[all] = connect_to(word);
            if (say(all, "name") || hear(all, name_of[all])) return FAILED;
            all++;
        }
    }
    return OK;
}

int cuDeviceGetCount(int *count) {
    *count = all;
    return OK;
}

int cuDeviceGetName(char *name, int length, int device) {
    if (device < 0 || device >= all) return FAILED;
    snprintf(name, (size_t)length, "%s", name_of[device]);
    return OK;
}

int cuCtxSetCurrent(void *context) { /* the test's contexts are the numbers of devices, from 1 on */
    current = (int)(size_t)context - 1;
    return current < 0 || current >= all ? FAILED : OK;
}

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
    char line[LINE];
    snprintf(line, LINE, "alloc %zu", bytes);
    if (current < own || say(current, line) || hear(current, line)) return FAILED;
    *address = strtoull(line, NULL, 10);
    return OK;
}

int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes) {
    char line[LINE];
    snprintf(line, LINE, "put %llu %zu", to, bytes);
    if (current < own || say(current, line)) return FAILED;
    if (fwrite(from, 1, bytes, server[current]) != bytes || fflush(server[current])) return FAILED;
    return hear(current, line) || strcmp(line, "ok") ? FAILED : OK;
}

int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes) {
    char line[LINE];
    snprintf(line, LINE, "get %llu %zu", from, bytes);
    if (current < own || say(current, line)) return FAILED;
    return fread(to, 1, bytes, server[current]) == bytes ? OK : FAILED;
}
