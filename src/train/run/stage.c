/* stage.c - see stage.h.
 *
 * What was handed over is remembered by name, size and time of change; what is
 * the same is not handed over again, so that the finished parts of a log travel
 * once. Names of events that the storage has are there as empty files from the
 * beginning, so that a new one sorts behind them.
 *
 * Threads: `lock` guards all but the paths. */
#include "train/run/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/sys.h"
#include "os/thread.h"
#include "train/run/run_folder.h"
#include "train/run/run_parts.h"
#include "train/storage/lock.h"
#include "train/storage/storage.h"

enum { TRIES = 1000, PIECE = 1 << 20 };

#define LOCK   "lock"
#define LOGS   "log"
#define EVENTS "events.out."

/* A file as it was when it was handed over. */
typedef struct handed {
    char *name;
    uint64_t size;
    int64_t changed_ns;
} handed;

struct stage {
    char *run, *folder;
    lock *own;
    mutex lock;
    VEC(handed) done;
    char *piece;
};

char *stage_cache(const char *name)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (xdg && *xdg == '/') return mem_printf("%s/manta/%s", xdg, name);
    if (home && *home) return mem_printf("%s/.cache/manta/%s", home, name);
    (void)!manta_fail(MANTA_ENOENT, "there is no cache folder, neither XDG_CACHE_HOME nor HOME is set");
    return NULL;
}

/* ---- coming and going ---- */

/* Removes the stages of processes that are gone. Whoever holds the lock of one
 * may remove it, so none is taken from under a process. */
static void sweep_stages(const char *all)
{
    file_names names = {0};

    if (file_list(all, &names)) return;
    for (size_t i = 0; i < names.n; i++) {
        char *folder = run_inner(all, names.at[i]), *path = run_inner(folder, LOCK);
        lock *l = NULL;
        if (!lock_take(path, &l)) {
            run_parts_sweep(folder);
            if (file_remove_tree(folder)) log_debug("an old stage stays", LOG_STR("path", folder));
        }
        lock_release(l);
        mem_free(path);
        mem_free(folder);
    }
    file_names_release(&names);
}

/* Makes ALL/PID.N with the first N that is free, and takes its lock. */
static manta_status claim_stage(stage *s, const char *all)
{
    for (int n = 0; n < TRIES; n++) {
        char *path;
        file_info info;
        manta_status st;
        mem_free(s->folder);
        s->folder = mem_printf("%s/%ld.%d", all, (long)getpid(), n);
        if (os->mkdir(s->folder, 0700)) {
            if (errno == EEXIST) continue;
            return file_fail(errno, "creating", s->folder);
        }
        path = run_inner(s->folder, LOCK);
        st = lock_take(path, &s->own);
        if (!st && !file_stat(path, &info)) {
            mem_free(path);
            return MANTA_OK;
        }
        mem_free(path); /* somebody swept it away in that moment */
        lock_release(s->own);
        s->own = NULL;
    }
    return manta_fail(MANTA_EEXIST, "%s has no free name for a stage", all);
}

/* ---- from the storage ---- */

static handed *find_done(stage *s, const char *name)
{
    for (size_t i = 0; i < s->done.n; i++)
        if (!strcmp(s->done.at[i].name, name)) return &s->done.at[i];
    vec_push(&s->done, ((handed){.name = mem_strdup(name), .size = UINT64_MAX}));
    return &s->done.at[s->done.n - 1];
}

static void note_done(stage *s, const char *name, const file_info *info)
{
    handed *h = find_done(s, name);

    h->size = info->size;
    h->changed_ns = info->changed_ns;
}

/* Copies a file of the storage to here; `empty`: only its name. */
static manta_status bring_file(stage *s, const char *name, bool empty)
{
    char *from = run_inner(s->run, name), *to = run_inner(s->folder, name);
    file_writer *w = NULL;
    file_info info;
    size_t n = 0;
    manta_status st = file_writer_open(to, &w);

    for (uint64_t at = 0; !st && !empty; at += n) {
        if ((st = storage_read_at(from, at, s->piece, PIECE, &n)) || !n) break;
        st = file_writer_write(w, s->piece, n);
    }
    if (!st) st = file_writer_commit(w);
    if (!st && !(st = file_stat(to, &info))) note_done(s, name, &info);
    file_writer_free(w);
    mem_free(from);
    mem_free(to);
    return st;
}

static manta_status bring_all(stage *s, const char *folder, const char *prefix, bool empty)
{
    char *from = *folder ? run_inner(s->run, folder) : mem_strdup(s->run);
    file_names names = {0};
    manta_status st = storage_list(from, &names);

    if (st == MANTA_ENOENT) st = MANTA_OK;
    for (size_t i = 0; i < names.n && !st; i++) {
        char *name = *folder ? run_inner(folder, names.at[i]) : mem_strdup(names.at[i]);
        if (!strncmp(names.at[i], prefix, strlen(prefix))) st = bring_file(s, name, empty);
        mem_free(name);
    }
    file_names_release(&names);
    mem_free(from);
    return st;
}

manta_status stage_open(const char *run, stage **out)
{
    stage *s = mem_new(sizeof *s);
    char *all = stage_cache("stage"), *logs = NULL;
    manta_status st = all ? file_mkdirs(all) : MANTA_ENOENT;

    mutex_init(&s->lock);
    s->run = mem_strdup(run);
    s->piece = mem_new(PIECE);
    if (st) goto out;
    sweep_stages(all);
    if ((st = claim_stage(s, all))) goto out;
    logs = run_inner(s->folder, LOGS);
    if ((st = file_mkdirs(logs))) goto out;
    if ((st = bring_all(s, LOGS, "", false))) goto out;
    if ((st = bring_all(s, "", EVENTS, true))) goto out;
    *out = s;
    s = NULL;
out:
    mem_free(logs);
    mem_free(all);
    stage_close(s);
    return st;
}

void stage_close(stage *s)
{
    if (!s) return;
    if (s->own && file_remove_tree(s->folder)) log_warn("a stage stays", LOG_STR("path", s->folder));
    lock_release(s->own);
    for (size_t i = 0; i < s->done.n; i++) mem_free(s->done.at[i].name);
    vec_release(&s->done);
    mutex_release(&s->lock);
    mem_free(s->piece);
    mem_free(s->folder);
    mem_free(s->run);
    mem_free(s);
}

const char *stage_folder(const stage *s)
{
    return s->folder;
}

/* ---- to the storage ---- */

/* Copies the first `size` bytes of a file; it may grow meanwhile. */
static manta_status send_file(stage *s, int fd, const char *from, const char *to, uint64_t size)
{
    file_writer *w = NULL;
    manta_status st = storage_create(to, &w);

    for (uint64_t at = 0; at < size && !st;) {
        size_t most = size - at < PIECE ? (size_t)(size - at) : PIECE;
        ssize_t n = os->pread(fd, s->piece, most, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) st = file_fail(errno, "reading", from);
        if (n <= 0) break;
        st = file_writer_write(w, s->piece, (size_t)n);
        at += (uint64_t)n;
    }
    if (!st) st = file_writer_commit(w);
    file_writer_free(w);
    return st;
}

/* A file that has gone meanwhile, as the oldest part of a log does, is none. */
static manta_status hand_over(stage *s, const char *name)
{
    char *from = run_inner(s->folder, name), *to = run_inner(s->run, name);
    const handed *h = find_done(s, name);
    struct stat now;
    manta_status st = MANTA_OK;
    int fd;

    do fd = os->open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        st = errno == ENOENT ? MANTA_OK : file_fail(errno, "opening", from);
    } else if (os->fstat(fd, &now)) {
        st = file_fail(errno, "looking at", from);
    } else {
        file_info info = {.size = (uint64_t)now.st_size,
                          .changed_ns = (int64_t)now.st_mtim.tv_sec * 1000000000 + now.st_mtim.tv_nsec};
        if (S_ISREG(now.st_mode) && (info.size != h->size || info.changed_ns != h->changed_ns) &&
            !(st = send_file(s, fd, from, to, info.size)))
            note_done(s, name, &info);
    }
    if (fd >= 0) os->close(fd);
    mem_free(from);
    mem_free(to);
    return st;
}

static bool is_among(const file_names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (!strcmp(names->at[i], name)) return true;
    return false;
}

/* rank-0.000001.txt: a log that has been put away, and not the one that is written,
 * which is missing for a moment when that happens. */
static bool is_part(const char *name)
{
    const char *dot = strchr(name, '.');

    return dot && dot[1] >= '0' && dot[1] <= '9';
}

/* Parts of logs that have gone here go there too. `here`: what there was before the
 * others were handed over. */
static manta_status drop_gone(const stage *s, const file_names *here)
{
    char *folder = run_inner(s->run, LOGS);
    file_names there = {0};
    manta_status st = storage_list(folder, &there);

    for (size_t i = 0; i < there.n && !st; i++) {
        char *path = run_inner(folder, there.at[i]);
        if (is_part(there.at[i]) && !is_among(here, there.at[i])) st = storage_remove(path);
        if (st == MANTA_ENOENT) st = MANTA_OK;
        mem_free(path);
    }
    file_names_release(&there);
    mem_free(folder);
    return st;
}

static manta_status hand_over_logs(stage *s)
{
    char *folder = run_inner(s->folder, LOGS), *to = run_inner(s->run, LOGS);
    file_names here = {0};
    manta_status st = file_list(folder, &here);

    if (!st) st = storage_make(to);
    for (size_t i = 0; i < here.n && !st; i++) {
        char *name = run_inner(LOGS, here.at[i]);
        if (*here.at[i] != '.') st = hand_over(s, name); /* else it is not finished */
        mem_free(name);
    }
    if (!st) st = drop_gone(s, &here);
    file_names_release(&here);
    mem_free(folder);
    mem_free(to);
    return st;
}

manta_status stage_hand_over(stage *s)
{
    file_names names = {0};
    manta_status st;

    mutex_lock(&s->lock);
    st = file_list(s->folder, &names);
    for (size_t i = 0; i < names.n && !st; i++)
        if (!strncmp(names.at[i], EVENTS, strlen(EVENTS))) st = hand_over(s, names.at[i]);
    file_names_release(&names);
    if (!st) st = hand_over_logs(s);
    mutex_unlock(&s->lock);
    return st;
}
