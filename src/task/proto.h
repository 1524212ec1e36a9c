/* proto.h - the messages between the daemon and its clients, and between a
 * caller and a worker. Their fields are listed in docs/runtime.md; a message
 * is its kind (u32), 4 bytes unused, and its fields. */
#ifndef TASK_PROTO_H
#define TASK_PROTO_H

#include <stdint.h>

#include "base/buf.h"
#include "net/wire.h"

typedef enum proto_kind {
    /* client to daemon */
    PROTO_DEMAND = 1, /* shape, n, the number of this demand */
    PROTO_RETURN, /* worker */
    PROTO_BLOCKED, /* u32: 1 waits, 0 goes on */
    PROTO_SEGMENT_NEW, /* request, least size, wanted size */
    PROTO_SEGMENT_OPEN, /* request, segment */
    PROTO_SEGMENT_FREE, /* segment */
    PROTO_ADD, /* of each object: object, holder, task, item (gifts.h), value, n, inner... */
    PROTO_PROMISE, /* object */
    PROTO_FAIL, /* object, failure */
    PROTO_HOLD, /* client, n, objects... */
    PROTO_DROP, /* n, objects... */
    PROTO_WANT, /* object */
    PROTO_ACTOR_NEW, /* request, actor, flags, restarts, retries, concurrency, most pending,
                      shape, name, call, n, inner... */
    PROTO_ACTOR_WANT, /* actor */
    PROTO_ACTOR_FIND, /* request, name */
    PROTO_ACTOR_UP, /* actor */
    PROTO_ACTOR_FAILED, /* actor, failure */
    PROTO_ACTOR_KILL, /* actor, how */
    PROTO_CANCEL, /* worker, task, how */
    PROTO_INFO, /* request */
    PROTO_SHUTDOWN,
    PROTO_READY, /* a worker has started */
    PROTO_MISSED, /* object, place: there is nothing to read there */
    PROTO_SEGMENT_CLOSED, /* segment, n: n of the times it was given are over; 0: it is in use */
    PROTO_GROUP_NEW, /* request, group, how, name, n, shapes... */
    PROTO_GROUP_FIND, /* request, group (0: by name), name */
    PROTO_GROUP_REMOVE, /* group */
    PROTO_CONTEXT, /* request */
    PROTO_UNREACHABLE, /* client, whether for want of room, text: it, or what it prints, cannot be reached */
    PROTO_CODE_PUT, /* request, key (16 bytes), object */
    PROTO_CODE_GET, /* request, key (16 bytes) */
    PROTO_LINGERS, /* a worker whose actor has ended, or that takes no more calls: it owes others something */
    PROTO_ENVIRONMENT, /* request, text with its end: which number has it? */
    PROTO_WARM, /* request, command (nursery.h): start a warm nursery; to a supervisor: command */
    PROTO_NOT_READY, /* status, text: a new worker cannot work, and why; of a supervisor: a warm nursery */
    PROTO_RETIRE, /* a worker takes no more calls, and is to end when its lease does */
    PROTO_GIVE, /* client, task, item, n, objects...: it holds them, and will hear of them with an answer */
    PROTO_UNHEARD, /* client, n, task and items of each: it is dead, and they have no answer (gifts.h) */
    PROTO_STARVED, /* a driver sleeps without a time limit, or does nothing but poll, and nothing has come for a while */
    PROTO_STILL, /* round, u32: 1 nothing happens in this worker unless another does something, 0 it may */
    /* daemon to client */
    PROTO_WELCOME = 64, /* client, daemon pid, node, totals, resource names, whether calls are run by
                         who waits for them, environment of the worker; fd: bell */
    PROTO_PEER, /* client, pid, side; fds: channel, bell */
    PROTO_GRANT, /* worker, shape, the number of the demand that it is for */
    PROTO_RECLAIM, /* worker */
    PROTO_GONE, /* client, status, why it was ended for its memory, used, limit */
    PROTO_SEGMENT, /* request, status, segment; fd */
    PROTO_SEGMENT_GONE, /* segment */
    PROTO_FREE, /* object: its block may be used again */
    PROTO_OBJECT, /* object, value */
    PROTO_OBJECT_FAILED, /* object, failure */
    PROTO_CONSTRUCT, /* actor, concurrency, call */
    PROTO_ACTOR_AT, /* actor, worker, pid, retries, most pending, flags */
    PROTO_ACTOR_DEAD, /* actor, failure */
    PROTO_FOUND, /* request, status, actor, text */
    PROTO_CANCEL_TASK, /* task, how */
    PROTO_EXIT,
    PROTO_INFO_IS, /* request, numbers..., path of the socket */
    PROTO_REBUILD, /* object, why: of yours, and lost: make it again, or FAIL */
    PROTO_SEGMENT_ASK, /* segment: let go of it, memory is short */
    PROTO_ANSWER, /* request, what the one who asked knows how to read */
    PROTO_GROUP_GONE, /* group */
    PROTO_NO_WORKER, /* shape, failure: no worker can be started for the calls that wait */
    PROTO_ENDS, /* text: why the node, or this program's part in it, is about to end; also of a supervisor */
    PROTO_ABANDONED, /* to a worker: who leased it is gone, or its group; others wait for what it is to make */
    PROTO_OUTPUT = 88, /* worker, pid; fds: its standard output and error, bell, trace */
    PROTO_STACK_ASK, /* request: say where you are */
    PROTO_STILL_ASK, /* round: answered with STILL */
    /* daemon and zygote; daemon and supervisor */
    PROTO_FORK = 96, /* the environment, a text with its end; "": the plain one */
    PROTO_FORKED, /* pid, whether it may still refuse (NOT_READY), text; fds: socket, pidfd, and its output and error; pid 0: it could not be
                   done, and why */
    PROTO_REAPED, /* pid, status */
    PROTO_ZYGOTE, /* pid, pid of the supervisor, ms until it must be ready (0: it is), whether it is
                   warm, name; fds: socket, pidfd */
    PROTO_SWEEP, /* n, pids (u32): every other child is to be killed */
    PROTO_NURSERY, /* magic, protocol, version, and to a nursery: settings (nursery.c). A nursery that
                    cannot: PROTO_REFUSED, magic, protocol, text */
    PROTO_NODE, /* to manta-node: magic, protocol, version, role, configuration, command of the nursery
                 (node_program.c); fd: the driver's pidfd, or the supervisor's connection */
    /* at the node socket */
    PROTO_HELLO =
        112, /* magic, protocol, role, prestart, version, namespace; fd of a driver: its supervisor */
    PROTO_REFUSED, /* status, text */
    PROTO_QUERY, /* what, most objects */
    PROTO_QUERY_NODE, /* the rows of an answer: see daemon_guests.c */
    PROTO_QUERY_JOB,
    PROTO_QUERY_WORKER, /* fd: its trace */
    PROTO_QUERY_ACTOR,
    PROTO_QUERY_OBJECT,
    PROTO_QUERY_END, /* objects that were left out */
    PROTO_STOP, /* answered by the end of the connection */
    PROTO_STACK, /* pid */
    PROTO_STACK_IS, /* request (between worker and daemon), text */
    /* caller to worker, through a ring */
    PROTO_CALL = 128, /* head (call_head.h), name, label, n, values... */
    /* worker to caller */
    PROTO_DONE, /* task, ns, n, values... */
    PROTO_FAILED, /* task, ns, failure */
    PROTO_RETURNED, /* task: not begun, run it elsewhere */
    PROTO_WAITS, /* u32: the worker's call waits; send nothing */
    PROTO_ITEM, /* task, index, object (0: none), value: the next of a stream */
    /* and back */
    PROTO_TAKEN, /* task, n: so many items were taken */
    PROTO_PROBE /* task, task, client, text, text: who waits for the first of these calls, which is called so,
                   waits for the second, of that client (deadlock.c) */
} proto_kind;

/* The first words at the node socket. The protocol changes with every change of a
 * message: both sides must be built from the same. */
#define PROTO_MAGIC   0x41544e4du /* "MNTA" */
#define PROTO_VERSION 14u
enum { PROTO_ROLE_DRIVER = 1, PROTO_ROLE_VIEWER = 2 };
enum { PROTO_QUERY_WORKERS = 1, PROTO_QUERY_ACTORS = 2, PROTO_QUERY_OBJECTS = 4 };

enum {
    PROTO_ACTOR_DETACHED = 1,
    PROTO_ACTOR_GET = 2,
    PROTO_ACTOR_AWAY = 4,
    PROTO_ACTOR_ANY_ORDER = 8,
    PROTO_ACTOR_WITH_MAKER = 16
};
/* end: it finishes its calls; exit: those that run, and it has said so itself */
enum { PROTO_KILL_RESTART = 0, PROTO_KILL = 1, PROTO_KILL_END = 2, PROTO_KILL_EXIT = 3 };

#define PROTO_NAME 128 /* "space/name" of an actor, with its end */

/* Of a process that was ended for its memory (limits.h); why 0: it was not. */
typedef struct proto_memory {
    uint32_t why;
    uint64_t used, limit; /* limit: its own, or what the machine had left */
} proto_memory;

/* Starts a message in b, which is emptied. */
static inline buf *proto_begin(buf *b, proto_kind kind)
{
    buf_reserve(b, 8);
    buf_cut(b, 0);
    wire_put_u32(b, kind);
    wire_put_u32(b, 0);
    return b;
}

static inline proto_kind proto_kind_of(wire *w)
{
    uint32_t kind = wire_u32(w);

    (void)wire_u32(w);
    return (proto_kind)kind;
}

#endif
