/* sched_starts.h - workers on their way: how many of which job and environment, and how many more may
 * come. Pure.
 *
 * A row for each job and environment counts, in a pass over the line, who lacks only a worker
 * (`missing`), and is then acted on:
 *
 *     missing, missing_actors      who waits                              this pass
 *         |
 *         v   at most what the job may have: `most` workers for calls,    capped: said once, until
 *             in all its environments together; those of actors           there is room again
 *             are beside them
 *         v
 *     starting                     began, and is neither up nor failed    START adds; UP, FAILED take
 *
 *     full     a start failed and the next would, too: none is begun until a worker of the job is gone,
 *              or there is none of the environment and somebody asks again
 *     scarce   full for want of something that a worker has: an idle one of another environment leaves
 *
 * An environment without a name is 0. */
#ifndef TASK_SCHED_STARTS_H
#define TASK_SCHED_STARTS_H

#include "task/sched_crew.h"

typedef struct starts { /* workers of a job and environment: on their way, and wanted by those who wait */
    uint32_t job;
    uint64_t environment;
    int64_t starting, missing, missing_actors; /* the latter are among the former */
    bool full; /* no more can be started, for want of something */
    bool scarce; /* when full: a worker that leaves would give some of what is wanting back */
    bool capped; /* there are as many as there may be, and more are wanted */
} starts;

typedef struct starts_table {
    MAP_U64(starts) at;
    int64_t most; /* workers of a job for calls; 0: any number */
} starts_table;

void starts_release(starts_table *t);

/* The row of a job and environment, which is made when there is none. Valid until another is made. */
starts *starts_of(starts_table *t, uint32_t job, uint64_t environment);

/* The row of a job and environment, or NULL when there is none. Valid until another is made. */
starts *starts_find(const starts_table *t, uint32_t job, uint64_t environment);

/* No more workers of the job and environment can be started, and none is on its way. */
bool starts_is_full(const starts_table *t, uint32_t job, uint64_t environment);

/* Whether the job has as many workers as it may, and none could come to take another call of `itself`
 * without anything being started: none is on its way, and all others wait. */
bool starts_is_stuck(const starts_table *t, const crew *c, uint32_t job, uint64_t environment,
                     uint64_t itself);

/* The line is looked at from its beginning: nobody is missing. */
void starts_plan_anew(starts_table *t);

/* Starts what was found missing, as far as it may be, and makes room for what cannot be started. */
void starts_begin(starts_table *t, crew *c, sched_actions *out);

/* One that was on its way is there, or never will be. */
void starts_came(starts_table *t, uint32_t job, uint64_t environment);

/* None was started, nor would the next be; `scarce`: for want of something that other workers have, too. */
void starts_failed(starts_table *t, uint32_t job, uint64_t environment, bool scarce);

/* A worker of the job is gone: another may come. */
void starts_allow(starts_table *t, uint32_t job);

/* The job is gone. */
void starts_forget(starts_table *t, uint32_t job);

#endif
