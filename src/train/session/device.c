/* device.c - a session whose steps a device computes. */
#include "train/session/device.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "gpu/gpu.h"
#include "nn/device_exec.h"
#include "nn/lower.h"
#include "train/session/step_core.h"

enum { FAKE_MEMORY_MB = 8192 };

struct session_device {
    device *d;
    dev_precision precision;
    device_exec *x; /* NULL until session_device_local() */
    bool host_old, device_old; /* which of the two states lacks what the other has */
    bool of_parent; /* this process was forked with the session: the device is not its own */
    int *shards; /* those with samples, in order: the numbers of the session's `used` */
};

/* ---- choosing ---- */

/* The option is known to be one of these; float32 when it is not given. */
static dev_precision precision_of(const manta_session_options *o)
{
    if (!o->precision || !*o->precision || !strcmp(o->precision, "float32")) return DEV_FLOAT32;
    return strcmp(o->precision, "exact") ? DEV_BFLOAT16 : DEV_EXACT;
}

/* Why the options rule a device out, or NULL. */
static const char *find_refusal(const manta_session *s, const manta_session_options *o)
{
    if (s->engine.ops != &engine_local)
        return "computes in one process: leave workers, servers and cluster out";
    if (o->debug) return "has no debug mode: it looks at every result on the processor";
    if (s->meets) return "cannot synchronise the statistics of shards yet: leave statistics sync out";
    if (s->k->family == KERN_ONEDNN)
        return "has kernels of its own, and other bits than oneDNN: leave kernels onednn out";
    return NULL;
}

static manta_status check_device(const manta_session *s, const manta_session_options *o)
{
    const char *why = find_refusal(s, o);

    if (why) return manta_fail(MANTA_EUNSUPPORTED, "device '%s' %s", o->device, why);
    return lower_check(s->m, &s->o);
}

static manta_status open_device(const char *name, device **out)
{
    if (!strcmp(name, "fake")) return device_fake_open((size_t)FAKE_MEMORY_MB << 20, out);
    return gpu_open(0, out);
}

static manta_status refuse_device(const char *name)
{
    static const char *const names[] = {"cpu", "gpu", "auto"};
    char hint[SUGGEST_TEXT];

    return manta_fail(MANTA_EINVAL, "device '%.40s', expected cpu, gpu or auto%s", name,
                      suggest_among(name, 3, names, hint, sizeof hint));
}

manta_status session_device_choose(manta_session *s, const manta_session_options *o)
{
    const char *name = o->device && *o->device ? o->device : "cpu";
    bool any = !strcmp(name, "auto");
    device *d = NULL;
    manta_status st;

    if (!strcmp(name, "cpu")) return MANTA_OK;
    if (!any && strcmp(name, "gpu") && strcmp(name, "fake")) return refuse_device(name);
    if (any && (!gpu_is_built() || !gpu_count())) {
        log_info("the processor computes",
                 LOG_STR("why", gpu_is_built() ? "there is no GPU on this machine"
                                               : "this build has no kernels for GPUs"));
        return MANTA_OK;
    }
    st = check_device(s, o);
    if (!st) st = open_device(any ? "gpu" : name, &d);
    if (st && any) {
        log_info("the processor computes", LOG_STR("why", manta_error_text()));
        return MANTA_OK;
    }
    if (st) return st;
    s->on = mem_new(sizeof *s->on);
    s->on->d = d;
    s->on->precision = precision_of(o);
    s->on->device_old = true;
    return MANTA_OK;
}

manta_status session_device_local(manta_session *s)
{
    if (s->on->of_parent || s->engine.ops != &engine_local)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s computes in the process that opened the session, and in no other: leave the "
                          "device out",
                          s->on->d->name);
    if (s->on->x) return MANTA_OK;
    if (!s->on->shards) s->on->shards = mem_new((size_t)s->shards * sizeof *s->on->shards);
    return device_exec_new(s->m, &s->l, &s->o, s->on->d, s->on->precision, s->pool,
                           s->n_losses ? s->shards : 0, &s->on->x);
}

void session_device_after_fork(manta_session *s)
{
    if (s->on) s->on->of_parent = true;
}

void session_device_close(manta_session *s)
{
    if (!s->on || s->on->of_parent) return;
    device_exec_free(s->on->x);
    device_close(s->on->d);
    mem_free(s->on->shards);
    mem_free(s->on);
    s->on = NULL;
}

const char *session_device_precision(const manta_session *s)
{
    static const char *const names[] = {"exact", "float32", "mixed_bfloat16"};

    return names[s->on->precision];
}

void session_device_about(const manta_session *s, char *text, size_t size)
{
    snprintf(text, size, "%s, %s%s", s->on->d->name, session_device_precision(s),
             s->on->precision == DEV_FLOAT32 ? " (products in tf32)" : "");
}

/* ---- the two states ---- */

manta_status session_pull(const manta_session *s)
{
    if (!s->on || !s->on->host_old) return MANTA_OK;
    TRY(device_exec_get_state(s->on->x, s->state));
    s->on->host_old = false;
    return MANTA_OK;
}

void session_changed(manta_session *s)
{
    if (s->on) s->on->device_old = true;
}

static manta_status push_state(manta_session *s)
{
    if (!s->on->device_old) return MANTA_OK;
    TRY(device_exec_put_state(s->on->x, s->state));
    s->on->device_old = false;
    return MANTA_OK;
}

/* ---- steps ---- */

manta_status session_device_prepare(manta_session *s, plan_mode mode, int64_t rows)
{
    return device_exec_prepare(s->on->x, mode, rows);
}

/* The number that a shard's gradients are divided by is known before they are there. */
static double divisor_of(const manta_session *s, const exec_run *r)
{
    const float *weight = r->weights ? r->weights[0] : NULL;
    double sum = 0;

    switch (s->o.reduction) {
    case MANTA_REDUCTION_SUM_OVER_BATCH_SIZE: return (double)r->batch;
    case MANTA_REDUCTION_SUM: return 1;
    case MANTA_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT: break;
    }
    for (int64_t i = 0; i < r->batch * s->o.heads[0].inner; i++) sum += weight ? (double)weight[i] : 1;
    return sum / (double)s->o.heads[0].inner;
}

static manta_status launch_shards(manta_session *s, const manta_feed *f, plan_mode mode, unsigned parts)
{
    int n = 0;

    TRY(push_state(s));
    step_collect(s, f->count);
    for (int v = 0; v < s->shards; v++) {
        int64_t lo = session_shard_begin(s, f->count, v), hi = session_shard_begin(s, f->count, v + 1);
        manta_feed part = session_feed_rows(f, lo, hi);
        exec_run r = session_run(s, mode, &part, NULL);
        if (lo == hi) continue;
        TRY(device_exec_run(s->on->x, &r, v, parts));
        s->on->shards[n++] = v;
        layout_slot_sums(&s->l, s->slots[v])[SUM_DIVISOR] = divisor_of(s, &r);
    }
    return MANTA_OK;
}

static manta_status fetch_sums(manta_session *s)
{
    for (int i = 0; i < s->n_used; i++)
        TRY(device_exec_get_sums(s->on->x, s->on->shards[i], (void *)(uintptr_t)s->used[i]));
    return MANTA_OK;
}

manta_status session_device_slots(const manta_session *s)
{
    for (int i = 0; i < s->n_used; i++)
        TRY(device_exec_get_slot(s->on->x, s->on->shards[i], (void *)(uintptr_t)s->used[i]));
    return MANTA_OK;
}

manta_status session_device_shards(manta_session *s, const manta_feed *f, plan_mode mode, unsigned parts)
{
    TRY(launch_shards(s, f, mode, parts));
    TRY(parts & DEVICE_BACKWARD ? session_device_slots(s) : fetch_sums(s));
    return s->a.regularised ? session_pull(s) : MANTA_OK; /* whoever adds the penalty reads the weights */
}

manta_status session_device_step(manta_session *s, const manta_feed *f)
{
    manta_status st;

    TRY(launch_shards(s, f, PLAN_TRAIN, DEVICE_FORWARD | DEVICE_OBJECTIVE | DEVICE_BACKWARD));
    step_begin(s, s->state);
    if ((st = device_exec_update(s->on->x, &s->a, s->n_used, s->on->shards)) || (st = fetch_sums(s))) {
        s->torn = true;
        return st;
    }
    s->on->host_old = true;
    step_finish(s, f->count);
    return MANTA_OK;
}

manta_status session_device_replay(manta_session *s, int64_t times, int *kernels_of_step)
{
    s->torn = true;
    return device_exec_replay(s->on->x, times, kernels_of_step);
}

manta_status session_device_forward(manta_session *s, const exec_run *r)
{
    TRY(push_state(s));
    return device_exec_run(s->on->x, r, 0, DEVICE_FORWARD);
}

manta_status session_device_output(manta_session *s, int i, manta_array *out)
{
    return device_exec_output(s->on->x, i, out);
}
