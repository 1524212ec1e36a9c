/* runtime_segments.c - where a process has the segments of its store from (store_source): from the
 * daemon, which counts who has which of them open, or, without a node, from the system.
 *
 *     make, open ── request ──▶ daemon ── reply with the descriptor ──▶    the lock is given away meanwhile
 *     give_back, let_go ─────▶ daemon                                      nobody waits for an answer
 */
#include <manta/task.h>

#include "base/status.h"
#include "os/shm.h"
#include "task/proto.h"
#include "task/runtime.h"

/* ---- segments come from the daemon ---- */

static manta_status segment_make(void *ctx, size_t least, size_t wanted, uint64_t *id, int *fd)
{
    reply r;
    (void)ctx;
    uint64_t request = rt_request_begin(PROTO_SEGMENT_NEW);

    wire_put_u64(&rt->out, least);
    wire_put_u64(&rt->out, wanted);
    TRY(rt_request(request, &r));
    if (r.fd < 0)
        return manta_fail(MANTA_ECORRUPT, "the daemon gave segment %llu without its memory",
                          (unsigned long long)r.id);
    *id = r.id;
    *fd = r.fd;
    return MANTA_OK;
}

static manta_status segment_open(void *ctx, uint64_t id, int *fd)
{
    reply r;
    (void)ctx;
    uint64_t request = rt_request_begin(PROTO_SEGMENT_OPEN);

    wire_put_u64(&rt->out, id);
    TRY(rt_request(request, &r));
    if (r.fd < 0)
        return manta_fail(MANTA_ECORRUPT, "the daemon gave segment %llu without its memory",
                          (unsigned long long)id);
    *fd = r.fd;
    return MANTA_OK;
}

/* The store says these in the middle of other things, also while a message is
 * being written in rt->out. */
static void segment_give_back(void *ctx, uint64_t id)
{
    const struct {
        uint32_t kind, zero;
        uint64_t id;
    } message = {PROTO_SEGMENT_FREE, 0, id};
    (void)ctx;

    rt_tell_bytes(&message, sizeof message);
}

void rt_let_segment_go(void *ctx, uint64_t id, uint32_t n)
{
    const struct {
        uint32_t kind, zero;
        uint64_t id, n;
    } message = {PROTO_SEGMENT_CLOSED, 0, id, n};
    (void)ctx;

    rt_tell_bytes(&message, sizeof message);
}

const store_source rt_segments = {
    .make = segment_make, .open = segment_open, .give_back = segment_give_back, .let_go = rt_let_segment_go};

/* ---- or, without a node, from the system ---- */

static manta_status local_make(void *ctx, size_t least, size_t wanted, uint64_t *id, int *fd)
{
    (void)ctx;
    (void)least;
    TRY(shm_new("manta-segment", shm_round(wanted), fd));
    *id = ++rt->next_request;
    return MANTA_OK;
}

static manta_status local_open(void *ctx, uint64_t id, int *fd)
{
    (void)ctx;
    (void)fd;
    return manta_fail(MANTA_ENOENT, "segment %llu is gone: without other processes none can be opened again",
                      (unsigned long long)id);
}

static void local_give_back(void *ctx, uint64_t id)
{
    (void)ctx;
    (void)id;
}

static void local_let_go(void *ctx, uint64_t id, uint32_t n)
{
    (void)ctx;
    (void)id;
    (void)n;
}

const store_source rt_local_segments = {
    .make = local_make, .open = local_open, .give_back = local_give_back, .let_go = local_let_go};
