/* train/group/worker_main.h - a worker process, from the fork to its end. */
#ifndef TRAIN_GROUP_WORKER_MAIN_H
#define TRAIN_GROUP_WORKER_MAIN_H

#include <sys/types.h>

#include "train/session/feed.h"
#include "train/log/rank_logs.h"
#include "train/group/worker_step.h"
#include "train/session/session.h"
#include "train/session/shared.h"

typedef struct worker_setup {
    manta_session *s; /* the child's copy becomes the worker's own */
    shared *memory;
    int threads;
    int rank;
    uint32_t incarnation; /* of this rank, from 1 */
    pid_t controller;
    int event_fd; /* tells the controller to look */
    int scratch_fd; /* -1: none */
    const feed_source *feeds;
    int n_feeds;
    rank_log_task log; /* when the session has logs */
} worker_setup;

/* What a freshly forked child does. */
_Noreturn void group_worker_main(const worker_setup *u);

/* Has the controller look, if it sleeps. */
void worker_call_controller(control *c, int event_fd);

#endif
