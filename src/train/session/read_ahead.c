/* read_ahead.c - rows of batches, read by a thread while the caller computes. */
#include "train/session/read_ahead.h"

#include "base/clock.h"
#include "base/mem.h"
#include "data/loader.h"
#include "os/thread.h"

typedef enum slot_state { FREE, WANTED, READING, READY } slot_state;

typedef struct slot {
    slot_state state;
    read_range range; /* unless it is FREE */
    int64_t turn; /* WANTED: the least is read first */
    loader_rows *rows;
    manta_batch batch; /* READY, when code is 0 */
    manta_status code;
    manta_error error;
} slot;

struct read_ahead {
    manta_loader *l;
    _Atomic uint32_t *busy; /* or NULL */
    thread_id thread;
    bool started;
    mutex lock; /* of everything below, but for what states give away */
    cond wanted; /* a slot is, or the thread is to end */
    cond ready; /* a slot is */
    slot slots[READ_AHEAD_SLOTS];
    int given; /* the slot that the caller has, or -1 */
    bool closing;
    bool counts; /* in *busy */
};

static void set_busy(read_ahead *a, bool on)
{
    if (!a->busy || a->counts == on) return;
    a->counts = on;
    atomic_fetch_add(a->busy, on ? 1u : UINT32_MAX);
}

/* ---- the thread ---- */

static slot *first_wanted(read_ahead *a)
{
    slot *first = NULL;

    for (int i = 0; i < READ_AHEAD_SLOTS; i++) {
        slot *s = &a->slots[i];
        if (s->state == WANTED && (!first || s->turn < first->turn)) first = s;
    }
    return first;
}

static void read_slot(read_ahead *a, slot *s)
{
    const read_range *r = &s->range;

    s->code = loader_fetch_into(a->l, s->rows, r->at.epoch, r->at.step, r->lo, r->hi, &s->batch);
    if (s->code) manta_error_get(&s->error);
}

static void thread_main(void *ctx)
{
    read_ahead *a = ctx;

    mutex_lock(&a->lock);
    while (!a->closing) {
        slot *s = first_wanted(a);
        if (!s) {
            cond_wait(&a->wanted, &a->lock, CLOCK_NEVER);
            continue;
        }
        s->state = READING;
        set_busy(a, s->turn >= 0);
        mutex_unlock(&a->lock);
        read_slot(a, s);
        mutex_lock(&a->lock);
        set_busy(a, false);
        s->state = READY;
        cond_signal(&a->ready);
    }
    mutex_unlock(&a->lock);
}

/* ---- the caller; the lock is held ---- */

static slot *find_range(read_ahead *a, const read_range *r)
{
    for (int i = 0; i < READ_AHEAD_SLOTS; i++) {
        if (a->slots[i].state != FREE && read_range_is(&a->slots[i].range, r)) return &a->slots[i];
    }
    return NULL;
}

/* A slot for a range that none has. The one that is read into and the one that the
 * caller has are not to be had, so with three there is always another. */
static slot *want_range(read_ahead *a, const read_range *r, int64_t turn)
{
    slot *s = NULL;

    for (int i = 0; i < READ_AHEAD_SLOTS; i++) {
        if (a->slots[i].state == READING || i == a->given) continue;
        if (!s || a->slots[i].state == FREE) s = &a->slots[i];
    }
    s->state = WANTED;
    s->range = *r;
    s->turn = turn;
    cond_signal(&a->wanted);
    return s;
}

manta_status read_ahead_take(read_ahead *a, const read_range *r, manta_batch *out)
{
    slot *s;

    mutex_lock(&a->lock);
    s = find_range(a, r);
    if (!s) {
        a->given = -1;
        s = want_range(a, r, -1);
    }
    s->turn = -1;
    if (s->state == READING) set_busy(a, false); /* from now on it is waited for */
    while (s->state != READY) cond_wait(&a->ready, &a->lock, CLOCK_NEVER);
    a->given = (int)(s - a->slots);
    mutex_unlock(&a->lock);
    if (s->code) return manta_error_raise(&s->error);
    *out = s->batch;
    return MANTA_OK;
}

static bool is_among(const read_range *r, const read_range *all, int n)
{
    for (int i = 0; i < n; i++) {
        if (read_range_is(r, &all[i])) return true;
    }
    return false;
}

void read_ahead_expect(read_ahead *a, const read_range *next, int n)
{
    if (n > READ_AHEAD_MOST) n = READ_AHEAD_MOST;
    mutex_lock(&a->lock);
    for (int i = 0; i < READ_AHEAD_SLOTS; i++) {
        slot *s = &a->slots[i];
        if (s->state == READING || i == a->given || is_among(&s->range, next, n)) continue;
        s->state = FREE;
    }
    for (int i = 0; i < n; i++) {
        slot *s = find_range(a, &next[i]);
        bool room = false;
        for (int k = 0; k < READ_AHEAD_SLOTS; k++) room |= a->slots[k].state == FREE;
        if (s) {
            s->turn = i;
        } else if (room) { /* else the thread is reading what nobody wants any more */
            (void)want_range(a, &next[i], i);
        }
    }
    mutex_unlock(&a->lock);
}

/* ---- start and end ---- */

manta_status read_ahead_start(manta_loader *l, _Atomic uint32_t *busy, read_ahead **out)
{
    read_ahead *a = mem_new(sizeof *a);
    manta_status st = MANTA_OK;

    *a = (read_ahead){.l = l, .busy = busy, .given = -1};
    mutex_init(&a->lock);
    cond_init(&a->wanted);
    cond_init(&a->ready);
    for (int i = 0; i < READ_AHEAD_SLOTS && !st; i++) st = loader_rows_new(l, &a->slots[i].rows);
    if (!st) st = thread_start(&a->thread, "manta-ahead", thread_main, a);
    if (st) {
        read_ahead_stop(a);
        return st;
    }
    a->started = true;
    *out = a;
    return MANTA_OK;
}

void read_ahead_stop(read_ahead *a)
{
    if (!a) return;
    mutex_lock(&a->lock);
    a->closing = true;
    cond_signal(&a->wanted);
    mutex_unlock(&a->lock);
    if (a->started) thread_join(&a->thread);
    for (int i = 0; i < READ_AHEAD_SLOTS; i++) loader_rows_free(a->slots[i].rows);
    cond_release(&a->ready);
    cond_release(&a->wanted);
    mutex_release(&a->lock);
    mem_free(a);
}
