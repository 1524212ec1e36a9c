/* train/ps/ps_coordinator.h - the coordinator from inside.
 *
 * ps.c runs the training, with processes of its own (ps_children.c) or not; ps_servers.c
 * deals with the servers; ps_cluster.c opens it on processes that somebody else started,
 * and finds out what they are at. */
#ifndef TRAIN_PS_PS_COORDINATOR_H
#define TRAIN_PS_PS_COORDINATOR_H

#include "os/spawner.h"
#include "train/ps/ps.h"
#include "train/ps/ps_journal.h"
#include "train/ps/ps_link.h"
#include "train/ps/ps_rendezvous.h"

/* A process of ours. */
typedef struct ps_child {
    spawn_child process; /* zeroed: none, or not ours */
    int failures; /* losses in a row without a step */
} ps_child;

struct ps {
    ps_plan plan;
    manta_session *s;
    ps_options o;
    rendezvous *meeting;
    ps_config_check check;
    cluster_key *key; /* of a training on one host, the plan's; else NULL */
    bool cluster; /* the others were started by somebody else */
    int server_listener[PS_SERVERS];
    ps_child server[PS_SERVERS], worker[PS_WORKERS];
    ps_link to[PS_SERVERS];
    ps_link link[PS_WORKERS]; /* by worker */
    bool failed; /* a step has */
    bool idle[PS_WORKERS]; /* has asked for a step */
    ps_step_queue queue;
    ps_journal journal; /* of the epoch at hand, or of the one that was taken up */
    bool settled; /* it is clear with what state the servers begin */
    bool took_up; /* with their own */
    manta_error failure; /* it has come to nothing before it began: all are told */
    bool mistaken; /* they are at another training, which is none of our business */
    int64_t since_snapshot;
    int64_t ready; /* steps done that ps_next() has not told yet */
    double rate; /* that the servers have */
    worker_events events;
};

enum { PS_REACH_MS = 10000 }; /* for a process of ours to be there */

/* Whether so many servers and workers can train this session. */
manta_status ps_check(const manta_session *s, int servers, int workers) MANTA_MUST_USE;
/* Without a plan and connected to nobody; give back with ps_close(). */
ps *ps_new(manta_session *s, const ps_options *o);

/* Starts a server or a worker as a child of ours. */
manta_status ps_start_child(ps *p, bool server, int rank) MANTA_MUST_USE;
/* Ends all of them: who has not left by the deadline is killed. */
void ps_end_children(ps *p, int64_t deadline);
/* Server i is lost. MANTA_EDIED: the training cannot go on without what it had. */
manta_status ps_check_loss(ps *p, int i) MANTA_MUST_USE;
/* Notes the end of a process of ours and starts its successor. */
manta_status ps_replace_lost(ps *p, bool server, int rank) MANTA_MUST_USE;

/* Asks server `i` with the `n` bytes in its link's `out`; the answer is in its `in`.
 * Fails too when it is lost. */
manta_status ps_ask(ps *p, int i, ps_kind kind, size_t n, ps_kind want) MANTA_MUST_USE;
/* Tells a server what the epoch at hand is. */
manta_status ps_tell_epoch(ps *p, int i) MANTA_MUST_USE;
/* Tells all servers the learning rate, which a callback may have changed. */
manta_status ps_say_rate(ps *p) MANTA_MUST_USE;
/* Gives a server the state that we have, and the epoch. */
manta_status ps_load(ps *p, int i) MANTA_MUST_USE;
/* Connects to a server and, once it is clear what it begins with, gives it that;
 * however often it takes, or until the time is over. */
manta_status ps_furnish(ps *p, int i) MANTA_MUST_USE;
/* Waits until something happens, and deals with it; a second at most. */
manta_status ps_attend(ps *p) MANTA_MUST_USE;

#endif
