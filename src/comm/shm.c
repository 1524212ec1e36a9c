/* shm.c - the shared memory of a group as such: where things lie in it, how a process becomes a rank and
 * leaves, how a rank sleeps, and how it sees that another is gone. What calls do in it is in shm_call.c; the
 * picture of the memory and the invariants of steps are in shm.h.
 *
 *     map_group ──▶ take the rank ──▶ wait_for_all ──▶ start_watch ──▶ calls ──▶ shm_close
 *         │         (pid, 0 to ours)   │                │                         left = 1
 *         ▼              ▼             ▼                ▼
 *      refused        refused         error, failed = 1, left = 1: the others' wait ends with our sentence
 *
 * Who writes what: the head is written by shm_group_new(), before anybody has the descriptor; each process checks
 * its copy of it and uses that copy alone. Of a shm_rank its own process writes pid, left, error and failed, each
 * once; anyone rings its bell. dead[], in this process's own memory, is written by the watcher, a thread that
 * waits for the pidfds of the others, and by start_watch() before there is one.
 *
 * What may be changed: the sizes of slots and cells (sizes.h), which the others read from the head. What may not:
 * that `error` is whole before `failed` is set; that whoever sets pid, left or failed rings all bells afterwards;
 * and that a waiter arms its bell before it looks. */
#include "comm/shm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/crash.h"
#include "comm/sizes.h"
#include "os/proc.h"
#include "os/shm.h"
#include "os/socket.h"
#include "os/sys.h"

#define WATCH_NAME "manta-comm-dead"

CRASH_DEFINE(comm, COMM_CRASH_POINTS)

static uint64_t clamp_size(uint64_t x, uint64_t least, uint64_t most)
{
    return (x < least ? least : x > most ? most : x) & ~(uint64_t)63;
}

shm_head shm_head_of(int size, const manta_group_options *o)
{
    uint64_t n = (uint64_t)size;

    return (shm_head){
        .magic = SHM_MAGIC,
        .version = SHM_VERSION,
        .size = (uint32_t)size,
        .slot_size = clamp_size(SHM_SLOTS_TOTAL / n / SHM_SLOTS, SHM_SLOT_LEAST, SHM_SLOT_MOST),
        .cell_size = clamp_size(SHM_CELLS_TOTAL / n / n / SHM_CELLS, SHM_CELL_LEAST, SHM_CELL_MOST),
        .shared_size = (o->shared_bytes + 63) & ~(uint64_t)63,
        .timeout_ms = o->timeout_ms,
        .join_timeout_ms = o->join_timeout_ms,
        .bytes_per_pack = o->bytes_per_pack,
    };
}

/* ---- where things lie ---- */

typedef struct layout {
    uint64_t ranks, mail, mail_stride, slots, shared, end;
} layout;

static layout layout_of(const shm_head *h)
{
    uint64_t n = h->size, page = shm_page();
    layout l;

    l.ranks = (sizeof(shm_head) + 63) & ~(uint64_t)63;
    l.mail = l.ranks + n * sizeof(shm_rank);
    l.mail_stride = sizeof(shm_mailbox) + SHM_CELLS * h->cell_size;
    l.slots = (l.mail + n * n * l.mail_stride + page - 1) / page * page;
    l.shared = l.slots + n * SHM_SLOTS * h->slot_size;
    l.shared = (l.shared + page - 1) / page * page;
    l.end = (l.shared + n * h->shared_size + page - 1) / page * page;
    return l;
}

/* What another process wrote, before any of it is used. */
static bool head_is_valid(const shm_head *h, size_t bytes)
{
    if (h->magic != SHM_MAGIC || h->version != SHM_VERSION || h->size < 1 || h->size > MANTA_GROUP_MAX)
        return false;
    if (h->slot_size < SHM_SLOT_LEAST || h->slot_size > SHM_SLOT_MOST || h->slot_size % 64) return false;
    if (h->cell_size < SHM_CELL_LEAST || h->cell_size > SHM_CELL_MOST || h->cell_size % 64) return false;
    if (h->shared_size % 64 || h->shared_size > bytes) return false;
    return layout_of(h).end == bytes;
}

static void place_pointers(shm *t)
{
    layout l = layout_of(&t->head);

    t->ranks = (shm_rank *)(void *)(t->base + l.ranks);
    t->mail = t->base + l.mail;
    t->mail_stride = l.mail_stride;
    t->slots = t->base + l.slots;
    t->shared = t->base + l.shared;
}

static void *shm_memory(void *ctx, int rank)
{
    shm *t = ctx;

    if (!t->head.shared_size) return NULL;
    return t->shared + (size_t)rank * t->head.shared_size;
}

/* ---- sleeping ---- */

void shm_ring_all(const shm *t)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < t->size; i++)
        if (i != t->rank) eventcount_notify_fenced(&shm_rank_at(t, i)->bell);
}

static eventcount *own_bell(shm *t)
{
    return &shm_rank_at(t, t->rank)->bell;
}

static uint32_t shm_arm(void *ctx)
{
    return eventcount_prepare(own_bell(ctx));
}

static void shm_sleep(void *ctx, uint32_t armed, int64_t deadline)
{
    (void)eventcount_sleep(own_bell(ctx), armed, deadline);
}

static void shm_disarm(void *ctx)
{
    eventcount_leave(own_bell(ctx));
}

static void shm_wake(void *ctx)
{
    eventcount_notify(own_bell(ctx));
}

/* ---- who is gone ---- */

bool shm_is_gone(const shm *t, int rank)
{
    return atomic_load(&t->dead[rank]) || atomic_load(&shm_rank_at(t, rank)->left);
}

manta_status shm_say_gone(const shm *t, int rank, const manta_work *w)
{
    char doing[160];

    return transport_gone(rank, atomic_load(&shm_rank_at(t, rank)->left) != 0,
                          w ? call_text(&w->words, doing, sizeof doing) : "joining");
}

manta_status shm_look_failed(const shm *t)
{
    for (int i = 0; i < t->size; i++) {
        shm_rank *r = shm_rank_at(t, i);
        if (i == t->rank || !atomic_load_explicit(&r->failed, memory_order_acquire)) continue;
        manta_error e = r->error;
        e.text[sizeof e.text - 1] = '\0';
        if (e.code <= MANTA_OK || e.code > MANTA_EINTERRUPTED) e.code = MANTA_ECORRUPT;
        return manta_error_raise(&e);
    }
    return MANTA_OK;
}

static void watch_ranks(void *ctx)
{
    shm *t = ctx;
    struct pollfd fds[MANTA_GROUP_MAX + 1];
    int ranks[MANTA_GROUP_MAX + 1], n = 0;

    for (int i = 0; i < t->size; i++) {
        if (t->pidfds[i] < 0) continue;
        ranks[n] = i;
        fds[n++] = (struct pollfd){.fd = t->pidfds[i], .events = POLLIN};
    }
    ranks[n] = -1;
    fds[n++] = (struct pollfd){.fd = t->stop, .events = POLLIN};
    while (!atomic_load(&t->closing)) {
        if (socket_poll(fds, n, -1) < 0) return;
        for (int i = 0; i < n - 1; i++) {
            if (!fds[i].revents) continue;
            fds[i].fd = -1; /* it is dead for good */
            atomic_store(&t->dead[ranks[i]], 1);
            shm_wake(t);
        }
    }
}

/* The others' pidfds, and a thread that waits for one to become readable. */
static manta_status start_watch(shm *t)
{
    bool any = false;

    for (int i = 0; i < t->size; i++) {
        pid_t pid = (pid_t)atomic_load(&shm_rank_at(t, i)->pid);
        if (i == t->rank || pid == getpid()) continue;
        if (pid <= 0)
            return manta_fail(MANTA_ECORRUPT, "rank %d says that it is process %d, expected a number above 0",
                              i, (int)pid);
        manta_status st = proc_pidfd_open(pid, &t->pidfds[i]);
        if (st == MANTA_ENOENT) {
            atomic_store(&t->dead[i], 1);
            continue;
        }
        if (st) return st;
        any = true;
    }
    if (!any) return MANTA_OK;
    t->stop = eventfd(0, EFD_CLOEXEC);
    if (t->stop < 0) return manta_fail(MANTA_EIO, "an eventfd cannot be made: %s", strerror(errno));
    TRY(thread_start(&t->watcher, WATCH_NAME, watch_ranks, t));
    t->watching = true;
    return MANTA_OK;
}

static void stop_watch(shm *t)
{
    if (t->watching) {
        uint64_t one = 1;
        atomic_store(&t->closing, true);
        while (os->write(t->stop, &one, sizeof one) < 0 && errno == EINTR) {}
        thread_join(&t->watcher);
    }
    if (t->stop >= 0) os->close(t->stop);
    socket_close_all(t->pidfds, t->pidfds ? t->size : 0);
}

/* ---- joining and leaving ---- */

manta_status shm_group_new(const shm_head *h, int *fd)
{
    size_t bytes = layout_of(h).end;
    void *at;

    if (h->shared_size > (SIZE_MAX >> 2) / MANTA_GROUP_MAX)
        return manta_fail(MANTA_EINVAL,
                          "group: %zu bytes of shared memory for each rank asked for, expected at most %zu",
                          (size_t)h->shared_size, (SIZE_MAX >> 2) / MANTA_GROUP_MAX);
    TRY(shm_new("manta-comm", bytes, fd));
    manta_status st = shm_map(*fd, bytes, true, &at);
    if (st) {
        os->close(*fd);
        return st;
    }
    memcpy(at, h, sizeof *h);
    shm_unmap(at, bytes);
    return MANTA_OK;
}

static void free_shm(shm *t)
{
    if (!t) return;
    stop_watch(t);
    shm_unmap(t->base, t->bytes);
    mem_free(t->sends);
    mem_free(t->receives);
    mem_free(t->dead);
    mem_free(t->pidfds);
    mem_free(t);
}

static void shm_close(void *ctx)
{
    shm *t = ctx;

    atomic_store(&shm_rank_at(t, t->rank)->left, 1);
    shm_ring_all(t);
    free_shm(t);
}

static void shm_abort(void *ctx, const manta_error *e)
{
    shm *t = ctx;
    shm_rank *me = shm_rank_at(t, t->rank);

    if (atomic_load(&me->failed)) return;
    me->error = *e;
    atomic_store_explicit(&me->failed, 1, memory_order_release);
    shm_ring_all(t);
}

static manta_status map_group(int fd, int rank, shm **out)
{
    shm *t = mem_new(sizeof *t);
    void *at;
    manta_status st;

    t->stop = -1;
    if ((st = shm_size(fd, &t->bytes))) goto out;
    if ((st = shm_map(fd, t->bytes, true, &at))) goto out;
    t->base = at;
    if (t->bytes >= sizeof t->head) memcpy(&t->head, at, sizeof t->head);
    if (!head_is_valid(&t->head, t->bytes)) {
        st = manta_fail(MANTA_ECORRUPT, "group: the shared memory was not made by a group of this version");
        goto out;
    }
    place_pointers(t);
    t->size = (int)t->head.size;
    t->rank = rank;
    if (rank < 0 || rank >= t->size) {
        st = manta_fail(MANTA_EINVAL, "there is no rank %d in a group of %d", rank, t->size);
        goto out;
    }
    t->sends = mem_new(sizeof *t->sends * (size_t)t->size);
    t->receives = mem_new(sizeof *t->receives * (size_t)t->size);
    t->dead = mem_new(sizeof *t->dead * (size_t)t->size);
    t->pidfds = mem_new(sizeof *t->pidfds * (size_t)t->size);
    for (int i = 0; i < t->size; i++) t->pidfds[i] = -1;
    *out = t;
    return MANTA_OK;
out:
    free_shm(t);
    return st;
}

static int first_absent(const shm *t)
{
    for (int i = 0; i < t->size; i++)
        if (!atomic_load(&shm_rank_at(t, i)->pid)) return i;
    return -1;
}

static manta_status wait_for_all(shm *t)
{
    int64_t deadline = clock_deadline(t->head.join_timeout_ms);
    char text[200] = "";

    for (;;) {
        uint32_t armed = shm_arm(t);
        bool all = first_absent(t) < 0, late = !all && clock_now_ns() >= deadline;
        manta_status st = all ? MANTA_OK : shm_look_failed(t); /* who gave up later fails the next call */
        if (!all && !late && !st) shm_sleep(t, armed, deadline);
        shm_disarm(t);
        if (st) return st;
        if (all) return MANTA_OK;
        if (late) break;
    }
    for (int i = 0; i < t->size; i++)
        if (!atomic_load(&shm_rank_at(t, i)->pid)) transport_name(text, sizeof text, i);
    return manta_fail(MANTA_ETIMEDOUT, "rank %d waited %lld ms for the group of %d; missing: %s", t->rank,
                      (long long)t->head.join_timeout_ms, t->size, text);
}

manta_status shm_group_join(int fd, int rank, shm **out)
{
    shm *t = NULL;
    uint32_t nobody = 0;
    manta_status st;

    TRY(map_group(fd, rank, &t));
    if (!atomic_compare_exchange_strong(&shm_rank_at(t, rank)->pid, &nobody, (uint32_t)getpid())) {
        free_shm(t);
        return manta_fail(MANTA_EEXIST, "rank %d of the group is already taken by process %u", rank, nobody);
    }
    shm_ring_all(t);
    comm_crash(COMM_CRASH_JOINED);
    st = wait_for_all(t);
    if (!st) st = start_watch(t);
    if (st) {
        manta_error e;
        manta_error_get(&e);
        shm_abort(t, &e);
        shm_close(t);
        return manta_error_raise(&e);
    }
    *out = t;
    return MANTA_OK;
}

const transport shm_transport = {
    .name = "shm",
    .poll = shm_poll,
    .arm = shm_arm,
    .sleep = shm_sleep,
    .disarm = shm_disarm,
    .wake = shm_wake,
    .missing = shm_missing,
    .abort = shm_abort,
    .memory = shm_memory,
    .close = shm_close,
};
