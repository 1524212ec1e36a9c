/* storage.c - which storage a path belongs to. */
#include "train/storage/storage.h"

#include <assert.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "train/storage/storage_folder.h"
#include "train/storage/storage_s3.h"

enum { ROWS = 8 };

static const storage_ops *rows[ROWS] = {&storage_folder, &storage_s3};
static int n_rows = 2;

/* The length of the scheme before "://"; 0: the path has none. */
static size_t scheme_of(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");

    return *path && strchr(letters, *path) && !strncmp(path + n, "://", 3) ? n : 0;
}

static manta_status no_such_storage(const char *path, size_t n)
{
    buf list = {0};
    manta_status st;

    for (int i = 0; i < n_rows; i++) buf_printf(&list, "%s%s", i ? ", " : "", rows[i]->about);
    st = manta_fail(MANTA_EUNSUPPORTED, "%s: there is no storage '%.*s' yet; expected %s", path, (int)n, path,
                    buf_text(&list));
    buf_release(&list);
    return st;
}

manta_status storage_find(const char *path, const storage_ops **out)
{
    size_t n = scheme_of(path);

    for (int i = 0; i < n_rows; i++) {
        const char *s = rows[i]->scheme;
        if (n ? !s || strlen(s) != n || strncmp(s, path, n) != 0 : s != NULL) continue;
        *out = rows[i];
        return MANTA_OK;
    }
    return no_such_storage(path, n);
}

bool storage_is_local(const char *path)
{
    return !scheme_of(path);
}

void storage_add(const storage_ops *s)
{
    assert(n_rows < ROWS && s->scheme);
    rows[n_rows++] = s;
}

/* ---- the operations, by path ---- */

manta_status storage_make(const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->make(s->ctx, path);
}

manta_status storage_claim(const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->claim(s->ctx, path);
}

manta_status storage_make_own(const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->make_own ? s->make_own(s->ctx, path) : s->make(s->ctx, path);
}

manta_status storage_claim_own(const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->claim_own ? s->claim_own(s->ctx, path) : s->claim(s->ctx, path);
}

manta_status storage_create(const char *path, file_writer **out)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->create(s->ctx, path, out);
}

manta_status storage_put(const char *path, const void *data, size_t n)
{
    file_writer *w = NULL;
    manta_status st;

    TRY(storage_create(path, &w));
    st = file_writer_write(w, data, n);
    if (!st) st = file_writer_commit(w);
    file_writer_free(w);
    return st;
}

manta_status storage_take(const char *from, const char *path, file_sum *sum)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->take(s->ctx, from, path, sum);
}

manta_status storage_read(const char *path, size_t max_size, void **out, size_t *size)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->read(s->ctx, path, max_size, out, size);
}

manta_status storage_read_at(const char *path, uint64_t at, void *to, size_t most, size_t *n)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->read_at(s->ctx, path, at, to, most, n);
}

manta_status storage_sum(const char *path, file_sum *out)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->sum(s->ctx, path, out);
}

manta_status storage_look(const char *path, file_info *out)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->look(s->ctx, path, out);
}

manta_status storage_list(const char *path, file_names *out)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->list(s->ctx, path, out);
}

manta_status storage_remove(const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->remove(s->ctx, path);
}

manta_status storage_remove_tree(const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->remove_tree(s->ctx, path);
}

manta_status storage_remove_empty(const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->remove_empty ? s->remove_empty(s->ctx, path) : MANTA_OK;
}

manta_status storage_sync(const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->sync ? s->sync(s->ctx, path) : MANTA_OK;
}

manta_status storage_publish(const char *temp, const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->publish(s->ctx, temp, path);
}

manta_status storage_withdraw(const char *path)
{
    const storage_ops *s;

    TRY(storage_find(path, &s));
    return s->withdraw(s->ctx, path);
}

/* ---- what stays open ---- */

struct storage_log {
    const storage_ops *s;
    void *log;
};

manta_status storage_log_open(const char *path, storage_log **out)
{
    const storage_ops *s;
    void *log = NULL;

    TRY(storage_find(path, &s));
    TRY(s->open_log(s->ctx, path, &log));
    *out = mem_new(sizeof **out);
    **out = (storage_log){s, log};
    return MANTA_OK;
}

manta_status storage_log_add(storage_log *l, const void *data, size_t n)
{
    return l->s->add(l->log, data, n);
}

manta_status storage_log_sync(storage_log *l)
{
    return l->s->sync_log ? l->s->sync_log(l->log) : MANTA_OK;
}

void storage_log_close(storage_log *l)
{
    if (!l) return;
    l->s->close_log(l->log);
    mem_free(l);
}

struct storage_held {
    const storage_ops *s;
    void *held;
};

manta_status storage_lock(const char *path, storage_held **out)
{
    const storage_ops *s;
    void *held = NULL;

    TRY(storage_find(path, &s));
    TRY(s->lock(s->ctx, path, &held));
    *out = mem_new(sizeof **out);
    **out = (storage_held){s, held};
    return MANTA_OK;
}

int storage_holder(const char *path)
{
    const storage_ops *s;

    return storage_find(path, &s) ? 0 : s->holder(s->ctx, path);
}

void storage_unlock(storage_held *h)
{
    if (!h) return;
    h->s->unlock(h->held);
    mem_free(h);
}
