/* concurrency.h - the concurrency groups of an actor: how many of its calls run at the same time, by
 * group. Private to task/. Pure, but for memory.
 *
 *     "io=2,compute=4;read=io,write=io"
 *      \___ groups ___/ \__ methods __/
 *
 * A call runs in the group that it names, else in that of its method, else in the first, which has
 * no name, and as many places as the actor's max_concurrency. Each group lets so many
 * calls in; who takes calls asks whether there is a place (concurrency_has_room()) and counts.
 *
 * Threads: the runtime's lock guards everything. */
#ifndef TASK_CONCURRENCY_H
#define TASK_CONCURRENCY_H

#include <stdbool.h>

#include "base/status.h"

#define CONCURRENCY_TEXT   4096 /* bytes of the text at most, with its end */
#define CONCURRENCY_GROUPS 64 /* beside the one without a name */

typedef struct concurrency concurrency;

/* Makes the groups that the text names, and the one without a name, with `most` places. Text NULL or "":
 * that one alone. MANTA_EINVAL the text is none: what is wrong, and what was expected. */
manta_status concurrency_new(const char *text, int most, concurrency **out) MANTA_MUST_USE;

/* Frees the groups; accepts NULL. */
void concurrency_free(concurrency *c);

/* Joins the options of an actor to one text, of CONCURRENCY_TEXT bytes: groups and methods may be NULL.
 * MANTA_EINVAL it is too long, or concurrency_new() would refuse it. */
manta_status concurrency_join(const char *groups, const char *methods,
                              char text[CONCURRENCY_TEXT]) MANTA_MUST_USE;

/* The number of the group in which a call of `method` runs that names `group` (NULL or "": none); -1: there
 * is no such group. */
int concurrency_find(const concurrency *c, const char *group, const char *method);

/* The name of a group; "": the one without. */
const char *concurrency_name(const concurrency *c, int group);

/* Says how many calls run at the same time in all groups together, and whether there are several. */
int concurrency_total(const concurrency *c);
bool concurrency_is_grouped(const concurrency *c);

/* Says whether another call of a group may begin. */
bool concurrency_has_room(const concurrency *c, int group);

/* A call of the group begins, and has ended. */
void concurrency_enter(concurrency *c, int group);
void concurrency_leave(concurrency *c, int group);

#endif
