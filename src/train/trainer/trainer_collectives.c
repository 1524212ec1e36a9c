/* trainer_collectives.c - what the ranks of a trainer do together: meetings, sums and
 * broadcasts. Steps of a model are trainer_step.c's.
 *
 *   meeting k     rank 0                        rank 1
 *                 writes its slot k & 1         writes its slot k & 1
 *                 its `meetings` becomes k      its `meetings` becomes k
 *                 waits until all have come, or have ended
 *                 reads the slots k & 1 of those who came
 *
 * Who writes what: a rank its own two slots and its own `meetings`; all count `meeting` up,
 * which is what they sleep on. The driver sets `over`, which ends every wait with MANTA_EDIED.
 *
 * Why that is safe:
 * 1. A slot is read only between coming to its meeting and coming to the next one. It is
 *    written again for meeting k + 2, by a rank that has left meeting k + 1, to which every
 *    reader of meeting k has come. So nobody reads what is being written, with two slots and
 *    one meeting per exchange.
 * 2. A rank whose loop has ended stays at the number of meetings that it came to, which is the
 *    same for all who look: all leave it out of the same sums.
 * 3. Numbers are added in the order of ranks, so that all have the same bits.
 *
 * Slots grow when they are asked to, in every rank at the same meeting, since all bring as
 * much; the own ones are reserved, so that memory which is not there is an error and not a
 * signal.
 *
 * What may be changed: how long a rank spins, and how large slots are. What may not: a way
 * through this file, or trainer_step.c, on which one rank comes to a meeting and another, whose
 * loop goes on, does not. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"
#include "os/file.h"
#include "os/spin.h"
#include "os/sys.h"
#include "train/trainer/trainer_worker.h"

/* ---- meetings ---- */

static manta_status reserve_slot(const manta_worker *w, off_t at, size_t n)
{
    int rc;

    do rc = os->fallocate(w->mem.fd, 0, at, (off_t)n);
    while (rc && errno == EINTR);
    return rc ? file_fail(errno, "reserving", "memory for a rank's slot") : MANTA_OK;
}

/* What was mapped before stays until there is more. */
static manta_status map_slot(manta_worker *w, int rank, int turn, size_t n)
{
    slot *s = &w->slots[rank][turn];
    off_t at = (off_t)trainer_slot_at(w->mem.world, rank, turn);
    void *fresh;

    if (rank == w->t.rank) TRY(reserve_slot(w, at, n));
    fresh = os->mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, w->mem.fd, at);
    if (fresh == MAP_FAILED)
        return manta_fail(MANTA_ENOMEM, "slot of rank %d: %zu bytes cannot be mapped: %s", rank, n,
                          strerror(errno));
    if (s->at) os->munmap(s->at, s->size);
    *s = (slot){fresh, n};
    return MANTA_OK;
}

/* Maps the slots so that each holds n bytes. The own ones are reserved: memory
 * that is not there is an error now, not a signal later. */
static manta_status map_slots(manta_worker *w, size_t n)
{
    if (n > TRAINER_SLOT)
        return manta_fail(MANTA_EUNSUPPORTED, "a slot of %zu bytes is asked for, expected up to %llu", n,
                          (unsigned long long)TRAINER_SLOT);
    n = trainer_round_up(n);
    if (n <= w->slot_size) return MANTA_OK;
    for (int rank = 0; rank < w->t.world; rank++) {
        for (int turn = 0; turn < 2; turn++) TRY(map_slot(w, rank, turn, n));
    }
    w->slot_size = n;
    return MANTA_OK;
}

/* Of the meeting that comes next. */
static slot_head *own_slot(manta_worker *w)
{
    return (slot_head *)(void *)w->slots[w->t.rank][(w->meetings + 1) & 1].at;
}

manta_status worker_slot(manta_worker *w, slot_head **out)
{
    TRY(map_slots(w, sizeof(slot_head)));
    *out = own_slot(w);
    return MANTA_OK;
}

const slot_head *worker_slot_of(manta_worker *w, int rank)
{
    if (atomic_load(&w->mem.c->ranks[rank].meetings) < w->meetings) return NULL;
    return (const slot_head *)(const void *)w->slots[rank][w->meetings & 1].at;
}

/* Whether this rank has come to meeting k, or never will. */
static bool is_settled(const trainer_rank *r, uint64_t k)
{
    return atomic_load(&r->meetings) >= k || atomic_load(&r->state) == RANK_ENDED;
}

/* Ranks come to a meeting at about the same time; the first ones give way to the others. */
static const spin_policy meets = {
    .clock_every = 1, .alone_turns = SPIN_ANY_TURNS, .alone_ns = SPIN_CROWDED, .limit_ns = 100000};

manta_status worker_meet(manta_worker *w)
{
    trainer_control *c = w->mem.c;
    uint64_t k = ++w->meetings;
    spin s = {0};

    atomic_store(&c->ranks[w->t.rank].meetings, k);
    trainer_wake_ranks(c);
    for (int i = 0; i < w->t.world;) {
        uint32_t seen = atomic_load(&c->meeting);
        if (is_settled(&c->ranks[i], k)) {
            i++;
            continue;
        }
        TRY(worker_is_over(w));
        if (spin_next(&s, &meets) == SPIN_OVER) {
            trainer_rank_sleep(c, seen, s.now + 20000000);
        } else {
            sched_yield();
        }
    }
    return MANTA_OK;
}

manta_status manta_worker_barrier(manta_worker *w)
{
    REFUSE_NULL(w);

    TRY(map_slots(w, sizeof(slot_head)));
    return worker_meet(w);
}

/* Adds up, or takes the greatest of, n numbers over the ranks. */
manta_status worker_combine(manta_worker *w, double *values, int n, bool greatest)
{
    bool first = true;

    if (n < 0 || n > TRAINER_NUMBERS) {
        return manta_fail(MANTA_EINVAL, "a sum over the ranks of %d numbers, expected 0 to %d", n,
                          TRAINER_NUMBERS);
    }
    TRY(map_slots(w, sizeof(slot_head)));
    memcpy(own_slot(w)->numbers, values, (size_t)n * sizeof *values);
    TRY(worker_meet(w));
    for (int rank = 0; rank < w->t.world; rank++) {
        const slot_head *h = worker_slot_of(w, rank);
        if (!h) continue;
        for (int i = 0; i < n; i++) {
            if (first) {
                values[i] = h->numbers[i];
            } else {
                values[i] = greatest ? fmax(values[i], h->numbers[i]) : values[i] + h->numbers[i];
            }
        }
        first = false;
    }
    return MANTA_OK;
}

manta_status manta_worker_sum(manta_worker *w, double *values, int n)
{
    REFUSE_NULL(w);
    REFUSE_ARRAY(n, values);
    return worker_combine(w, values, n, false);
}

/* The size first: who comes with another would read what is not there. */
manta_status manta_worker_broadcast(manta_worker *w, void *data, size_t n)
{
    REFUSE_NULL(w);
    if (n > 0) REFUSE_NULL(data);

    const slot_head *chief;

    TRY(map_slots(w, sizeof(slot_head)));
    own_slot(w)->numbers[0] = (double)n;
    TRY(worker_meet(w));
    for (int rank = 0; rank < w->t.world; rank++) {
        const slot_head *h = worker_slot_of(w, rank);
        if (!h || h->numbers[0] == (double)n) continue;
        return manta_fail(MANTA_EINVAL,
                          "a broadcast of %zu bytes: rank %d has come with %.0f, expected as many", n, rank,
                          h->numbers[0]);
    }
    TRY(map_slots(w, n < TRAINER_SLOT ? sizeof(slot_head) + n : n));
    if (w->t.rank == 0 && n) memcpy(own_slot(w) + 1, data, n);
    TRY(worker_meet(w));
    chief = worker_slot_of(w, 0);
    if (!chief)
        return manta_fail(MANTA_EDIED, "a broadcast of %zu bytes: rank 0, which has them, has ended its loop",
                          n);
    if (w->t.rank && n) memcpy(data, chief + 1, n);
    return MANTA_OK;
}
