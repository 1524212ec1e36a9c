/* daemon.h - the node daemon from inside: what its files share.
 *
 * One thread, one loop. It decides nothing itself: leases and workers are
 * sched.c's, programs, actors and groups registry.c's, references refs.c's; these
 * files turn messages into their events and their actions into messages. It is not on the path of a call.
 *
 * Rules that the rest relies on:
 *  1. It never waits for a client: what a client does not take at once is
 *     queued (client.outbox).
 *  2. It makes every shared memory itself and maps none; a second thread copies
 *     segments to and from disk, and touches nothing else.
 *  3. A client that is dead is drained (what it had sent is read) before
 *     anything is taken from it, and its end is told to its peers with the
 *     reason.
 *  4. Nothing is freed before one pass over all connections (refs.h).
 *
 * daemon.c: start, children; _clients: connections and messages; _jobs: the
 * programs; _forks: who forks their workers; _leases: channels and workers; _memory: segments,
 * in memory and on disk; _objects; _actors; _groups: placement groups; _code: code by
 * key; _limits: the workers' memory; _starved: programs in which nothing can happen any more; _guests: who
 * connects by name, and what they see. */
#ifndef TASK_DAEMON_H
#define TASK_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/vec.h"
#include "net/loop.h"
#include "net/wire.h"
#include "os/socket.h"
#include "store/directory.h"
#include "store/refs.h"
#include "store/spill.h"
#include "task/gifts.h"
#include "task/node_socket.h"
#include "task/node.h"
#include "task/nursery.h"
#include "task/proto.h"
#include "task/registry.h"
#include "task/sched.h"
#include "task/value.h"

typedef struct letter { /* a message that a client has not taken yet */
    buf bytes;
    int fds[SOCKET_MAX_FDS], n_fds;
} letter;

typedef struct client {
    uint32_t id, job;
    uint32_t environment; /* of a worker: a number of its job's; 0: the plain one */
    pid_t pid;
    int fd, pidfd, bell_fd;
    int trace_fd; /* a worker's (worker_trace.h) */
    int out_fds[2]; /* what it prints, kept for the time when its driver is gone */
    bool is_worker, dying, ended; /* its pidfd is readable; its end has been dealt with */
    bool is_ready; /* a worker that has started */
    bool is_awaited; /* a worker of which the scheduler hears when it is ready: its hook may refuse */
    bool is_retired; /* it takes no more calls */
    bool is_killed; /* by us: its end says nothing about the next worker */
    bool is_maker; /* in daemon_end_workers(): it is to make objects that others know of, or have known of */
    bool is_wanted; /* in daemon_end_workers(): it is to make an object that others hold */
    bool blocked;
    int status;
    int64_t died_ns;
    proto_memory memory; /* why: it was killed for it */
    char
        refusal[256]; /* why it is ended: what its driver lacks to have it, or its hook said; "": it is not */
    VEC(letter) outbox;
    MAP_U64(char) peers; /* clients with which it shares a channel */
    uint64_t said; /* messages of it, but for STARVED and STILL */
} client;

/* Memory for objects, or the file it was written to (spill.h). */
typedef struct segment {
    int fd, file; /* -1: not in memory; no file */
    size_t size;
    uint32_t writer; /* 0: dead */
    int64_t objects;
    uint32_t crc; /* of the file */
} segment;

typedef struct copier copier; /* daemon_memory.c */

/* What the directory keeps with an object (store/directory.h). */
typedef struct object {
    value v; /* its bytes, when small, are ours */
    failure *failure; /* NULL: it has not failed */
} object;

typedef enum forker_state { FORKER_NONE, FORKER_STARTING, FORKER_READY, FORKER_LOST } forker_state;
#define FORKER_RUNS (-1) /* in the place of a wait status */

/* The zygote or nursery that every program has, and a second nursery, which is warm. */
typedef enum forker_kind { FORKER_FIRST, FORKER_WARM, FORKERS } forker_kind;

/* A process that forks the workers of a program: its zygote or a nursery. daemon_forks.c has the
 * picture of its states. */
typedef struct forker {
    forker_state state;
    pid_t pid; /* 0: none */
    int fd, pidfd;
    int status; /* as of waitpid(), when it is known; else FORKER_RUNS */
    bool was_ready; /* it, or one before it */
    int restarts; /* of a warm nursery */
    int64_t limit_ms, due_ns; /* how long it may be STARTING, and until when */
    char name[NURSERY_NAME]; /* for sentences */
    VEC(uint32_t) asked; /* the environments of workers that it has not answered for yet */
    size_t sent; /* how many of them it was told, the first */
} forker;

/* A program whose calls have no worker, while all workers wait (daemon_starved.c). */
typedef struct starvation {
    int64_t since_ns; /* as long as nobody in it has said anything; 0: it is not starved */
    uint64_t said; /* by all of its processes, when that began */
    uint64_t round; /* the last in which they were asked */
    int64_t asked_ns;
    int open; /* who has not answered in it */
} starvation;

/* The processes of a program that uses the node; what else there is to know of it is the
 * registry's. */
typedef struct job {
    uint32_t id;
    pid_t supervisor;
    int supervisor_fd; /* -1: what forks its workers is a child of the daemon */
    forker forkers[FORKERS];
    buf warm; /* the command of the warm nursery (nursery.h); empty: there is none */
    MAP(uint32_t) environments; /* those that have a name, and their numbers, from 1 in this order */
    char shortage[256]; /* why the last worker that was to be started was not */
    manta_status shortage_code; /* what calls fail with for want of that worker */
    MAP(uint64_t) codes; /* objects, by the key in hexadecimal digits */
    starvation starved;
} job;

/* A worker that is no more, for whoever wants to see the recent past. */
typedef struct past {
    uint32_t client, job;
    pid_t pid;
    int trace_fd;
} past;

/* Somebody who came through the node socket, and is no driver (yet). */
typedef struct guest {
    int fd;
    bool greeted;
    pid_t pid;
    uint64_t stack; /* the request it waits for */
    VEC(letter) outbox;
} guest;

typedef struct node {
    node_config config;
    uint64_t number; /* that nobody has had before */
    int64_t look_ns; /* when to look at the workers' memory again */
    loop *loop;
    sched *sched;
    registry *registry;
    VEC(registry_event) later; /* events that follow from actions of the registry which are being done */
    bool is_stepping; /* actions of the registry are being done */
    VEC(registry_event) wants; /* of actors that nobody has told of yet, until everything said is read */
    bool is_looking; /* everything that was said is being read, for `wants` */
    VEC(uint32_t) stops; /* idle workers that are to be stopped (daemon_end_workers()) */
    VEC(uint32_t) kills; /* workers that are to be killed: their callers or groups are gone */
    refs_book *refs;
    gifts *gifts;
    buf out; /* the message being written */
    char *in; /* the message being read */
    pid_t driver, keeper; /* driver 0: a node that stays */
    int keeper_pidfd, self_pidfd;
    struct rlimit files; /* as the driver had it */
    bool is_short; /* of memory to send messages: some that wait are to be tried again */
    int socket_fd;
    char socket_path[NODE_SOCKET_PATH];
    int64_t started_ns;
    uint32_t next_job;
    uint64_t next_stack;
    MAP_U64(job *) jobs;
    VEC(guest *) guests;
    VEC(past) pasts;
    uint32_t next_client;
    spill_book *spill;
    copier *copier;
    char spill_error[256]; /* why the last write to disk failed; "": none did */
    MAP_U64(client *) clients;
    MAP_U64(segment *) segments;
    directory *objects;
    bool stop;
    char why[256]; /* the reason, when it is one that a driver can be told; with its status */
    manta_status why_status;
} node;

/* daemon_clients.c */
client *daemon_client(node *d, uint32_t id); /* NULL: dead, or never was */
/* Sends d->out; the descriptors stay ours. */
void daemon_send_fds(node *d, client *c, const int *fds, int n_fds);
void daemon_send(node *d, client *c);
void daemon_kill(node *d, uint32_t id);
/* Tries again what could not be sent because the system was short of memory. */
void daemon_send_again(node *d);
/* A message that waits, with copies of the descriptors; false: those cannot be had. */
bool letter_make(const buf *bytes, const int *fds, int n_fds, letter *out) MANTA_MUST_USE;
void letter_release(letter *l);
void daemon_message(node *d, client *c, wire *w); /* one, of any kind */
void daemon_drain_all(node *d); /* reads all that all clients have sent */
void daemon_add_driver(node *d, uint32_t job, pid_t pid, int fd, int pidfd);
/* fds: the socket, the pidfd and, unless it writes to its own, its output and
 * its error; all become ours. is_awaited: it may still say that it cannot work. */
void daemon_add_worker(node *d, uint32_t job, uint32_t environment, pid_t pid, bool is_awaited,
                       const int *fds, int n_fds);
/* Ends the clients that are dead and whose reason is known, or was awaited
 * long enough. Returns whether some are left. */
bool daemon_bury(node *d);
void daemon_kill_stranger(void *ctx, pid_t child); /* a child of ours that nobody knows */

/* daemon_jobs.c */
job *daemon_job(node *d, uint32_t id); /* NULL: gone, or never was */
uint32_t daemon_start_job(node *d, const char *space); /* of the driver we are a fork of */
/* The number of an environment of the client's job, which is given one when it has none; answered. */
void daemon_find_environment(node *d, client *c, wire *w);
/* The text of a number; NULL: of the plain one, and of numbers that are none. */
const char *daemon_environment(const job *j, uint64_t number);
bool daemon_has_environment(node *d, uint32_t job, uint64_t number); /* or it is the plain one */
uint32_t daemon_join_job(node *d, const char *space, int supervisor_fd); /* takes the descriptor */
/* Does what the registry says is to be done; false: it is another's. */
bool daemon_jobs_action(node *d, const registry_action *a);
/* Ends a program whose workers cannot be had, and tells its driver why, which is this thread's last
 * error: a node of its own ends with it. */
void daemon_end_job(node *d, const job *j);
void daemon_worker_reaped(node *d, pid_t pid, int status); /* or what forks them */
/* A worker could not start, or not be reached. After some in a row the next
 * would fare no better, and calls would wait for ever. */
void daemon_note_stillborn(node *d, uint32_t job);
/* A worker of the job was not started: nobody knows whether the next would be; something is used up; or
 * it says that it cannot work. */
typedef enum start_limit {
    START_AGAIN = 0,
    START_SCARCE = SCHED_SCARCE,
    START_REFUSED = SCHED_REFUSED
} start_limit;
/* When this is a limit, as it is in any case while the job has others, what could only go on with
 * another worker of the environment fails with the reason; else it is tried again. */
void daemon_start_failed(node *d, uint32_t job, uint32_t environment, start_limit limit, manta_status code,
                         const char *why);
void daemon_refuse(node *d, const sched_action *a); /* does SCHED_DO_REFUSE */
/* Ends what dead workers of the job had started themselves. */
void daemon_sweep_strangers(node *d, uint32_t job);

/* daemon_forks.c */
void daemon_ask_fork(node *d, uint32_t job, uint32_t environment);
void daemon_prestart(node *d, uint32_t job, uint32_t n); /* before anybody asks */
void daemon_send_forks(node *d); /* those that could not be sent */
void daemon_start_forker(node *d, job *j); /* the first, of a node of its own */
/* Takes one that was started, with its descriptors; limit_ms: it is a nursery, which has so long
 * until it is ready; 0: a zygote. */
void daemon_take_forker(node *d, job *j, forker_kind kind, const spawn_child *c, int fd, int64_t limit_ms,
                        const char *name);
void daemon_forget_forker(node *d, job *j, forker_kind kind);
/* A driver wants a warm nursery; it is answered. */
void daemon_start_warm(node *d, client *c, wire *w);
/* The warm nursery of a program that joined cannot be started: this thread's last error says why. */
void daemon_warm_failed(node *d, job *j);
bool daemon_is_forker(const node *d, pid_t pid);
void daemon_close_forkers(node *d, job *j); /* of a job that ends */
void daemon_forker_reaped(node *d, pid_t pid, int status); /* it was that, or something else */
/* Deals with those that are not ready in time. When to look again, in ms; -1: never. */
int daemon_forks_tick(node *d);

/* daemon_guests.c */
void daemon_open_socket(node *d); /* of a driver's own node: without one it is only not seen */
manta_status daemon_open_main_socket(node *d) MANTA_MUST_USE;
void daemon_guest(node *d, int fd, pid_t pid); /* somebody has come in; takes fd */
void daemon_stack_answer(node *d, wire *w);
void daemon_remember(node *d, client *c); /* a worker that ends */
/* A worker without a driver goes on printing; it goes to the node's log. */
void daemon_take_output(node *d, client *c);

/* daemon_leases.c */
/* Applies an event to the scheduler and does what follows. */
void daemon_act(node *d, sched_event e);
/* Ends the workers that the scheduler has let go, and those whose callers or groups are gone, but for
 * those that are to make what others wait for. Reads what all have said: not from within a message or
 * an action. */
void daemon_end_workers(node *d);
/* Gives both clients a channel to each other, once. */
bool daemon_connect(node *d, client *a, client *b);
void daemon_put_shape(buf *b, const sched_shape *s);
sched_shape daemon_take_shape(wire *w);

/* daemon_memory.c */
bool daemon_memory_message(node *d, client *c, proto_kind kind, wire *w); /* false: it is another's */
manta_status daemon_memory_init(node *d) MANTA_MUST_USE;
void daemon_memory_end(node *d); /* of a node that never spilled; the others end with their process */
void daemon_drop_segment(node *d, uint64_t id);
void daemon_leave_memory(node *d, const client *c); /* of a dead client */
/* Does what is due, and says when there is something to do next, in ms; -1: never. */
int daemon_memory_tick(node *d);

/* daemon_objects.c */
bool daemon_objects_message(node *d, client *c, proto_kind kind, wire *w);
void daemon_refs(node *d, refs_kind kind, uint64_t object_id, uint64_t inner, uint32_t who);
/* Frees what nobody holds, and answers those who wait for what nobody makes,
 * after one pass over all connections. Whether there is more to look at. */
bool daemon_settle(node *d);
/* An object that client `maker` holds and that will be there (without a value)
 * when it is fulfilled, or broken. */
void daemon_promise(node *d, uint64_t id, uint32_t maker);
void daemon_fulfil(node *d, uint64_t id);
void daemon_break(node *d, uint64_t id, failure *f); /* takes f */
void daemon_break_promises(node *d, const client *c); /* of a dead client */

/* daemon_registry.c */
/* Applies an event to the registry and does what follows. An event that comes of an
 * action waits until the others are done; it has no pointers but its failure, which is taken. */
void daemon_registry(node *d, registry_event e);

/* daemon_actors.c */
bool daemon_actors_message(node *d, client *c, proto_kind kind, wire *w);
/* Does what the registry says is to be done, which follows from *e; false: it is another's. */
bool daemon_actors_action(node *d, const registry_event *e, const registry_action *a);
void daemon_place_actor(node *d, const sched_action *x);
void daemon_actor_lost(node *d, const client *w); /* a worker is dead, and an actor may have been in it */
void daemon_refuse_actor(node *d, uint64_t id, const char *why); /* it gets no process */
/* Answers a request for an actor or a group with PROTO_FOUND; of a status that is not
 * MANTA_OK this thread's last error is the sentence. */
void daemon_answer_found(node *d, client *c, uint64_t request, manta_status st, uint64_t id);

/* daemon_limits.c */
/* Ends workers that have too much memory. How long until the next look in ms;
 * -1: there is nothing to look at. */
int daemon_limits_tick(node *d);

/* daemon_starved.c */
/* Whether it was a message about that; others are counted. */
bool daemon_starved_message(node *d, client *c, proto_kind kind, wire *w);

/* daemon_code.c */
bool daemon_code_message(node *d, client *c, proto_kind kind, wire *w);
void daemon_drop_code(node *d, job *j); /* of a program that is over */

/* daemon_groups.c */
bool daemon_groups_message(node *d, client *c, proto_kind kind, wire *w);
bool daemon_groups_action(node *d, const registry_action *a);

#endif
