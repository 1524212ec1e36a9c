/* profile.c - where the time of a step goes. */
#include <string.h>

#include "base/args.h"
#include "train/session/session.h"

static void keep_span(void *ctx, const char *layer, const char *op, bool backward, int64_t begin_ns,
                      int64_t end_ns)
{
    trace_span(ctx, layer, op, backward, begin_ns, end_ns);
}

manta_status manta_session_profile(manta_session *s, const char *trace_path)
{
    REFUSE_NULL(s);

    if (s->on)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the time of each layer is measured on the processor: leave the device out");
    TRY(session_local(s));
    trace_free(s->trace);
    s->trace = trace_path ? trace_new(trace_path) : NULL;
    exec_set_profile(s->e, true, s->trace ? keep_span : NULL, s->trace);
    return MANTA_OK;
}

static double flop_rate(double flops, double ms)
{
    return ms > 0 ? flops / ms / 1e6 : 0;
}

manta_status manta_session_profile_end(manta_session *s, int64_t batch,
                                       void (*row)(void *user, const manta_profile_row *r), void *user)
{
    REFUSE_NULL(s);
    REFUSE_NULL(row);
    REFUSE_NEGATIVE(batch);

    manta_status st = MANTA_OK;
    exec_time t;

    if (!s->e)
        return manta_fail(MANTA_EINVAL, "the session has no profile: call manta_session_profile() first");
    exec_set_profile(s->e, false, NULL, NULL);
    for (int i = 0; exec_time_at(s->e, PLAN_TRAIN, batch, i, &t); i++) {
        manta_profile_row r = {.layer = t.layer, .op = t.op, .relu = t.relu};
        if (!t.calls) continue;
        memcpy(r.shape, t.shape, sizeof r.shape);
        r.forward_ms = (double)t.forward_ns / 1e6 / (double)t.calls;
        r.backward_ms = (double)t.backward_ns / 1e6 / (double)t.calls;
        r.forward_gflops = flop_rate(t.flops, r.forward_ms);
        r.backward_gflops = flop_rate(t.backward_flops, r.backward_ms);
        row(user, &r);
    }
    if (s->trace) st = trace_write(s->trace);
    trace_free(s->trace);
    s->trace = NULL;
    return st;
}
