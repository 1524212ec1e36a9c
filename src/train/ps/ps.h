/* train/ps/ps.h - parameter servers: training without waiting for each other.
 *
 *   coordinator   gives out the steps of an epoch, collects their sums, keeps a
 *                 copy of the state; the process that called fit
 *   servers       have the parameters, a range of the grid each, and update them
 *   workers       pull the weights, compute a step's gradients, push them
 *
 * Each talks to the others over net/chan.h, on one host or several; nobody waits
 * for anybody but for an answer. Steps are given out as workers ask for them
 * (ps_step_queue.h), so a slow worker does fewer of them, and a lost one costs
 * nothing but what it had in hand, which is given out again: a server takes the
 * gradients of a step only once. A server that is lost begins again with the
 * coordinator's copy. A coordinator that is lost, and started again by whoever
 * started it, finds on the servers all that it needs to go on (ps_journal.h); the
 * others wait for it. The result depends on who was first: there is no promise
 * of equal bytes here.
 *
 * ps_plan is what everybody knows; the rest is one function per role. */
#ifndef TRAIN_PS_PS_H
#define TRAIN_PS_PS_H

#include "net/chan.h"
#include "os/crash.h"
#include "train/cluster/cluster.h"
#include "train/session/worker_events.h"
#include "train/group/worker_main.h"
#include "train/ps/ps_step_queue.h"
#include "train/session/position.h"
#include "train/session/session.h"

enum { PS_SERVERS = 64 };

#define PS_CRASH_POINTS(X)                                                                                   \
    X(PS_CRASH_PULLED, "ps/pulled", "a worker has the weights of one server")                                \
    X(PS_CRASH_PUSHED, "ps/pushed", "one server has the gradients of a step, and has said so")               \
    X(PS_CRASH_ALL_PUSHED, "ps/all_pushed", "all servers have them, and the coordinator was not told")       \
    X(PS_CRASH_LOADED, "ps/loaded", "a server has a state, and has not said so")                             \
    X(PS_CRASH_BEGUN, "ps/begun", "an epoch has begun on a server, and it has not said so")                  \
    X(PS_CRASH_PUSH_COMES, "ps/push_comes", "a server has read gradients, and not applied them")             \
    X(PS_CRASH_UPDATED, "ps/updated", "a server has applied gradients, and not said so")                     \
    X(PS_CRASH_STATE_ASKED, "ps/state_asked", "a server is asked for its state, and has not answered")
CRASH_DECLARE(ps, PS_CRASH_POINTS)

extern const engine_ops engine_served;

/* The session and its feed are the same in all processes: made by the same
 * program, or inherited. */
typedef struct ps_plan {
    manta_session *s;
    const feed_source *feed;
    int servers, workers;
    int64_t steps; /* of an epoch */
    char coordinator[TCP_TEXT]; /* "host:port" */
    char server[PS_SERVERS][TCP_TEXT];
    const cluster_key *key; /* borrowed */
    char job[FRAME_NAME];
    bool plain; /* weights and gradients go unencrypted */
    int64_t timeout_ms; /* for those that have not come, or not come back; negative: none */
    cluster_watch *watch; /* is told of waiting for the coordinator; or NULL */
    void *ctx;
    pid_t parent; /* roles end when it is gone; 0: they do not ask */
} ps_plan;

/* ---- roles: until the coordinator says that it is over ---- */

/* `listener` is a socket that listens at the server's place and stays open; -1:
 * it is made here. */
manta_status ps_serve(const ps_plan *p, int server, int listener) MANTA_MUST_USE;
manta_status ps_work(const ps_plan *p, int worker) MANTA_MUST_USE;

/* The longest message between a server and the coordinator. */
size_t ps_server_room(const ps_plan *p, int server);

/* ---- the coordinator ---- */

typedef struct ps ps; /* opaque, see ps_coordinator.h */

typedef struct ps_options {
    int64_t staleness; /* bound of ps_step_queue.h; negative: none */
    int max_failures; /* losses of a process in a row without a step; 0: 3 */
    int64_t snapshot_steps; /* the state is copied after so many; 0: 50 */
} ps_options;

/* Starts servers and workers on this host, with the session's state, and waits
 * until the servers have it. The feed is borrowed; `steps` is how many an epoch has. */
manta_status ps_open(manta_session *s, const feed_source *feed, int64_t steps, int servers, int workers,
                     const ps_options *o, ps **out) MANTA_MUST_USE;
/* Opens a training whose servers and workers are the processes that TF_CONFIG names, and
 * waits until the servers have the session's state. The processes come by themselves
 * and, when lost, come back. If they are in the middle of a training whose coordinator
 * was lost, the session takes over its state. Feed and `steps` are as ps_open() has them. */
manta_status ps_open_cluster(manta_session *s, const manta_cluster *c, const feed_source *feed, int64_t steps,
                             const ps_options *o, ps **out) MANTA_MUST_USE;
/* Whether the session has taken over the state of a training that went on: *at is then where it goes on. */
bool ps_took_up(const ps *p, train_position *at);
void ps_close(ps *p); /* ends them; accepts NULL */

/* A server or worker that TF_CONFIG names: until the chief says that it is over.
 * One that is lost is waited for. */
manta_status ps_join(manta_session *s, const manta_cluster *c, const feed_source *feed, int64_t steps,
                     cluster_watch *watch, void *ctx) MANTA_MUST_USE;

/* Begins an epoch at one of its steps, or goes on with the one that was taken up. */
manta_status ps_begin(ps *p, train_position from) MANTA_MUST_USE;
/* Waits for the next step that is done, whichever it is; its sums are added to
 * the session's. False in *more: all were done before. */
manta_status ps_next(ps *p, bool *more) MANTA_MUST_USE;
/* Brings the session's state up to date. */
manta_status ps_pull(ps *p) MANTA_MUST_USE;
/* What happened to servers and workers. Borrowed: valid until ps_close(). */
worker_events *ps_worker_events(ps *p);

#endif
