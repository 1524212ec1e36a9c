/* device_feed.c - samples, targets and weights are checked, converted and put on a device. */
#include "nn/device_feed.h"

#include "base/mem.h"
#include "nn/loss_impl.h"
#include "nn/loss_target.h"
#include "nn/lower.h"
#include "tensor/copy.h"

void device_feed_init(device_feed *f, const manta_model *m, const objective *o, device *d, pool *p)
{
    size_t n = (size_t)o->n_heads + 1;

    *f = (device_feed){.m = m, .o = o, .d = d, .pool = p};
    f->target = mem_new(n * sizeof *f->target);
    f->weight_at = mem_new(n * sizeof *f->weight_at);
    f->weight = mem_new(n * sizeof *f->weight);
}

void device_feed_release(device_feed *f)
{
    if (f->d) device_release(f->d, f->memory, f->size);
    mem_free(f->target);
    mem_free(f->weight_at);
    mem_free(f->weight);
    mem_try_free(f->staged);
    *f = (device_feed){0};
}

static size_t aligned(size_t size)
{
    return (size + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
}

/* Bytes of a head's target as it lies on the device. */
static size_t target_size(const objective_head *h, int64_t batch)
{
    size_t rows = (size_t)(batch * h->inner);

    return h->loss.sparse ? rows * sizeof(int32_t) : rows * (size_t)h->classes * sizeof(float);
}

manta_status device_feed_grow(device_feed *f, int64_t batch, bool *moved)
{
    size_t size = 0, weights = aligned((size_t)batch * sizeof(float));
    dev_addr at;

    if (batch <= f->batch) return MANTA_OK;
    for (int h = 0; h < f->o->n_heads; h++) size += aligned(target_size(&f->o->heads[h], batch)) + weights;
    *moved = true;
    device_release(f->d, f->memory, f->size);
    f->memory = 0;
    f->batch = 0;
    TRY(device_alloc(f->d, size, "the targets of a batch", &f->memory));
    f->size = size;
    f->batch = batch;
    at = f->memory;
    for (int h = 0; h < f->o->n_heads; h++) {
        f->target[h] = at;
        f->weight_at[h] = at + aligned(target_size(&f->o->heads[h], batch));
        at = f->weight_at[h] + weights;
    }
    return MANTA_OK;
}

/* Memory of the host for something that is converted. */
static manta_status grow_staging(device_feed *f, size_t size)
{
    if (size <= f->staged_size) return MANTA_OK;
    mem_try_free(f->staged);
    f->staged = NULL;
    f->staged_size = 0;
    TRY(mem_try_array((int64_t)size, 1, "a batch on its way to a device", &f->staged));
    f->staged_size = size;
    return MANTA_OK;
}

manta_status device_feed_input(device_feed *f, int i, const exec_run *r, dev_addr to)
{
    manta_array want, given = r->inputs[i];

    TRY(exec_fit_input(f->m, i, r->batch, &given, &want));
    if (given.dtype == want.dtype) {
        TRY(lower_check_input(f->m, i, &given, r->first));
        return device_put(f->d, to, given.data, manta_array_bytes(&given));
    }
    TRY(grow_staging(f, manta_array_bytes(&want)));
    want.data = f->staged;
    given = manta_array_of(given.dtype, want.ndim, want.shape, given.data);
    TRY(copy_strided(f->pool, &want, &given, false));
    TRY(lower_check_input(f->m, i, &want, r->first));
    return device_put(f->d, to, want.data, manta_array_bytes(&want));
}

/* ---- targets ---- */

static manta_status stage_labels(device_feed *f, const manta_loss_call *c, const char *name)
{
    int32_t *labels = f->staged;

    TRY(loss_target_fits(c, name, true));
    for (int64_t r = 0; r < c->rows; r++) {
        int64_t label;
        TRY(loss_target_class(c, name, r, &label));
        labels[r] = (int32_t)label;
    }
    return MANTA_OK;
}

static manta_status stage_floats(device_feed *f, const manta_loss_call *c, const objective_head *h)
{
    enum { BLOCK = 4096 };
    bool share = h->loss.fn == loss_dense_category || h->loss.fn == loss_binary;
    int64_t n = c->rows * c->classes;

    TRY(loss_target_fits(c, h->loss.name, false));
    for (int64_t i = 0; i < n; i += BLOCK) {
        int part = n - i < BLOCK ? (int)(n - i) : BLOCK;
        TRY(loss_target_read(c, h->loss.name, share ? LOSS_SHARE : LOSS_ANY, i, part,
                             (float *)f->staged + i));
    }
    return MANTA_OK;
}

static manta_status put_target(device_feed *f, const exec_run *r, int h)
{
    const objective_head *head = &f->o->heads[h];
    const float *weight = r->weights ? r->weights[h] : NULL;
    int64_t rows = r->batch * head->inner;
    manta_loss_call c = {.rows = rows, .classes = head->classes, .target = r->targets[h]};

    TRY(exec_fit_target(f->m, head, rows, &r->targets[h], weight));
    TRY(grow_staging(f, target_size(head, r->batch)));
    TRY(head->loss.sparse ? stage_labels(f, &c, head->loss.name) : stage_floats(f, &c, head));
    TRY(device_put(f->d, f->target[h], f->staged, target_size(head, r->batch)));
    f->weight[h] = weight ? f->weight_at[h] : 0;
    if (!weight) return MANTA_OK;
    f->weighted |= (uint64_t)1 << (h % 64);
    return device_put(f->d, f->weight[h], weight, (size_t)r->batch * sizeof *weight);
}

manta_status device_feed_targets(device_feed *f, const exec_run *r)
{
    f->weighted = 0;
    for (int h = 0; h < f->o->n_heads; h++) TRY(put_target(f, r, h));
    return MANTA_OK;
}
