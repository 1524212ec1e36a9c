/* ring_call.c - the collectives as frames; see ring.h.
 *
 *   all ranks say CALL                     small data goes with it, and that is all
 *        | the words of all are the same
 *        v
 *   rank r, of each chunk                  its owner, of its share of the chunk
 *     contribution to each owner --DATA 0-->  a place of RING_WINDOW; all here: reduced
 *     result into `out`          <--DATA 1--  to all
 *
 * ring_poll() does what can be done now and never waits; ring_place() says where the bytes
 * of a frame go, which it checks against how far the call is. */
#include <string.h>

#include "base/mem.h"
#include "comm/reduce.h"
#include "comm/ring.h"

enum {
    QUEUED = 4, /* frames of a chunk that wait in a channel: enough to keep it busy */
    CHUNKS = 4,
};

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_eager(const manta_work *w)
{
    return w->size <= RING_EAGER;
}

/* ---- who has what of a chunk ---- */

typedef struct region {
    size_t at, n; /* bytes */
} region;

static region cut_region(size_t at, size_t n, size_t size)
{
    return (region){.at = at < size ? at : size, .n = at < size ? least_of(n, size - at) : 0};
}

/* Two ranks exchange all they have, and each reduces everything: as many bytes
 * as to and fro, but nothing waits for a result. With more than the caches hold
 * it costs more than it saves, since all of `in` is read twice. */
static bool is_direct(const ring *t, const manta_work *w)
{
    return t->size == 2 && w->c.kind == MANTA_COLLECTIVE_ALL_REDUCE && w->size <= RING_DIRECT_MOST;
}

/* The part of chunk k that rank `owner` reduces, as a place in one rank's
 * vector of w->size bytes (all-reduce, reduce) or in a part of it. */
static region share_of(const ring *t, const manta_work *w, int64_t k, int owner)
{
    region whole = cut_region((size_t)k * w->chunk, w->chunk, w->size);

    if (w->c.kind == MANTA_COLLECTIVE_REDUCE) return owner == w->c.peer ? whole : (region){.at = whole.at};
    if (w->c.kind != MANTA_COLLECTIVE_ALL_REDUCE || is_direct(t, w)) return whole;
    size_t lines = (whole.n + 63) / 64, size = (size_t)t->size, o = (size_t)owner;
    size_t from = least_of(lines * o / size * 64, whole.n),
           to = least_of(lines * (o + 1) / size * 64, whole.n);
    return (region){.at = whole.at + from, .n = to - from};
}

/* Whether `from` sends contributions to `to` in this call. */
static bool rank_contributes(const manta_work *w, int from, int to)
{
    if (from == to) return false;
    if (w->c.kind == MANTA_COLLECTIVE_REDUCE) return to == w->c.peer;
    if (w->c.kind == MANTA_COLLECTIVE_BROADCAST) return from == w->c.peer;
    return w->c.kind != MANTA_COLLECTIVE_BARRIER;
}

/* Where in `in` lies what goes to rank `to`. */
static const char *part_for(const manta_work *w, const char *in, int to)
{
    return call_parts_in(&w->c, 2) > 1 ? in + (size_t)to * w->size : in;
}

/* ---- small ones: the data goes with the words ---- */

static void combine_parts(ring *t, const manta_work *w)
{
    const void *src[MANTA_GROUP_MAX];
    char *out = w->c.out;
    const char *mine = part_for(w, w->c.in, t->rank);

    if (!w->size) return;
    if (call_reduces(w->c.kind)) {
        for (int i = 0; i < t->size; i++) src[i] = t->peers[i].entry[w->words.number % 2].data;
        src[t->rank] = mine;
        if (w->c.kind == MANTA_COLLECTIVE_REDUCE && t->rank != w->c.peer) return;
        reduce_run(w->c.dtype, w->c.reduce, src, t->size, out, w->c.n);
        return;
    }
    for (int i = 0; i < t->size; i++) {
        const char *from = i == t->rank ? mine : t->peers[i].entry[w->words.number % 2].data;
        if (w->c.kind == MANTA_COLLECTIVE_BROADCAST) {
            if (i == w->c.peer && out && out != from) memcpy(out, from, w->size);
        } else if (out + (size_t)i * w->size != from) {
            memmove(out + (size_t)i * w->size, from, w->size);
        }
    }
}

static manta_status look_aborted(const ring *t)
{
    for (int i = 0; i < t->size; i++)
        if (t->peers[i].aborted) return manta_error_raise(&t->peers[i].why);
    return MANTA_OK;
}

/* ---- beginning ---- */

/* A channel that fails here is found missing, if it is missed, by look_gone(). */
static void post_frame(ring_peer *p, const frame *f, const chan_part *part, bool bulk)
{
    if (!p->gone && chan_post(p->c, f, part, 1, bulk)) ring_lose(p);
}

static void say_call(ring *t, const manta_work *w, int to)
{
    ring_peer *p = &t->peers[to];
    size_t n = is_eager(w) && rank_contributes(w, t->rank, to) ? w->size : 0;
    chan_part part = {.data = p->say, .n = sizeof w->words + n};

    memcpy(p->say, &w->words, sizeof w->words);
    if (n) memcpy(p->say + sizeof w->words, part_for(w, w->c.in, to), n);
    /* On its way before anything is looked for: the other side waits for it. */
    post_frame(p, &(frame){.kind = RING_CALL, .step = w->words.number}, &part, n > 0);
    if (!p->gone && chan_work(p->c)) ring_lose(p);
}

static bool all_idle(const ring *t)
{
    for (int i = 0; i < t->size; i++) {
        const ring_peer *p = &t->peers[i];
        if (p->c && !p->gone && !chan_is_idle(p->c)) return false;
    }
    return true;
}

/* Bytes of a chunk that `owners` share: enough of them that sending, adding and
 * receiving overlap, but none so small that its frame costs more than its bytes. */
static size_t chunk_for(size_t size, size_t owners)
{
    size_t share = size / owners / CHUNKS & ~(size_t)63;

    return owners * (share < RING_CHUNK_LEAST ? RING_CHUNK_LEAST : share > RING_CHUNK ? RING_CHUNK : share);
}

static manta_status prepare_work(ring *t, manta_work *w)
{
    bool in_place = w->c.kind == MANTA_COLLECTIVE_ALL_TO_ALL && w->c.in == w->c.out;
    bool shares = w->c.kind == MANTA_COLLECTIVE_ALL_REDUCE && !is_direct(t, w);

    w->chunk = chunk_for(w->size, shares ? (size_t)t->size : 1);
    w->steps = (int64_t)((w->size + w->chunk - 1) / w->chunk);
    t->reduced = 0;
    for (int i = 0; i < t->size; i++) {
        ring_peer *p = &t->peers[i];
        p->contributions = p->results = p->sent = 0;
    }
    if (is_eager(w)) return MANTA_OK;
    if (call_reduces(w->c.kind) && !t->scratch) {
        t->scratch = mem_try_raw((size_t)RING_WINDOW * (size_t)t->size * RING_CHUNK);
        if (!t->scratch)
            return manta_fail(MANTA_ENOMEM, "ring: no memory for the chunks of %d ranks", t->size);
    }
    if (in_place) { /* what comes from a rank takes the place of what goes to it */
        t->copy = mem_try_raw(w->size * (size_t)t->size);
        if (!t->copy) return manta_fail(MANTA_ENOMEM, "ring: no memory for a copy of an all-to-all in place");
        memcpy(t->copy, w->c.in, w->size * (size_t)t->size);
    }
    return MANTA_OK;
}

static manta_status begin_work(ring *t, manta_work *w)
{
    w->words = call_words_of(&w->c, t->calls);
    TRY(prepare_work(t, w));
    w->begun = true;
    w->phase = 0;
    t->calls++;
    t->current = w;
    for (int i = 0; i < t->size; i++) {
        ring_peer *p = &t->peers[i];
        if (p->c && !p->left) say_call(t, w, i);
    }
    return MANTA_OK;
}

/* Whether all ranks have said what they are in; MANTA_EINVAL not the same. All
 * compare with rank 0, so all say the same. */
static manta_status agree_on_call(ring *t, const manta_work *w, bool *all)
{
    const call_words *first = t->rank == 0 ? &w->words : &t->peers[0].entry[w->words.number % 2].words;

    *all = true;
    for (int i = 0; i < t->size; i++)
        if (i != t->rank && !t->peers[i].entry[w->words.number % 2].is_here) *all = false;
    if (!*all) return MANTA_OK;
    for (int i = 1; i < t->size; i++)
        TRY(call_compare(0, first, i,
                         i == t->rank ? &w->words : &t->peers[i].entry[w->words.number % 2].words));
    for (int i = 0; i < t->size; i++)
        if (i != t->rank && is_eager(w) &&
            t->peers[i].entry[w->words.number % 2].n != (rank_contributes(w, i, t->rank) ? w->size : 0))
            return manta_fail(MANTA_ECORRUPT, "rank %d sent %zu bytes where %zu were expected", i,
                              t->peers[i].entry[w->words.number % 2].n, w->size);
    return MANTA_OK;
}

/* ---- large ones ---- */

static char *scratch_of(const ring *t, int64_t k, int from)
{
    return t->scratch + ((size_t)(k % RING_WINDOW) * (size_t)t->size + (size_t)from) * RING_CHUNK;
}

/* Whether rank i answers our contributions with results, or with an empty
 * frame that says that their place is free again. */
static bool peer_answers(const ring *t, const manta_work *w, int i)
{
    return call_reduces(w->c.kind) && !is_direct(t, w) && rank_contributes(w, t->rank, i);
}

manta_status ring_place(ring *t, int from, const frame *f, char **to)
{
    manta_work *w = t->current;
    ring_peer *p = &t->peers[from];
    int64_t k = f->item / 2;
    region r;

    if (!w || is_eager(w) || f->step != w->words.number || k >= w->steps) goto bad;
    if (k < (f->item % 2 ? p->results : p->contributions))
        return manta_fail(MANTA_ECORRUPT, "rank %d sent %s %lld of collective %llu twice", from,
                          f->item % 2 ? "result" : "chunk", (long long)k, (unsigned long long)f->step);
    if (f->item % 2) {
        r = w->c.kind == MANTA_COLLECTIVE_ALL_REDUCE ? share_of(t, w, k, from) : (region){.n = 0};
        if (k != p->results || k >= p->sent || !peer_answers(t, w, from) || f->length != r.n) goto bad;
        if (r.n) *to = (char *)w->c.out + r.at;
        return MANTA_OK;
    }
    if (!rank_contributes(w, from, t->rank) || k != p->contributions) goto bad;
    if (call_reduces(w->c.kind)) {
        r = share_of(t, w, k, t->rank);
        if (f->length != r.n) goto bad;
        if (is_direct(t, w) && k > t->reduced) return MANTA_EBUSY; /* one place, and it stays in the cache */
        if (k >= t->reduced + RING_WINDOW) goto bad;
        *to = scratch_of(t, is_direct(t, w) ? 0 : k, from);
        return MANTA_OK;
    }
    r = cut_region((size_t)k * w->chunk, w->chunk, w->size);
    if (f->length != r.n) goto bad;
    *to = (char *)w->c.out + (w->c.kind == MANTA_COLLECTIVE_BROADCAST ? 0 : (size_t)from * w->size) + r.at;
    return MANTA_OK;
bad:
    return manta_fail(MANTA_ECORRUPT, "rank %d sent a chunk that has no place here: item %u, %llu bytes",
                      from, f->item, (unsigned long long)f->length);
}

void ring_arrived(ring *t, int from, const frame *f)
{
    if (f->item % 2)
        t->peers[from].results++;
    else
        t->peers[from].contributions++;
}

static void send_chunk(ring *t, const manta_work *w, int to, int64_t k, int phase, const char *data, size_t n)
{
    chan_part part = {.data = data, .n = n};
    frame f = {.kind = RING_DATA, .step = w->words.number, .item = (uint32_t)(2 * k + phase)};

    post_frame(&t->peers[to], &f, &part, true);
}

/* Posts contributions as far as their places are free. */
static void send_contributions(ring *t, const manta_work *w, bool *moved)
{
    const char *in = t->copy ? t->copy : w->c.in;

    for (int i = 0; i < t->size; i++) {
        ring_peer *p = &t->peers[i];
        if (!rank_contributes(w, t->rank, i) || p->gone) continue;
        while (!p->gone && p->sent < w->steps && chan_unsent(p->c) < QUEUED &&
               (!peer_answers(t, w, i) || p->sent < p->results + RING_WINDOW)) {
            region r = call_reduces(w->c.kind) ? share_of(t, w, p->sent, i)
                                               : cut_region((size_t)p->sent * w->chunk, w->chunk, w->size);
            send_chunk(t, w, i, p->sent, 0, part_for(w, in, i) + r.at, r.n);
            p->sent++;
            *moved = true;
        }
    }
}

static bool is_owner(const manta_work *w, int rank)
{
    return w->c.kind != MANTA_COLLECTIVE_REDUCE || rank == w->c.peer;
}

/* Whether chunk k of our own is still borrowed by the channel, and would be
 * written over by its result. */
static bool is_unsent(const ring *t, const manta_work *w, int64_t k)
{
    const ring_peer *p = &t->peers[1 - t->rank];

    if (!is_direct(t, w) || w->c.in != w->c.out || p->gone) return false;
    return p->sent - chan_unsent(p->c) <= k;
}

/* Reduces our share of the chunks to which all have contributed, and sends the
 * results. */
static void reduce_shares(ring *t, const manta_work *w, bool *moved)
{
    const void *src[MANTA_GROUP_MAX];

    while (t->reduced < w->steps) {
        int64_t k = t->reduced;
        region r = share_of(t, w, k, t->rank);
        for (int i = 0; i < t->size; i++) {
            if (i != t->rank && t->peers[i].contributions <= k) return;
            src[i] = scratch_of(t, is_direct(t, w) ? 0 : k, i);
        }
        if (is_unsent(t, w, k)) return;
        src[t->rank] = part_for(w, w->c.in, t->rank) + r.at;
        char *out = (char *)w->c.out + r.at;
        if (r.n)
            reduce_run(w->c.dtype, w->c.reduce, src, t->size, out,
                       (int64_t)(r.n / manta_dtype_size(w->c.dtype)));
        t->reduced++;
        *moved = true;
        size_t n = w->c.kind == MANTA_COLLECTIVE_ALL_REDUCE ? r.n : 0;
        for (int i = 0; !is_direct(t, w) && i < t->size; i++)
            if (i != t->rank) send_chunk(t, w, i, k, 1, out, n);
    }
}

/* Whether rank i has still to send something. */
static bool awaits_peer(const ring *t, const manta_work *w, int i)
{
    const ring_peer *p = &t->peers[i];

    if (i == t->rank) return false;
    if (w->phase == 0) return !p->entry[w->words.number % 2].is_here;
    if (rank_contributes(w, i, t->rank) && p->contributions < w->steps) return true;
    return peer_answers(t, w, i) && p->results < w->steps;
}

static bool is_complete(const ring *t, const manta_work *w)
{
    for (int i = 0; i < t->size; i++) {
        if (awaits_peer(t, w, i)) return false;
        if (rank_contributes(w, t->rank, i) && t->peers[i].sent < w->steps) return false;
    }
    return !call_reduces(w->c.kind) || !is_owner(w, t->rank) || t->reduced == w->steps;
}

/* Our own part of what is only moved. */
static void keep_own(const ring *t, const manta_work *w)
{
    char *out = w->c.out;
    const char *in = part_for(w, w->c.in, t->rank);

    if (w->c.kind == MANTA_COLLECTIVE_ALL_GATHER || w->c.kind == MANTA_COLLECTIVE_ALL_TO_ALL)
        out += (size_t)t->rank * w->size;
    else if (w->c.kind != MANTA_COLLECTIVE_BROADCAST || t->rank != w->c.peer || !out)
        return;
    if (out != in) memcpy(out, in, w->size);
}

static void end_work(ring *t, manta_work *w)
{
    for (int i = 0; i < t->size; i++) t->peers[i].entry[w->words.number % 2].is_here = false;
    mem_try_free(t->copy);
    t->copy = NULL;
    t->current = NULL;
    w->done = true;
}

static manta_status say_gone(const ring *t, int i, const manta_work *w)
{
    const ring_peer *p = &t->peers[i];
    char doing[160];

    call_text(&w->words, doing, sizeof doing);
    if (p->left) return transport_gone(i, true, doing);
    return manta_fail(p->why.code == MANTA_OK ? MANTA_EDIED : p->why.code,
                      "rank %d is dead or cut off (%s), and is needed for %s", i, p->why.text, doing);
}

static manta_status look_gone(const ring *t, const manta_work *w)
{
    TRY(look_aborted(t));
    for (int i = 0; i < t->size; i++) {
        const ring_peer *p = &t->peers[i];
        bool unsent = rank_contributes(w, t->rank, i) && w->phase == 1 && p->sent < w->steps;
        if ((p->gone || p->left) && (awaits_peer(t, w, i) || unsent)) return say_gone(t, i, w);
    }
    return MANTA_OK;
}

static manta_status poll_collective(ring *t, manta_work *w, bool *moved)
{
    bool all;

    if (!w->begun) {
        TRY(ring_pump(t, moved));
        TRY(look_aborted(t));
        if (!all_idle(t)) return MANTA_OK; /* the last call's words are still on their way */
        TRY(begin_work(t, w));
        *moved = true;
    }
    TRY(ring_pump(t, moved));
    if (w->phase == 0) {
        manta_status st = agree_on_call(t, w, &all);
        if (st || (all && is_eager(w))) {
            if (!st) combine_parts(t, w);
            w->phase = 2;
            w->status = st;
            if (st) manta_error_get(&w->error);
            if (st && st != MANTA_EINVAL) return st;
        } else if (all) {
            w->phase = 1;
        }
        *moved |= all;
    }
    if (w->phase == 1) {
        send_contributions(t, w, moved);
        if (call_reduces(w->c.kind) && is_owner(w, t->rank)) reduce_shares(t, w, moved);
        TRY(ring_pump(t, moved));
        if (is_complete(t, w)) w->phase = 2, keep_own(t, w), *moved = true;
    }
    if (w->phase == 2 && all_idle(t)) {
        manta_status st = w->status;
        end_work(t, w);
        *moved = true;
        return st ? manta_error_raise(&w->error) : MANTA_OK;
    }
    if (w->phase < 2 && !*moved) TRY(look_gone(t, w));
    return MANTA_OK;
}

/* ---- messages ---- */

static void begin_message(ring *t, manta_work *w)
{
    ring_peer *p = &t->peers[w->c.peer];
    bool sends = w->c.kind == MANTA_COLLECTIVE_SEND;

    w->begun = true;
    w->words = call_words_of(&w->c, sends ? p->sends++ : p->receives++);
    w->chunk = RING_CHUNK;
    w->steps = (int64_t)((w->size + w->chunk - 1) / w->chunk);
    if (w->steps < 1) w->steps = 1;
    w->consumed = 0;
    w->phase = 0;
    w->status = MANTA_OK;
}

static void post_words(ring_peer *p, uint16_t kind, const manta_work *w)
{
    chan_part part = {.data = &p->answer, .n = sizeof p->answer};

    p->answer = w->words;
    post_frame(p, &(frame){.kind = kind, .step = w->words.number}, &part, false);
}

static manta_status move_send(ring_peer *p, int rank, manta_work *w, bool *moved)
{
    if (w->phase == 0 && p->is_ready && chan_is_idle(p->c)) {
        p->is_ready = false;
        w->status = call_compare(rank, &w->words, w->c.peer, &p->wanted);
        if (w->status && w->status != MANTA_EINVAL) return w->status;
        *moved = true;
        w->phase = 1;
        if (w->status) {
            manta_error_get(&w->error);
            post_words(p, RING_REFUSED, w);
            w->consumed = w->steps;
        }
    }
    while (!p->gone && w->phase == 1 && w->consumed < w->steps && chan_unsent(p->c) < QUEUED) {
        region r = cut_region((size_t)w->consumed * w->chunk, w->chunk, w->size);
        chan_part part = {.data = (const char *)w->c.in + r.at, .n = r.n};
        frame f = {.kind = RING_MESSAGE, .step = w->words.number, .item = (uint32_t)w->consumed};
        if (!r.n) part.data = NULL;
        post_frame(p, &f, &part, true);
        w->consumed++;
        *moved = true;
    }
    return MANTA_OK;
}

static void move_receive(ring_peer *p, manta_work *w, bool *moved)
{
    if (w->phase == 0 && chan_is_idle(p->c)) {
        p->receiving = w;
        post_words(p, RING_READY, w);
        w->phase = 1;
        *moved = true;
    }
}

static manta_status poll_message(ring *t, manta_work *w, bool *moved)
{
    ring_peer *p = &t->peers[w->c.peer];
    bool sends = w->c.kind == MANTA_COLLECTIVE_SEND;

    if (!w->begun) begin_message(t, w);
    TRY(ring_pump(t, moved));
    if (!p->gone) {
        if (sends)
            TRY(move_send(p, t->rank, w, moved));
        else
            move_receive(p, w, moved);
        TRY(ring_pump(t, moved));
    }
    if (w->consumed == w->steps && (!sends || p->gone || chan_is_idle(p->c))) {
        if (!sends) p->receiving = NULL;
        w->done = true;
        *moved = true;
        return w->status ? manta_error_raise(&w->error) : MANTA_OK;
    }
    if (*moved) return MANTA_OK;
    TRY(look_aborted(t));
    return p->gone || p->left ? say_gone(t, w->c.peer, w) : MANTA_OK;
}

manta_status ring_poll(void *ctx, manta_work *w, bool *moved)
{
    ring *t = ctx;

    return call_is_message(w->c.kind) ? poll_message(t, w, moved) : poll_collective(t, w, moved);
}

void ring_missing(void *ctx, const manta_work *w, char *text, size_t size)
{
    ring *t = ctx;

    text[0] = '\0';
    for (int i = 0; i < t->size; i++) {
        bool message = call_is_message(w->c.kind);
        if (message ? i == w->c.peer : i != t->rank && w->begun && awaits_peer(t, w, i))
            transport_name(text, size, i);
    }
    for (int i = 0; !text[0] && i < t->size; i++)
        if (t->peers[i].c && !t->peers[i].gone && !chan_is_idle(t->peers[i].c)) transport_name(text, size, i);
}
