/* device_update.c - the numbers of a step go to the device, the update is played there. */
#include "nn/device_update.h"

#include <string.h>

#include "base/mem.h"

enum { LINE = 16 /* floats; every variable begins with one */ };

static size_t slots_size(const device_update *u)
{
    return sizeof(dev_slots) + (size_t)u->shards * sizeof(dev_addr);
}

static size_t params_bytes(const device_update *u)
{
    return (size_t)(u->l->n_params + 1) * sizeof(dev_param);
}

static int64_t lines_of(int64_t elements)
{
    return elements / LINE + 1;
}

/* A table goes to the device once and for all. */
static manta_status put_table(device_update *u, const void *table, size_t size, dev_addr *out)
{
    TRY(device_alloc(u->d, size, "tables of the update", out));
    return device_put(u->d, *out, table, size);
}

static manta_status put_lines(device_update *u)
{
    const layout *l = u->l;
    int32_t *params = NULL;
    uint8_t *stats = NULL;
    manta_status st;

    if ((st = mem_try_array(lines_of(l->params_size), sizeof *params, "a table of the update",
                            (void **)&params)) ||
        (st =
             mem_try_array(lines_of(l->stats_size), sizeof *stats, "a table of the update", (void **)&stats)))
        goto out;
    for (int64_t i = 0; i < lines_of(l->params_size); i++) params[i] = -1;
    for (int32_t k = 0; k < l->n_params; k++) {
        const layout_variable *v = &l->params[k];
        for (int64_t i = v->offset; i < v->offset + v->count; i += LINE) params[i / LINE] = k;
    }
    for (int k = 0; k < l->n_stats; k++) {
        const layout_variable *v = &l->stats[k];
        for (int64_t i = v->offset; i < v->offset + v->count; i += LINE) stats[i / LINE] = v->proposed;
    }
    if ((st = put_table(u, params, (size_t)lines_of(l->params_size) * sizeof *params, &u->param_lines)))
        goto out;
    st = put_table(u, stats, (size_t)lines_of(l->stats_size) * sizeof *stats, &u->stat_lines);
out:
    mem_try_free(params);
    mem_try_free(stats);
    return st;
}

manta_status device_update_init(device_update *u, const layout *l, device *d, int shards)
{
    *u = (device_update){.l = l, .d = d, .shards = shards};
    u->staged = mem_new(params_bytes(u));
    u->staged_slots = mem_new(slots_size(u));
    TRY(device_alloc(d, slots_size(u), "tables of the update", &u->slots));
    TRY(device_alloc(d, params_bytes(u), "tables of the update", &u->params));
    return put_lines(u);
}

void device_update_release(device_update *u)
{
    if (!u->d) return;
    program_free(u->step);
    program_free(u->find_norms);
    device_release(u->d, u->slots, slots_size(u));
    device_release(u->d, u->params, params_bytes(u));
    device_release(u->d, u->param_lines, (size_t)lines_of(u->l->params_size) * sizeof(int32_t));
    device_release(u->d, u->stat_lines, (size_t)lines_of(u->l->stats_size));
    device_release(u->d, u->segments, (size_t)(u->n_segments + 1) * sizeof(dev_segment));
    device_release(u->d, u->norms, (size_t)(2 * u->n_segments + 2) * sizeof(double));
    mem_free(u->staged);
    mem_free(u->staged_slots);
    *u = (device_update){0};
}

static manta_status put_params(device_update *u, const apply *a)
{
    for (int i = 0; i < u->l->n_params; i++)
        u->staged[i] =
            (dev_param){.offset = u->l->params[i].offset, .count = u->l->params[i].count, .s = a->scalars[i]};
    return device_put(u->d, u->params, u->staged, (size_t)u->l->n_params * sizeof *u->staged);
}

/* The slots of most steps are those of the step before. */
static manta_status put_slots(device_update *u, int n, const dev_addr *slots)
{
    dev_slots *s = u->staged_slots;

    if (s->n == n && !memcmp(s->at, slots, (size_t)n * sizeof *slots)) return MANTA_OK;
    s->n = n;
    memcpy(s->at, slots, (size_t)n * sizeof *slots);
    return device_put(u->d, u->slots, s, sizeof *s + (size_t)n * sizeof *slots);
}

/* ---- norms ---- */

static manta_status make_segments(device_update *u, const apply *a)
{
    dev_segment *s = NULL;
    manta_status st;

    TRY(mem_try_array(a->n_segments + 1, sizeof *s, "the segments of the weights", (void **)&s));
    for (int i = 0; i < a->n_segments; i++)
        s[i] = (dev_segment){
            .param = a->segments[i].param, .offset = a->segments[i].offset, .n = a->segments[i].n};
    u->n_segments = a->n_segments;
    st = put_table(u, s, (size_t)(a->n_segments + 1) * sizeof *s, &u->segments);
    mem_try_free(s);
    return st ? st
              : device_alloc(u->d, (size_t)(2 * a->n_segments + 2) * sizeof(double),
                             "the norms of the weights", &u->norms);
}

/* Norms come to the host, which makes clip factors and the penalty of them. */
static manta_status find_norms(device_update *u, apply *a, dev_addr state)
{
    const layout *l = u->l;

    if (!u->find_norms) {
        TRY(make_segments(u, a));
        norms_args n = {.slots = u->slots,
                        .params = u->params,
                        .segments = u->segments,
                        .w = state + l->off_params,
                        .accumulator = l->arrays.accumulator ? state + l->off_accumulator : 0,
                        .out = u->norms};
        u->find_norms = program_new(u->d);
        program_add(u->find_norms, DEV_norms, u->n_segments, &n, sizeof n);
    }
    TRY(program_play(u->find_norms));
    TRY(device_get(u->d, a->norms, u->norms, (size_t)(2 * u->n_segments) * sizeof(double)));
    apply_factors(a);
    return put_params(u, a);
}

/* ---- the step ---- */

static void make_step(device_update *u, const apply *a, dev_addr state)
{
    const layout *l = u->l;
    update_args p = {.slots = u->slots,
                     .params = u->params,
                     .lines = u->param_lines,
                     .w = state + l->off_params,
                     .average = l->arrays.average ? state + l->off_average : 0,
                     .accumulator = l->arrays.accumulator ? state + l->off_accumulator : 0,
                     .each = apply_needs_norms(a)};
    stats_args s = {.slots = u->slots,
                    .lines = u->stat_lines,
                    .stats = state + l->off_stats,
                    .proposals = l->slot_stats,
                    .first = a->first_stats};
    dev_addr *arrays[3] = {&p.s0, &p.s1, &p.s2};

    for (int i = 0; i < l->arrays.n; i++) *arrays[l->arrays.index[i]] = state + l->off_array[i];
    u->step = program_new(u->d);
    if (l->n_params) program_add(u->step, DEV_update, l->params_size, &p, sizeof p);
    if (l->n_stats) program_add(u->step, DEV_stats, l->stats_size, &s, sizeof s);
}

manta_status device_update_step(device_update *u, apply *a, dev_addr state, int n, const dev_addr *slots)
{
    if (!u->step) make_step(u, a, state);
    TRY(put_slots(u, n, slots));
    TRY(put_params(u, a));
    if (apply_needs_norms(a)) TRY(find_norms(u, a, state));
    return program_play(u->step);
}
