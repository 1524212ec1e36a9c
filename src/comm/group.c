/* group.c - the calls of a group, their order, and the one place that waits.
 *
 * Calls that are not done are in a list, in the order they were started. The
 * first of each *lane* (the collectives; the sends to a rank; the receives from
 * a rank) is moved on by whoever is in a call of the group, and by the progress
 * thread while nobody waits.
 *
 * Locks: `lock` guards the list, the works in it, and the transport's poll. */
#include "comm/group.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/option.h"
#include "comm/reduce.h"
#include "comm/sizes.h"
#include "os/cpu.h"
#include "os/spin.h"
#include "os/thread.h"

/* How long to look before sleeping. Waking a sleeper costs tens of
 * microseconds on a virtual machine, a look at a word in another core's cache
 * a tenth of one; giving way costs next to nothing on a free core. */
static const spin_policy roomy = {
    .clock_every = 64, .alone_turns = SPIN_ANY_TURNS, .alone_ns = 20000, .limit_ns = 200000};
static const spin_policy crowded = {/* more ranks than cores */
                                    .clock_every = 1,
                                    .alone_turns = SPIN_ANY_TURNS,
                                    .alone_ns = SPIN_CROWDED,
                                    .limit_ns = 200000};

enum { DEFAULT_TIMEOUT_MS = 60000 };

int64_t group_late_ms = 1000;

struct manta_group {
    const transport *tr;
    void *t;
    int rank, size;
    manta_group_options o;
    const spin_policy *spin;
    mutex lock;
    manta_work *head, **tail;
    bool broken;
    manta_error why; /* when broken */
    manta_error lost; /* why a message was lost whose other end is gone, while collectives still may end */
    int64_t lost_end; /* until when collectives still may end then; 0: no message is lost */
    void *pack; /* o.bytes_per_pack bytes, made on first use */
    /* the progress thread */
    bool has_thread, stop;
    int waiters; /* calls that move things on themselves */
    cond work;
    thread_id thread;
};

/* ---- sentences that transports share ---- */

void transport_name(char *text, size_t size, int rank)
{
    size_t used = strlen(text);

    if (used + 1 < size) snprintf(text + used, size - used, "%srank %d", used ? ", " : "", rank);
}

manta_status transport_gone(int rank, bool left, const char *doing)
{
    return manta_fail(MANTA_EDIED, "rank %d %s, and is needed for %s", rank,
                      left ? "has left the group" : "is dead", doing);
}

/* ---- making one ---- */

manta_status group_options(const manta_group_options *o, manta_group_options *out)
{
    manta_group_options r = {0};

    if (o) r = *o;
    if ((unsigned)r.implementation > MANTA_COMM_SHM)
        return manta_fail(MANTA_EINVAL, "group: %d is no implementation, expected 0 to %d",
                          (int)r.implementation, MANTA_COMM_SHM);
    TRY(option_or_none("timeout_ms of a group", r.timeout_ms));
    TRY(option_or_none("join_timeout_ms of a group", r.join_timeout_ms));
    TRY(option_or_none("bytes_per_pack of a group", r.bytes_per_pack));
    if (!r.timeout_ms) r.timeout_ms = DEFAULT_TIMEOUT_MS;
    if (!r.join_timeout_ms) r.join_timeout_ms = DEFAULT_TIMEOUT_MS;
    if (!r.bytes_per_pack) r.bytes_per_pack = GROUP_PACK;
    *out = r;
    return MANTA_OK;
}

manta_status group_check_size(int rank, int size)
{
    if (size < 1 || size > MANTA_GROUP_MAX)
        return manta_fail(MANTA_EINVAL, "group: %d ranks asked for, expected 1 to %d", size, MANTA_GROUP_MAX);
    if (rank < 0 || rank >= size)
        return manta_fail(MANTA_EINVAL, "there is no rank %d in a group of %d", rank, size);
    return MANTA_OK;
}

static void progress_works(void *ctx);

manta_status group_new(const transport *tr, void *t, int rank, int size, const manta_group_options *o,
                       manta_group **out)
{
    manta_group *g = mem_new(sizeof *g);

    *g = (manta_group){.tr = tr,
                       .t = t,
                       .rank = rank,
                       .size = size,
                       .o = *o,
                       .spin = size > cpu_cores() ? &crowded : &roomy};
    g->tail = &g->head;
    mutex_init(&g->lock);
    cond_init(&g->work);
    if (o->progress_thread && size > 1) {
        manta_status st = thread_start(&g->thread, "manta-comm", progress_works, g);
        if (st) {
            manta_group_close(g);
            return st;
        }
        g->has_thread = true;
    }
    *out = g;
    return MANTA_OK;
}

static void end_all(manta_group *g, manta_status code);

void manta_group_close(manta_group *g)
{
    if (!g) return;
    if (g->has_thread) {
        mutex_lock(&g->lock);
        g->stop = true;
        cond_signal(&g->work);
        mutex_unlock(&g->lock);
        g->tr->wake(g->t);
        thread_join(&g->thread);
    }
    if (g->head) { /* their memory may go, so they must not be polled again */
        manta_status st = manta_fail(MANTA_ECANCELLED, "the group was closed before the call was done");
        manta_error_get(&g->why);
        g->broken = true;
        end_all(g, st);
    }
    g->tr->close(g->t);
    mem_try_free(g->pack);
    cond_release(&g->work);
    mutex_release(&g->lock);
    mem_free(g);
}

int manta_group_rank(const manta_group *g)
{
    REFUSE_NULL_OR(g, 0);
    return g->rank;
}

int manta_group_size(const manta_group *g)
{
    REFUSE_NULL_OR(g, 0);
    return g->size;
}

const char *manta_group_implementation(const manta_group *g)
{
    REFUSE_NULL_OR(g, NULL);
    return g->tr->name;
}

/* ---- moving calls on (under the lock) ---- */

static void finish_work(manta_work *w, manta_status st, const manta_error *e)
{
    w->status = st;
    if (st) w->error = *e;
    w->done = true;
    atomic_store_explicit(&w->g, NULL, memory_order_release); /* waiting for it needs no group now */
}

static void end_all(manta_group *g, manta_status code)
{
    for (manta_work *w = g->head, *next; w; w = next) {
        next = w->next;
        finish_work(w, code, &g->why);
    }
    g->head = NULL;
    g->tail = &g->head;
}

/* Nothing works after this, here and on the other ranks. */
static void break_group(manta_group *g)
{
    manta_error_get(&g->why);
    g->broken = true;
    g->tr->abort(g->t, &g->why);
    end_all(g, g->why.code);
}

static bool same_lane(const manta_work *a, const manta_work *b)
{
    if (!call_is_message(a->c.kind)) return !call_is_message(b->c.kind);
    return a->c.kind == b->c.kind && a->c.peer == b->c.peer;
}

/* The first unfinished call of w's lane, which may be w. */
static manta_work *lane_head(const manta_group *g, const manta_work *w)
{
    manta_work *first = g->head;

    while (!same_lane(first, w)) first = first->next;
    return first;
}

static bool has_collective(const manta_group *g)
{
    for (const manta_work *w = g->head; w; w = w->next) {
        if (!call_is_message(w->c.kind)) return true;
    }
    return false;
}

/* Notes that w, a message, fails, when that has to wait. A rank that leaves has done its part of the collectives
 * before, and what it did, or what others did with it, may be seen later than that it left (frames come on other
 * connections), or is still to be done (a rank has done its part of a reduce before the others have done theirs):
 * collectives under way move on as far as they can, and only then the message breaks the group. What those need of a
 * rank that waits for this one never comes, so they have group_late_ms and no more. Whether it waits. */
static bool message_lost(manta_group *g, const manta_work *w, manta_status st)
{
    if (st != MANTA_EDIED || !call_is_message(w->c.kind) || !has_collective(g)) return false;
    if (!g->lost_end) {
        manta_error_get(&g->lost);
        g->lost_end = clock_deadline(group_late_ms);
    }
    return true;
}

/* Moves on what can be. Returns whether anything did. */
static bool move_on(manta_group *g)
{
    bool was_lost = g->lost_end != 0, any = false;

    for (manta_work **at = &g->head; *at;) {
        manta_work *w = *at;
        bool moved = false;
        manta_status st;
        if (lane_head(g, w) != w) {
            at = &w->next;
            continue;
        }
        w->done = false;
        st = g->tr->poll(g->t, w, &moved);
        if (st && message_lost(g, w, st)) {
            at = &w->next;
            continue;
        }
        if (st && st != MANTA_EINVAL) {
            break_group(g);
            return true;
        }
        any |= moved;
        if (!st && !w->done) {
            at = &w->next;
            continue;
        }
        any = true;
        *at = w->next;
        if (!*at) g->tail = at;
        manta_error e = {.code = MANTA_OK};
        if (st) manta_error_get(&e);
        finish_work(w, st, &e);
    }
    if (!g->lost_end || any) return any;
    if (!was_lost) return true; /* calls before the message in the list were polled too early to tell */
    if (clock_now_ns() < g->lost_end) return false;
    (void)!manta_error_raise(&g->lost);
    break_group(g);
    return true;
}

/* When a thread that sleeps until `deadline` has to look again. */
static int64_t sleep_end(const manta_group *g, int64_t deadline)
{
    return g->lost_end && g->lost_end < deadline ? g->lost_end : deadline;
}

static void time_out(manta_group *g, const manta_work *w)
{
    char who[200], what[160];
    const manta_work *first = lane_head(g, w);

    if (g->lost_end) { /* which says more */
        (void)!manta_error_raise(&g->lost);
        break_group(g);
        return;
    }
    g->tr->missing(g->t, first, who, sizeof who);
    (void)!manta_fail(MANTA_ETIMEDOUT, "rank %d waited %lld ms in %s; missing: %s", g->rank,
                      (long long)g->o.timeout_ms, call_text(&first->words, what, sizeof what),
                      who[0] ? who : "nobody");
    break_group(g);
}

/* A call of the program has moved things on, and leaves some of them to the progress thread: it may sleep, and wait for
 * less than they need now. */
static void leave_works(manta_group *g)
{
    if (!g->has_thread || !g->head) return;
    cond_signal(&g->work);
    g->tr->wake(g->t);
}

/* Looks a while, giving way after some of it, then sleeps, until w is done. */
static void wait_done(manta_group *g, manta_work *w)
{
    spin s = {.turns = 1};

    mutex_lock(&g->lock);
    g->waiters++;
    while (!w->done) {
        if (move_on(g)) {
            s.began = 0;
            continue;
        }
        spin_turn turn = spin_next(&s, g->spin);
        if (turn == SPIN_PAUSE) {
            spin_pause();
            continue;
        }
        if (!w->deadline) w->deadline = clock_deadline(g->o.timeout_ms);
        if (s.now >= w->deadline) {
            time_out(g, w);
            break;
        }
        if (turn != SPIN_OVER) {
            mutex_unlock(&g->lock); /* a progress thread may want it, and others the core */
            if (turn == SPIN_YIELD) sched_yield();
            mutex_lock(&g->lock);
            continue;
        }
        uint32_t armed = g->tr->arm(g->t);
        if (!move_on(g)) {
            int64_t end = sleep_end(g, w->deadline);
            mutex_unlock(&g->lock);
            g->tr->sleep(g->t, armed, end);
            mutex_lock(&g->lock);
        }
        g->tr->disarm(g->t);
    }
    g->waiters--;
    leave_works(g);
    mutex_unlock(&g->lock);
}

static void progress_works(void *ctx)
{
    manta_group *g = ctx;
    spin s = {0};

    mutex_lock(&g->lock);
    while (!g->stop) {
        if (!g->head || g->waiters) {
            cond_wait(&g->work, &g->lock, CLOCK_NEVER);
            continue;
        }
        if (move_on(g)) s.began = 0;
        if (spin_next(&s, &crowded) != SPIN_OVER) {
            mutex_unlock(&g->lock);
            sched_yield(); /* the program's own threads come first */
            mutex_lock(&g->lock);
            continue;
        }
        uint32_t armed = g->tr->arm(g->t);
        if (!move_on(g) && !g->stop) {
            int64_t end = sleep_end(g, CLOCK_NEVER);
            mutex_unlock(&g->lock);
            g->tr->sleep(g->t, armed, end);
            mutex_lock(&g->lock);
        }
        g->tr->disarm(g->t);
        s.began = 0;
    }
    mutex_unlock(&g->lock);
}

/* ---- calls ---- */

/* A group of one: what goes in comes out. */
static void run_alone(const manta_collective *c, size_t size)
{
    const void *src[1] = {c->in};

    if (c->kind == MANTA_COLLECTIVE_BARRIER || !size || !c->out) return;
    if (call_reduces(c->kind))
        reduce_run(c->dtype, c->reduce, src, 1, c->out, c->n);
    else if (c->out != c->in)
        memmove(c->out, c->in, size);
}

/* Puts w at the end of the list, or fails as the group has. */
static manta_status enter_work(manta_group *g, const manta_collective *c, manta_work *w)
{
    TRY(call_check(c, g->rank, g->size));
    *w = (manta_work){.c = *c};
    atomic_init(&w->g, g);
    w->size = c->kind == MANTA_COLLECTIVE_BARRIER ? 0 : (size_t)c->n * manta_dtype_size(c->dtype);
    w->words = call_words_of(c, 0);
    if (g->size == 1) {
        run_alone(c, w->size);
        finish_work(w, MANTA_OK, NULL);
        return MANTA_OK;
    }
    mutex_lock(&g->lock);
    if (g->broken) {
        manta_error e = g->why;
        mutex_unlock(&g->lock);
        return manta_error_raise(&e);
    }
    *g->tail = w;
    g->tail = &w->next;
    mutex_unlock(&g->lock);
    return MANTA_OK;
}

static manta_status work_outcome(const manta_work *w)
{
    return w->status ? manta_error_raise(&w->error) : MANTA_OK;
}

manta_status manta_group_run(manta_group *g, const manta_collective *c)
{
    REFUSE_NULL(g);
    REFUSE_NULL(c);

    manta_work w;

    TRY(enter_work(g, c, &w));
    if (g->size > 1) wait_done(g, &w);
    return work_outcome(&w);
}

manta_status manta_group_start(manta_group *g, const manta_collective *c, manta_work **out)
{
    REFUSE_NULL(g);
    REFUSE_NULL(c);
    REFUSE_NULL(out);

    manta_work *w = mem_new(sizeof *w);
    manta_status st = enter_work(g, c, w);

    if (st) {
        mem_free(w);
        return st;
    }
    mutex_lock(&g->lock);
    if (g->head) move_on(g);
    leave_works(g);
    mutex_unlock(&g->lock);
    *out = w;
    return MANTA_OK;
}

bool manta_work_test(manta_work *w)
{
    REFUSE_NULL_OR(w, false);

    manta_group *g = atomic_load_explicit(&w->g, memory_order_acquire);
    bool done;

    if (!g) return true;
    mutex_lock(&g->lock);
    if (!w->done && move_on(g)) leave_works(g);
    done = w->done;
    mutex_unlock(&g->lock);
    return done;
}

manta_status manta_work_wait(manta_work *w)
{
    REFUSE_NULL(w);

    manta_group *g = atomic_load_explicit(&w->g, memory_order_acquire);
    manta_status st;

    if (g) wait_done(g, w);
    st = work_outcome(w);
    mem_free(w);
    return st;
}

void manta_group_abort(manta_group *g, const char *reason)
{
    REFUSE_NULL_AND_RETURN(g);

    mutex_lock(&g->lock);
    if (!g->broken && g->size > 1) {
        (void)!manta_fail(MANTA_ECANCELLED, "rank %d gave up: %s", g->rank, reason);
        break_group(g);
    }
    mutex_unlock(&g->lock);
}

/* ---- several at once ---- */

/* How many tensors from `first` on go into one pack, and their elements. */
static int pack_of(const manta_group *g, int count, const int64_t *n, int first, size_t element, int64_t *sum)
{
    uint64_t room = g->o.bytes_per_pack > 0 ? (uint64_t)g->o.bytes_per_pack / element : 0;
    int i = first + 1;

    *sum = n[first];
    while (i < count && (uint64_t)*sum <= room && (uint64_t)n[i] <= room - (uint64_t)*sum) *sum += n[i++];
    return i - first;
}

static manta_status reduce_pack(manta_group *g, int count, void *const *data, const int64_t *n, int64_t sum,
                                manta_dtype t, manta_reduce r)
{
    size_t element = manta_dtype_size(t);

    if (!g->pack) g->pack = mem_try_raw((size_t)g->o.bytes_per_pack);
    if (!g->pack)
        return manta_fail(MANTA_ENOMEM, "all-reduce: no memory for a pack of %lld bytes",
                          (long long)g->o.bytes_per_pack);
    char *at = g->pack;
    for (int i = 0; i < count; at += (size_t)n[i++] * element)
        if (n[i]) memcpy(at, data[i], (size_t)n[i] * element);
    TRY(manta_group_all_reduce(g, g->pack, g->pack, sum, t, r));
    at = g->pack;
    for (int i = 0; i < count; at += (size_t)n[i++] * element)
        if (n[i]) memcpy(data[i], at, (size_t)n[i] * element);
    return MANTA_OK;
}

manta_status manta_group_all_reduce_many(manta_group *g, int count, void *const *data, const int64_t *n,
                                         manta_dtype t, manta_reduce r)
{
    REFUSE_NULL(g);
    REFUSE_ARRAY(count, data);
    REFUSE_ARRAY(count, n);

    size_t element = manta_dtype_size(t);

    if (!element)
        return manta_fail(MANTA_EINVAL, "all-reduce: %d is no dtype, expected 0 to %d", (int)t,
                          MANTA_DTYPE_COUNT - 1);
    for (int i = 0; i < count; i++)
        if (n[i] < 0 || (n[i] && !data[i]))
            return manta_fail(
                MANTA_EINVAL,
                "all-reduce: tensor %d has %lld elements at %p, expected at least 0 and memory for them", i,
                (long long)n[i], data[i]);
    for (int i = 0, packed; i < count; i += packed) {
        int64_t sum;
        packed = pack_of(g, count, n, i, element, &sum);
        if (packed == 1)
            TRY(manta_group_all_reduce(g, data[i], data[i], n[i], t, r));
        else
            TRY(reduce_pack(g, packed, data + i, n + i, sum, t, r));
    }
    return MANTA_OK;
}

/* ---- shared memory ---- */

void *manta_group_memory(manta_group *g, int rank)
{
    REFUSE_NULL_OR(g, NULL);
    return rank < 0 || rank >= g->size || !g->tr->memory ? NULL : g->tr->memory(g->t, rank);
}

void manta_group_range(int64_t n, int size, int rank, int64_t *begin, int64_t *end)
{
    REFUSE_NULL_AND_RETURN(begin);
    REFUSE_NULL_AND_RETURN(end);

    *begin = *end = 0;
    if (n < 0 || size < 1 || rank < 0 || rank >= size) {
        (void)!manta_fail(
            MANTA_EINVAL,
            "manta_group_range: rank %d of %d and %lld elements, expected a rank of the group and "
            "no negative number",
            rank, size, (long long)n); /* said by the empty range */
        return;
    }

    int64_t blocks = n / GROUP_GRID + (n % GROUP_GRID != 0);
    int64_t from = blocks * rank / size * GROUP_GRID, to = blocks * (rank + 1) / size * GROUP_GRID;

    *begin = from < n ? from : n;
    *end = to < n ? to : n;
}

manta_status manta_group_fused(manta_group *g, int64_t n,
                               manta_status (*fn)(void *ctx, int64_t begin, int64_t end), void *ctx)
{
    REFUSE_NULL(g);
    REFUSE_NULL(fn);

    int64_t begin, end;

    if (n < 0)
        return manta_fail(MANTA_EINVAL, "fused all-reduce: %lld elements asked for, expected at least 0",
                          (long long)n);
    manta_group_range(n, g->size, g->rank, &begin, &end);
    TRY(manta_group_barrier(g));
    if (begin < end) {
        manta_status st = fn(ctx, begin, end);
        if (st) {
            manta_error e;
            manta_error_get(&e);
            manta_group_abort(g, e.text);
            return manta_error_raise(&e);
        }
    }
    return manta_group_barrier(g);
}
