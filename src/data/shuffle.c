/* shuffle.c - three ways to shuffle, one meaning.
 *
 * full      buffer >= n: a keyed permutation, one element at a time, no state.
 * replay    smaller buffer over what can be indexed: the buffer holds indices,
 *           and going to a place replays draws, not data.
 * stream    over a generator: the buffer holds the samples themselves, because
 *           nobody could ask for them again.
 *
 * Replay and stream draw as tf.data does: fill the buffer; give out a random
 * place of it, and put the next input there; when the input has ended, the
 * last place moves into the gap. Draw t of an epoch is a function of
 * (seed, epoch, t). */
#include <string.h>

#include "base/mem.h"
#include "data/random.h"
#include "data/stage.h"

/* d->a: buffer; d->b: 1 when every epoch has the same order. */
static int64_t order_epoch(const manta_dataset *d, int64_t epoch)
{
    return d->b ? 0 : epoch;
}

/* The permutation of the epoch that was asked for last. */
typedef struct full {
    int64_t epoch;
    rng_perm perm;
} full;

static manta_status full_open(reader *r)
{
    full *p = mem_new(sizeof *p);

    p->epoch = -1;
    r->state = p;
    return MANTA_OK;
}

static void full_close(reader *r)
{
    mem_free(r->state);
}

static manta_status full_locate(reader *r, visit *v, reader **from)
{
    const manta_dataset *d = r->d;
    full *p = r->state;
    int64_t epoch = order_epoch(d, v->epoch);

    if (p->epoch != epoch) {
        rng_perm_init(&p->perm, random_order(d->seed, epoch), (uint64_t)d->count);
        p->epoch = epoch;
    }
    v->index = (int64_t)rng_perm_at(&p->perm, (uint64_t)v->index);
    *from = r->in[0];
    return MANTA_OK;
}

static const stage_class full_class = {
    .name = "shuffle", .locate = full_locate, .open = full_open, .close = full_close};

/* ---- replay ------------------------------------------------------------------ */

#define HISTORY 8192 /* outputs kept, so that going back within a few batches is free */

typedef struct replay {
    int64_t epoch; /* -1: not begun */
    rng_key key;
    int64_t t; /* next output */
    int64_t input; /* next index to enter the buffer */
    int64_t size; /* of the buffer now */
    int64_t *buffer; /* d->a */
    int64_t *history; /* HISTORY: output t at t % HISTORY */
} replay;

static manta_status replay_open(reader *r)
{
    replay *p = mem_new(sizeof *p);
    void *m = NULL;

    r->state = p;
    p->epoch = -1;
    TRY(mem_try_array(r->d->a, sizeof *p->buffer, "a shuffle buffer", &m));
    p->buffer = m;
    p->history = mem_new(HISTORY * sizeof *p->history);
    return MANTA_OK;
}

static void replay_close(reader *r)
{
    replay *p = r->state;

    if (!p) return;
    mem_try_free(p->buffer);
    mem_free(p->history);
    mem_free(p);
}

static void replay_begin(replay *p, const manta_dataset *d, int64_t epoch)
{
    p->epoch = epoch;
    p->key = random_order(d->seed, order_epoch(d, epoch));
    p->t = 0;
    p->size = d->count >= 0 && d->count < d->a ? d->count : d->a;
    for (p->input = 0; p->input < p->size; p->input++) p->buffer[p->input] = p->input;
}

static void replay_step(replay *p, const manta_dataset *d)
{
    int64_t k = (int64_t)rng_below(p->key, (uint64_t)p->t, (uint64_t)p->size);

    p->history[p->t++ % HISTORY] = p->buffer[k];
    if (d->count < 0 || p->input < d->count) {
        p->buffer[k] = p->input++;
    } else {
        p->buffer[k] = p->buffer[--p->size];
    }
}

static manta_status replay_locate(reader *r, visit *v, reader **from)
{
    replay *p = r->state;

    if (p->epoch != v->epoch || v->index < p->t - HISTORY) replay_begin(p, r->d, v->epoch);
    while (p->t <= v->index) replay_step(p, r->d);
    v->index = p->history[v->index % HISTORY];
    *from = r->in[0];
    return MANTA_OK;
}

static const stage_class replay_class = {
    .name = "shuffle", .locate = replay_locate, .open = replay_open, .close = replay_close};

/* ---- stream ------------------------------------------------------------------ */

typedef struct slot_key {
    int64_t rows, epoch, sample;
} slot_key;

typedef struct stream {
    int64_t epoch, t, input, size;
    rng_key key;
    bool ended;
    void *out[MANTA_MAX_COLUMNS];
    char *data[MANTA_MAX_COLUMNS]; /* d->a elements each */
    size_t bytes[MANTA_MAX_COLUMNS];
    slot_key *keys;
} stream;

static manta_status stream_open(reader *r)
{
    const manta_dataset *d = r->d;
    stream *p = mem_new(sizeof *p);
    int64_t rows = d->batch ? d->batch : 1;
    void *m = NULL;

    r->state = p;
    p->epoch = -1;
    for (int c = 0; c < d->n; c++) {
        p->bytes[c] = (size_t)rows * spec_bytes(&d->columns[c]);
        TRY(mem_try_array(d->a, p->bytes[c] ? p->bytes[c] : 1, "a shuffle buffer", &m));
        p->data[c] = m;
    }
    TRY(mem_try_array(d->a, sizeof *p->keys, "a shuffle buffer", &m));
    p->keys = m;
    return MANTA_OK;
}

static void stream_close(reader *r)
{
    stream *p = r->state;

    if (!p) return;
    for (int c = 0; c < MANTA_MAX_COLUMNS; c++) mem_try_free(p->data[c]);
    mem_try_free(p->keys);
    mem_free(p);
}

static manta_status stream_fill(reader *r, int64_t k)
{
    stream *p = r->state;
    visit v = {.epoch = p->epoch, .index = p->input, .hi = INT64_MAX, .out = p->out};

    for (int c = 0; c < r->d->n; c++) p->out[c] = p->data[c] + (size_t)k * p->bytes[c];
    TRY(reader_fetch(r->in[0], &v));
    p->ended = v.end;
    if (v.end) return MANTA_OK;
    p->input++;
    p->keys[k] = (slot_key){v.rows, v.key_epoch, v.key_sample};
    return MANTA_OK;
}

static manta_status stream_begin(reader *r, int64_t epoch)
{
    stream *p = r->state;

    p->epoch = epoch;
    p->key = random_order(r->d->seed, order_epoch(r->d, epoch));
    p->t = p->input = p->size = 0;
    p->ended = false;
    while (p->size < r->d->a && !p->ended) {
        TRY(stream_fill(r, p->size));
        if (!p->ended) p->size++;
    }
    return MANTA_OK;
}

/* Output t lies at place k; it is handed out, and its place filled again. */
static manta_status stream_replace(reader *r, int64_t k)
{
    stream *p = r->state;

    p->t++;
    if (!p->ended) TRY(stream_fill(r, k));
    if (!p->ended) return MANTA_OK;
    int64_t last = --p->size;
    if (k == last) return MANTA_OK;
    for (int c = 0; c < r->d->n; c++) {
        memcpy(p->data[c] + (size_t)k * p->bytes[c], p->data[c] + (size_t)last * p->bytes[c], p->bytes[c]);
    }
    p->keys[k] = p->keys[last];
    return MANTA_OK;
}

static void stream_give(const reader *r, int64_t k, visit *v)
{
    const stream *p = r->state;
    const manta_dataset *d = r->d;
    int64_t lo = 0, hi = 1;

    v->rows = p->keys[k].rows;
    v->key_epoch = p->keys[k].epoch;
    v->key_sample = p->keys[k].sample;
    if (d->batch) {
        hi = v->hi < v->rows ? v->hi : v->rows;
        lo = v->lo < hi ? v->lo : hi;
    }
    for (int c = 0; c < d->n; c++) {
        size_t row = spec_bytes(&d->columns[c]);
        if (!v->out[c] || row == 0) continue;
        memcpy(v->out[c], p->data[c] + (size_t)k * p->bytes[c] + (size_t)lo * row, (size_t)(hi - lo) * row);
    }
}

static manta_status stream_fetch(reader *r, visit *v)
{
    stream *p = r->state;

    if (p->epoch != v->epoch || v->index < p->t) {
        manta_status st = stream_begin(r, v->epoch);
        if (st) {
            p->epoch = -1; /* a half-filled buffer is not to be believed */
            return st;
        }
    }
    while (p->size > 0) {
        int64_t k = (int64_t)rng_below(p->key, (uint64_t)p->t, (uint64_t)p->size);
        bool this = p->t == v->index;
        if (this) stream_give(r, k, v);
        manta_status st = stream_replace(r, k);
        if (st) {
            p->epoch = -1;
            return st;
        }
        if (this) return MANTA_OK;
    }
    v->end = true;
    return MANTA_OK;
}

static const stage_class stream_class = {
    .name = "shuffle", .fetch = stream_fetch, .open = stream_open, .close = stream_close};

/* ---- which of them ----------------------------------------------------------- */

static manta_dataset *shuffle_dataset(manta_dataset *in, int64_t buffer, uint64_t seed, bool once)
{
    bool ok, whole = !in->error && (buffer == 0 || (in->count >= 0 && buffer >= in->count));
    const stage_class *c = in->error        ? &full_class
                           : !in->indexable ? &stream_class
                           : whole          ? &full_class
                                            : &replay_class;
    manta_dataset *d = stage_new(c, in, &ok);

    if (!ok) return d;
    d->a = whole ? (in->count > 0 ? in->count : 1) : buffer;
    d->b = once;
    d->seed = seed;
    if (buffer < 0) {
        return stage_fail(
            d, manta_fail(MANTA_EINVAL, "shuffle: a buffer of %lld, expected at least 0", (long long)buffer));
    }
    if (whole && !count_is_known(in->count)) {
        return stage_fail(d, manta_fail(MANTA_EINVAL,
                                        "shuffle: a full shuffle needs a known number of elements, and %s; "
                                        "give a buffer size",
                                        in->count == MANTA_FOREVER_COUNT ? "this repeats forever"
                                                                         : "the generator does not say"));
    }
    return d;
}

manta_dataset *manta_dataset_shuffle(manta_dataset *in, int64_t buffer, uint64_t seed)
{
    if (!in) return stage_refuse(NULL, __func__, "d");

    return shuffle_dataset(in, buffer, seed, false);
}

manta_dataset *manta_dataset_shuffle_once(manta_dataset *in, int64_t buffer, uint64_t seed)
{
    if (!in) return stage_refuse(NULL, __func__, "d");

    return shuffle_dataset(in, buffer, seed, true);
}
