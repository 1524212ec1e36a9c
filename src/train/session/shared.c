/* shared.c - the memory that the workers of one host train in. */
#include "train/session/shared.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "os/eventcount.h"
#include "os/shm.h"
#include "os/sys.h"

/* ---- control ---- */

void control_init(control *c, int workers, int shards, bool norms)
{
    c->workers = workers;
    c->shards = shards;
    c->norms = norms;
    c->wait_spin_us = 200;
    atomic_store(&c->commit, word_of(1, 0, 0));
}

/* Others finish within microseconds when the work is divided evenly, and a
 * sleeping process takes tens of them to wake up. Past the first moments a
 * spinner gives way, because whom it waits for may need its core. */
enum { LOOKS = 32, ALONE_NS = 20 * 1000 };

void control_wake(control *c)
{
    bool asleep = false;

    atomic_fetch_add(&c->wake, 1);
    for (int i = 0; i < c->workers && !asleep; i++)
        asleep = eventword_wake(&c->wake, &c->worker[i].asleep, INT_MAX, true);
}

void control_wait(control *c, int rank, uint32_t seen, int64_t deadline)
{
    const spin_policy policy = {.clock_every = LOOKS,
                                .alone_turns = SPIN_ANY_TURNS,
                                .alone_ns = c->crowded ? SPIN_CROWDED : ALONE_NS,
                                .limit_ns = (int64_t)c->wait_spin_us * 1000};

    if (eventword_spin(&c->wake, seen, false, &policy)) return;
    (void)eventword_sleep(&c->wake, seen, &c->worker[rank].asleep, deadline, true);
}

void control_put_assignment(control *c, uint32_t generation, const assignment *t)
{
    shared_assignment *to = &c->assignments[generation % SHARED_ASSIGNMENTS];

    atomic_store_explicit(&to->base, t->base, memory_order_relaxed);
    for (int i = 0; i < c->workers; i++) {
        atomic_store_explicit(&to->active[i], t->active[i], memory_order_relaxed);
        atomic_store_explicit(&to->range[i], t->range[i], memory_order_relaxed);
    }
    for (int i = 0; i < c->shards; i++) {
        atomic_store_explicit(&to->shard[i], t->shard[i], memory_order_relaxed);
    }
}

void control_get_assignment(const control *c, uint32_t generation, assignment *t)
{
    const shared_assignment *from = &c->assignments[generation % SHARED_ASSIGNMENTS];

    t->base = atomic_load_explicit(&from->base, memory_order_relaxed);
    for (int i = 0; i < c->workers; i++) {
        t->active[i] = atomic_load_explicit(&from->active[i], memory_order_relaxed);
        t->range[i] = atomic_load_explicit(&from->range[i], memory_order_relaxed);
    }
    for (int i = 0; i < c->shards; i++) {
        t->shard[i] = atomic_load_explicit(&from->shard[i], memory_order_relaxed);
    }
}

/* ---- memory ---- */

/* What lies where. */
static shared *place_all(const layout *l, int n_segments, size_t meetings_size, int shards)
{
    shared *s = mem_new(sizeof *s);

    s->fd = -1;
    s->shards = shards;
    s->eval_stride = ((size_t)l->n_sums + 1) * sizeof(double);
    s->off_eval = shm_round(sizeof(control));
    s->off_norms = s->off_eval + 2 * s->eval_stride;
    s->off_meetings = shm_round(s->off_norms + (size_t)(2 * n_segments + 2) * sizeof(double));
    s->meetings_size = meetings_size;
    s->off_buffers = shm_round(s->off_meetings + meetings_size);
    s->buffer_stride = shm_round(l->state_size);
    s->off_slots = s->off_buffers + SHARED_BUFFERS * s->buffer_stride;
    s->slot_stride = shm_round(l->slot_size);
    s->size = s->off_slots + (size_t)shards * s->slot_stride;
    return s;
}

manta_status shared_new(const layout *l, int n_segments, size_t meetings_size, int workers, int shards,
                        bool norms, shared **out)
{
    shared *s = place_all(l, n_segments, meetings_size, shards);
    manta_status st;

    if ((st = shm_new_large("manta-train", s->size, &s->fd))) goto out;
    if ((st = shared_attach(s))) goto out;
    control_init(s->c, workers, shards, norms);
    *out = s;
    s = NULL;
out:
    shared_free(s);
    return st;
}

manta_status shared_join(const layout *l, int n_segments, size_t meetings_size, int shards, int fd,
                         shared **out)
{
    shared *s = place_all(l, n_segments, meetings_size, shards);
    size_t size = 0;
    manta_status st;

    s->fd = fd;
    if ((st = shm_size(fd, &size))) goto out;
    if (size != s->size) {
        st = manta_fail(MANTA_EINVAL, "memory of %zu bytes for a model that needs %zu: another model?", size,
                        s->size);
        goto out;
    }
    if ((st = shared_attach(s))) goto out;
    *out = s;
    s = NULL;
out:
    shared_free(s);
    return st;
}

manta_status shared_attach(shared *s)
{
    void *at;

    s->at = NULL;
    TRY(shm_map(s->fd, s->size, true, &at));
    s->at = at;
    s->c = at;
    return MANTA_OK;
}

void shared_free(shared *s)
{
    if (!s) return;
    shm_unmap(s->at, s->size);
    if (s->fd >= 0) os->close(s->fd);
    mem_free(s);
}
