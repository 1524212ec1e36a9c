/* watch.c - see watch.h and manta/watch.h.
 *
 *     manta_watch_add ──▶ entry, in two lists: of its object, of its watch
 *                           │  the object is set, or fails (object_settled)
 *                           ▼
 *                         ready ── the descriptor is readable ──▶ manta_watch_take
 *
 * Everything is under the runtime's lock, but for the descriptor, which the program polls: it
 * is written when `ready` gets its first token and read when the last is taken, under the
 * lock too, so that it is readable exactly while there are tokens and no wake is lost.
 *
 * Messages of peers are read by whoever waits, and a program in its event loop does not. The
 * watch's thread waits in its place while it has entries, as every other waiter does. A
 * program without a watch pays a look at a pointer for each object that becomes ready. */
#include "task/watch.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <manta/watch.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/thread.h"
#include "task/object.h"
#include "task/runtime.h"

/* One reference in one watch. The object is pinned by it. */
typedef struct watch_entry {
    list of_watch;
    struct watch_entry *next; /* of the object */
    object *o;
    manta_watch *watch;
    uint64_t token;
} watch_entry;

struct manta_watch {
    list link; /* in rt->watches */
    list entries;
    VEC(uint64_t) ready; /* from `first` on */
    size_t first;
    int fd;
    bool has_thread, is_closed;
    thread_id thread;
    cond more; /* entries, or the end */
};

static void ready_push(manta_watch *w, uint64_t token)
{
    const uint64_t one = 1;

    vec_push(&w->ready, token);
    if (w->ready.n - w->first == 1) (void)!write(w->fd, &one, sizeof one);
}

static void ready_clear(manta_watch *w)
{
    uint64_t count;

    w->first = 0;
    vec_clear(&w->ready);
    (void)!read(w->fd, &count, sizeof count);
}

void watch_settled(object *o)
{
    for (watch_entry *e = o->watched, *next; e; e = next) {
        next = e->next;
        ready_push(e->watch, e->token);
        list_remove(&e->of_watch);
        mem_free(e);
        o->pins--;
    }
    o->watched = NULL;
}

/* ---- the thread ---- */

static bool has_nothing_to_wait_for(void *ctx)
{
    const manta_watch *w = ctx;

    return w->is_closed || list_is_empty(&w->entries);
}

static void watch_main(void *arg)
{
    manta_watch *w = arg;

    mutex_lock(&rt->lock);
    while (!w->is_closed) {
        if (list_is_empty(&w->entries))
            cond_wait(&w->more, &rt->lock, CLOCK_NEVER);
        else
            rt_wait_in_loop(has_nothing_to_wait_for, w);
    }
    mutex_unlock(&rt->lock);
}

/* Without other processes nothing comes that could be waited for. */
static manta_status thread_begin(manta_watch *w)
{
    if (w->has_thread || rt->is_local) return MANTA_OK;
    TRY(thread_start(&w->thread, "manta-ready", watch_main, w));
    w->has_thread = true;
    return MANTA_OK;
}

/* The lock is held, and given away until the thread has ended. */
static void thread_finish(manta_watch *w)
{
    w->is_closed = true;
    list_remove(&w->link);
    cond_signal(&w->more);
    rt_changed();
    mutex_unlock(&rt->lock);
    if (w->has_thread) thread_join(&w->thread);
    w->has_thread = false;
    mutex_lock(&rt->lock);
}

static void entries_free(manta_watch *w)
{
    while (!list_is_empty(&w->entries)) {
        watch_entry *e = LIST_ITEM(list_pop(&w->entries), watch_entry, of_watch);
        watch_entry **at = &e->o->watched;
        while (*at != e) at = &(*at)->next;
        *at = e->next;
        object_unpin(e->o);
        mem_free(e);
    }
}

void watches_close(void)
{
    mutex_lock(&rt->lock);
    while (!list_is_empty(&rt->watches)) {
        manta_watch *w = LIST_ITEM(rt->watches.next, manta_watch, link);
        thread_finish(w);
        entries_free(w);
        ready_clear(w); /* or a loop would find it readable for ever */
    }
    mutex_unlock(&rt->lock);
}

/* ---- the public functions ---- */

manta_status manta_watch_new(manta_watch **out)
{
    REFUSE_NULL(out);

    if (!rt) return rt_none();
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return manta_fail(MANTA_EIO, "an event descriptor cannot be made for a watch: %s", strerror(errno));
    manta_watch *w = mem_new(sizeof *w);
    w->fd = fd;
    list_init(&w->link);
    list_init(&w->entries);
    cond_init(&w->more);
    mutex_lock(&rt->lock);
    list_push(&rt->watches, &w->link);
    mutex_unlock(&rt->lock);
    *out = w;
    return MANTA_OK;
}

void manta_watch_free(manta_watch *w)
{
    if (!w) return;
    if (rt && !w->is_closed) {
        mutex_lock(&rt->lock);
        thread_finish(w);
        entries_free(w);
        rt_flush_drops();
        mutex_unlock(&rt->lock);
    }
    (void)close(w->fd);
    cond_release(&w->more);
    vec_release(&w->ready);
    mem_free(w);
}

int manta_watch_fd(const manta_watch *w)
{
    REFUSE_NULL_OR(w, -1);
    return w->fd;
}

static manta_status watch_closed(const char *function)
{
    return manta_fail(MANTA_EINVAL, "%s: the runtime that the watch was made in has ended", function);
}

static manta_status watch_object(manta_watch *w, manta_ref ref, uint64_t token)
{
    object *o = object_find(ref.id);

    if (!o) return manta_fail(MANTA_EINVAL, "the reference to be watched is none, or was released");
    if (o->unsealed) return manta_fail(MANTA_EINVAL, "the object to be watched is not sealed yet");
    if (o->state != OBJECT_PENDING) {
        ready_push(w, token);
        return MANTA_OK;
    }
    TRY(thread_begin(w));
    watch_entry *e = mem_new(sizeof *e);
    *e = (watch_entry){.next = o->watched, .o = o, .watch = w, .token = token};
    o->watched = e;
    o->pins++;
    list_push(&w->entries, &e->of_watch);
    object_want(o);
    cond_signal(&w->more);
    return MANTA_OK;
}

manta_status manta_watch_add(manta_watch *w, manta_ref ref, uint64_t token)
{
    REFUSE_NULL(w);

    if (!rt) return rt_none();
    if (w->is_closed) return watch_closed(__func__);
    mutex_lock(&rt->lock);
    manta_status st = watch_object(w, ref, token);
    mutex_unlock(&rt->lock);
    return st;
}

/* Takes what there is; the descriptor is readable afterwards while more is there. */
static size_t take_ready(manta_watch *w, uint64_t *tokens, size_t n)
{
    size_t k = w->ready.n - w->first < n ? w->ready.n - w->first : n;

    if (k > 0) memcpy(tokens, w->ready.at + w->first, k * sizeof *tokens);
    w->first += k;
    if (k > 0 && w->first == w->ready.n) ready_clear(w);
    return k;
}

manta_status manta_watch_take(manta_watch *w, uint64_t *tokens, size_t n, size_t *taken)
{
    REFUSE_NULL(w);
    if (n > 0) REFUSE_NULL(tokens);
    REFUSE_NULL(taken);

    if (!rt) return rt_none();
    if (w->is_closed) return watch_closed(__func__);
    mutex_lock(&rt->lock);
    *taken = take_ready(w, tokens, n);
    mutex_unlock(&rt->lock);
    return MANTA_OK;
}
