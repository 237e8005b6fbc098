/* A disk that fails when it is told to: loaded before libc, it counts what is done to files under one folder, and from
 * a given number on (or at it alone) refuses with an errno, or writes half of what it is given.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATES = 1, READS = 2, WRITES = 4, SYNCS = 8, RENAMES = 16, FOLDERS = 32, REMOVES = 64, LENGTHS = 128 };

static char root[PATH_MAX];
static long at, seen, each[8];
static int kinds, error_number, lasting, half;

/* Begins to count things of these kinds under a folder; number `first` fails, and with `stays` all after it. */
void hostile_fault(const char *folder, int which, long first, int number, int stays, int halves) {
    snprintf(root, sizeof root, "%s", folder);
    memset(each, 0, sizeof each);
    kinds = which, at = first, seen = 0, error_number = number, lasting = stays, half = halves;
}

/* How many things of one kind there were so far. */
long hostile_count(int kind) { return each[__builtin_ctz((unsigned)kind)]; }

static int under(const char *path) {
    char full[2 * PATH_MAX];
    if (!root[0] || !path) return 0;
    if (path[0] == '/') return !strncmp(path, root, strlen(root));
    if (!getcwd(full, PATH_MAX)) return 0;
    return !strncmp(full, root, strlen(root)) && !strstr(path, "..");
}

static int under_descriptor(int fd) {
    char link[64], path[PATH_MAX];
    if (!root[0] || fd <= 2) return 0; /* what is printed is no file of ours */
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return path[0] == '/' && under(path); /* pipes and sockets are no files */
}

/* Whether this one fails; errno is set. */
static int fails(int kind) {
    __atomic_fetch_add(&each[__builtin_ctz((unsigned)kind)], 1, __ATOMIC_SEQ_CST);
    if (!(kinds & kind)) return 0;
    long here = __atomic_fetch_add(&seen, 1, __ATOMIC_SEQ_CST);
    if (at < 0 || here < at || (here > at && !lasting)) return 0;
    errno = error_number;
    return 1;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define WRITING(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) \
    { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

#define OPENS(name) int name(const char *path, int flags, ...) { \
    REAL(name); MODE(flags) \
    if (under(path) && fails(WRITING(flags) ? CREATES : READS)) return -1; \
    return real(path, flags, mode); }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) int name(int folder, const char *path, int flags, ...) { \
    REAL(name); MODE(flags) \
    if (folder == AT_FDCWD && under(path) && fails(WRITING(flags) ? CREATES : READS)) return -1; \
    return real(folder, path, flags, mode); }
OPENS_AT(openat)
OPENS_AT(openat64)

/* How much of n bytes goes through: all, half, or -1. */
static ssize_t allowed(int fd, size_t n) {
    if (!under_descriptor(fd) || !fails(WRITES)) return (ssize_t)n;
    return half && n > 1 && (seen - 1 == at) ? (ssize_t)(n / 2) : half && !lasting ? (ssize_t)n : -1;
}

ssize_t write(int fd, const void *from, size_t n) {
    REAL(write);
    ssize_t some = allowed(fd, n);
    return some < 0 ? -1 : real(fd, from, (size_t)some);
}

#define WRITES_AT(name, offset) ssize_t name(int fd, const void *from, size_t n, offset place) { \
    REAL(name); \
    ssize_t some = allowed(fd, n); \
    return some < 0 ? -1 : real(fd, from, (size_t)some, place); }
WRITES_AT(pwrite, off_t)
WRITES_AT(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec *from, int n) {
    REAL(writev);
    return under_descriptor(fd) && fails(WRITES) && !half ? -1 : real(fd, from, n);
}

#define SYNCHRONISES(name) int name(int fd) { REAL(name); return under_descriptor(fd) && fails(SYNCS) ? -1 : real(fd); }
SYNCHRONISES(fsync)
SYNCHRONISES(fdatasync)

int rename(const char *from, const char *to) { REAL(rename); return under(to) && fails(RENAMES) ? -1 : real(from, to); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); return under(path) && fails(FOLDERS) ? -1 : real(path, mode); }
int unlink(const char *path) { REAL(unlink); return under(path) && fails(REMOVES) ? -1 : real(path); }
int ftruncate(int fd, off_t n) { REAL(ftruncate); return under_descriptor(fd) && fails(LENGTHS) ? -1 : real(fd, n); }
int ftruncate64(int fd, off64_t n) {
    REAL(ftruncate64);
    return under_descriptor(fd) && fails(LENGTHS) ? -1 : real(fd, n);
}

/* These return the error. */
int posix_fallocate(int fd, off_t a, off_t n) {
    REAL(posix_fallocate);
    return under_descriptor(fd) && fails(LENGTHS) ? error_number : real(fd, a, n);
}
int posix_fallocate64(int fd, off64_t a, off64_t n) {
    REAL(posix_fallocate64);
    return under_descriptor(fd) && fails(LENGTHS) ? error_number : real(fd, a, n);
}
