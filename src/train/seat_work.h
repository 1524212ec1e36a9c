/* train/seat_work.h - a worker process, from the fork to its end. */
#ifndef TRAIN_SEAT_WORK_H
#define TRAIN_SEAT_WORK_H

#include <sys/types.h>

#include "train/feed.h"
#include "train/seat.h"
#include "train/session.h"

enum { SEAT_SIZES = 8 };

/* Data that workers read: what a loader is opened from, in each of them. */
typedef struct seat_feed {
    manta_dataset *d; /* borrowed */
    manta_loader_options lo; /* without readers: a shard is fetched by whoever computes it */
    bool batched; /* the dataset has batches of its own */
    feed_map map;
    bool train;
    const float *class_weight; /* or NULL */
    int n_classes;
    int n_sizes; /* batch sizes to plan for */
    int64_t sizes[SEAT_SIZES];
} seat_feed;

/* Samples of a step of a dataset that has no batches of its own. */
int64_t seat_feed_count(const seat_feed *f, int64_t epoch, int64_t step);

typedef struct seat_setup {
    manta_session *s; /* the child's copy becomes the worker's own */
    int rank;
    uint32_t incarnation; /* of this rank, from 1 */
    pid_t controller;
    int event_fd; /* tells the controller to look */
    const seat_feed *feeds;
    int n_feeds;
} seat_setup;

/* What a freshly forked child does. */
_Noreturn void seat_main(const seat_setup *u);

/* Has the controller look, if it sleeps. */
void seat_call_controller(control *c, int event_fd);

#endif
