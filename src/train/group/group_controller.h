/* train/group/group_controller.h - the controller from inside, for group.c, which waits for
 * steps and hands out jobs, and group_members.c, which starts and buries workers. */
#ifndef TRAIN_GROUP_GROUP_CONTROLLER_H
#define TRAIN_GROUP_GROUP_CONTROLLER_H

#include "os/spawner.h"
#include "train/group/group.h"
#include "train/group/group_membership.h"
#include "train/group/group_samples.h"
#include "train/group/group_watch.h"
#include "train/session/position.h"

/* One place among the workers, and whoever holds it. */
typedef struct member {
    int scratch_fd; /* outlives the process; -1: none */
    spawn_child child; /* zeroed: the place is empty */
    pid_t pid; /* the child's, also when it has been reaped */
    uint32_t incarnation;
    int failures; /* deaths in a row without a step */
    watch watch;
    watch_verdict verdict; /* why we killed it, if we did */
    bool outside; /* it died of something that may have come from anywhere */
    /* The last death, until the next commit. */
    int64_t died_ns, died_step; /* died_ns 0: none */
    pid_t died_pid;
    char cause[96];
} member;

struct group {
    manta_session *s;
    group_crew *crew;
    shared *sh;
    control *c;
    const feed_source *feeds;
    int n_feeds;
    int64_t deadline_ns;
    int max_failures;
    int n;
    int event_fd;
    member m[SHARED_WORKERS];
    membership r;
    blame blames[LAYOUT_MAX_SHARDS];
    int64_t begin, end; /* step numbers of the job; a copy that no worker can spoil, as are epoch and feed */
    bool gated; /* it goes on by group_next() alone */
    bool runs_on; /* group_follow() waits for something to tell, and the gate is open */
    int64_t stop; /* step number that the gate was lowered to; 0: it was not */
    bool signalled; /* a signal has come since group_follow() began to wait */
    bool cutting; /* group_cut() waits */
    int64_t look; /* when a sleep is to end, at the latest */
    int64_t epoch;
    int feed;
    int64_t ticked_ns;
    worker_events events;
};

static inline uint64_t group_committed_word(const group *g)
{
    return atomic_load(&g->c->commit);
}

/* What the step with this number is, if it is one of the job's. */
static inline train_position group_position(const group *g, int64_t number)
{
    return position_of_number(g->epoch, g->begin, number);
}

/* ---- group_members.c ---- */

/* Starts a worker for every place that is empty and wanted. When the system has no room for
 * a process and others live, they go on alone, and it is tried again later; without any
 * other it fails. */
manta_status members_start(group *g) MANTA_MUST_USE;

/* Takes note of those that have become ready for their place. */
void members_see_ready(group *g);

/* The pidfd of this rank's worker says that it is dead: none of its stores is still to come.
 * Reaps it, judges its death, and starts a successor where one is wanted. Fails when the
 * death is the end of the run. */
manta_status members_bury(group *g, int rank) MANTA_MUST_USE;

/* Tells of deaths that the commit of `word` has made up for. */
void members_see_recovered(group *g, uint64_t word);

/* Kills whoever neither moves nor waits; looks no more often than every members_tick_ns(). */
void members_watch(group *g);
int64_t members_tick_ns(const group *g);

/* How many places are to have a worker. */
int members_wanted(const group *g);

/* Waits until all have ended by themselves, and kills those that have not by the deadline. */
void members_end(group *g, int64_t deadline);

#endif
