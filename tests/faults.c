/* Preloaded, it lets the n-th call that changes something below one folder fail, or kills the process there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static long seen, at;
static int code, sticky;
static char name_of_hit[32];

/* Count calls below `folder`; the one with the number `n` (from 1) gives `error`, or kills if that is negative.
   With `stay` every later one that needs room fails too, as on a full disk. */
void faults_arm(const char *folder, long n, int error, int stay) {
  strncpy(root, folder, sizeof root - 1);
  seen = 0, at = n, code = error, sticky = stay, name_of_hit[0] = 0;
}
long faults_seen(void) { return seen; }
const char *faults_hit(void) { return name_of_hit; }
void faults_disarm(void) { root[0] = 0; }

static int below(int folder, const char *path) {
  char place[PATH_MAX] = "", link[64];
  if (!root[0]) return 0;
  if (path && path[0] == '/') return !strncmp(path, root, strlen(root));
  if (folder == AT_FDCWD) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
  if (readlink(link, place, sizeof place - 1) < 0) return 0;
  return !strncmp(place, root, strlen(root));
}

/* Whether this call is to fail. `room`: it needs space. `again`: the kernel may interrupt it. */
static int fails(int folder, const char *path, int room, int again, const char *name) {
  if (!below(folder, path)) return 0;
  if (code == EINTR && !again) return 0;
  if (code == ENOSPC && !room) return 0;
  seen++;
  if (seen == at) {
    strncpy(name_of_hit, name, sizeof name_of_hit - 1);
    if (code < 0) kill(getpid(), SIGKILL);
  }
  if (code > 0 && at && (seen == at || (sticky && seen > at))) { errno = code; return 1; }
  return 0;
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *b, size_t n) {
  REAL(ssize_t, write, int, const void *, size_t);
  return fails(fd, 0, 1, 1, "write") ? -1 : real(fd, b, n);
}
ssize_t writev(int fd, const struct iovec *v, int n) {
  REAL(ssize_t, writev, int, const struct iovec *, int);
  return fails(fd, 0, 1, 1, "writev") ? -1 : real(fd, v, n);
}
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) {
  REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
  return fails(fd, 0, 1, 1, "pwrite") ? -1 : real(fd, b, n, o);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) {
  REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
  return fails(fd, 0, 1, 1, "pwrite") ? -1 : real(fd, b, n, o);
}
ssize_t copy_file_range(int a, off64_t *p, int b, off64_t *q, size_t n, unsigned f) {
  REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
  return fails(b, 0, 1, 1, "copy_file_range") ? -1 : real(a, p, b, q, n, f);
}
ssize_t sendfile(int b, int a, off_t *p, size_t n) {
  REAL(ssize_t, sendfile, int, int, off_t *, size_t);
  return fails(b, 0, 1, 1, "sendfile") ? -1 : real(b, a, p, n);
}
ssize_t sendfile64(int b, int a, off64_t *p, size_t n) {
  REAL(ssize_t, sendfile64, int, int, off64_t *, size_t);
  return fails(b, 0, 1, 1, "sendfile") ? -1 : real(b, a, p, n);
}
int ftruncate(int fd, off_t n) {
  REAL(int, ftruncate, int, off_t);
  return fails(fd, 0, 1, 1, "ftruncate") ? -1 : real(fd, n);
}
int ftruncate64(int fd, off64_t n) {
  REAL(int, ftruncate64, int, off64_t);
  return fails(fd, 0, 1, 1, "ftruncate") ? -1 : real(fd, n);
}
int fsync(int fd) {
  REAL(int, fsync, int);
  return fails(fd, 0, 1, 1, "fsync") ? -1 : real(fd);
}
int fdatasync(int fd) {
  REAL(int, fdatasync, int);
  return fails(fd, 0, 1, 1, "fdatasync") ? -1 : real(fd);
}
#define OPENS(flags) (((flags) & (O_CREAT | O_TRUNC)) != 0)
#define MODE(flags, last) mode_t mode = 0; if ((flags) & O_CREAT) { va_list v; va_start(v, last); mode = va_arg(v, int); va_end(v); }
int open(const char *p, int f, ...) {
  REAL(int, open, const char *, int, ...); MODE(f, f);
  return OPENS(f) && fails(AT_FDCWD, p, 1, 1, "open") ? -1 : real(p, f, mode);
}
int open64(const char *p, int f, ...) {
  REAL(int, open64, const char *, int, ...); MODE(f, f);
  return OPENS(f) && fails(AT_FDCWD, p, 1, 1, "open") ? -1 : real(p, f, mode);
}
int openat(int d, const char *p, int f, ...) {
  REAL(int, openat, int, const char *, int, ...); MODE(f, f);
  return OPENS(f) && fails(d, p, 1, 1, "open") ? -1 : real(d, p, f, mode);
}
int openat64(int d, const char *p, int f, ...) {
  REAL(int, openat64, int, const char *, int, ...); MODE(f, f);
  return OPENS(f) && fails(d, p, 1, 1, "open") ? -1 : real(d, p, f, mode);
}
int mkdir(const char *p, mode_t m) {
  REAL(int, mkdir, const char *, mode_t);
  return fails(AT_FDCWD, p, 1, 0, "mkdir") ? -1 : real(p, m);
}
int mkdirat(int d, const char *p, mode_t m) {
  REAL(int, mkdirat, int, const char *, mode_t);
  return fails(d, p, 1, 0, "mkdir") ? -1 : real(d, p, m);
}
int rename(const char *p, const char *q) {
  REAL(int, rename, const char *, const char *);
  return fails(AT_FDCWD, q, 1, 0, "rename") ? -1 : real(p, q);
}
int renameat(int d, const char *p, int e, const char *q) {
  REAL(int, renameat, int, const char *, int, const char *);
  return fails(e, q, 1, 0, "rename") ? -1 : real(d, p, e, q);
}
int renameat2(int d, const char *p, int e, const char *q, unsigned f) {
  REAL(int, renameat2, int, const char *, int, const char *, unsigned);
  return fails(e, q, 1, 0, "renameat2") ? -1 : real(d, p, e, q, f);
}
int link(const char *p, const char *q) {
  REAL(int, link, const char *, const char *);
  return fails(AT_FDCWD, q, 1, 0, "link") ? -1 : real(p, q);
}
int linkat(int d, const char *p, int e, const char *q, int f) {
  REAL(int, linkat, int, const char *, int, const char *, int);
  return fails(e, q, 1, 0, "link") ? -1 : real(d, p, e, q, f);
}
int unlink(const char *p) {
  REAL(int, unlink, const char *);
  return fails(AT_FDCWD, p, 0, 0, "unlink") ? -1 : real(p);
}
int unlinkat(int d, const char *p, int f) {
  REAL(int, unlinkat, int, const char *, int);
  return fails(d, p, 0, 0, "unlink") ? -1 : real(d, p, f);
}
int rmdir(const char *p) {
  REAL(int, rmdir, const char *);
  return fails(AT_FDCWD, p, 0, 0, "rmdir") ? -1 : real(p);
}
