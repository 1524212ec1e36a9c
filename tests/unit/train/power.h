/* power.h - ends the process at its n-th call of the system, and the machine with it
 * when that is wanted: what was not brought to disk is undone first. Of a file that is
 * what was written since its last fsync; of a name (a file that was made, a folder, a
 * rename) all of it, until its folder was synced, or nothing: the disk is free to
 * have written it. A rename onto a file that was there is not undone. */
#ifndef TEST_TRAIN_POWER_H
#define TEST_TRAIN_POWER_H

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/scratch.h"
#include "os/sys.h"

enum { POWER_JOURNAL = 256 };

typedef enum power_kind { DONE_FILE, DONE_RENAME, DONE_MKDIR } power_kind;

typedef struct power_done {
    power_kind kind;
    int fd; /* while it is open */
    off_t synced; /* of a file: bytes that are on the disk */
    bool named; /* of a file: so is its name */
    char from[256], to[256]; /* of a file: where it was made; where it is now, when that is elsewhere */
} power_done;

static struct {
    int end_at, calls;
    bool lose, names_kept;
    power_done journal[POWER_JOURNAL];
    int n;
    pthread_mutex_t guard; /* around every call: threads take turns */
} power = {.guard = PTHREAD_MUTEX_INITIALIZER};

static inline power_done *power_note(power_kind kind, const char *from)
{
    power_done *d = &power.journal[power.n++];

    if (power.n == POWER_JOURNAL) abort();
    *d = (power_done){.kind = kind, .fd = -1};
    snprintf(d->from, sizeof d->from, "%s", from);
    return d;
}

/* Where a file is now. */
static inline const char *power_place(const power_done *d)
{
    return *d->to ? d->to : d->from;
}

static inline void power_lose_file(const power_done *d)
{
    struct stat info;

    for (int k = 0; k < 2; k++) { /* by either name: a rename may be undone already */
        const char *path = k ? d->to : d->from;
        if (!*path || stat(path, &info)) continue;
        if (info.st_size > d->synced) (void)!truncate(path, d->synced);
        if (!power.names_kept && !d->named) (void)unlink(path);
    }
}

static inline void power_lose(void)
{
    for (int i = power.n; i-- > 0;) {
        const power_done *d = &power.journal[i];
        if (d->kind == DONE_FILE) {
            power_lose_file(d);
        } else if (!power.names_kept && d->kind == DONE_RENAME) {
            (void)rename(d->to, d->from);
        } else if (!power.names_kept && d->kind == DONE_MKDIR) {
            (void)scratch_remove(d->from);
        }
    }
}

/* Before every call; the guard is held after it. */
static inline void power_step(void)
{
    pthread_mutex_lock(&power.guard);
    if (++power.calls != power.end_at) return;
    if (power.lose) power_lose();
    raise(SIGKILL);
}

static inline int power_done_with(int rc)
{
    pthread_mutex_unlock(&power.guard);
    return rc;
}

static inline int power_open(const char *path, int flags, mode_t mode)
{
    struct stat before;
    bool there = !stat(path, &before);
    int fd;

    power_step();
    fd = os_real.open(path, flags, mode);
    if (fd >= 0 && (flags & O_CREAT)) {
        power_done *d = power_note(DONE_FILE, path);
        d->fd = fd;
        d->named = there;
        d->synced = there ? before.st_size : 0;
    }
    return power_done_with(fd);
}

static inline ssize_t power_write(int fd, const void *b, size_t n)
{
    ssize_t put;

    power_step();
    put = os_real.write(fd, b, n);
    power_done_with(0);
    return put;
}

static inline int power_close(int fd)
{
    power_step();
    for (int i = 0; i < power.n; i++) {
        if (power.journal[i].kind == DONE_FILE && power.journal[i].fd == fd) power.journal[i].fd = -1;
    }
    return power_done_with(os_real.close(fd));
}

static inline void power_settle(int i)
{
    memmove(&power.journal[i], &power.journal[i + 1], (size_t)(power.n - i - 1) * sizeof *power.journal);
    power.n--;
}

/* A file that is not synced moves along, also with the folder that it is in. */
static inline void power_move_along(const char *from, const char *to)
{
    size_t n = strlen(from);

    for (int i = 0; i < power.n; i++) {
        power_done *d = &power.journal[i];
        char rest[256];
        const char *at = power_place(d);
        if (d->kind != DONE_FILE || strncmp(at, from, n) != 0 || (at[n] && at[n] != '/')) continue;
        snprintf(rest, sizeof rest, "%s", at + n);
        snprintf(d->to, sizeof d->to, "%.100s%.150s", to, rest);
    }
}

static inline bool power_lies_in(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    return !strncmp(path, folder, n) && path[n] == '/' && !strchr(path + n + 1, '/');
}

static inline int power_fsync(int fd)
{
    char path[256], link[64];
    struct stat info = {0};
    ssize_t n;
    int rc;

    power_step();
    rc = os_real.fsync(fd);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    (void)fstat(fd, &info);
    for (int i = power.n; i-- > 0;) {
        power_done *d = &power.journal[i];
        if (d->kind != DONE_FILE) {
            if (power_lies_in(d->from, path)) power_settle(i);
        } else if (d->fd == fd || !strcmp(power_place(d), path)) { /* by whatever name it was opened */
            d->synced = info.st_size;
        } else if (power_lies_in(power_place(d), path)) {
            d->named = true;
        }
    }
    return power_done_with(rc);
}

static inline int power_rename(const char *from, const char *to)
{
    int rc;

    power_step();
    rc = os_real.rename(from, to);
    if (!rc) {
        power_move_along(from, to);
        snprintf(power_note(DONE_RENAME, from)->to, 256, "%s", to);
    }
    return power_done_with(rc);
}

static inline int power_mkdir(const char *path, mode_t mode)
{
    int rc;

    power_step();
    rc = os_real.mkdir(path, mode);
    if (!rc) power_note(DONE_MKDIR, path);
    return power_done_with(rc);
}

static inline int power_unlink(const char *path)
{
    power_step();
    return power_done_with(os_real.unlink(path));
}

static inline int power_rmdir(const char *path)
{
    power_step();
    return power_done_with(os_real.rmdir(path));
}

/* In a child, which ends at its end_at-th call from here on. */
static inline void power_begin(int end_at, bool lose, bool names_kept)
{
    static os_sys sys;

    sys = os_real;
    sys.open = power_open;
    sys.write = power_write;
    sys.close = power_close;
    sys.fsync = power_fsync;
    sys.rename = power_rename;
    sys.mkdir = power_mkdir;
    sys.unlink = power_unlink;
    sys.rmdir = power_rmdir;
    power.end_at = end_at;
    power.calls = 0;
    power.lose = lose;
    power.names_kept = names_kept;
    os_use(&sys);
}

#endif
