/* What a machine lacks while a file says so: preloaded, DOVETAIL_LACKS names the file.

   Each of its lines is KIND ERRNO PREFIX: calls of that kind on paths, as they are given, that begin with PREFIX
   fail with ERRNO.
   KIND is write (data and names), lock, stale (everything that looks at a file) or fork (PREFIX is "-"). While
   there is no such file nothing is lacking. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int lacks(const char *kind, const char *path) {
    const char *name = getenv("DOVETAIL_LACKS");
    char text[2048], of[16], prefix[1024];
    int number, used, before = errno;
    if (name == NULL || path == NULL) return 0;
    int fd = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) { errno = before; return 0; }
    long size = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    errno = before;
    if (size <= 0) return 0;
    text[size] = 0;
    for (char *at = text; sscanf(at, "%15s %d %1023s%n", of, &number, prefix, &used) == 3; at += used)
        if (strcmp(of, kind) == 0 && (strcmp(prefix, "-") == 0 || strncmp(path, prefix, strlen(prefix)) == 0)) {
            errno = number;
            return 1;
        }
    return 0;
}

static int lacks_by_fd(const char *kind, int fd) {
    char link[64], path[1024];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    errno = before;
    if (size <= 0) return 0;
    path[size] = 0;
    return lacks(kind, path);
}

static int opening(const char *path, int flags) {
    if (lacks("stale", path)) return 1;
    if (flags & (O_CREAT | O_TRUNC)) return lacks("write", path);
    return (flags & O_ACCMODE) != O_RDONLY && lacks("write", path) && errno == EROFS;
}

#define OPEN(name)                                              \
    int name(const char *path, int flags, ...) {                \
        va_list more;                                           \
        va_start(more, flags);                                  \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
        va_end(more);                                           \
        return opening(path, flags) ? -1 : REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
ssize_t write(int fd, const void *data, size_t n) { return lacks_by_fd("write", fd) ? -1 : REAL(write)(fd, data, n); }
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    return lacks_by_fd("write", fd) ? -1 : REAL(pwrite64)(fd, data, n, at);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    return lacks_by_fd("write", fd) ? -1 : REAL(pwrite)(fd, data, n, at);
}
ssize_t read(int fd, void *data, size_t n) { return lacks_by_fd("stale", fd) ? -1 : REAL(read)(fd, data, n); }
ssize_t pread64(int fd, void *data, size_t n, off64_t at) {
    return lacks_by_fd("stale", fd) ? -1 : REAL(pread64)(fd, data, n, at);
}
int ftruncate64(int fd, off64_t n) { return lacks_by_fd("write", fd) ? -1 : REAL(ftruncate64)(fd, n); }
int rename(const char *from, const char *to) { return lacks("write", to) ? -1 : REAL(rename)(from, to); }
int unlink(const char *path) { return lacks("write", path) ? -1 : REAL(unlink)(path); }
int mkdir(const char *path, mode_t mode) { return lacks("write", path) ? -1 : REAL(mkdir)(path, mode); }
int stat64(const char *path, struct stat64 *found) {
    return lacks("stale", path) ? -1 : REAL(stat64)(path, found);
}
int lstat64(const char *path, struct stat64 *found) {
    return lacks("stale", path) ? -1 : REAL(lstat64)(path, found);
}
int flock(int fd, int how) { return lacks_by_fd("lock", fd) ? -1 : REAL(flock)(fd, how); }
int fcntl64(int fd, int what, ...) {
    va_list more;
    va_start(more, what);
    void *with = va_arg(more, void *);
    va_end(more);
    if ((what == F_SETLK || what == F_SETLKW || what == F_GETLK) && lacks_by_fd("lock", fd)) return -1;
    return REAL(fcntl64)(fd, what, with);
}
pid_t fork(void) { return lacks("fork", "-") ? -1 : REAL(fork)(); }
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *how, char *const argv[], char *const env[]) {
    return lacks("fork", "-") ? errno : REAL(posix_spawn)(pid, path, actions, how, argv, env);
}
