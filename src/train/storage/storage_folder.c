/* storage_folder.c - the storage that a file system is.
 *
 * A folder is published by a rename, and stands when the folder above has been
 * brought to disk; it is withdrawn by a rename to a name of litter. */
#include "train/storage/storage_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/sys.h"
#include "train/storage/lock.h"

static manta_status folder_make(void *ctx, const char *path)
{
    (void)ctx;
    return file_mkdirs(path);
}

static manta_status folder_claim(void *ctx, const char *path)
{
    (void)ctx;
    return os->mkdir(path, 0777) ? file_fail(errno, "creating", path) : MANTA_OK;
}

static manta_status folder_make_own(void *ctx, const char *path)
{
    (void)ctx;
    return file_mkdirs_own(path);
}

static manta_status folder_claim_own(void *ctx, const char *path)
{
    (void)ctx;
    return os->mkdir(path, 0700) ? file_fail(errno, "creating", path) : MANTA_OK;
}

static manta_status folder_create(void *ctx, const char *path, file_writer **out)
{
    (void)ctx;
    return file_writer_open(path, out);
}

static manta_status folder_take(void *ctx, const char *from, const char *path, file_sum *sum)
{
    manta_status st;

    (void)ctx;
    if (file_rename(from, path)) { /* another file system */
        st = file_copy(from, path);
        if (!st) st = file_remove(from);
    } else {
        st = file_sync(path);
    }
    return st || !sum ? st : file_sum_of(path, sum);
}

/* ---- a file that grows ---- */

typedef struct grown {
    int fd;
    char *path;
    bool named; /* the folder has its name on the disk */
} grown;

static manta_status folder_open_log(void *ctx, const char *path, void **log)
{
    grown *g;
    int fd;

    (void)ctx;
    do fd = os->open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return file_fail(errno, "opening", path);
    g = mem_new(sizeof *g);
    *g = (grown){.fd = fd, .path = mem_strdup(path)};
    *log = g;
    return MANTA_OK;
}

/* Takes back the first bytes of a piece that did not fit, or the next piece would
 * stand in the middle of a line. */
static void cut_off(const grown *g, ssize_t put)
{
    struct stat info;

    if (!os->fstat(g->fd, &info) && info.st_size >= put) (void)!os->ftruncate(g->fd, info.st_size - put);
}

/* One write(2), so that a reader sees it whole. */
static manta_status folder_add(void *log, const void *data, size_t n)
{
    grown *g = log;
    ssize_t put;

    do put = os->write(g->fd, data, n);
    while (put < 0 && errno == EINTR);
    if (put < 0) return file_fail(errno, "writing", g->path);
    if ((size_t)put == n) return MANTA_OK;
    cut_off(g, put);
    return manta_fail(MANTA_ENOSPC, "writing %s: no space is left", g->path);
}

static manta_status folder_sync_log(void *log)
{
    grown *g = log;
    char *folder;
    int rc;

    do rc = os->fsync(g->fd);
    while (rc && errno == EINTR);
    if (rc) return file_fail(errno, "bringing to disk", g->path);
    if (g->named) return MANTA_OK;
    folder = file_above(g->path);
    manta_status st = file_sync_folder(folder);
    mem_free(folder);
    g->named = !st;
    return st;
}

static void folder_close_log(void *log)
{
    grown *g = log;

    os->close(g->fd);
    mem_free(g->path);
    mem_free(g);
}

/* ---- reading ---- */

static manta_status folder_read(void *ctx, const char *path, size_t max_size, void **out, size_t *size)
{
    (void)ctx;
    return file_read(path, max_size, out, size);
}

static manta_status folder_read_at(void *ctx, const char *path, uint64_t at, void *to, size_t most, size_t *n)
{
    manta_status st = MANTA_OK;
    ssize_t got;
    int fd;

    (void)ctx;
    do fd = os->open(path, O_RDONLY | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return file_fail(errno, "opening", path);
    do got = os->pread(fd, to, most, (off_t)at);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        st = file_fail(errno, "reading", path);
    } else {
        *n = (size_t)got;
    }
    os->close(fd);
    return st;
}

static manta_status folder_sum(void *ctx, const char *path, file_sum *out)
{
    (void)ctx;
    return file_sum_of(path, out);
}

static manta_status folder_look(void *ctx, const char *path, file_info *out)
{
    (void)ctx;
    return file_stat(path, out);
}

static manta_status folder_list(void *ctx, const char *path, file_names *out)
{
    (void)ctx;
    return file_list(path, out);
}

/* ---- coming and going ---- */

static manta_status folder_remove(void *ctx, const char *path)
{
    (void)ctx;
    return file_remove(path);
}

static manta_status folder_remove_tree(void *ctx, const char *path)
{
    (void)ctx;
    return file_remove_tree(path);
}

static manta_status folder_remove_empty(void *ctx, const char *path)
{
    (void)ctx;
    return os->rmdir(path) ? file_fail(errno, "removing", path) : MANTA_OK;
}

static manta_status folder_sync(void *ctx, const char *path)
{
    (void)ctx;
    return file_sync_folder(path);
}

static manta_status folder_publish(void *ctx, const char *temp, const char *path)
{
    char *folder = file_above(path);
    manta_status st = file_rename(temp, path);

    (void)ctx;
    if (!st && (st = file_sync_folder(folder))) {
        char why[300];
        snprintf(why, sizeof why, "%s", manta_error_text());
        st = manta_fail(MANTA_EUNKNOWN, "%s is in place, but may not survive a loss of power: %s", path, why);
    }
    mem_free(folder);
    return st;
}

static manta_status folder_withdraw(void *ctx, const char *path)
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) : 1;
    char *away = mem_printf("%.*s/.%s.gone.manta-tmp", folder, slash ? path : ".", slash ? slash + 1 : path);
    manta_status st = file_remove_tree(away);

    (void)ctx;
    if (st == MANTA_ENOENT) st = MANTA_OK;
    if (!st) st = file_rename(path, away);
    if (st == MANTA_ENOENT) {
        st = MANTA_OK; /* it is gone already */
    } else if (!st) {
        st = file_remove_tree(away);
    }
    mem_free(away);
    return st;
}

/* ---- one at a time ---- */

static manta_status folder_lock(void *ctx, const char *path, void **held)
{
    lock *l = NULL;

    (void)ctx;
    TRY(lock_take(path, &l));
    *held = l;
    return MANTA_OK;
}

static void folder_unlock(void *held)
{
    lock_release(held);
}

static int folder_holder(void *ctx, const char *path)
{
    (void)ctx;
    return lock_holder(path);
}

const storage_ops storage_folder = {.about = "the path of a folder",
                                    .make = folder_make,
                                    .claim = folder_claim,
                                    .make_own = folder_make_own,
                                    .claim_own = folder_claim_own,
                                    .create = folder_create,
                                    .take = folder_take,
                                    .open_log = folder_open_log,
                                    .add = folder_add,
                                    .sync_log = folder_sync_log,
                                    .close_log = folder_close_log,
                                    .read = folder_read,
                                    .read_at = folder_read_at,
                                    .sum = folder_sum,
                                    .look = folder_look,
                                    .list = folder_list,
                                    .remove = folder_remove,
                                    .remove_tree = folder_remove_tree,
                                    .remove_empty = folder_remove_empty,
                                    .sync = folder_sync,
                                    .publish = folder_publish,
                                    .withdraw = folder_withdraw,
                                    .lock = folder_lock,
                                    .unlock = folder_unlock,
                                    .holder = folder_holder};
