/* failure.h - why something failed, as the runtime carries it. Private to task/.
 *
 * A failure is made once and then belongs to everybody who has it: results, calls with them as
 * arguments, actors, the daemon's objects. So it is counted, and nobody changes one that
 * another may have; failure_as() makes one that differs. What is passed to a function
 * whose comment says "takes f" belongs to that function, which is why most are made where
 * they are passed.
 *
 * A call that is told of the failure of another (failure_raise()) and returns its code passes it on
 * as it is (failure_here()). What it was told last is kept with the call, in incoming.told.
 *
 * Threads: the counts are atomic; a failure may be let go without any lock. */
#ifndef TASK_FAILURE_H
#define TASK_FAILURE_H

#include <stdatomic.h>

#include <manta/failure.h>

#include "base/buf.h"
#include "base/status.h"
#include "net/wire.h"
#include "task/payload.h"
#include "task/proto.h"

typedef struct failure {
    _Atomic uint32_t refs;
    manta_failure is;
    payload *payload; /* NULL: there is no more to it */
} failure;

/* What a call was told last, and how it was put. */
typedef struct failure_told {
    failure *f;
    char said[sizeof((manta_error *)0)->text];
} failure_told;

/* Makes a failure of `kind` that arose in function `name` (may be NULL) of process `pid`. */
failure *failure_make(manta_failure_kind kind, manta_status code, const char *name, int pid, const char *fmt,
                      ...) MANTA_PRINTF(5, 6);
/* Makes this thread's last error a failure of `kind` in function `name`: that which the
 * call was told of, if it is the same. */
failure *failure_here(manta_failure_kind kind, manta_status code, const char *name);
/* Says why process `pid` was ended for its memory; `name` (may be NULL) is what it ran. */
failure *failure_memory(const char *name, int pid, const proto_memory *m);
/* Makes a failure like f, of another kind and code. */
failure *failure_as(const failure *f, manta_failure_kind kind, manta_status code);

failure *failure_ref(failure *f); /* one more who has it; accepts NULL */
void failure_let_go(failure *f); /* one less who has it; the last one frees it */
void failure_told_free(failure_told *t);

/* Lets go of a failure as failure_let_go() does. Accepts NULL, which is what most calls and results have. */
static inline void failure_unref(failure *f)
{
    if (f) failure_let_go(f);
}

/* Makes it this thread's error; returns its code. */
manta_status failure_raise(failure *f);

/* A failure in a message; held: who reads it holds its payload, as the daemon was told. Whatever the
 * message says, one is made; w may be broken then. A process with a runtime that keeps one adopts it,
 * and with it what it carries. */
void failure_put(buf *b, const failure *f);
void failure_put_held(buf *b, const failure *f, bool held);
failure *failure_take(wire *w);
failure *failure_adopt(failure *f); /* returns f */
size_t failure_length(const failure *f); /* at least as many bytes as it has in a message */

#endif
