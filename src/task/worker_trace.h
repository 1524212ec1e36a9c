/* worker_trace.h - what a worker does and did, in memory that others can read: the
 * call it runs, a ring of the calls it ran, and whose bytes it has printed.
 *
 * One writer, the worker, with its runtime's lock held; the daemon makes the
 * memory and never maps it; the worker seals it, so that everyone else can map
 * it for reading only. A reader copies, then checks that what it copied was not
 * overwritten meanwhile, then believes none of the numbers.
 *
 * Output. A worker's standard output and error are pipes that its driver reads
 * (output.c). Which function a byte belongs to is not in the pipe. The worker
 * has a label, the name of what it runs. When the label changes, and something
 * was printed under the old one, it leaves a mark: up to these positions of the
 * two streams it was the old label. What lies behind the last mark belongs to
 * the present label. Positions are known without counting writes: what the
 * reader has taken (it says so in the page of the worker's bell) and what the
 * pipe still holds. A call that follows one of the same name costs nothing, and
 * one of another name two system calls. */
#ifndef TASK_WORKER_TRACE_H
#define TASK_WORKER_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"

#define WORKER_TRACE_CALLS 1024
#define WORKER_TRACE_MARKS 16
#define WORKER_TRACE_NAME  36 /* bytes kept of a name, its end included */

typedef struct worker_trace worker_trace;

typedef struct worker_trace_call {
    uint64_t task;
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC; end 0: it runs */
    uint32_t failed;
    char name[WORKER_TRACE_NAME];
} worker_trace_call;

typedef VEC(worker_trace_call) worker_trace_calls;

/* The words of the reader of a worker's output, behind the worker's bell. */
typedef struct output_words {
    _Atomic uint32_t busy; /* odd while it takes bytes out of a pipe */
    _Atomic uint64_t marks; /* that it has done with */
    _Atomic uint64_t taken[2]; /* bytes of each stream */
} output_words;

#define WORKER_TRACE_OUTPUT_AT 64 /* where they are, in the bell's page */

size_t worker_trace_size(void);

/* ---- the worker ---- */

/* Maps and seals the memory. *out: process-long. */
manta_status worker_trace_open(int fd, worker_trace **out) MANTA_MUST_USE;
/* NULL is accepted everywhere below, and nothing happens. */
void worker_trace_begin(worker_trace *r, const char *name, uint64_t task, int64_t now_ns);
void worker_trace_end(worker_trace *r, const char *name, uint64_t task, int64_t begin_ns, int64_t end_ns,
                      bool failed);
/* What is printed from now on belongs to `label`; pipes: the two streams. False:
 * the reader is so far behind that there is no room for a mark; wait, and try
 * again, or after long enough `give_up` on it. */
bool worker_trace_label(worker_trace *r, const output_words *w, const int pipes[2], const char *label,
                        bool give_up);

/* ---- readers ---- */

/* Maps the memory for reading. *out: give back with worker_trace_close(). */
manta_status worker_trace_map(int fd, const worker_trace **out) MANTA_MUST_USE;
void worker_trace_close(const worker_trace *r); /* accepts NULL */

/* The call that runs (end_ns 0), if any; and how many have ended. */
bool worker_trace_now(const worker_trace *r, worker_trace_call *out);
uint64_t worker_trace_count(const worker_trace *r);
/* Adds the calls of the ring, the oldest first. */
void worker_trace_history(const worker_trace *r, worker_trace_calls *out);

/* The label of the bytes of `stream` from position `at` on, and how many of the
 * next n it is good for. `mark`: the first that the reader has not done with;
 * moved on past those that lie behind. */
size_t worker_trace_label_at(const worker_trace *r, int stream, uint64_t at, size_t n, uint64_t *mark,
                             char label[WORKER_TRACE_NAME]);
/* How many marks both streams have passed, given what was taken of each. */
uint64_t worker_trace_marks_passed(const worker_trace *r, uint64_t from, const uint64_t taken[2]);

#endif
