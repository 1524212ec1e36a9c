/* s3_log.c - see s3_log.h.
 *
 * `asked` counts who wants a put, `answered` how far they have been served: sync() waits
 * for a put that began after it asked. */
#include "train/storage/s3_log.h"

#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/thread.h"
#include "train/storage/s3_lease.h"
#include "train/storage/storage_s3.h"

enum { LOG_MOST = 256 << 20 };

struct s3_log {
    char *path;
    s3_place place;
    pid_t owner;
    thread_id thread;

    mutex lock; /* guards the rest */
    cond changed;
    buf data;
    size_t stored; /* bytes of it that the storage has */
    uint64_t asked, answered;
    manta_error failure; /* of the last put; code 0: it went well */
    bool failing, leave;
};

/* Puts all there is; under the lock, which it gives away meanwhile. */
static void store_log(s3_log *l)
{
    uint64_t asked = l->asked;
    size_t n = l->data.n;
    char *copy = mem_try_raw(n + 1);
    manta_status st = MANTA_OK;

    if (copy) memcpy(copy, buf_text(&l->data), n);
    mutex_unlock(&l->lock);
    if (!copy) st = manta_fail(MANTA_ENOMEM, "writing %s: there is no memory for %zu bytes", l->path, n);
    if (!st) st = s3_lease_check(l->path);
    if (!st) st = s3_put(&l->place, copy, n, (s3_if){0}, NULL);
    if (st && !l->failing)
        log_warn("lines of a run are not stored yet", LOG_STR("path", l->path),
                 LOG_STR("why", manta_error_text()));
    mem_try_free(copy);
    mutex_lock(&l->lock);
    l->failing = st != MANTA_OK;
    l->failure.code = MANTA_OK;
    if (st) manta_error_get(&l->failure);
    if (!st) l->stored = n;
    l->answered = asked;
    cond_broadcast(&l->changed);
}

static void store_all_along(void *arg)
{
    s3_log *l = arg;

    mutex_lock(&l->lock);
    for (;;) {
        if (l->asked > l->answered) {
            store_log(l);
        } else if (l->leave) {
            break;
        } else {
            (void)cond_wait(&l->changed, &l->lock, CLOCK_NEVER);
        }
    }
    mutex_unlock(&l->lock);
}

static manta_status take_piece(void *ctx, const s3_object *about, const void *data, size_t n)
{
    s3_log *l = ctx;

    if (about->size > LOG_MOST)
        return manta_fail(MANTA_EINVAL, "%s has %llu bytes, expected at most %d", l->path,
                          (unsigned long long)about->size, LOG_MOST);
    TRY(buf_try_reserve(&l->data, n, l->path));
    buf_add(&l->data, data, n);
    return MANTA_OK;
}

static void log_release(s3_log *l)
{
    mutex_release(&l->lock);
    cond_release(&l->changed);
    buf_release(&l->data);
    s3_place_release(&l->place);
    mem_free(l->path);
    mem_free(l);
}

manta_status s3_log_open(const char *path, s3_log **out)
{
    s3_log *l = mem_new(sizeof *l);
    manta_status st;

    mutex_init(&l->lock);
    cond_init(&l->changed);
    l->path = mem_strdup(path);
    l->owner = getpid();
    st = storage_s3_place(path, &l->place);
    if (!st) st = s3_stream(&l->place, take_piece, l);
    if (st == MANTA_ENOENT) {
        if (!(st = s3_lease_check(path))) st = s3_put(&l->place, "", 0, (s3_if){0}, NULL);
    }
    l->stored = l->data.n;
    if (!st) st = thread_start(&l->thread, "log to s3", store_all_along, l);
    if (st) {
        log_release(l);
        return st;
    }
    *out = l;
    return MANTA_OK;
}

manta_status s3_log_add(s3_log *l, const void *data, size_t n)
{
    manta_status st = MANTA_OK;

    mutex_lock(&l->lock);
    if (l->data.n + n > LOG_MOST) {
        st = manta_fail(MANTA_ENOSPC, "writing %s: it has reached %d bytes", l->path, LOG_MOST);
    } else {
        buf_add(&l->data, data, n);
        l->asked++;
        cond_broadcast(&l->changed);
    }
    mutex_unlock(&l->lock);
    return st;
}

manta_status s3_log_sync(s3_log *l)
{
    manta_error why = {0};
    uint64_t mine;

    mutex_lock(&l->lock);
    if (l->stored < l->data.n && l->answered == l->asked) l->asked++; /* the last put failed: once more */
    mine = l->asked;
    cond_broadcast(&l->changed);
    while (l->answered < mine) (void)cond_wait(&l->changed, &l->lock, CLOCK_NEVER);
    if (l->stored < l->data.n) why = l->failure;
    mutex_unlock(&l->lock);
    return why.code ? manta_error_raise(&why) : MANTA_OK;
}

void s3_log_close(s3_log *l)
{
    manta_error why;

    if (!l || l->owner != getpid()) return; /* the parent's */
    manta_error_get(&why);
    if (s3_log_sync(l))
        log_warn("lines of a run are lost", LOG_STR("path", l->path), LOG_STR("why", manta_error_text()));
    if (why.code) (void)!manta_error_raise(&why);
    mutex_lock(&l->lock);
    l->leave = true;
    cond_broadcast(&l->changed);
    mutex_unlock(&l->lock);
    thread_join(&l->thread);
    log_release(l);
}
