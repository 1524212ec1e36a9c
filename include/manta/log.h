/* manta/log.h - what Manta says while it works, and to whom.
 *
 * A record is a message and fields, key=value. By default records of level
 * warn and above go to standard error as text. The environment variable
 * MANTA_LOG changes that without a line of code: a level, and after a comma a
 * format: MANTA_LOG=debug or MANTA_LOG=info,json. A program's own calls of the
 * functions below have precedence. */
#ifndef MANTA_LOG_H
#define MANTA_LOG_H

#include <stddef.h>

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum manta_log_level {
    MANTA_LOG_LEVEL_DEBUG = 0, /* what a maintainer wants to see */
    MANTA_LOG_LEVEL_INFO, /* what happened, as it should */
    MANTA_LOG_LEVEL_WARN, /* it goes on, but somebody should know */
    MANTA_LOG_LEVEL_ERROR, /* something failed for good */
    MANTA_LOG_LEVEL_OFF /* as a threshold: nothing at all */
} manta_log_level;

typedef enum manta_log_format {
    MANTA_LOG_FORMAT_TEXT = 0, /* for people: 08:41:19.123 warn  message key=value */
    MANTA_LOG_FORMAT_JSON /* for programs: one object a line, with time, level, msg, pid */
} manta_log_format;

/* Lets records of this level and above through. */
MANTA_API void manta_log_set_level(manta_log_level level);

/* The level called "debug", "info", "warn", "error" or "off", into *out. MANTA_EINVAL none is. */
MANTA_API manta_status manta_log_level_named(const char *name, manta_log_level *out) MANTA_MUST_USE;

/* Chooses the format. */
MANTA_API void manta_log_set_format(manta_log_format format);

/* Receives each record instead of standard error: one line of n bytes, newline
 * included, terminated. Called by one thread at a time; must not log. */
typedef void manta_log_fn(void *ctx, manta_log_level level, const char *line, size_t n);

/* Sends records to fn(ctx, ...), or to standard error again for NULL. When this
 * returns, the former function is not running and will not be called again. */
MANTA_API void manta_log_set_sink(manta_log_fn *fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
