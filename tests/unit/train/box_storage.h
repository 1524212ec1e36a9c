/* box_storage.h - a storage that is no file system to its users, and that several
 * processes share: box://a/b lies in the folder BOX/a/b, and nobody gets a
 * descriptor of it. It can be read-only, or gone, from any operation on. */
#ifndef TEST_BOX_STORAGE_H
#define TEST_BOX_STORAGE_H

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "os/file.h"
#include "train/storage/storage.h"
#include "train/storage/storage_folder.h"

static char box_folder[200]; /* BOX */
static _Atomic int64_t box_writes, box_stop_at; /* operations that change something; 0: never */

/* Where a path of the box really lies. One of sixteen buffers of the thread in turn. */
static inline const char *box_real(const char *path)
{
    static _Thread_local char paths[16][600];
    static _Thread_local unsigned next;
    char *to = paths[next++ % 16];

    snprintf(to, sizeof paths[0], "%s/%s", box_folder, path + strlen("box://"));
    return to;
}

static inline manta_status box_write(const char *doing, const char *path)
{
    int64_t n = atomic_fetch_add(&box_writes, 1) + 1, stop = atomic_load(&box_stop_at);

    if (!stop || n < stop) return MANTA_OK;
    return manta_fail(MANTA_EPERM, "%s %s: the box is read-only", doing, path);
}

static inline manta_status box_make(void *ctx, const char *path)
{
    (void)ctx;
    TRY(box_write("making", path));
    return storage_folder.make(NULL, box_real(path));
}

static inline manta_status box_claim(void *ctx, const char *path)
{
    (void)ctx;
    TRY(box_write("claiming", path));
    return storage_folder.claim(NULL, box_real(path));
}

/* Gathered in memory, and put with the commit. */
typedef struct box_coming {
    char *path;
    buf data;
} box_coming;

static inline manta_status box_coming_write(void *self, const void *data, size_t n)
{
    buf_add(&((box_coming *)self)->data, data, n);
    return MANTA_OK;
}

static inline manta_status box_coming_commit(void *self)
{
    box_coming *c = self;

    TRY(box_write("writing", c->path));
    return file_replace(box_real(c->path), buf_text(&c->data), c->data.n);
}

static inline void box_coming_free(void *self)
{
    box_coming *c = self;

    buf_release(&c->data);
    mem_free(c->path);
    mem_free(c);
}

static inline manta_status box_create(void *ctx, const char *path, file_writer **out)
{
    static const file_sink sink = {
        .write = box_coming_write, .commit = box_coming_commit, .free = box_coming_free};
    box_coming *c = mem_new(sizeof *c);

    (void)ctx;
    c->path = mem_strdup(path);
    return file_writer_to(path, &sink, c, out);
}

static inline manta_status box_take(void *ctx, const char *from, const char *path, file_sum *sum)
{
    void *data = NULL;
    size_t n;
    manta_status st = box_write("taking", path);

    (void)ctx;
    if (!st) st = file_read(from, SIZE_MAX / 2, &data, &n);
    if (!st) st = file_replace(box_real(path), data, n);
    if (!st) st = file_remove(from);
    mem_try_free(data);
    return st || !sum ? st : file_sum_of(box_real(path), sum);
}

typedef struct box_log {
    char *path;
    void *log;
} box_log;

static inline manta_status box_open_log(void *ctx, const char *path, void **out)
{
    box_log *l;
    void *log;

    (void)ctx;
    TRY(box_write("opening", path));
    TRY(storage_folder.open_log(NULL, box_real(path), &log));
    *out = l = mem_new(sizeof *l);
    *l = (box_log){mem_strdup(path), log};
    return MANTA_OK;
}

static inline manta_status box_add(void *log, const void *data, size_t n)
{
    box_log *l = log;

    TRY(box_write("writing", l->path));
    return storage_folder.add(l->log, data, n);
}

static inline manta_status box_sync_log(void *log)
{
    return storage_folder.sync_log(((box_log *)log)->log);
}

static inline void box_close_log(void *log)
{
    box_log *l = log;

    storage_folder.close_log(l->log);
    mem_free(l->path);
    mem_free(l);
}

static inline manta_status box_read(void *ctx, const char *path, size_t max_size, void **out, size_t *size)
{
    (void)ctx;
    return file_read(box_real(path), max_size, out, size);
}

static inline manta_status box_read_at(void *ctx, const char *path, uint64_t at, void *to, size_t most,
                                       size_t *n)
{
    (void)ctx;
    return storage_folder.read_at(NULL, box_real(path), at, to, most, n);
}

static inline manta_status box_sum(void *ctx, const char *path, file_sum *out)
{
    (void)ctx;
    return file_sum_of(box_real(path), out);
}

static inline manta_status box_look(void *ctx, const char *path, file_info *out)
{
    (void)ctx;
    return file_stat(box_real(path), out);
}

static inline manta_status box_list(void *ctx, const char *path, file_names *out)
{
    (void)ctx;
    return file_list(box_real(path), out);
}

static inline manta_status box_remove(void *ctx, const char *path)
{
    (void)ctx;
    TRY(box_write("removing", path));
    return file_remove(box_real(path));
}

static inline manta_status box_remove_tree(void *ctx, const char *path)
{
    (void)ctx;
    TRY(box_write("removing", path));
    return file_remove_tree(box_real(path));
}

static inline manta_status box_publish(void *ctx, const char *temp, const char *path)
{
    (void)ctx;
    TRY(box_write("publishing", path));
    return storage_folder.publish(NULL, box_real(temp), box_real(path));
}

static inline manta_status box_withdraw(void *ctx, const char *path)
{
    (void)ctx;
    TRY(box_write("withdrawing", path));
    return storage_folder.withdraw(NULL, box_real(path));
}

static inline manta_status box_lock(void *ctx, const char *path, void **held)
{
    (void)ctx;
    TRY(box_write("locking", path));
    return storage_folder.lock(NULL, box_real(path), held);
}

static inline void box_unlock(void *held)
{
    storage_folder.unlock(held);
}

static inline int box_holder(void *ctx, const char *path)
{
    (void)ctx;
    return storage_folder.holder(NULL, box_real(path));
}

static const storage_ops box_storage = {.scheme = "box",
                                        .about = "box://... of this test",
                                        .make = box_make,
                                        .claim = box_claim,
                                        .create = box_create,
                                        .take = box_take,
                                        .open_log = box_open_log,
                                        .add = box_add,
                                        .sync_log = box_sync_log,
                                        .close_log = box_close_log,
                                        .read = box_read,
                                        .read_at = box_read_at,
                                        .sum = box_sum,
                                        .look = box_look,
                                        .list = box_list,
                                        .remove = box_remove,
                                        .remove_tree = box_remove_tree,
                                        .publish = box_publish,
                                        .withdraw = box_withdraw,
                                        .lock = box_lock,
                                        .unlock = box_unlock,
                                        .holder = box_holder};

#endif
