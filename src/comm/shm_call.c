/* shm_call.c - the collectives as steps in shared memory; see shm.h.
 *
 *   kind                a step carries, per rank            and is read by
 *   barrier             nothing                             all
 *   broadcast           the root's next chunk               all
 *   reduce              the next chunk                      the root
 *   all-reduce          the next chunk                      all: each reduces it for itself
 *   ... two-phase       the next chunk; then this rank's    all; all
 *                       part of its reduction
 *   all-gather          the next chunk                      all
 *   reduce-scatter,     the next chunk of each part         the part's rank
 *   all-to-all
 *
 * Two ranks read as much of each other either way, and one step is less than
 * two; more ranks read less in two phases. */
#include <string.h>

#include "base/stream.h"
#include "comm/crash.h"
#include "comm/reduce.h"
#include "comm/shm.h"
#include "comm/sizes.h"

static bool is_at(const shm *t, int rank, uint32_t step)
{
    uint32_t posted = atomic_load_explicit(&shm_rank_at(t, rank)->posted, memory_order_acquire);

    return (int32_t)(posted - step) >= 0;
}

static bool all_are_at(const shm *t, uint32_t step)
{
    for (int i = 0; i < t->size; i++)
        if (i != t->rank && !is_at(t, i, step)) return false;
    return true;
}

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- what a step does ---- */

static bool has_parts(const manta_work *w)
{
    return w->c.kind == MANTA_COLLECTIVE_REDUCE_SCATTER || w->c.kind == MANTA_COLLECTIVE_ALL_TO_ALL;
}

static void begin_work(shm *t, manta_work *w)
{
    int64_t chunks;

    w->begun = true;
    w->base = t->step + 1;
    w->words = call_words_of(&w->c, t->calls++);
    w->chunk = has_parts(w) ? t->head.slot_size / (size_t)t->size & ~(size_t)63 : t->head.slot_size;
    chunks = (int64_t)((w->size + w->chunk - 1) / w->chunk);
    w->two_phase = w->c.kind == MANTA_COLLECTIVE_ALL_REDUCE && t->size > 2 && w->size >= SHM_TWO_PHASE_FROM;
    w->steps = chunks < 1 ? 1 : w->two_phase ? 2 * chunks : chunks;
    w->produced = w->consumed = 0;
}

/* Where the bytes of a chunk lie in a part, and how many. */
static size_t chunk_of(const manta_work *w, int64_t chunk, size_t *n)
{
    size_t at = (size_t)chunk * w->chunk;

    *n = at < w->size ? least_of(w->chunk, w->size - at) : 0;
    return at;
}

/* The share of rank i in a chunk of n bytes: whole cache lines. */
static size_t share_of(const shm *t, size_t n, int i, size_t *count)
{
    size_t lines = (n + 63) / 64, size = (size_t)t->size;
    size_t from = least_of(lines * (size_t)i / size * 64, n),
           to = least_of(lines * ((size_t)i + 1) / size * 64, n);

    *count = to - from;
    return from;
}

/* The second phase: reduces this rank's share of the chunk that step - 1 carried. */
static void reduce_share(const shm *t, const manta_work *w, uint32_t step, size_t n)
{
    _Alignas(64) char part[8192];
    const void *src[MANTA_GROUP_MAX];
    size_t count, from = share_of(t, n, t->rank, &count), element = manta_dtype_size(w->c.dtype);

    for (size_t at = 0; at < count; at += sizeof part) {
        size_t few = least_of(sizeof part, count - at);
        for (int i = 0; i < t->size; i++) src[i] = shm_slot_at(t, i, step - 1) + from + at;
        reduce_run(w->c.dtype, w->c.reduce, src, t->size, part, (int64_t)(few / element));
        stream_copy(shm_slot_at(t, t->rank, step) + from + at, part, few);
    }
}

static void produce_chunk(const shm *t, const manta_work *w, int64_t k)
{
    uint32_t step = w->base + (uint32_t)k;
    char *slot = shm_slot_at(t, t->rank, step);
    size_t n, at = chunk_of(w, w->two_phase ? k / 2 : k, &n);
    const char *in = w->c.in;

    if (!n) return;
    if (w->two_phase && k % 2) {
        reduce_share(t, w, step, n);
    } else if (has_parts(w)) {
        for (int i = 0; i < t->size; i++)
            if (i != t->rank) stream_copy(slot + (size_t)i * w->chunk, in + (size_t)i * w->size + at, n);
    } else if (w->c.kind == MANTA_COLLECTIVE_BROADCAST) {
        if (t->rank == w->c.peer) stream_copy(slot, in + at, n);
    } else if (w->c.kind != MANTA_COLLECTIVE_REDUCE || t->rank != w->c.peer) {
        stream_copy(slot, in + at, n);
    }
}

/* Reduces a chunk of everybody's; our own contribution lies in `in`. */
static void reduce_chunk(const shm *t, const manta_work *w, uint32_t step, size_t at, size_t n)
{
    const void *src[MANTA_GROUP_MAX];
    bool parts = has_parts(w);

    for (int i = 0; i < t->size; i++)
        src[i] = shm_slot_at(t, i, step) + (parts ? (size_t)t->rank * w->chunk : 0);
    src[t->rank] = (const char *)w->c.in + (parts ? (size_t)t->rank * w->size : 0) + at;
    reduce_run(w->c.dtype, w->c.reduce, src, t->size, (char *)w->c.out + at,
               (int64_t)(n / manta_dtype_size(w->c.dtype)));
}

static void copy_bytes(char *to, const char *from, size_t n)
{
    if (to != from) memcpy(to, from, n);
}

/* Puts the parts of a chunk together: out holds one of w->size from each rank. */
static void collect_parts(const shm *t, const manta_work *w, uint32_t step, size_t at, size_t n)
{
    bool parts = has_parts(w);

    for (int i = 0; i < t->size; i++) {
        const char *from = shm_slot_at(t, i, step) + (parts ? (size_t)t->rank * w->chunk : 0);
        if (i == t->rank) from = (const char *)w->c.in + (parts ? (size_t)i * w->size : 0) + at;
        copy_bytes((char *)w->c.out + (size_t)i * w->size + at, from, n);
    }
}

static void consume_chunk(const shm *t, const manta_work *w, int64_t k)
{
    uint32_t step = w->base + (uint32_t)k;
    size_t n, at = chunk_of(w, w->two_phase ? k / 2 : k, &n);
    char *out = w->c.out;

    if (!n) return;
    switch (w->c.kind) {
    case MANTA_COLLECTIVE_ALL_REDUCE:
        if (!w->two_phase) reduce_chunk(t, w, step, at, n);
        for (int i = 0; w->two_phase && k % 2 && i < t->size; i++) {
            size_t count, from = share_of(t, n, i, &count);
            memcpy(out + at + from, shm_slot_at(t, i, step) + from, count);
        }
        break;
    case MANTA_COLLECTIVE_REDUCE:
        if (t->rank == w->c.peer) reduce_chunk(t, w, step, at, n);
        break;
    case MANTA_COLLECTIVE_REDUCE_SCATTER: reduce_chunk(t, w, step, at, n); break;
    case MANTA_COLLECTIVE_BROADCAST:
        if (t->rank != w->c.peer)
            memcpy(out + at, shm_slot_at(t, w->c.peer, step), n);
        else if (w->c.out)
            copy_bytes(out + at, (const char *)w->c.in + at, n);
        break;
    case MANTA_COLLECTIVE_ALL_GATHER:
    case MANTA_COLLECTIVE_ALL_TO_ALL: collect_parts(t, w, step, at, n); break;
    default: break;
    }
}

/* ---- moving on ---- */

/* Whether rank i must have posted step k of w before it can be read. */
static bool needs_rank(const shm *t, const manta_work *w, int64_t k, int i)
{
    if (i == t->rank) return false;
    if (k == 0) return true; /* the words */
    if (w->c.kind == MANTA_COLLECTIVE_BROADCAST) return i == w->c.peer;
    if (w->c.kind == MANTA_COLLECTIVE_REDUCE) return t->rank == w->c.peer;
    return true;
}

static bool can_consume(const shm *t, const manta_work *w)
{
    for (int i = 0; i < t->size; i++)
        if (needs_rank(t, w, w->consumed, i) && !is_at(t, i, w->base + (uint32_t)w->consumed)) return false;
    return true;
}

/* Which step all must have posted before the next one is written. */
static uint32_t before_produce(const manta_work *w)
{
    uint32_t step = w->base + (uint32_t)w->produced;

    return w->two_phase && w->produced % 2 ? step - 1 : step - SHM_LEAD;
}

static bool can_produce(const shm *t, const manta_work *w)
{
    int64_t ahead = w->produced - w->consumed;

    if (w->produced == w->steps || ahead > SHM_AHEAD || (w->consumed == 0 && ahead > 0)) return false;
    return all_are_at(t, before_produce(w));
}

static void post_step(const shm *t, uint32_t step)
{
    stream_done();
    atomic_store_explicit(&shm_rank_at(t, t->rank)->posted, step, memory_order_release);
    shm_ring_all(t);
}

/* All ranks compare with rank 0, so all say the same. */
static manta_status compare_words(const shm *t, const manta_work *w)
{
    call_words first = shm_rank_at(t, 0)->words[w->base % SHM_SLOTS];

    for (int i = 1; i < t->size; i++) {
        call_words other = shm_rank_at(t, i)->words[w->base % SHM_SLOTS];
        TRY(call_compare(0, &first, i, &other));
    }
    return MANTA_OK;
}

static manta_status look_gone(const shm *t, const manta_work *w)
{
    uint32_t step = w->base + (uint32_t)w->consumed;

    for (int i = 0; i < t->size; i++) {
        if (i == t->rank || !shm_is_gone(t, i) || is_at(t, i, step)) continue;
        TRY(shm_look_failed(t)); /* who gives up says why, and then leaves */
        return shm_say_gone(t, i, w);
    }
    return shm_look_failed(t);
}

static manta_status poll_collective(shm *t, manta_work *w, bool *moved)
{
    bool any = false;

    if (!w->begun) {
        TRY(shm_look_failed(t));
        begin_work(t, w);
        comm_crash(COMM_CRASH_BEGUN);
    }
    for (bool more = true; more;) {
        more = false;
        if (can_produce(t, w)) {
            if (w->produced == 0) shm_rank_at(t, t->rank)->words[w->base % SHM_SLOTS] = w->words;
            comm_crash(COMM_CRASH_WORDS);
            produce_chunk(t, w, w->produced);
            comm_crash(COMM_CRASH_PRODUCED);
            post_step(t, w->base + (uint32_t)w->produced++);
            comm_crash(COMM_CRASH_POSTED);
            more = true;
        }
        if (w->consumed < w->produced && can_consume(t, w)) {
            comm_crash(COMM_CRASH_SEEN);
            manta_status st = w->consumed == 0 ? compare_words(t, w) : MANTA_OK;
            if (st) {
                t->step = w->base;
                return st;
            }
            consume_chunk(t, w, w->consumed++);
            comm_crash(COMM_CRASH_CONSUMED);
            more = true;
        }
        if (w->consumed == w->steps) {
            t->step = w->base + (uint32_t)w->steps - 1;
            w->done = true;
            *moved = true;
            comm_crash(COMM_CRASH_DONE);
            return MANTA_OK;
        }
        any |= more;
    }
    if (any)
        *moved = true;
    else
        TRY(look_gone(t, w));
    return MANTA_OK;
}

/* ---- messages ---- */

static void begin_message(shm *t, manta_work *w)
{
    uint64_t *count = w->c.kind == MANTA_COLLECTIVE_SEND ? t->sends : t->receives;

    w->begun = true;
    w->words = call_words_of(&w->c, count[w->c.peer]++);
    w->chunk = t->head.cell_size;
    w->steps = (int64_t)((w->size + w->chunk - 1) / w->chunk);
    if (w->steps < 1) w->steps = 1;
    w->produced = w->consumed = 0;
    w->status = MANTA_OK;
}

static bool send_cell(shm *t, manta_work *w)
{
    shm_mailbox *m = shm_mailbox_at(t, t->rank, w->c.peer);
    uint32_t sent = atomic_load_explicit(&m->sent, memory_order_relaxed);
    size_t n, at = chunk_of(w, w->consumed, &n);

    if (sent - atomic_load_explicit(&m->taken, memory_order_acquire) >= SHM_CELLS) return false;
    m->words[sent % SHM_CELLS] = w->words;
    if (n) stream_copy(shm_cell_at(t, t->rank, w->c.peer, sent), (const char *)w->c.in + at, n);
    stream_done();
    comm_crash(COMM_CRASH_SENT);
    atomic_store_explicit(&m->sent, sent + 1, memory_order_release);
    return true;
}

/* The first cell says what the message is. One that is not the expected is
 * taken to its end, so that the next one is found, and then told. */
static manta_status receive_cell(shm *t, manta_work *w, bool *taken_one)
{
    shm_mailbox *m = shm_mailbox_at(t, w->c.peer, t->rank);
    uint32_t taken = atomic_load_explicit(&m->taken, memory_order_relaxed);
    size_t n, at;

    if (atomic_load_explicit(&m->sent, memory_order_acquire) == taken) return MANTA_OK;
    if (w->consumed == 0) {
        call_words said = m->words[taken % SHM_CELLS];
        if ((w->status = call_compare(w->c.peer, &said, t->rank, &w->words))) {
            if (w->status != MANTA_EINVAL) return w->status;
            manta_error_get(&w->error);
            uint64_t size = said.n * manta_dtype_size((manta_dtype)said.dtype);
            w->steps = (int64_t)((size + w->chunk - 1) / w->chunk);
            if (w->steps < 1) w->steps = 1;
        }
    }
    at = chunk_of(w, w->consumed, &n);
    if (n && !w->status) memcpy((char *)w->c.out + at, shm_cell_at(t, w->c.peer, t->rank, taken), n);
    comm_crash(COMM_CRASH_TAKEN);
    atomic_store_explicit(&m->taken, taken + 1, memory_order_release);
    *taken_one = true;
    return MANTA_OK;
}

static manta_status poll_message(shm *t, manta_work *w, bool *moved)
{
    bool any = false;

    if (!w->begun) begin_message(t, w);
    while (w->consumed < w->steps) {
        /* Looked at first: what a rank did before it was gone counts. */
        bool one = false, gone = shm_is_gone(t, w->c.peer);
        if (w->c.kind == MANTA_COLLECTIVE_SEND)
            one = send_cell(t, w);
        else
            TRY(receive_cell(t, w, &one));
        if (one) {
            w->consumed++;
            shm_ring_all(t);
            any = true;
            continue;
        }
        if (any) break;
        TRY(shm_look_failed(t));
        return gone ? shm_say_gone(t, w->c.peer, w) : MANTA_OK;
    }
    *moved = any;
    w->done = w->consumed == w->steps;
    if (w->done && w->status) return manta_error_raise(&w->error);
    return MANTA_OK;
}

manta_status shm_poll(void *ctx, manta_work *w, bool *moved)
{
    shm *t = ctx;

    return call_is_message(w->c.kind) ? poll_message(t, w, moved) : poll_collective(t, w, moved);
}

void shm_missing(void *ctx, const manta_work *w, char *text, size_t size)
{
    shm *t = ctx;

    text[0] = '\0';
    if (call_is_message(w->c.kind)) {
        transport_name(text, size, w->c.peer);
        return;
    }
    for (int i = 0; i < t->size; i++) {
        bool late = needs_rank(t, w, w->consumed, i) && !is_at(t, i, w->base + (uint32_t)w->consumed);
        late |= w->produced < w->steps && i != t->rank && !is_at(t, i, before_produce(w));
        if (late) transport_name(text, size, i);
    }
}
