/* lineage.h - which calls are remembered so that their results can be made
 * again, and what to run when one is lost. Pure.
 *
 * A call that ended well is kept (KEEP) while one of its results is held here
 * or is an argument of another call that is kept. It costs memory, so that the
 * oldest are forgotten beyond a limit. When a result is needed and gone (NEED),
 * its call runs again; arguments of it that are gone are needed in turn. What
 * no kept call makes (it was put, its call was forgotten, or has run as often
 * as it may) fails, and with it all that is made from it.
 *
 * lineage_step() takes one event and writes actions; no input, output, clock or
 * random number. A call is named by the number of its first result; its results
 * are that number and those behind it. */
#ifndef TASK_LINEAGE_H
#define TASK_LINEAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

typedef struct lineage lineage;

typedef enum lineage_kind {
    LINEAGE_KEEP, /* call ended well: n results, args, bytes, retries */
    LINEAGE_ENDED, /* a call that was run again has ended, well or not */
    LINEAGE_FORGET, /* call is not to be run again */
    LINEAGE_DROP, /* object is held here no more */
    LINEAGE_NEED /* object is needed and gone */
} lineage_kind;

typedef struct lineage_event {
    lineage_kind kind;
    uint64_t call, object;
    int n; /* results */
    const uint64_t *args; /* numbers of objects, all of them held */
    int n_args;
    size_t bytes;
    int retries; /* < 0: as often as need be */
} lineage_event;

typedef enum lineage_action_kind {
    LINEAGE_DO_RUN, /* call runs again */
    LINEAGE_DO_FAIL, /* object cannot be made again: `why` */
    LINEAGE_DO_FORGET /* call is kept no more */
} lineage_action_kind;

typedef enum lineage_why { LINEAGE_NOT_KEPT, LINEAGE_TOO_OFTEN } lineage_why;

typedef struct lineage_action {
    lineage_action_kind kind;
    uint64_t call, object;
    lineage_why why;
} lineage_action;

typedef VEC(lineage_action) lineage_actions;

lineage *lineage_new(size_t limit); /* bytes of all calls kept */
void lineage_free(lineage *l); /* accepts NULL */
void lineage_step(lineage *l, const lineage_event *e, lineage_actions *out);

size_t lineage_bytes(const lineage *l);
size_t lineage_calls(const lineage *l);
bool lineage_knows(const lineage *l, uint64_t object); /* as a result or an argument */

#endif
