/* runtime_fuzz.c - what a program or worker hears: from the daemon, from its
 * callers and from its workers, in any order. An input is a row of letters: from
 * whom (one byte: even the daemon, with 2 in it and with a channel, a bell and
 * another descriptor; odd a peer), how long (two bytes), and the message. Calls
 * that come in are run. It is process 1, and the peer is 7. */
#include <unistd.h>

#include "fuzz.h"
#include "manta/actor.h"
#include "manta/log.h"
#include "manta/packed.h"
#include "manta/stream.h"
#include "os/shm.h"
#include "os/socket.h"
#include "task/call.h"
#include "task/incoming.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/ring.h"
#include "task/runtime.h"
#include "task/value.h"

static manta_status anything(manta_task *t)
{
    double x;
    const char *s;
    manta_array a;
    const manta_ref *refs;
    size_t n;
    manta_packed p;
    volatile char sink = 0;

    for (int i = 0; i < manta_args(t); i++) {
        if (!manta_arg_str(t, i, &s)) sink = s[strlen(s)];
        if (!manta_arg_array(t, i, &a) && manta_array_bytes(&a) > 0)
            sink = ((const char *)a.data)[manta_array_bytes(&a) - 1];
        if (!manta_arg_refs(t, i, &refs, &n) && n > 0) sink = (char)refs[n - 1].id;
        if (!manta_arg_packed(t, i, &p)) {
            if (p.head_size > 0) sink = ((const char *)p.head)[p.head_size - 1];
            for (size_t k = 0; k < p.n_blocks; k++)
                if (p.blocks[k].size > 0) sink = ((const char *)p.blocks[k].at)[p.blocks[k].size - 1];
            if (p.n_refs + p.n_actors > 0) sink = (char)p.refs[p.n_refs + p.n_actors - 1].id;
        }
        (void)!manta_arg_f64(t, i, &x);
    }
    (void)sink;
    return manta_results(t) > 0 ? manta_return_f64(t, 0, 1) : MANTA_OK;
}

/* A process whose node is gone: nothing it says goes anywhere, and nothing it
 * asks is waited for. */
static peer *open_runtime(void)
{
    if (runtime_open_local()) abort();
    rt->is_local = false;
    rt->is_dead = true;
    rt->death = failure_make(MANTA_FAILURE_NODE, MANTA_EDIED, NULL, 0, "there is no node");
    int fd;
    peer *p = mem_new(sizeof *p);
    void *bell_at;
    *p = (peer){.id = 7, .pid = 0x7ffffff0, .status = -1};
    list_init(&p->sent);
    if (shm_new("fuzz", channel_size(), &fd) || channel_open(fd, 0, &p->channel)) abort();
    socket_close_all(&fd, 1);
    if (shm_new("fuzz", shm_page(), &fd) || shm_map(fd, shm_page(), true, &bell_at)) abort();
    socket_close_all(&fd, 1);
    p->bell = bell_at;
    *map_u64_put(&rt->peers, p->id) = p;
    return p;
}

/* What the daemon sends when it tells of a peer. */
static int make_descriptors(int fds[3])
{
    if (shm_new("fuzz", channel_size(), &fds[0]) || shm_new("fuzz", shm_page(), &fds[1])) abort();
    if ((fds[2] = dup(fds[1])) < 0) abort();
    return 3;
}

/* What is under way, for answers to be about: a call with the results 1 and 2,
 * which is sent to the peer; the stream 3; the actor 4, with a call (5) that waits
 * to hear where it is; a call (6) that waits for result 1, and holds reference 2. */
static void submit_some(peer *p)
{
    manta_ref r[4];
    sched_shape cpu = {.amount = {SCHED_UNIT}};

    rt->is_dead = false; /* a submit would fail at once */
    rt->total.amount[0] = 4 * SCHED_UNIT;
    calls_grant(p, &cpu, 0);
    manta_submit("anything", NULL, 0, NULL, 2, r);
    (void)manta_stream_start("anything", NULL, 0, NULL);
    manta_actor a = manta_actor_start("anything", NULL, 0, NULL);
    manta_actor_submit(a, "anything", 0, NULL, 1, &r[2]);
    manta_arg args[] = {manta_of_ref(r[0]), manta_refs(&r[1], 1)};
    manta_submit("anything", NULL, 2, args, 1, &r[3]);
    if (p->in_flight != 1 || r[3].id != ((uint64_t)rt->client << CLIENT_SHIFT) + 6) abort();
    rt->is_dead = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    manta_log_set_level(MANTA_LOG_LEVEL_OFF);
    manta_register("anything", anything);
    peer *p = open_runtime();
    submit_some(p);
    _Alignas(16) static unsigned char message[65536];
    buf answer = {0};
    while (size >= 3) {
        bool from_peer = data[0] & 1, with_descriptors = data[0] & 2;
        size_t n = data[1] | (size_t)data[2] << 8;
        data += 3;
        size -= 3;
        if (n > size) n = size;
        mutex_lock(&rt->lock);
        if (from_peer && (p = find_peer(7))) {
            buf_reserve(&rt->in, 8);
            buf_cut(&rt->in, 0);
            buf_add(&rt->in, data, n);
            rt_peer_message(p);
        } else {
            memcpy(message, data, n);
            wire w = wire_of(message, n);
            int fds[3];
            rt_daemon_message(&w, fds, with_descriptors ? make_descriptors(fds) : 0);
        }
        while (!list_is_empty(&rt->calls)) {
            incoming *c = LIST_ITEM(list_pop(&rt->calls), incoming, link);
            list_push(&rt->running, &c->link);
            rt_current = c;
            exec_run(c, &answer);
            rt_current = NULL;
            incoming_free(c);
        }
        mutex_unlock(&rt->lock);
        data += n;
        size -= n;
    }
    buf_release(&answer);
    runtime_close();
    /* Names of functions stay; leaks are the sanitizer's to find. */
    return 0;
}
