/* train/session/shared.h - the memory that the workers of one host train in.
 *
 *   | control | evaluation sums x 2 | norms | meetings | buffer 0 | buffer 1 | slot 0 | ... | slot V-1 |
 *
 * A *state buffer* is a whole state (nn/layout.h); a *slot* is what one shard of
 * the batch gives. The control block holds nothing but words that say how far
 * things are. What they mean:
 *
 *   commit      {generation, step number, buffer}: so many steps are done, and `buffer`
 *               holds their result. One compare-and-swap publishes a step; the
 *               same word carries the generation, so a step that was begun under
 *               an older one cannot be published.
 *   assignment  who computes what in a generation. Written before the generation
 *               begins and never changed while it lasts.
 *   flags       one per shard (gradients are in its slot), two per range of the
 *               parameters (norms are there; the other buffer is written). A flag is
 *               {generation, step number}: it is set or not, nothing is ever counted.
 *   wake        changes when somebody may have reason to look again. A hint: a
 *               process that dies before it gives the hint is seen by its death.
 *
 * Invariants
 * 1. The committed buffer is only read, by everybody, until the next commit; the
 *    controller may change it while no step is open, or with a new base.
 * 2. A slot, a range of the other buffer and a flag have one writer per
 *    generation. They change hands in the middle of a step only when the
 *    writer is dead (its pidfd says so), else with a commit: a commit needs
 *    every flag, and a worker sets a flag after its last store.
 * 3. Hence a torn slot or range is always one whose flag is not set in this
 *    generation, and is written again from the start.
 *
 * The memory has no name, is reserved in full when it is made, and is gone
 * with the last process that maps it. */
#ifndef TRAIN_SESSION_SHARED_H
#define TRAIN_SESSION_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nn/layout.h"

enum {
    SHARED_WORKERS = 256, /* the most workers of a host */
    SHARED_ASSIGNMENTS = 4, /* generations whose assignments may be looked at or written at once: 3 */
    SHARED_BUFFERS = 2,
};

/* ---- the word ---- */

/* generation : 24 | step number : 38 | buffer : 2 */
static inline uint64_t word_of(uint32_t generation, int64_t number, int buffer)
{
    return (uint64_t)generation << 40 | (uint64_t)number << 2 | (uint64_t)buffer;
}

static inline uint32_t word_generation(uint64_t w)
{
    return (uint32_t)(w >> 40);
}

static inline int64_t word_step_number(uint64_t w)
{
    return (int64_t)((w >> 2) & (((uint64_t)1 << 38) - 1));
}

static inline int word_buffer(uint64_t w)
{
    return (int)(w & 3);
}

/* ---- assignments ---- */

/* Who computes what. Ranges: the grid of the parameters, and that of the
 * statistics, cut into as many runs as there are ranks. */
typedef struct assignment {
    uint32_t base; /* changes when the committed buffer was changed from outside */
    uint16_t active[SHARED_WORKERS]; /* 1: takes part */
    uint16_t shard[LAYOUT_MAX_SHARDS]; /* whose it is */
    uint16_t range[SHARED_WORKERS];
} assignment;

/* An assignment in shared memory, where it may be overwritten while it is read;
 * whoever read it then finds that the generation has changed. */
typedef struct shared_assignment {
    _Atomic uint32_t base;
    _Atomic uint16_t active[SHARED_WORKERS];
    _Atomic uint16_t shard[LAYOUT_MAX_SHARDS];
    _Atomic uint16_t range[SHARED_WORKERS];
} shared_assignment;

/* ---- the control block ---- */

/* What is to be done: the steps numbered begin .. end-1 are steps 0, 1, ... of an epoch.
 * Changed only while no step is open (step number == end); `end` comes last. */
typedef struct shared_job {
    int feed; /* which data */
    bool train; /* with the update; else sums only */
    int64_t epoch, begin;
    _Atomic int64_t end;
} shared_job;

/* What a worker is at, for the watch and the obituary. */
typedef enum worker_phase {
    WORKER_STARTING,
    WORKER_WAITING,
    WORKER_COMPUTING,
    WORKER_NORMING,
    WORKER_UPDATING
} worker_phase;

typedef struct shared_worker {
    /* 1: sleeps on the wake word, or is about to; of each its own, because whoever buries it
     * sets it to 0. */
    _Alignas(64) _Atomic uint32_t asleep;
    _Atomic uint32_t idle; /* generation in which it has nothing to do while work lies with the dead */
    _Atomic uint32_t ready; /* incarnation that is up and waits for its place among the workers */
    _Atomic uint32_t dismissed; /* 1: its worker has no place any more and may end */
    _Atomic uint32_t failed; /* incarnation whose error is below */
    uint32_t failed_base; /* of the assignment under which it failed */
    /* Bytes that its scratch memory has (train/group/worker_scratch.h); by its worker. */
    _Atomic uint64_t scratch;
    /* Step number << 16 | phase << 12 | shard or range; see shared_worker_progress(). */
    _Atomic uint64_t progress;
    /* How many threads of its worker read rows of a later step (read_ahead_start()). */
    _Atomic uint32_t reads_ahead;
    /* Trained by this rank, the time that it took, and of that the wait for samples and the
     * update; besides, the wait for others within a step. For people. */
    _Atomic int64_t samples, busy_ns, data_ns, update_ns, wait_ns;
    manta_error error;
} shared_worker;

typedef struct control {
    _Alignas(64) _Atomic uint64_t commit;
    _Alignas(64) _Atomic uint32_t wake; /* an event word; its sleepers are worker[].asleep */
    _Alignas(64) _Atomic uint32_t staged; /* generation that the next commit begins, 0: the same */
    _Atomic uint32_t leave; /* the workers are to end */
    _Atomic int64_t allowed; /* steps numbered below may be committed */
    _Atomic int64_t wake_at; /* the controller wants to hear of this step number */
    _Atomic uint32_t cutting; /* it wants to hear of whoever has nothing left to do */
    _Alignas(64) _Atomic uint32_t controller_asleep;
    _Alignas(64) int workers;
    int shards;
    bool norms; /* an update needs them */
    int wait_spin_us; /* how long a worker spins before it sleeps */
    bool crowded; /* more threads than cores: give way while spinning */
    shared_job job;
    _Atomic uint64_t shard_flag[LAYOUT_MAX_SHARDS];
    _Atomic uint64_t norm_flag[SHARED_WORKERS];
    _Atomic uint64_t range_flag[SHARED_WORKERS];
    shared_assignment assignments[SHARED_ASSIGNMENTS];
    shared_worker worker[SHARED_WORKERS];
} control;

/* Makes a control block ready: generation 1, step number 0, buffer 0, nobody active.
 * c is zeroed memory. */
void control_init(control *c, int workers, int shards, bool norms);

/* Says that there is reason to look again; wakes those who sleep. */
void control_wake(control *c);

/* Waits, spinning a little at first, until the wake word is no longer `seen` or
 * the deadline has passed. */
void control_wait(control *c, int rank, uint32_t seen, int64_t deadline);

/* Stores and loads the assignment of a generation. A load is only as good as the
 * generation is afterwards. */
void control_put_assignment(control *c, uint32_t generation, const assignment *t);
void control_get_assignment(const control *c, uint32_t generation, assignment *t);

/* Leaves word of what a worker is at. */
static inline void shared_worker_progress(control *c, int rank, int64_t number, worker_phase phase, int item)
{
    atomic_store_explicit(&c->worker[rank].progress,
                          (uint64_t)number << 16 | (uint64_t)phase << 12 | (uint64_t)item,
                          memory_order_relaxed);
}

/* One writer at a time: the worker of the rank. */
static inline void shared_worker_add(_Atomic int64_t *sum, int64_t n)
{
    atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + n, memory_order_relaxed);
}

/* What a rank adds to what it has done; shared_worker's. */
typedef struct worker_account {
    int64_t samples, busy_ns, data_ns, update_ns, wait_ns;
} worker_account;

static inline void shared_worker_account(control *c, int rank, const worker_account *more)
{
    shared_worker *s = &c->worker[rank];

    shared_worker_add(&s->samples, more->samples);
    shared_worker_add(&s->busy_ns, more->busy_ns);
    shared_worker_add(&s->data_ns, more->data_ns);
    shared_worker_add(&s->update_ns, more->update_ns);
    shared_worker_add(&s->wait_ns, more->wait_ns);
}

/* ---- the whole memory ---- */

typedef struct shared {
    int fd;
    size_t size;
    char *at; /* where this process has mapped it */
    control *c;
    size_t off_eval, off_norms, off_meetings, meetings_size, off_buffers, off_slots, buffer_stride,
        slot_stride, eval_stride;
    int shards;
} shared;

/* Makes the memory for states and slots of `l`, with room for the norms of
 * n_segments segments and meetings_size bytes of lockstep.h. *out: owned,
 * shared_free(). MANTA_ENOSPC. */
manta_status shared_new(const layout *l, int n_segments, size_t meetings_size, int workers, int shards,
                        bool norms, shared **out);
/* Maps memory that shared_new() has made, in a process that has come by its descriptor, which
 * is taken (on failure too); l, n_segments, meetings_size and shards are those that it was
 * made with. *out: owned, shared_free(). MANTA_EINVAL it has another size. */
manta_status shared_join(const layout *l, int n_segments, size_t meetings_size, int shards, int fd,
                         shared **out);
/* Maps it in a forked process, which does not inherit the mapping. */
manta_status shared_attach(shared *s);
void shared_free(shared *s); /* accepts NULL */

static inline void *shared_buffer(const shared *s, int i)
{
    return s->at + s->off_buffers + (size_t)i * s->buffer_stride;
}

static inline void *shared_slot(const shared *s, int i)
{
    return s->at + s->off_slots + (size_t)i * s->slot_stride;
}

static inline void *shared_meetings(const shared *s)
{
    return s->at + s->off_meetings;
}

static inline double *shared_norms(const shared *s)
{
    return (double *)(void *)(s->at + s->off_norms);
}

/* Sums of an evaluation after `number` steps: two places that alternate. */
static inline double *shared_eval(const shared *s, int64_t number)
{
    return (double *)(void *)(s->at + s->off_eval + (size_t)(number & 1) * s->eval_stride);
}

#endif
