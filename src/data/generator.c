/* generator.c - samples that a user's function makes one after the other. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "data/stage.h"

typedef struct generator {
    manta_generator g;
    void *user;
} generator;

typedef struct generator_reader {
    bool open, ended;
    int64_t epoch;
    int64_t next; /* the sample that next() will give */
    bool told; /* that positions are reached by replay */
    void *state;
    manta_column out[MANTA_MAX_COLUMNS];
} generator_reader;

static manta_status generator_open(reader *r)
{
    generator_reader *p = mem_new(sizeof *p);

    r->state = p;
    for (int c = 0; c < r->d->n; c++) {
        const manta_column_spec *s = &r->d->columns[c];
        TRY(reader_scratch(r, r->d, c));
        p->out[c].name = s->name;
        p->out[c].array = manta_array_of(s->dtype, s->ndim, s->shape, NULL);
    }
    return MANTA_OK;
}

static void end_pass(reader *r)
{
    const generator *s = r->d->state;
    generator_reader *p = r->state;

    if (p->open && s->g.close) s->g.close(p->state);
    p->open = false;
}

static void generator_close(reader *r)
{
    if (!r->state) return;
    end_pass(r);
    mem_free(r->state);
}

static manta_status begin_pass(reader *r, int64_t epoch)
{
    const generator *s = r->d->state;
    generator_reader *p = r->state;

    end_pass(r);
    p->epoch = epoch;
    p->next = 0;
    p->ended = false;
    p->state = s->user;
    if (s->g.open) TRY(s->g.open(s->user, epoch, &p->state));
    p->open = true;
    return MANTA_OK;
}

/* The next sample, to `out` or, where that is NULL, to scratch memory. */
static manta_status advance_generator(reader *r, void *const *out)
{
    const generator *s = r->d->state;
    generator_reader *p = r->state;
    bool end = false;

    for (int c = 0; c < r->d->n; c++) p->out[c].array.data = out && out[c] ? out[c] : r->scratch[c];
    manta_status st = s->g.next(p->state, p->out, r->d->n, &end);
    if (st) {
        end_pass(r); /* where a failed generator stands nobody knows */
        return st;
    }
    p->ended = end;
    if (!end) p->next++;
    return MANTA_OK;
}

static manta_status generator_fetch(reader *r, visit *v)
{
    generator_reader *p = r->state;

    if (!p->open || p->epoch != v->epoch || (v->index < p->next)) TRY(begin_pass(r, v->epoch));
    if (v->index > p->next && !p->ended && !p->told) {
        p->told = true;
        log_warn("generator is positioned by replay", LOG_INT("epoch", v->epoch),
                 LOG_INT("samples", v->index - p->next));
    }
    while (!p->ended && p->next < v->index) TRY(advance_generator(r, NULL));
    if (!p->ended) TRY(advance_generator(r, v->out));
    if (p->ended) {
        if (r->d->count >= 0) {
            return manta_fail(MANTA_EINVAL,
                              "generator: it ended after %lld of the %lld samples it was said to have",
                              (long long)p->next, (long long)r->d->count);
        }
        v->end = true;
        return MANTA_OK;
    }
    v->rows = 1;
    v->key_epoch = v->epoch;
    v->key_sample = v->sample_base + v->index;
    return MANTA_OK;
}

static void generator_release(manta_dataset *d)
{
    generator *s = d->state;

    if (s->g.release) s->g.release(s->user);
    mem_free(s);
}

static const stage_class generator_class = {.name = "generator",
                                            .fetch = generator_fetch,
                                            .open = generator_open,
                                            .close = generator_close,
                                            .release = generator_release};

manta_dataset *manta_dataset_generator(const manta_generator *g, void *user, int64_t count, int n,
                                       const manta_column_spec *columns)
{
    if (!g) return stage_refuse(NULL, __func__, "g");
    if (n > 0 && !columns) return stage_refuse(NULL, __func__, "columns");

    bool ok;
    manta_dataset *d = stage_new(&generator_class, NULL, &ok);
    generator *s = mem_new(sizeof *s);

    s->g = *g;
    s->user = user;
    d->state = s;
    d->indexable = false;
    manta_status st = stage_check_columns("generator", n, columns);
    if (st) return stage_fail(d, st);
    if (!g->next)
        return stage_fail(
            d, manta_fail(MANTA_EINVAL, "generator: next is NULL, expected the function that makes samples"));
    if (count < 0 && count != MANTA_UNKNOWN_COUNT) {
        return stage_fail(d,
                          manta_fail(MANTA_EINVAL,
                                     "generator: a count of %lld, expected at least 0 or MANTA_UNKNOWN_COUNT",
                                     (long long)count));
    }
    d->count = count;
    d->n = n;
    memcpy(d->columns, columns, (size_t)n * sizeof *columns);
    return d;
}
