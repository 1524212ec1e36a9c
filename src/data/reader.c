/* reader.c - the tree of per-thread state beneath a loader. */
#include "base/mem.h"
#include "data/stage.h"

manta_status reader_new(const manta_dataset *d, reader **out)
{
    manta_status st = MANTA_OK;
    reader *r = mem_new(sizeof *r);

    r->d = d;
    for (int i = 0; i < 2; i++) {
        if (d->in[i] && (st = reader_new(d->in[i], &r->in[i]))) goto out;
    }
    if (d->class->open && (st = d->class->open(r))) goto out;
    *out = r;
    r = NULL;
out:
    reader_free(r);
    return st;
}

void reader_free(reader *r)
{
    if (!r) return;
    if (r->d->class->close) r->d->class->close(r);
    for (int c = 0; c < MANTA_MAX_COLUMNS; c++) mem_try_free(r->scratch[c]);
    reader_free(r->in[0]);
    reader_free(r->in[1]);
    mem_free(r);
}

manta_status reader_scratch(reader *r, const manta_dataset *d, int c)
{
    if (r->scratch[c]) return MANTA_OK;
    int64_t rows = d->batch ? d->batch : 1;
    size_t bytes = spec_bytes(&d->columns[c]);
    return mem_try_array(rows, bytes ? bytes : 1, "a sample", &r->scratch[c]);
}

manta_status reader_resolve(reader **r, visit *v)
{
    while ((*r)->d->class->locate) {
        reader *from = NULL;
        if ((*r)->d->count >= 0 && v->index >= (*r)->d->count) {
            v->end = true;
            return MANTA_OK;
        }
        TRY((*r)->d->class->locate(*r, v, &from));
        if (v->end) return MANTA_OK;
        *r = from;
    }
    if ((*r)->d->count >= 0 && v->index >= (*r)->d->count) v->end = true;
    return MANTA_OK;
}

manta_status reader_fetch(reader *r, visit *v)
{
    v->end = false;
    TRY(reader_resolve(&r, v));
    return v->end ? MANTA_OK : r->d->class->fetch(r, v);
}
