/* A fault at the Nth call that writes, of one process: preloaded, chosen by DOVETAIL_FAULT=ROLE:N:WHAT.

   ROLE is dovetail or supervisor. WHAT is count, kill, both (the supervisor and, DOVETAIL_LATER milliseconds
   later, its parent), enospc, eio, eintr, short or delay. With count, the number of calls is written to
   DOVETAIL_COUNT when the process ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long wanted = -1, seen = 0;
static char what[16];
static pid_t owner;

static void say_count(void) {
    const char *path = getenv("DOVETAIL_COUNT");
    if (path == NULL || getpid() != owner || strcmp(what, "count") != 0) return;
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char text[32];
    int size = snprintf(text, sizeof text, "%ld\n", seen);
    syscall(SYS_write, fd, text, size);
    syscall(SYS_close, fd);
}

__attribute__((constructor)) static void begin(void) {
    const char *order = getenv("DOVETAIL_FAULT");
    char role[16], line[4096];
    long number;
    if (order == NULL || sscanf(order, "%15[^:]:%ld:%15s", role, &number, what) != 3) return;
    int fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY, 0);
    long size = syscall(SYS_read, fd, line, sizeof line - 1);
    syscall(SYS_close, fd);
    if (size <= 0) return;
    for (long i = 0; i < size; i++) if (line[i] == 0) line[i] = ' ';
    line[size] = 0;
    int supervisor = strstr(line, "supervisor.py") != NULL;
    if (strncmp(line, "unshare ", 8) == 0 || strncmp(line, "sh ", 3) == 0) return; /* around it */
    int dovetail = !supervisor && strstr(line, "run_cli") != NULL;
    if ((strcmp(role, "supervisor") == 0 && supervisor) || (strcmp(role, "dovetail") == 0 && dovetail)) {
        wanted = number;
        owner = getpid();
        atexit(say_count);
    }
}

/* Process 1 of a PID namespace cannot be killed from inside, but by a fault of its own. */
static void kill_self(void) {
    if (getpid() == 1) {
        signal(SIGILL, SIG_DFL);
        __builtin_trap();
    }
    kill(getpid(), SIGKILL);
}

static void kill_both(void) {
    pid_t parent = getppid();
    const char *later = getenv("DOVETAIL_LATER");
    long wait = later ? atol(later) : 0;
    if (fork() == 0) {
        struct timespec pause = {wait / 1000, wait % 1000 * 1000000};
        nanosleep(&pause, NULL);
        kill(parent, SIGKILL);
        _exit(0);
    }
    kill(getpid(), SIGKILL);
}

enum { NEVER, NAMES, DATA }; /* what can fail: nothing, all but EINTR and short writes, all */

/* 0: go on; 1: half of it; -1: errno is set */
static int fault(int can_fail) {
    if (wanted < 0 || getpid() != owner) return 0;
    if (__sync_add_and_fetch(&seen, 1) != wanted) return 0;
    if (strcmp(what, "kill") == 0) kill_self();
    if (strcmp(what, "both") == 0) kill_both();
    if (strcmp(what, "delay") == 0) {
        struct timespec pause = {0, 400000000};
        nanosleep(&pause, NULL);
        return 0;
    }
    if (can_fail == NEVER) return 0;
    if (can_fail == NAMES && (strcmp(what, "eintr") == 0 || strcmp(what, "short") == 0)) return 0;
    errno = strcmp(what, "enospc") == 0 ? ENOSPC : strcmp(what, "eio") == 0 ? EIO : strcmp(what, "eintr") == 0 ? EINTR : 0;
    if (errno != 0) return -1;
    return strcmp(what, "short") == 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define SOME(n, f) ((f) == 1 && (n) > 1 ? (n) / 2 : (n))

ssize_t write(int fd, const void *data, size_t n) {
    int f = fault(DATA);
    return f < 0 ? -1 : REAL(write)(fd, data, SOME(n, f));
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    int f = fault(DATA);
    return f < 0 ? -1 : REAL(pwrite64)(fd, data, SOME(n, f), at);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    int f = fault(DATA);
    return f < 0 ? -1 : REAL(pwrite)(fd, data, SOME(n, f), at);
}
ssize_t send(int fd, const void *data, size_t n, int flags) {
    int f = fault(DATA);
    return f < 0 ? -1 : REAL(send)(fd, data, SOME(n, f), flags);
}
int fsync(int fd) { return fault(NAMES) < 0 ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fault(NAMES) < 0 ? -1 : REAL(fdatasync)(fd); }
int ftruncate64(int fd, off64_t n) { return fault(NAMES) < 0 ? -1 : REAL(ftruncate64)(fd, n); }
int rename(const char *from, const char *to) { return fault(NAMES) < 0 ? -1 : REAL(rename)(from, to); }
int unlink(const char *path) { return fault(NAMES) < 0 ? -1 : REAL(unlink)(path); }
int symlink(const char *to, const char *path) { return fault(NAMES) < 0 ? -1 : REAL(symlink)(to, path); }
int mkdir(const char *path, mode_t mode) { return fault(NAMES) < 0 ? -1 : REAL(mkdir)(path, mode); }

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *how, char *const argv[], char *const env[]) {
    fault(NEVER); /* kills before the job exists, and right after it does */
    int done = REAL(posix_spawn)(pid, path, actions, how, argv, env);
    fault(NEVER);
    return done;
}
