/* runtime_fuzz.c - what a program or worker hears: from the daemon, from its
 * callers and from its workers, in any order. An input is a row of letters: from
 * whom (one byte: even the daemon, odd a peer), how long (two bytes), and the
 * message. Calls that come in are run. */
#include "fuzz.h"
#include "manta/log.h"
#include "os/shm.h"
#include "os/socket.h"
#include "task/runtime.h"

static manta_status anything(manta_task *t)
{
    double x;
    const char *s;
    manta_array a;
    const manta_ref *refs;
    size_t n;
    volatile char sink = 0;
    for (int i = 0; i < manta_args(t); i++) {
        if (!manta_arg_str(t, i, &s)) sink = s[strlen(s)];
        if (!manta_arg_array(t, i, &a) && manta_array_bytes(&a) > 0)
            sink = ((const char *)a.data)[manta_array_bytes(&a) - 1];
        if (!manta_arg_refs(t, i, &refs, &n) && n > 0) sink = (char)refs[n - 1].id;
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
    rt->death = failure_make(MANTA_FAILED_NODE, MANTA_EDIED, NULL, 0, "there is no node");
    int fd;
    peer *p = mem_new(sizeof *p);
    void *bell_at;
    *p = (peer){.id = 7, .pid = 0x7ffffff0, .pidfd = -1, .status = -1};
    list_init(&p->sent);
    if (shm_new("fuzz", channel_size(), &fd) || channel_open(fd, 0, &p->channel)) abort();
    socket_close_all(&fd, 1);
    if (shm_new("fuzz", shm_page(), &fd) || shm_map(fd, shm_page(), true, &bell_at)) abort();
    socket_close_all(&fd, 1);
    p->bell = bell_at;
    *map_u64_put(&rt->peers, p->id) = p;
    return p;
}

/* A call and a stream that are under way, for answers to be about. */
static void submit_some(peer *p)
{
    manta_ref r[2];
    sched_shape cpu = {.amount = {SCHED_UNIT}};
    rt->is_dead = false; /* a submit would fail at once */
    calls_grant(p, &cpu);
    manta_submit("anything", NULL, 0, NULL, 2, r);
    (void)manta_stream_start("anything", NULL, 0, NULL);
    rt->is_dead = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    manta_log_set_level(MANTA_LOG_OFF);
    manta_register("anything", anything);
    int64_t live = mem_live();
    peer *p = open_runtime();
    submit_some(p);
    _Alignas(16) static unsigned char message[65536];
    buf answer = {0};
    while (size >= 3) {
        bool from_peer = data[0] & 1;
        size_t n = data[1] | (size_t)data[2] << 8;
        data += 3;
        size -= 3;
        if (n > size) n = size;
        mutex_lock(&rt->lock);
        if (from_peer && find_peer(7)) {
            buf_reserve(&rt->in, 8);
            buf_cut(&rt->in, 0);
            buf_add(&rt->in, data, n);
            rt_peer_message(p);
        } else {
            memcpy(message, data, n);
            wire w = wire_of(message, n);
            rt_daemon_message(&w, NULL, 0);
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
    (void)live; /* names of functions stay; leaks are the sanitizer's to find */
    return 0;
}
