/* log.h - writing records.
 *
 *     log_info("epoch done", LOG_INT("epoch", e), LOG_F64("loss", loss));
 *     log_warn("generator is positioned by replay");
 *
 * The message is constant text; what varies is a field, so that programs find
 * records by message. Fields are evaluated only when the level is let through.
 * A record is one write(2), so records of many threads and processes never
 * mix. Where records go, and which: manta/log.h. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/log.h>

#include "base/status.h"

typedef struct log_field {
    const char *key; /* NULL ends the list */
    enum { LOG_KIND_INT, LOG_KIND_F64, LOG_KIND_STR, LOG_KIND_BOOL } kind;
    union {
        int64_t i;
        double f;
        const char *s;
        bool b;
    } as;
} log_field;

#define LOG_INT(name, v) ((log_field){.key = (name), .kind = LOG_KIND_INT, .as.i = (int64_t)(v)})
#define LOG_F64(name, v) ((log_field){.key = (name), .kind = LOG_KIND_F64, .as.f = (double)(v)})
#define LOG_STR(name, v)                                                                                     \
    ((log_field){.key = (name), .kind = LOG_KIND_STR, .as.s = (v)}) /* NULL is shown as "" */
#define LOG_BOOL(name, v) ((log_field){.key = (name), .kind = LOG_KIND_BOOL, .as.b = (v)})
#define LOG_END           ((log_field){.key = NULL})

/* log_info(message) or log_info(message, field, field, ...) */
#define log_debug(...)     LOG_AT(MANTA_LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_info(...)      LOG_AT(MANTA_LOG_LEVEL_INFO, __VA_ARGS__)
#define log_warn(...)      LOG_AT(MANTA_LOG_LEVEL_WARN, __VA_ARGS__)
#define log_error(...)     LOG_AT(MANTA_LOG_LEVEL_ERROR, __VA_ARGS__)

#define LOG_AT(level, ...) (log_enabled(level) ? log_write(level, __VA_ARGS__, LOG_END) : (void)0)

/* Whether records of this level are let through. */
bool log_enabled(manta_log_level level);

/* Whether a record of this level is read by people: it is let through, and goes to
 * standard error as text. A block (manta/log.h) can stand in its place then. */
bool log_is_read(manta_log_level level);

/* Writes a record; the fields are log_field values, ended by LOG_END. */
void log_write(manta_log_level level, const char *message, ...);

/* Forgets what was set and reads the environment again; for tests. */
void log_reset(void);

/* Sets the level that has the name. MANTA_EINVAL none has it. */
manta_status log_level_named(const char *name) MANTA_MUST_USE;
/* Which level has the name. MANTA_EINVAL none has it. */
manta_status log_level_find(const char *name, int *out) MANTA_MUST_USE;

/* What works for one run of several in a process logs by that run's level: from
 * here on this thread lets records of `level` and above through, whatever the
 * process says; -1: as the process does. Threads that it starts (os/thread.h)
 * do the same. Returns what was in force before. */
int log_use_level(int level);
/* What log_use_level() has set in this thread; -1: nothing. */
int log_own_level(void);

#endif
