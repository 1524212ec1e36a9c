/* ps_rendezvous.c - see ps_rendezvous.h. */
#include "train/ps/ps_rendezvous.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum { SAY_AFTER_MS = 2000 }; /* of waiting for the coordinator */

static void name_node(const ps_plan *p, int i, char out[FRAME_NAME])
{
    if (i < p->servers) {
        snprintf(out, FRAME_NAME, "ps/%d", i);
    } else if (i == p->servers) {
        snprintf(out, FRAME_NAME, "coordinator");
    } else {
        snprintf(out, FRAME_NAME, "worker/%d", i - p->servers - 1);
    }
}

manta_status ps_rendezvous_open(const ps_plan *p, int self, ps_config_check *t, rendezvous **out)
{
    int n = p->servers + 1 + p->workers;

    char(*names)[FRAME_NAME] = mem_new((size_t)n * sizeof *names);
    rendezvous_node *nodes = mem_new((size_t)n * sizeof *nodes);
    rendezvous_options o = {
        .what = "training", .key = p->key, .nodes = nodes, .n = n, .check = ps_config_check_hello, .ctx = t};
    manta_status st;

    for (int i = 0; i < n; i++) {
        name_node(p, i, names[i]);
        nodes[i] = (rendezvous_node){.name = names[i], .called = rendezvous_calls(self, i)};
        if (i <= p->servers) nodes[i].address = i < p->servers ? p->server[i] : p->coordinator;
    }
    o.chan = (chan_options){.node = names[self], .job = p->job, .plain = p->plain};
    st = ps_config_check_init(t, p, self, names[self]);
    if (!st) st = rendezvous_new(&o, out);
    if (!st) rendezvous_say(*out, 0, t->mine.text, t->mine.n);
    mem_free(nodes);
    mem_free(names);
    return st;
}

manta_status ps_miss_coordinator(const ps_plan *p, int64_t begin, bool *said)
{
    int64_t now = clock_now_ns();
    double ms = (double)(now - begin) / 1e6;
    char missing[TCP_TEXT + 40];

    snprintf(missing, sizeof missing, "waiting for chief/0 (%s)", p->coordinator);
    if (p->timeout_ms >= 0 && ms > (double)p->timeout_ms)
        return manta_fail(MANTA_ETIMEDOUT, "%s: it has not come in %.0f s", missing,
                          (double)p->timeout_ms / 1e3);
    if (ms > SAY_AFTER_MS && !*said) {
        log_info("the chief is missing", LOG_STR("address", p->coordinator));
        *said = true;
    }
    if (p->watch && !p->watch(p->ctx, missing, 0, ms))
        return manta_fail(MANTA_ECANCELLED, "stopped on request while %s", missing);
    return MANTA_OK;
}
