/* runtime.h - a process of the node, seen from inside: the driver or a worker. Private
 * to task/.
 *
 * One lock (runtime.lock) guards everything that object.h, call.h, peer.h, actor_link.h,
 * group_link.h, stream.h, incoming.h, leader.h and rebuild.h describe. Two kinds of threads
 * take it: the program's own, and one watcher per process, which reads what the daemon
 * says (also that a peer has died). Messages of peers are read by whoever waits (rt_wait()
 * pumps the rings while it spins); the watcher pumps only when calls are queued and nobody
 * waits.
 *
 * All waiting is on one eventcount, the bell (ring.h): peers ring it, and the watcher rings it
 * when the daemon said something or a peer died. */
#ifndef TASK_RUNTIME_H
#define TASK_RUNTIME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <manta/context.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "base/spares.h"
#include "base/status.h"
#include "base/vec.h"
#include "net/wire.h"
#include "os/eventcount.h"
#include "os/thread.h"
#include "store/store.h"
#include "task/leader.h"
#include "task/nested.h"
#include "task/ring.h"
#include "task/sched.h"

struct actor_link;
struct call;
struct failure;
struct worker_trace;
struct function;
struct group_link;
struct lineage;
struct object;
struct output;
struct peer;
struct self_of;
struct shape;
struct stream;

/* How long nothing has come to a driver, and nothing has gone from it; runtime_wait.c. */
typedef struct idleness {
    uint64_t heard, told; /* of the runtime, when it began */
    int64_t at; /* when it is to be said next; 0: it has not begun */
    int polls; /* waits of the program that have ended since, as their time was over */
} idleness;

typedef struct runtime {
    mutex lock;
    bool is_local, is_worker, is_dead, is_closing, exiting;
    struct failure *death; /* why is_dead */
    char cut[256]; /* why the daemon cannot be talked to any more; "": it can */
    char ends[256]; /* why the daemon said that it is about to end; "": it did not */
    struct rlimit files; /* of a driver, as it was before runtime_open() */
    int fd, nudge_fd, keeper_pidfd;
    int daemon_pidfd; /* of a driver; -1: none */
    pid_t keeper, daemon, owner; /* owner: the process itself */
    eventcount *bell;
    uint32_t client;
    uint64_t next_id, next_request, node;
    sched_shape total;
    char names[SCHED_RESOURCES][32];
    store *store;
    thread_id watcher;
    bool watcher_idles; /* it sleeps without a time limit */
    uint64_t changes; /* counts what other threads should look at */
    uint64_t heard, told; /* messages of the daemon and of peers, and to them */
    idleness idle;
    int waiters;
    int questions; /* with a time limit, that are under way: rt_question_begin() */
    int timed; /* waiters that have a time limit */
    int waiting_calls; /* waiters that are calls which run here */
    uint64_t walks;
    uint64_t settled; /* counts objects that got their value or failure, from 1 on */
    uint64_t looks; /* at objects, by waits for some of many */
    MAP_U64(struct peer *) peers;
    MAP_U64(char) refused; /* clients that this process has called unreachable, until they are gone */
    VEC(struct peer *) graves; /* peers that ended; freed at the end */
    MAP_U64(struct object *) objects;
    spares spare_objects; /* entries that are not in use */
    spares spare_calls; /* incoming ones, of small messages */
    MAP(uint64_t) codes; /* objects that hold code, by its key in hexadecimal digits */
    MAP_U64(store_place) given; /* blocks of exported objects, until the daemon frees them */
    MAP_U64(struct call *) kept; /* calls that ended, to be run again when their results are lost */
    struct lineage *lineage; /* NULL: nothing was kept yet */
    MAP(struct function *) functions;
    VEC(struct shape *) shapes;
    MAP_U64(struct actor_link *) actors;
    MAP_U64(struct stream *) streams;
    MAP_U64(struct group_link *) groups; /* that this process has used */
    MAP(uint64_t) environments; /* that this process has used, and their numbers */
    VEC(uint64_t) pinned; /* without other processes: what the answer that is being read refers to */
    struct call *again; /* without other processes: the call that ended last is to be tried again */
    list replies;
    list watches; /* manta_watch, that are open */
    buf out, in;
    VEC(uint64_t) drops; /* to be told to the daemon, when it suits */
    buf adds; /* PROTO_ADD, to be told before anything else is told to anybody */
    VEC(uint64_t) holds; /* PROTO_HOLD of ours, to be told then as well */
    uint64_t done; /* calls that ended */
    int64_t queued; /* calls that are ready and not sent */
    size_t unsent; /* answers in the outboxes of all peers */
    struct output *output; /* a driver's: what its workers print */
    bool joined; /* a driver of a node that others use too */
    /* The rest is a worker's. */
    struct worker_trace *trace;
    uint64_t environment; /* 0: the plain one */
    int pipes[2]; /* where it prints; -1: its own output */
    pthread_t first_thread;
    list calls; /* incoming, in order */
    list running; /* incoming, one for each thread that is in a call, and those above it on its stack */
    list own; /* calls of ours that are run here, by who waits for them (nested.h) */
    bool nests; /* they may be */
    bool takes_back; /* a call was here that may run those it makes: they are sent with a claim */
    uint64_t returns; /* counts calls that went into a queue */
    int lingers; /* how often the watcher still looks at the queue without having been asked */
    MAP_U64(struct self_of *) selves;
    bool blocked;
    uint64_t awaits; /* the object that its only thread waits for, without a time limit; 0: none */
    int threads; /* that run calls beside the first */
    bool retires; /* it has run as many calls of a function as it may */
    bool is_retired; /* it has told the daemon that it retires, and begins no more */
    leadership leader;
    cond finished; /* without other processes: a deferred call was */
} runtime;

/* The name space of this program's actors; set before the node's processes are forked. */
extern char rt_space[64];

/* The runtime of this process; NULL before manta_init(). */
extern runtime *rt;

/* Fails: manta_init() was not called, or this process was forked from one that has. */
manta_status rt_none(void);

/* Says whether this process was forked, by the program, from one that has a runtime; it has none
 * itself then, and can have none. */
bool rt_is_forked(void);

/* ---- start and end ---- */

/* Makes rt, over the connection fd to the daemon, and starts the watcher. keeper_pidfd:
 * the keeper, whose end is the node's; -1: none. worker_pipes: where a worker prints;
 * NULL: this is a driver. */
manta_status runtime_open(int fd, int keeper_pidfd, const int *worker_pipes) MANTA_MUST_USE;

/* Makes rt without any other process. */
manta_status runtime_open_local(void) MANTA_MUST_USE;

/* Frees rt and all it holds. */
void runtime_close(void);

/* ---- telling the daemon; the lock is held from here on ---- */

/* Ends what is under way when the daemon cannot be talked to any more (rt->cut). */
void rt_end_if_cut(void);

/* Sends the message in rt->out. */
void rt_tell(void);

/* Sends one message of kind, [client,] n and ids, for as many as fit into one. */
void rt_tell_ids(uint32_t kind, uint32_t client, const uint64_t *ids, size_t n);

/* Sends the references that were dropped. */
void rt_flush_drops(void);

/* Sends new objects and holds; rt_tell(), peer_send() and peer_answer() do it first. */
void rt_flush_adds(void);

/* Sends a message that is not in rt->out, in which another may be. */
void rt_tell_bytes(const void *bytes, size_t n);

/* Where the segments of the store come from: the daemon, or, without one, the system. */
extern const store_source rt_segments, rt_local_segments;

/* Says that this process needs a segment no more; it was given to it n times. */
void rt_let_segment_go(void *ctx, uint64_t id, uint32_t n);

/* ---- asking the daemon ---- */

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

/* Begins a request in rt->out, and returns its number. */
uint64_t rt_request_begin(uint32_t kind);

/* Sends the request and waits for its answer; the lock is given away meanwhile. */
manta_status rt_request(uint64_t request, reply *r);

/* Finds the reply that somebody waits for; NULL: nobody does. */
reply *rt_find_reply(uint64_t request);

/* Does what one message of the daemon says, whatever it says, and takes its descriptors. */
void rt_daemon_message(wire *w, int *fds, int n_fds);

/* ---- waiting ---- */

/* Waits, with the lock held at entry and exit, until done(ctx). MANTA_ETIMEDOUT, without
 * a sentence, after the deadline. */
manta_status rt_wait(bool (*done)(void *ctx), void *ctx, int64_t deadline);

/* Waits, as rt_wait() does, in the place of a program that is in an event loop. */
void rt_wait_in_loop(bool (*done)(void *ctx), void *ctx);

/* Finds a call that the waiter of ctx should run itself (nested_find()); NULL: none. */
typedef struct call *rt_find(void *ctx, nested_terms terms);

/* Waits for a program, as rt_wait() does; what `find` (may be NULL) finds meanwhile is run on
 * this thread's stack. MANTA_ECANCELLED, with a sentence, when the call that waits here is
 * cancelled; MANTA_EINTERRUPTED, too, when the program's hook says so (hooks.h). */
manta_status rt_await(bool (*done)(void *ctx), rt_find *find, void *ctx, int64_t timeout_ms);

/* A question to an actor of the library's own, such as a queue, that waits there for a time and may be answered with
 * "not yet": for the program that is a wait with a time limit, though calls and answers go to and fro for it. Whoever
 * asks says when the question begins, was sent, and ends; the actor does not count the time limit as its own. */
typedef struct rt_question {
    bool is_timed;
    uint64_t heard, told; /* of the runtime, before what belongs to the question alone */
} rt_question;

void rt_question_begin(rt_question *q, bool is_timed);
void rt_question_sent(rt_question *q);
void rt_question_end(rt_question *q, bool in_vain);

/* Says that other threads should look again. */
void rt_changed(void);

/* Says that the watcher should look whether it has something to do. */
void rt_nudge(void);

#endif
