/* worker.c - what a worker does all day: takes calls, one after the other. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "os/spawn.h"
#include "task/runtime.h"

static bool has_work(void *ctx)
{
    (void)ctx;
    return !list_is_empty(&rt->calls) || rt->exiting;
}

/* A constructor has run: the daemon wants to know how it went. */
static void report_actor(uint64_t actor, const buf *answer)
{
    wire w = wire_of(answer->at, answer->n);
    bool failed = proto_kind_of(&w) == PROTO_FAILED;
    buf *b = proto_begin(&rt->out, failed ? PROTO_ACTOR_FAILED : PROTO_ACTOR_UP);
    wire_put_u64(b, actor);
    if (failed) {
        manta_failure f;
        (void)wire_u64(&w);
        (void)wire_u64(&w);
        failure_take(&w, &f);
        f.kind = MANTA_FAILED_ACTOR;
        failure_put(b, &f);
    }
    rt_tell();
}

static void work(buf *answer)
{
    incoming *c = LIST_ITEM(list_pop(&rt->calls), incoming, link);
    rt->running = c;
    exec_run(c, answer);
    rt->running = NULL;
    if (c->from && !c->from->is_dead)
        peer_answer(c->from, answer);
    else if (!c->from)
        report_actor(c->actor, answer);
    incoming_free(c);
}

_Noreturn void worker_main(int fd)
{
    buf answer = {0};
    char name[16];
    spawn_reset_signals();
    snprintf(name, sizeof name, "manta-worker");
    prctl(PR_SET_NAME, name);
    if (runtime_open(fd, -1, true)) {
        log_error("a worker could not start", LOG_STR("why", manta_error_text()));
        _exit(1);
    }
    mutex_lock(&rt->lock);
    for (;;) {
        if (rt_wait(has_work, NULL, CLOCK_NEVER)) _exit(1);
        while (!list_is_empty(&rt->calls)) work(&answer);
        if (!rt->exiting || rt_has_input()) continue;
        mutex_unlock(&rt->lock);
        exec_end_selves();
        fflush(NULL);
        _exit(0);
    }
}
