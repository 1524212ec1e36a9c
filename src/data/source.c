/* source.c - sources that can be asked for any sample: memory, and functions
 * that read by number. */
#include <string.h>

#include "base/mem.h"
#include "data/source.h"
#include "data/stage.h"

/* ---- memory -------------------------------------------------------------- */

typedef struct memory {
    source_memory m;
    size_t bytes[MANTA_MAX_COLUMNS]; /* of one sample */
} memory;

static void answer_one_sample(visit *v)
{
    v->rows = 1;
    v->key_epoch = v->epoch;
    v->key_sample = v->sample_base + v->index;
}

static const void *memory_peek(reader *r, visit *v, int c, manta_status *st)
{
    const memory *s = r->d->state;

    *st = s->m.wait ? s->m.wait(s->m.ctx) : MANTA_OK;
    if (*st) return NULL;
    answer_one_sample(v);
    return (const char *)s->m.data[c] + (size_t)v->index * s->bytes[c];
}

static manta_status memory_fetch(reader *r, visit *v)
{
    const memory *s = r->d->state;

    if (s->m.wait) TRY(s->m.wait(s->m.ctx));
    for (int c = 0; c < s->m.n; c++) {
        if (!v->out[c] || s->bytes[c] == 0) continue;
        memcpy(v->out[c], (const char *)s->m.data[c] + (size_t)v->index * s->bytes[c], s->bytes[c]);
    }
    answer_one_sample(v);
    return MANTA_OK;
}

static void memory_release(manta_dataset *d)
{
    memory *s = d->state;

    if (s->m.release) s->m.release(s->m.ctx);
    mem_free(s);
}

static const stage_class memory_class = {
    .name = "arrays", .fetch = memory_fetch, .peek = memory_peek, .release = memory_release};

manta_dataset *source_from_memory(const source_memory *m)
{
    bool ok;
    manta_dataset *d = stage_new(&memory_class, NULL, &ok);
    memory *s = mem_new(sizeof *s);

    s->m = *m;
    d->state = s;
    manta_status st = stage_check_columns("arrays", m->n, m->columns);
    if (st) return stage_fail(d, st);
    d->count = m->count;
    d->n = m->n;
    for (int c = 0; c < m->n; c++) {
        d->columns[c] = m->columns[c];
        s->bytes[c] = spec_bytes(&m->columns[c]);
    }
    return d;
}

/* ---- the caller's arrays ------------------------------------------------- */

typedef struct copies {
    int n;
    void *data[MANTA_MAX_COLUMNS];
} copies;

static void copies_free(void *ctx)
{
    copies *k = ctx;

    if (!k) return;
    for (int c = 0; c < k->n; c++) mem_try_free(k->data[c]);
    mem_free(k);
}

static manta_status describe_columns(source_memory *m, int n, const manta_column *columns)
{
    if (n < 1 || n > MANTA_MAX_COLUMNS) {
        return manta_fail(MANTA_EINVAL, "arrays: %d columns given, expected 1 to %d", n, MANTA_MAX_COLUMNS);
    }
    m->n = n;
    for (int c = 0; c < n; c++) {
        const manta_array *a = &columns[c].array;
        const char *name = columns[c].name ? columns[c].name : "";
        manta_column_spec *s = &m->columns[c];

        if (strlen(name) >= sizeof s->name) {
            return manta_fail(MANTA_EINVAL, "arrays: the column name '%.20s...' is longer than %d bytes",
                              name, MANTA_COLUMN_NAME - 1);
        }
        memcpy(s->name, name, strlen(name) + 1);
        if (a->ndim < 1 || a->ndim > MANTA_MAX_DIMS || a->shape[0] < 0) {
            return manta_fail(MANTA_EINVAL, "arrays: column '%s' has no dimension of samples", name);
        }
        s->dtype = a->dtype;
        s->ndim = a->ndim - 1;
        memcpy(s->shape, a->shape + 1, (size_t)s->ndim * sizeof s->shape[0]);
        if (c == 0) m->count = a->shape[0];
        if (a->shape[0] != m->count) {
            return manta_fail(MANTA_EINVAL, "arrays: column '%s' has %lld samples, column '%s' has %lld",
                              name, (long long)a->shape[0], m->columns[0].name, (long long)m->count);
        }
        TRY(stage_check_columns("arrays", c + 1, m->columns));
        int64_t total;
        if (__builtin_mul_overflow((int64_t)spec_bytes(s), m->count, &total)) {
            return manta_fail(MANTA_EINVAL, "arrays: column '%s' has more bytes than can be addressed", name);
        }
        if (!manta_array_is_contiguous(a) || (!a->data && total > 0)) {
            return manta_fail(MANTA_EINVAL, "arrays: column '%s' must be a row-major array without gaps",
                              name);
        }
        m->data[c] = a->data;
    }
    return MANTA_OK;
}

static manta_status copy_columns(source_memory *m)
{
    copies *k = mem_new(sizeof *k);

    m->ctx = k;
    m->release = copies_free;
    for (int c = 0; c < m->n; c++) {
        size_t bytes = (size_t)m->count * spec_bytes(&m->columns[c]);
        k->n = c + 1;
        k->data[c] = mem_try_raw(bytes ? bytes : 1);
        if (!k->data[c]) {
            return manta_fail(MANTA_ENOMEM, "arrays: no memory for a copy of column '%s' (%zu bytes)",
                              m->columns[c].name, bytes);
        }
        if (bytes) memcpy(k->data[c], m->data[c], bytes);
        m->data[c] = k->data[c];
    }
    return MANTA_OK;
}

manta_dataset *manta_dataset_arrays(int n, const manta_column *columns, manta_ownership ownership)
{
    if (n > 0 && !columns) return stage_refuse(NULL, __func__, "columns");

    source_memory m = {0};
    manta_status st = describe_columns(&m, n, columns);

    if (!st && ownership != MANTA_OWNERSHIP_BORROW && ownership != MANTA_OWNERSHIP_COPY)
        st = manta_fail(MANTA_EINVAL, "arrays: there is no ownership %d, expected 0 or 1", (int)ownership);
    if (!st && ownership == MANTA_OWNERSHIP_COPY) st = copy_columns(&m);
    if (st) { /* an empty source carries the sentence */
        bool ok;
        manta_error e;
        manta_error_get(&e);
        if (m.release) m.release(m.ctx);
        manta_dataset *d = stage_new(&memory_class, NULL, &ok);
        d->state = mem_new(sizeof(memory));
        return stage_fail(d, manta_error_raise(&e));
    }
    return source_from_memory(&m);
}

/* ---- functions that read by number -------------------------------------- */

static manta_status indexed_open(reader *r)
{
    const source_indexed *s = r->d->state;

    return s->open ? s->open(s->ctx, &r->state) : MANTA_OK;
}

static void indexed_close(reader *r)
{
    const source_indexed *s = r->d->state;

    if (s->close && r->state) s->close(s->ctx, r->state);
}

static manta_status indexed_fetch(reader *r, visit *v)
{
    const source_indexed *s = r->d->state;

    TRY(s->read(s->ctx, r->state, v->index, v->out));
    answer_one_sample(v);
    return MANTA_OK;
}

static void indexed_release(manta_dataset *d)
{
    source_indexed *s = d->state;

    if (s->release) s->release(s->ctx);
    mem_free(s);
}

static const stage_class indexed_class = {.name = "reader",
                                          .fetch = indexed_fetch,
                                          .open = indexed_open,
                                          .close = indexed_close,
                                          .release = indexed_release};

manta_dataset *source_from_reader(const source_indexed *s)
{
    bool ok;
    manta_dataset *d = stage_new(&indexed_class, NULL, &ok);
    source_indexed *own = mem_new(sizeof *own);

    *own = *s;
    d->state = own;
    manta_status st = stage_check_columns("reader", s->n, s->columns);
    if (st) return stage_fail(d, st);
    d->count = s->count;
    d->n = s->n;
    memcpy(d->columns, s->columns, sizeof d->columns);
    return d;
}
