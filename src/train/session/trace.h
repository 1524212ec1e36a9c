/* train/session/trace.h - keeps timed spans and writes them as a Chrome trace. */
#ifndef TRAIN_SESSION_TRACE_H
#define TRAIN_SESSION_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct trace trace;

/* A trace to be written to `path`. Keeps the first spans up to a bound. */
trace *trace_new(const char *path);
/* Names are borrowed and must live until trace_write(). */
void trace_span(trace *t, const char *name, const char *kind, bool backward, int64_t begin_ns,
                int64_t end_ns);
/* Writes the file, whole or not at all. */
manta_status trace_write(const trace *t);
void trace_free(trace *t); /* accepts NULL */

#endif
