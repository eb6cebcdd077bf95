/* Fails (or kills the process at) the k-th call that changes a file below a folder.
 *
 * Loaded before the C library, so that native writers are met as well as Python's. Counted: opening
 * for writing, writing, syncing, truncating, renaming, removing, making a folder or a link.
 */
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
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static volatile long at = 0, calls = 0;
static volatile int fault = 0, armed = 0, from_then_on = 0;

void faults_arm(const char *folder, long k, int number, int onwards) {
  snprintf(root, sizeof root, "%s", folder);
  at = k;
  fault = number;
  from_then_on = onwards;
  calls = 0;
  armed = 1;
}

void faults_disarm(void) { armed = 0; }
long faults_calls(void) { return calls; }

/* 0: go on; otherwise errno is set and the call must fail. A fault of -1 kills. */
static int struck(void) {
  long number = __sync_add_and_fetch(&calls, 1);
  if (at <= 0 || number < at || (number > at && !from_then_on)) return 0;
  if (fault < 0) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  errno = fault;
  return 1;
}

static int inside(const char *path, int folder) {
  char whole[2 * PATH_MAX];
  if (!armed || path == NULL) return 0;
  if (path[0] != '/') {
    char base[PATH_MAX];
    if (folder == AT_FDCWD) {
      if (getcwd(base, sizeof base) == NULL) return 0;
    } else {
      char link[64];
      snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
      ssize_t n = readlink(link, base, sizeof base - 1);
      if (n < 0) return 0;
      base[n] = 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    path = whole;
  }
  return strncmp(path, root, strlen(root)) == 0;
}

static int fd_inside(int fd) {
  char link[64], path[PATH_MAX];
  if (!armed) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return strncmp(path, root, strlen(root)) == 0;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRITING (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define OPENER(name, head, args, folder)                        \
  int name head {                                               \
    mode_t mode = 0;                                            \
    if (flags & (O_CREAT | __O_TMPFILE)) {                      \
      va_list more;                                             \
      va_start(more, flags);                                    \
      mode = va_arg(more, mode_t);                              \
      va_end(more);                                             \
    }                                                           \
    static int(*next) head = NULL;                              \
    if (!next) next = (int(*) head)dlsym(RTLD_NEXT, #name);     \
    if ((flags & WRITING) && inside(path, folder) && struck())  \
      return -1;                                                \
    return next args;                                           \
  }

OPENER(open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPENER(open64, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPENER(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), dir)
OPENER(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), dir)

#define CALL(type, name, head, args, condition)              \
  type name head {                                           \
    static type(*next) head = NULL;                          \
    if (!next) next = (type(*) head)dlsym(RTLD_NEXT, #name); \
    if ((condition) && struck()) return -1;                  \
    return next args;                                        \
  }

CALL(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n), fd_inside(fd))
CALL(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), fd_inside(fd))
CALL(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), fd_inside(fd))
CALL(ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t o), (fd, b, n, o), fd_inside(fd))
CALL(int, fsync, (int fd), (fd), fd_inside(fd))
CALL(int, fdatasync, (int fd), (fd), fd_inside(fd))
CALL(int, ftruncate, (int fd, off_t n), (fd, n), fd_inside(fd))
CALL(int, ftruncate64, (int fd, off64_t n), (fd, n), fd_inside(fd))
CALL(int, rename, (const char *a, const char *b), (a, b), inside(b, AT_FDCWD))
CALL(int, renameat, (int p, const char *a, int q, const char *b), (p, a, q, b), inside(b, q))
CALL(int, unlink, (const char *a), (a), inside(a, AT_FDCWD))
CALL(int, unlinkat, (int p, const char *a, int f), (p, a, f), inside(a, p))
CALL(int, rmdir, (const char *a), (a), inside(a, AT_FDCWD))
CALL(int, link, (const char *a, const char *b), (a, b), inside(b, AT_FDCWD))
CALL(int, linkat, (int p, const char *a, int q, const char *b, int f), (p, a, q, b, f), inside(b, q))
CALL(int, mkdir, (const char *a, mode_t m), (a, m), inside(a, AT_FDCWD))
CALL(int, mkdirat, (int p, const char *a, mode_t m), (p, a, m), inside(a, p))
CALL(int, symlink, (const char *a, const char *b), (a, b), inside(b, AT_FDCWD))
CALL(int, chmod, (const char *a, mode_t m), (a, m), inside(a, AT_FDCWD))
