/* runtime.h - a process of the node, seen from inside: the driver or a worker.
 * Private to task/.
 *
 * One lock (runtime.lock) guards everything here. Two kinds of threads take it:
 * the program's own, and one watcher per process, which reads what the daemon
 * says (also that a peer has died). Messages of peers are read by
 * whoever waits (rt_wait pumps the rings while it spins); the watcher pumps
 * only when calls are queued and nobody waits.
 *
 * All waiting is on one word, the bell (ring.h): peers ring it, and the
 * watcher rings it when the daemon said something or a peer died.
 *
 * Objects. An entry (object) exists for every object this process has a
 * reference to, or uses in a call, or will make. It is
 *   - ours (id made here): unknown to the daemon until it is exported, that is
 *     until another process may come to know its number; or
 *   - a stranger's: then the daemon counts at least one hold of this process
 *     (`held`), which is dropped when the entry goes. */
#ifndef TASK_RUNTIME_H
#define TASK_RUNTIME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include <manta/task.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/map.h"
#include "base/vec.h"
#include "os/thread.h"
#include "store/store.h"
#include "task/node.h"
#include "task/output.h"
#include "task/proto.h"
#include "task/diary.h"
#include "task/ring.h"
#include "task/value.h"

#define CLIENT_SHIFT 40 /* an object's number: its maker's client number, and a count */

typedef struct call call;
typedef struct actor_link actor_link;
typedef struct stream stream;
typedef struct group_link group_link;

typedef enum object_state { OBJECT_PENDING, OBJECT_READY, OBJECT_FAILED } object_state;

typedef struct object {
    uint64_t id;
    int32_t refs; /* of the program, and of objects here that contain it */
    int32_t pins; /* of calls under way, and of waits */
    int32_t held; /* holds the daemon counts for us */
    object_state state;
    bool exported; /* the daemon knows it */
    bool wanted; /* the daemon was asked for it */
    bool unsealed; /* manta_create() without manta_seal() yet */
    bool on_heap, is_own, is_pinned; /* whose v.at is: our heap, our segment, a pinned segment */
    bool is_read; /* a pointer to its bytes was delivered */
    int32_t kept; /* by manta_pin() */
    uint64_t walk; /* over many references that has come past last (manta_wait) */
    value v;
    manta_failure *failure;
    VEC(call *) waiting; /* calls with this as an argument */
    call *maker; /* the call that will make it */
} object;

typedef struct function {
    char *name;
    int64_t est_ns; /* running mean of what a call takes; -1: not known */
    int64_t run_ns; /* of those that threads of this process run (lead.c); likewise */
} function;

typedef struct call_arg {
    value v;
    object *o; /* resolved before the call; NULL: v is the value */
    uint64_t id; /* of a call that ended and is kept: the object that o was (rebuild.c) */
} call_arg;

struct call {
    list link; /* in a shape's queue, a peer's sent list or an actor's queue */
    uint64_t id; /* of the first result */
    int results, n_args, missing; /* missing: arguments that are not there yet */
    int attempt, max_retries;
    bool retry_errors, cancelled, is_sent, is_stream;
    bool apart; /* never sent behind another call */
    uint32_t retry_on; /* statuses, as MANTA_ON() */
    uint64_t parent; /* the call that made it; 0: none */
    function *fn;
    char *label; /* NULL: none */
    struct shape *shape; /* NULL for actors */
    actor_link *actor;
    struct peer *at; /* where it was sent */
    int64_t est_ns; /* what was added to the peer's load */
    call_arg args[];
};

/* Calls that need the same, and the workers leased for it. */
typedef struct shape {
    sched_shape amount;
    list queue;
    int64_t queued, demanded;
    VEC(struct peer *) workers;
} shape;

typedef struct peer {
    uint32_t id;
    int pid;
    channel *channel;
    bell *bell;
    bool is_dead; /* its end has been dealt with */
    bool is_broken; /* its ring holds what cannot be: nothing more is read from it */
    bool is_waiting; /* its call waits: it takes nothing now */
    bool give_back; /* its lease ends with the calls it has */
    int status;
    proto_memory memory; /* why: it was ended for it */
    shape *shape; /* leased for it */
    int in_flight;
    int64_t load_ns;
    list sent; /* calls, in the order in which they were sent */
    VEC(buf) outbox; /* answers that found the ring full, in order; nothing overtakes them */
} peer;

typedef enum actor_link_state { ACTOR_UNKNOWN, ACTOR_AT, ACTOR_LOST, ACTOR_DEAD } actor_link_state;

/* An actor as a caller sees it. */
struct actor_link {
    uint64_t id;
    actor_link_state state;
    peer *at;
    int pid, retries;
    int most_pending, pending; /* calls of ours; 0: no limit */
    bool wanted;
    bool fail_away; /* calls do not wait for a restart */
    uint64_t group; /* and the full name: only without other processes */
    char *name;
    manta_failure failure;
    list queue; /* calls not sent, in order */
    int64_t queued;
};

typedef struct reply {
    list link;
    uint64_t request;
    bool done;
    manta_status status;
    uint64_t id;
    int fd;
    char text[256];
    manta_node_info info;
    buf bytes; /* of a PROTO_ANSWER; to be released */
} reply;

/* A call that came in. */
typedef struct incoming {
    list link;
    peer *from; /* NULL: the daemon (a constructor), or this process */
    uint64_t task, actor;
    int concurrency; /* of the actor that this call constructs */
    _Atomic bool cancelled;
    _Atomic bool ends; /* and so do the calls it makes */
    uint64_t taken; /* items that the caller has of a stream */
    size_t n;
    _Alignas(16) char bytes[]; /* the message */
} incoming;

typedef struct self_of {
    void *self;
    void (*end)(void *self);
    int running; /* calls */
    bool ended; /* goes with the last of them */
    bool failed;
    manta_failure failure;
} self_of;

/* Of an actor's threads: which of them takes calls (lead.c). */
typedef struct lead {
    uint64_t turn, turns; /* of the thread that leads, and the last given out; 0: none leads */
    cond free; /* none does */
    bool runs; /* who leads is in a call */
    uint64_t begun, seen; /* such calls, and how many of them the watcher has seen */
} lead;

typedef struct runtime {
    mutex lock;
    bool is_local, is_worker, is_dead, is_closing, exiting;
    manta_failure death; /* why is_dead */
    char cut[256]; /* why the daemon cannot be talked to any more; "": it can */
    struct rlimit files; /* of a driver, as it was before runtime_open() */
    int fd, nudge_fd, keeper_pidfd;
    pid_t keeper, daemon, owner; /* owner: the process itself */
    bell *bell;
    uint32_t client;
    uint64_t next_id, next_request, node;
    sched_shape total;
    char names[SCHED_RESOURCES][32];
    store *store;
    thread_id watcher;
    bool watcher_idles; /* it sleeps without a time limit */
    uint64_t changes; /* counts what other threads should look at */
    int waiters;
    uint64_t walks;
    MAP_U64(peer *) peers;
    MAP_U64(char) refused; /* clients that this process has called unreachable, until they are gone */
    VEC(peer *) graves; /* peers that ended; freed at the end */
    MAP_U64(object *) objects;
    MAP_U64(store_place) given; /* blocks of exported objects, until the daemon frees them */
    MAP_U64(call *) kept; /* calls that ended, to be run again when their results are lost */
    struct lineage *lineage; /* NULL: nothing was kept yet */
    MAP(function *) functions;
    VEC(shape *) shapes;
    MAP_U64(actor_link *) actors;
    MAP_U64(stream *) streams;
    MAP_U64(group_link *) groups; /* that this process has used */
    VEC(uint64_t) pinned; /* likewise: what the answer that is being read refers to */
    call *again; /* without other processes: the call that ended last is to be tried again */
    stream *opening; /* the stream whose call is being submitted */
    list replies;
    buf out, in;
    VEC(uint64_t) drops; /* to be told to the daemon, when it suits */
    buf adds; /* PROTO_ADD, and */
    VEC(uint64_t) holds; /* PROTO_HOLD of ours: before anything else is told to anybody */
    uint64_t done; /* calls that ended */
    int64_t queued; /* calls that are ready and not sent */
    size_t unsent; /* answers in the outboxes of all peers */
    output *output; /* a driver's: what its workers print */
    bool joined; /* a driver of a node that others use too */
    /* a worker's */
    diary *diary;
    int pipes[2]; /* where it prints; -1: its own output */
    pthread_t first_thread;
    list calls; /* incoming, in order */
    list running; /* incoming, one for each thread that is in a call */
    MAP_U64(self_of *) selves;
    bool blocked;
    int threads; /* that run calls beside the first */
    lead lead;
} runtime;

/* Of the names of actors; set before the node's processes are forked. */
extern char rt_space[64];

/* The one of this process; NULL before manta_init(). */
extern runtime *rt;

/* The call that this thread is in; NULL: none. */
extern _Thread_local incoming *rt_current;

/* runtime.c */
/* worker_pipes NULL: a driver. */
manta_status runtime_open(int fd, int keeper_pidfd, const int *worker_pipes) MANTA_MUST_USE;
manta_status runtime_open_local(void) MANTA_MUST_USE;
void runtime_close(void);
manta_status rt_none(void); /* fails: manta_init() was not called */
/* Sends rt->out to the daemon. */
void rt_tell(void);
/* Says so to the daemon in one message: kind, n, ids. */
void rt_tell_ids(uint32_t kind, uint32_t client, const uint64_t *ids, size_t n);
void rt_flush_drops(void);
void rt_flush_adds(void); /* and holds; rt_tell(), peer_send() and peer_answer() do it */
/* Waits, with the lock held at entry and exit, until done(ctx); MANTA_ETIMEDOUT
 * (no sentence). */
manta_status rt_wait(bool (*done)(void *ctx), void *ctx, int64_t deadline);
/* The same for a program that waits: MANTA_ECANCELLED, with a sentence, when the
 * call that waits here is cancelled. */
manta_status rt_await(bool (*done)(void *ctx), void *ctx, int64_t timeout_ms);
/* One message of the daemon, with its descriptors, which it takes; and one of a
 * peer, in rt->in. Whatever they say. */
void rt_daemon_message(wire *w, int *fds, int n_fds);
void rt_peer_message(peer *p);
/* Reads all rings. Whether there was anything. */
bool rt_pump(void);
bool rt_has_input(void);
void rt_changed(void); /* other threads should look again */
void rt_nudge(void); /* the watcher should look whether it has something to do */
/* A request to the daemon in rt->out, and its answer. */
uint64_t rt_request_begin(uint32_t kind);
manta_status rt_request(uint64_t request, reply *r);
bool peer_send(peer *p, const buf *b); /* false: no room */
void peer_answer(peer *p, const buf *b); /* queued when there is no room */
peer *find_peer(uint32_t id);
void rt_take_peer(wire *w, int *fds, int n_fds); /* the daemon's word of a new one */
void rt_peer_end(peer *p); /* it is dead */
/* Tells the daemon that a client cannot be reached, with this thread's last error as
 * the reason: it is ended. `no_room`: for want of something that another worker would
 * want as well; what could only go on with one then fails with that sentence. */
void rt_unreachable(uint32_t id, bool no_room);
void rt_let_segment_go(void *ctx, uint64_t id,
                       uint32_t n); /* this process needs it no more; n times it was told of it */
reply *rt_find_reply(uint64_t request); /* that somebody waits for; NULL: nobody does */

/* task.c */
/* A reference that only carries this thread's last error. */
manta_ref object_failed(manta_failure_kind kind, manta_status st);
/* Waits for an object and, with `map`, makes its bytes readable; with the lock
 * held. *out is pinned until object_unpin(). */
manta_status object_await(manta_ref ref, int64_t timeout_ms, bool map, object **out) MANTA_MUST_USE;

/* objects.c */
object *object_new(uint64_t id); /* that has no entry yet */
object *object_find(uint64_t id);
uint64_t object_id(int n); /* the first of n new numbers */
/* Whether another process may name it, alone or in a value: numbers of ours are
 * known to nobody before they are given out, and an entry for one would be in the
 * way of the object that gets it. MANTA_ECORRUPT. */
manta_status object_may_be(uint64_t id) MANTA_MUST_USE;
manta_status object_may_hold(const value *v) MANTA_MUST_USE;
/* Copies the bytes of a value, v as value_of() made it, into a block that store_take()
 * gave. The lock is given away while many are copied: nobody but the caller may know
 * of the block yet, and store_take() keeps it mapped, in memory and writable until
 * store_seal(). */
void object_fill(const manta_arg *a, const value *v, void *to);
/* A value becomes an object of ours, with no reference yet. Large ones may give the
 * lock away. */
manta_status object_make(const manta_arg *a, const value *v, object **out) MANTA_MUST_USE;
/* A value has come in a message. `told`: the daemon knows already that we hold
 * it, if it lies in a segment, and what it refers to. */
void object_set(object *o, const value *v, bool told);
void object_fail(object *o, const manta_failure *f);
void object_sealed(object *o);
void object_export(object *o);
void object_want(object *o);
void object_unref(object *o);
void object_unpin(object *o);
/* Makes o->v.at point to its bytes. */
manta_status object_map(object *o) MANTA_MUST_USE;
/* Lets the bytes go again, unless somebody still counts on the address. */
void object_unmap(object *o);
/* Tells the daemon of an object that lies where `v` says and contains n others;
 * it may have to wait for company, but not for anything that is told later. */
void object_tell_add(uint64_t id, uint32_t holder, const value *v, const void *inner, uint64_t n);
/* An entry for the reference of another process (object_may_be()); it is one hold
 * more that the daemon must be told of, unless `told`. */
object *object_adopt(uint64_t id, bool told);

/* calls.c */
void call_submit(const char *name, const manta_task_options *options, actor_link *actor, int n_args,
                 const manta_arg *args, int results, manta_ref *out);
function *function_find(const char *name); /* never NULL */
void call_argument_ready(call *c);
void call_finish(peer *from, wire *w, proto_kind kind);
void calls_dispatch(void);
void calls_peer_died(peer *p);
void calls_node_died(void);
void calls_encode(buf *b, const call *c);
bool call_send(call *c, peer *p); /* false: no room in the ring */
bool call_cancel(call *c, unsigned how); /* MANTA_CANCEL_; false: it cannot be */
void calls_cancel_of(uint64_t parent); /* those that a call that runs here has made */
/* Fails a call that is in no list, and unties it from what it waits for. */
void call_abandon(call *c, const manta_failure *f);
void calls_group_gone(uint64_t group, const manta_failure *f);
void calls_grant(peer *p, const sched_shape *amount); /* p NULL: a worker that cannot be reached */
void calls_reclaim(peer *p); /* others wait for the worker */
void calls_no_worker(const sched_shape *amount, const manta_failure *f); /* none will come for them */
void calls_release(void); /* frees what is left at the end */

/* needs.c */
/* What the options ask for, checked against what there is. */
manta_status shape_of(const manta_task_options *o, bool actor, sched_shape *out,
                      manta_failure_kind *kind) MANTA_MUST_USE;
manta_status needs_amounts(double cpus, double gpus, uint64_t memory, const char *resources,
                           sched_shape *out) MANTA_MUST_USE;
manta_status needs_feasible(const sched_shape *total, const char *whose,
                            const sched_shape *asked) MANTA_MUST_USE;

/* groups.c */
/* Puts group and bundle into the shape. */
manta_status group_shape(manta_placement_group group, int bundle, sched_shape *to,
                         manta_failure_kind *kind) MANTA_MUST_USE;
bool group_is_gone(uint64_t id, manta_failure *why);
void group_gone(uint64_t id);
void groups_release(void);

/* Gives back a call that is in no list and counts no more. */
void call_release(call *c);
/* Goes on with a call that waits for its arguments, or does not any more. */
void call_resume(call *c);

/* rebuild.c */
extern size_t rebuild_limit; /* bytes of calls that a process keeps; 0: none */
/* A call has ended well: false when it is not kept, and is to be freed. */
bool rebuild_keep(call *c);
void rebuild_failed(const call *c); /* a call fails */
void rebuild_dropped(uint64_t id); /* an object's entry goes */
void rebuild_object(uint64_t id, const char *reason); /* the daemon asks for it */
/* Reading the object failed with st: whether it is to be awaited once more. */
bool rebuild_missed(object *o, manta_status st);
bool rebuild_arguments(call *c);
void rebuild_release(void);

/* actors.c */
actor_link *actor_find_link(uint64_t id);
void actor_dispatch(actor_link *a);
void actor_at(uint64_t id, uint32_t client, int pid, int retries, int most_pending, bool fail_away);
void actor_died(uint64_t id, const manta_failure *f);
void actor_peer_died(peer *p);
void actor_forget(uint64_t id); /* the last handle here is gone; harmless for other objects */
void actors_group_gone(uint64_t group, const manta_failure *f); /* without other processes */
actor_link *actor_named(const char *full); /* likewise */
/* "space/name"; MANTA_EINVAL it is too long, or there is a '/' in the space. */
manta_status actor_full_name(const char *space, const char *name, char full[PROTO_NAME]) MANTA_MUST_USE;
void actors_release(void);

/* streams.c */
void stream_item(wire *w);
void stream_open(stream *s, uint64_t id);
void streams_release(void);

/* context.c */
void info_amounts(const sched_shape *total, const sched_shape *left, manta_node_info *out);
void amounts_text(const sched_shape *s, char *text, size_t size); /* "cpu=1,disk=2" */
/* task.c */
manta_status node_config_of(const manta_node_options *o, node_config *c) MANTA_MUST_USE;

/* lead.c */
void lead_take(void); /* waits until this thread leads, or all are to end */
bool lead_is_mine(void); /* whether it may take a call */
void lead_waits(void); /* the call that runs on this thread, if any does, waits */
void lead_begin(const function *f); /* this thread runs a call of it, */
void lead_end(function *f, int64_t ns); /* and has */
bool lead_is_watched(void); /* whether the watcher is to look from time to time */
void lead_watch(void); /* it does */
void lead_stop(void); /* the process is to end */

/* exec.c */
bool exec_caller_lives(const manta_task *t);
void exec_context(const manta_task *t, manta_context *out); /* what the call knows of itself */
/* Runs the call in c->bytes and leaves the answer (DONE or FAILED) in *answer. */
void exec_run(incoming *c, buf *answer);
/* Takes a call that came in apart far enough to queue it. */
incoming *incoming_of(peer *from, const void *bytes, size_t n);
void incoming_free(incoming *c);
void exec_block(bool on); /* the call that runs here waits, or goes on */
void exec_end_self(uint64_t actor); /* one actor of this process has ended */
void exec_end_selves(void);

#endif
