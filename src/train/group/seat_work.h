/* train/group/seat_work.h - a worker process, from the fork to its end. */
#ifndef TRAIN_GROUP_SEAT_WORK_H
#define TRAIN_GROUP_SEAT_WORK_H

#include <sys/types.h>

#include "train/session/feed.h"
#include "train/log/rank_logs.h"
#include "train/group/seat.h"
#include "train/session/session.h"
#include "train/session/shared.h"

typedef struct seat_setup {
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
} seat_setup;

/* What a freshly forked child does. */
_Noreturn void seat_main(const seat_setup *u);

/* Has the controller look, if it sleeps. */
void seat_call_controller(control *c, int event_fd);

#endif
