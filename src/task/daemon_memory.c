/* daemon_memory.c - segments: made, given out, written to disk and read back. What goes where
 * and when is spill.c's to decide, and its picture is in spill.h.
 *
 *     SEGMENT_NEW, _OPEN, _CLOSED, _FREE ──▶ spill ──▶ make, give, refuse, ask, write, read, drop
 *                                              ▲                          │
 *                                              └── WROTE, READ ◀── copier (a thread)
 *
 * The loop's thread owns the table of segments. The copier has a queue of jobs behind a lock
 * of its own and is given descriptors, a size and a checksum; it never sees the table. A
 * segment that it works on is not dropped before it is done: spill.c says so and waits.
 *
 * A segment is made here (memfd, reserved, sealed against growing and shrinking), so that a
 * full machine is an error at that moment and never a signal later. A segment's number is
 * never used again, its bytes never change after its writer has sealed them, and its file
 * carries a checksum over them. */
#include "task/daemon.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/shm.h"
#include "os/thread.h"
#include "store/spill_file.h"

#define PARTS 16 /* of the store that one segment of many objects may be */

/* ---- the copier: a thread, because a disk may take its time ---- */

typedef struct copy {
    uint64_t segment;
    int from, to;
    size_t size;
    bool is_read, ok;
    uint32_t crc;
    char why[sizeof((node *)0)->spill_error];
} copy;

typedef VEC(copy) copies;

struct copier {
    mutex lock; /* guards `waiting` and `done` */
    cond more;
    copies waiting, done;
    int wake_fd; /* readable when something is done */
    const char *folder;
    thread_id thread;
    bool started;
};

static void copier_main(void *arg)
{
    copier *k = arg;
    uint64_t one = 1;

    mutex_lock(&k->lock);
    for (;;) {
        while (k->waiting.n == 0) (void)cond_wait(&k->more, &k->lock, CLOCK_NEVER);
        copy j = k->waiting.at[0];
        vec_remove(&k->waiting, 0);
        mutex_unlock(&k->lock);
        uint32_t crc;
        manta_status st = spill_file_copy(j.from, j.to, j.size, k->folder, &crc);
        if (!st && j.is_read && crc != j.crc)
            st = manta_fail(MANTA_ECORRUPT,
                            "what was spilled to %s is damaged: its checksum is %08x, not %08x", k->folder,
                            crc, j.crc);
        j.ok = st == MANTA_OK;
        j.crc = crc;
        snprintf(j.why, sizeof j.why, "%s", st ? manta_error_text() : "");
        mutex_lock(&k->lock);
        vec_push(&k->done, j);
        (void)!write(k->wake_fd, &one, sizeof one);
    }
}

static void memory_do(node *d, spill_event e);
static void on_copied(void *ctx, int fd, bool readable, bool writable);

manta_status daemon_memory_init(node *d)
{
    copier *k = d->copier = mem_new(sizeof *k);

    mutex_init(&k->lock);
    cond_init(&k->more);
    k->folder = d->config.spill_folder;
    d->spill = spill_new(d->config.store_limit, d->config.spill_limit);
    k->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (k->wake_fd < 0)
        return manta_fail(MANTA_EIO, "an event descriptor cannot be made for spilling: %s", strerror(errno));
    return loop_watch(d->loop, k->wake_fd, false, on_copied, d);
}

void daemon_memory_end(node *d)
{
    copier *k = d->copier;

    loop_forget(d->loop, k->wake_fd);
    socket_close_all(&k->wake_fd, 1);
    cond_release(&k->more);
    mutex_release(&k->lock);
    mem_free(k);
    spill_free(d->spill);
}

/* A node that never spills has no thread for it. */
static manta_status copy_start(node *d, copy j)
{
    copier *k = d->copier;

    if (!k->started) TRY(thread_start(&k->thread, "manta-spill", copier_main, k));
    k->started = true;
    mutex_lock(&k->lock);
    vec_push(&k->waiting, j);
    cond_signal(&k->more);
    mutex_unlock(&k->lock);
    return MANTA_OK;
}

/* ---- what the book says is to be done ---- */

static segment *find_segment(node *d, uint64_t id)
{
    segment **g = map_u64_find(&d->segments, id);

    return g ? *g : NULL;
}

static void segment_answer(node *d, uint32_t who, uint64_t request, manta_status st, uint64_t id, int fd)
{
    client *c = daemon_client(d, who);

    if (!c) return;
    proto_begin(&d->out, PROTO_SEGMENT);
    wire_put_u64(&d->out, request);
    wire_put_u32(&d->out, (uint32_t)st);
    wire_put_u64(&d->out, id);
    wire_put_text(&d->out, st ? manta_error_text() : "");
    daemon_send_fds(d, c, &fd, fd >= 0 ? 1 : 0);
}

static void do_make(node *d, const spill_action *a)
{
    int fd = -1;
    manta_status st = shm_new("manta-segment", a->size, &fd);

    if (!st) {
        segment *g = mem_new(sizeof *g);
        *g = (segment){.fd = fd, .file = -1, .size = a->size, .writer = a->client};
        *map_u64_put(&d->segments, a->segment) = g;
    }
    segment_answer(d, a->client, a->request, st, a->segment, fd);
    if (st) memory_do(d, (spill_event){.kind = SPILL_DROP, .segment = a->segment});
}

static void do_give(node *d, const spill_action *a)
{
    segment *g = find_segment(d, a->segment);
    manta_status st = g ? MANTA_OK
                        : manta_fail(MANTA_EINTERNAL, "segment %llu is said to be in memory, and has none",
                                     (unsigned long long)a->segment);

    /* The writer seals when it has mapped; one that did not yet is made to. */
    if (!st && !shm_is_sealed(g->fd)) st = shm_seal_writes(g->fd);
    segment_answer(d, a->client, a->request, st, a->segment, st ? -1 : g->fd);
    if (st)
        memory_do(d, (spill_event){.kind = SPILL_CLOSED, .client = a->client, .segment = a->segment, .n = 1});
}

static void do_refuse(node *d, const spill_action *a)
{
    spill_usage use = spill_use(d->spill);
    manta_status st = MANTA_OK;

    switch (a->why) {
    case SPILL_TOO_LARGE:
        st = manta_fail(MANTA_ENOSPC, "the store has %llu bytes in all, fewer than the object needs",
                        (unsigned long long)d->config.store_limit);
        break;
    case SPILL_FULL:
        st = manta_fail(MANTA_ENOSPC, "the store is full: %llu of %llu bytes are taken and in use%s%s",
                        (unsigned long long)use.memory, (unsigned long long)d->config.store_limit,
                        d->spill_error[0] ? ", or could not leave: " : "", d->spill_error);
        break;
    case SPILL_NO_SEGMENT:
        st = manta_fail(MANTA_ENOENT, "segment %llu is gone: its last object was freed",
                        (unsigned long long)a->segment);
        break;
    case SPILL_LOST: st = manta_fail(MANTA_EIO, "the object is lost: %s", d->spill_error); break;
    }
    segment_answer(d, a->client, a->request, st, a->segment, -1);
}

static void do_write(node *d, const spill_action *a)
{
    segment *g = find_segment(d, a->segment);
    manta_status st = spill_file_new(d->config.spill_folder, g->size, &g->file);

    if (!st) st = copy_start(d, (copy){.segment = a->segment, .from = g->fd, .to = g->file, .size = g->size});
    if (!st) return;
    snprintf(d->spill_error, sizeof d->spill_error, "%s", manta_error_text());
    socket_close_all(&g->file, 1);
    g->file = -1;
    memory_do(d, (spill_event){.kind = SPILL_WROTE, .segment = a->segment});
}

static void do_read(node *d, const spill_action *a)
{
    segment *g = find_segment(d, a->segment);
    manta_status st = shm_new("manta-segment", g->size, &g->fd);

    if (!st)
        st = copy_start(d, (copy){.segment = a->segment,
                                  .from = g->file,
                                  .to = g->fd,
                                  .size = g->size,
                                  .is_read = true,
                                  .crc = g->crc});
    if (!st) return;
    socket_close_all(&g->fd, 1);
    g->fd = -1;
    memory_do(d, (spill_event){.kind = SPILL_READ, .segment = a->segment, .n = 1});
}

static void do_end(node *d, uint64_t id)
{
    segment *g = find_segment(d, id);

    if (!g) return;
    socket_close_all((int[]){g->fd, g->file}, 2);
    mem_free(g);
    map_u64_remove(&d->segments, id);
}

static void segment_tell(node *d, uint32_t who, proto_kind kind, uint64_t id)
{
    client *c = daemon_client(d, who);

    if (!c) return;
    proto_begin(&d->out, kind);
    wire_put_u64(&d->out, id);
    daemon_send(d, c);
}

/* Applies an event to the book and does what follows. */
static void memory_do(node *d, spill_event e)
{
    spill_actions out = {0};

    e.now = clock_now_ns();
    spill_step(d->spill, &e, &out);
    for (size_t i = 0; i < out.n; i++) {
        const spill_action *a = &out.at[i];
        segment *g;
        switch (a->kind) {
        case SPILL_DO_MAKE: do_make(d, a); break;
        case SPILL_DO_GIVE: do_give(d, a); break;
        case SPILL_DO_REFUSE: do_refuse(d, a); break;
        case SPILL_DO_ASK: segment_tell(d, a->client, PROTO_SEGMENT_ASK, a->segment); break;
        case SPILL_DO_WRITE: do_write(d, a); break;
        case SPILL_DO_READ: do_read(d, a); break;
        case SPILL_DO_CLOSE:
            g = find_segment(d, a->segment);
            socket_close_all(&g->fd, 1);
            g->fd = -1;
            break;
        case SPILL_DO_DROP_FILE:
            g = find_segment(d, a->segment);
            socket_close_all(&g->file, 1);
            g->file = -1;
            break;
        case SPILL_DO_TELL_GONE: segment_tell(d, a->client, PROTO_SEGMENT_GONE, a->segment); break;
        case SPILL_DO_END: do_end(d, a->segment); break;
        }
    }
    vec_release(&out);
}

/* The copier has finished something. */
static void on_copied(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    copier *k = d->copier;
    uint64_t count;
    (void)readable;
    (void)writable;

    (void)!read(fd, &count, sizeof count);
    mutex_lock(&k->lock);
    copies done = k->done;
    k->done.at = NULL;
    k->done.n = k->done.cap = 0;
    mutex_unlock(&k->lock);
    for (size_t i = 0; i < done.n; i++) {
        copy *j = &done.at[i];
        segment *g = find_segment(d, j->segment);
        if (!g) continue;
        if (j->is_read && j->ok && shm_seal_writes(g->fd)) j->ok = false;
        if (j->ok) {
            g->crc = j->crc;
        } else {
            log_error(j->is_read ? "objects are lost" : "nothing can be spilled", LOG_STR("why", j->why));
            memcpy(d->spill_error, j->why, sizeof d->spill_error);
        }
        int *bad = j->ok ? NULL : j->is_read ? &g->fd : &g->file;
        if (bad) {
            socket_close_all(bad, 1);
            *bad = -1;
        }
        memory_do(d, (spill_event){
                         .kind = j->is_read ? SPILL_READ : SPILL_WROTE, .segment = j->segment, .ok = j->ok});
    }
    vec_release(&done);
}

int daemon_memory_tick(node *d)
{
    int64_t next = spill_next(d->spill);

    if (next == INT64_MAX) return -1;
    if (next <= clock_now_ns()) {
        memory_do(d, (spill_event){.kind = SPILL_TICK});
        if ((next = spill_next(d->spill)) == INT64_MAX) return -1;
    }
    int64_t left = (next - clock_now_ns()) / 1000000 + 1;
    return left < 1 ? 1 : (int)left;
}

/* ---- messages and deaths ---- */

void daemon_drop_segment(node *d, uint64_t id)
{
    memory_do(d, (spill_event){.kind = SPILL_DROP, .segment = id});
}

void daemon_leave_memory(node *d, const client *c)
{
    VEC(uint64_t) empty = {0};

    memory_do(d, (spill_event){.kind = SPILL_GONE, .client = c->id});
    for (size_t i = 0; i < d->segments.n; i++) {
        segment *g = d->segments.at[i].value;
        if (g->writer != c->id) continue;
        g->writer = 0;
        if (g->objects == 0) vec_push(&empty, d->segments.at[i].key);
    }
    for (size_t i = 0; i < empty.n; i++) daemon_drop_segment(d, empty.at[i]);
    vec_release(&empty);
}

bool daemon_memory_message(node *d, client *c, proto_kind kind, wire *w)
{
    if (kind != PROTO_SEGMENT_NEW && kind != PROTO_SEGMENT_OPEN && kind != PROTO_SEGMENT_FREE &&
        kind != PROTO_SEGMENT_CLOSED)
        return false;
    uint64_t x = wire_u64(w), y = kind == PROTO_SEGMENT_FREE ? 0 : wire_u64(w);
    uint64_t wanted = kind == PROTO_SEGMENT_NEW ? wire_u64(w) : 0, limit = d->config.store_limit;
    if (wire_end(w, "segment")) return true;
    spill_event e = {.client = c->id};
    if (kind == PROTO_SEGMENT_NEW) {
        e.kind = SPILL_WANT;
        e.request = x;
        /* What leaves memory leaves by whole segments: they should be small beside it. */
        if (wanted > limit / PARTS) wanted = limit / PARTS;
        if (y < wanted) y = wanted;
        e.size = y > limit ? UINT64_MAX : shm_round((size_t)y);
    } else if (kind == PROTO_SEGMENT_OPEN) {
        e.kind = SPILL_OPEN;
        e.request = x;
        e.segment = y;
    } else if (kind == PROTO_SEGMENT_CLOSED) {
        e.kind = SPILL_CLOSED;
        e.segment = x;
        e.n = y < UINT32_MAX ? (uint32_t)y : UINT32_MAX;
    } else {
        segment *g = find_segment(d, x);
        if (!g || g->writer != c->id) return true;
        e.kind = SPILL_DROP;
        e.segment = x;
    }
    memory_do(d, e);
    return true;
}
