/* train/storage/storage.h - where runs and their checkpoints lie.
 *
 * A storage is one const struct of operations. The path chooses it: with a
 * scheme before it (memory://a/b) the storage of that name, without one the
 * file system. Nobody else has to know: a path is handed on as text, and what
 * is made of it by "/" and a name lies in the same storage.
 *
 * What a storage promises, and checkpoint.h relies on:
 *   1. A file is there whole and durable, or as it was before.
 *   2. publish() lets a folder appear whole, in one step for who reads it.
 *   3. withdraw() lets a folder disappear in one step; what a crash leaves of
 *      it or of an unpublished one has a name that is swept (litter).
 *   4. Operations take effect in the order in which they were called.
 *
 * Threads: all operations may be called by any; storage_add() before there are
 * others. */
#ifndef TRAIN_STORAGE_STORAGE_H
#define TRAIN_STORAGE_STORAGE_H

#include "os/file.h"

/* Failures have one sentence with the path, and the codes of os/file.h:
 * MANTA_ENOENT, MANTA_EEXIST, MANTA_ENOSPC, MANTA_EPERM, MANTA_EIO. Paths come
 * with the scheme. */
typedef struct storage_ops {
    const char *scheme; /* "memory"; NULL: the file system's own paths */
    const char *about; /* for the sentence that says what there is */
    void *ctx;

    /* A folder and those above it; fine when it is there. */
    manta_status (*make)(void *ctx, const char *path);
    /* One folder that was not there before, in one that is. MANTA_EEXIST. */
    manta_status (*claim)(void *ctx, const char *path);
    /* Optional: the same, and the folder at `path` is for this user alone when it is made by this call. */
    manta_status (*make_own)(void *ctx, const char *path);
    manta_status (*claim_own)(void *ctx, const char *path);
    /* A file that replaces the one of that name when it is committed, durable from then on. */
    manta_status (*create)(void *ctx, const char *path, file_writer **out);
    /* Moves a file of the file system here, and sums it up; sum may be NULL. */
    manta_status (*take)(void *ctx, const char *from, const char *path, file_sum *sum);
    /* A file that grows, made where it is missing: whole pieces, each seen whole or cut off by a crash. */
    manta_status (*open_log)(void *ctx, const char *path, void **log);
    manta_status (*add)(void *log, const void *data, size_t n);
    manta_status (*sync_log)(void *log); /* optional: what was added is durable; while others add, too */
    void (*close_log)(void *log);

    /* As file_read(), file_sum_of(), file_stat(), file_list(). */
    manta_status (*read)(void *ctx, const char *path, size_t max_size, void **out, size_t *size);
    /* Up to `most` bytes from `at` on; *n is 0 at the end. */
    manta_status (*read_at)(void *ctx, const char *path, uint64_t at, void *to, size_t most, size_t *n);
    manta_status (*sum)(void *ctx, const char *path, file_sum *out);
    manta_status (*look)(void *ctx, const char *path, file_info *out);
    manta_status (*list)(void *ctx, const char *path, file_names *out);

    manta_status (*remove)(void *ctx, const char *path); /* a file */
    manta_status (*remove_tree)(void *ctx, const char *path);
    manta_status (*remove_empty)(void *ctx, const char *path); /* optional: folders go with what is in them */
    manta_status (*sync)(void *ctx, const char *path); /* optional: the names in a folder, durable */

    /* The folder `temp` becomes `path`, beside it. MANTA_EUNKNOWN it may be in place: it is perhaps not durable,
     * or no answer came. */
    manta_status (*publish)(void *ctx, const char *temp, const char *path);
    /* A published folder goes; fine when it is gone already. */
    manta_status (*withdraw)(void *ctx, const char *path);

    /* One holder at a time, until unlock() or its process ends. MANTA_EBUSY with who has it. */
    manta_status (*lock)(void *ctx, const char *path, void **held);
    void (*unlock)(void *held);
    /* The process that holds it; 0: nobody; -1: somebody, on another host or not known. */
    int (*holder)(void *ctx, const char *path);
} storage_ops;

/* The storage of a path. MANTA_EUNSUPPORTED there is none of that scheme. */
manta_status storage_find(const char *path, const storage_ops **out) MANTA_MUST_USE;

/* Whether the path is one of the file system's. */
bool storage_is_local(const char *path);

/* Adds a storage, which stays the caller's and has to outlive all use. */
void storage_add(const storage_ops *s);

/* ---- the operations, by path ---- */

manta_status storage_make(const char *path) MANTA_MUST_USE;
manta_status storage_claim(const char *path) MANTA_MUST_USE;
/* make() and claim() where the storage knows of no users. */
manta_status storage_make_own(const char *path) MANTA_MUST_USE;
manta_status storage_claim_own(const char *path) MANTA_MUST_USE;
manta_status storage_create(const char *path, file_writer **out) MANTA_MUST_USE;
/* Creates, writes and commits. */
manta_status storage_put(const char *path, const void *data, size_t n) MANTA_MUST_USE;
manta_status storage_take(const char *from, const char *path, file_sum *sum) MANTA_MUST_USE;
manta_status storage_read(const char *path, size_t max_size, void **out, size_t *size) MANTA_MUST_USE;
manta_status storage_read_at(const char *path, uint64_t at, void *to, size_t most, size_t *n) MANTA_MUST_USE;
manta_status storage_sum(const char *path, file_sum *out) MANTA_MUST_USE;
manta_status storage_look(const char *path, file_info *out) MANTA_MUST_USE;
manta_status storage_list(const char *path, file_names *out) MANTA_MUST_USE;
manta_status storage_remove(const char *path) MANTA_MUST_USE;
manta_status storage_remove_tree(const char *path) MANTA_MUST_USE;
manta_status storage_remove_empty(const char *path) MANTA_MUST_USE;
manta_status storage_sync(const char *path) MANTA_MUST_USE;
manta_status storage_publish(const char *temp, const char *path) MANTA_MUST_USE;
manta_status storage_withdraw(const char *path) MANTA_MUST_USE;

typedef struct storage_log storage_log; /* opaque, see storage.c */

/* *out: owned, storage_log_close(). */
manta_status storage_log_open(const char *path, storage_log **out) MANTA_MUST_USE;
manta_status storage_log_add(storage_log *l, const void *data, size_t n) MANTA_MUST_USE;
manta_status storage_log_sync(storage_log *l) MANTA_MUST_USE;
void storage_log_close(storage_log *l); /* accepts NULL */

typedef struct storage_held storage_held; /* opaque, see storage.c */

/* *out: owned, storage_unlock(). */
manta_status storage_lock(const char *path, storage_held **out) MANTA_MUST_USE;
void storage_unlock(storage_held *h); /* accepts NULL */
/* 0 as well when the path is of no storage. */
int storage_holder(const char *path);

#endif
