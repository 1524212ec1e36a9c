/* sched_line.h - the line: who waits, for what, in which order they are served. Pure.
 *
 * Requests wait in one line. A request that fits is
 * served and goes to the end when it wants more; one that does not fit lets
 * others pass, but not for ever: after LINE_PATIENCE of them that took something of what
 * it needs, all it needs is kept for it, so that the large are not starved by the
 * small. Who needs nothing of that passes it as before, and always will: an actor
 * without cores takes nothing from a call that waits for one, and that call may be
 * waiting for the actor. And whoever waits for a lease has its holders asked, whoever
 * comes before it in the line: the first may be a holder itself, who wants more of
 * what it has and gives nothing back unless it is asked.
 *
 * A pass looks at each request in turn:
 *
 *     [ r0 | r1 | r2 | ... ]
 *        |
 *        +-- no room in a plan, or it is kept for another --> holders are asked; waits
 *        +-- room and an idle worker, or a group -----------> served; the pass begins anew
 *        +-- room and no worker ----------------------------> counts as missing, and takes from the plan
 *                                                             what those behind it then cannot have,
 *                                                             unless no worker can come
 *
 * and ends with the starts of what is missing (sched_starts.h) and the refusal of what cannot come.
 * Requests of one pool do not wait for those of another (sched_pools.h). */
#ifndef TASK_SCHED_LINE_H
#define TASK_SCHED_LINE_H

#include "task/sched_starts.h"
#include "task/sizes.h"

typedef enum wants { WANTS_LEASE, WANTS_ACTOR, WANTS_GROUP } wants;

typedef struct request {
    wants what;
    uint64_t client; /* or actor, or group */
    uint32_t job;
    sched_shape shape; /* of a group: all its bundles together */
    int64_t n;
    uint64_t demand;
    int passed; /* how many went ahead of it and took something of what it needs */
    bool lacks_worker; /* in this pass: and nothing else */
} request;

typedef struct line {
    VEC(request) at;
} line;

/* What the line is served from. */
typedef struct supply {
    sched_pools pools;
    crew crew;
    starts_table starts;
} supply;

void line_release(line *l);

/* A request, or a new number for one that waits; n = 0: it is none any more. false: it is, or is to be,
 * no new one. */
bool line_take(line *l, const request *q);

/* Requests are void: of a client, or of a group's number; of a group; of a job. */
void line_forget(line *l, uint64_t client, wants what);
void line_forget_group(line *l, uint64_t group);
void line_forget_job(line *l, uint32_t job);

/* Calls and actors in the line. */
int64_t line_waiting(const line *l);

/* Serves the line as far as workers and resources go, and starts a worker for
 * each call that lacks nothing else. */
void line_serve(line *l, supply *s, sched_actions *out);

/* Whether calls of the job lacked nothing but a worker when the line was last served, while it may or can
 * have no more and all that it has for calls wait. */
bool line_is_starved(const line *l, const supply *s, uint32_t job);

/* Refuses those calls, whoever made them. */
void line_refuse(line *l, const supply *s, uint32_t job, sched_actions *out);

#endif
