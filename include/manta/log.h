/* manta/log.h - what Manta says while it works, and to whom.
 *
 * A record is a message and fields, key=value. By default records of level
 * warn and above go to standard error as text. The environment variable
 * MANTA_LOG changes that without a line of code: a level, and after a comma a
 * format: MANTA_LOG=debug or MANTA_LOG=info,json. A program's own calls of the
 * functions below have precedence.
 *
 * What a person has to read at once is a block instead: a head, and what, where and
 * what now under it. */
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

/* Chooses the format. */
MANTA_API void manta_log_set_format(manta_log_format format);

/* Receives each record instead of standard error: one line of n bytes, newline
 * included, terminated. Called by one thread at a time; must not log. */
typedef void manta_log_fn(void *ctx, manta_log_level level, const char *line, size_t n);

/* Sends records to fn(ctx, ...), or to standard error again for NULL. When this
 * returns, the former function is not running and will not be called again. */
MANTA_API void manta_log_set_sink(manta_log_fn *fn, void *ctx);

/* ---- a block ---- */

/*     manta: worker 1 failed
 *       what   process 4711, killed by signal 9 (Killed)
 *       now    process 4720 is in its place
 *
 * Zeroed, it is empty. What does not fit is cut off; what could speak to a terminal
 * is a question mark. */
typedef struct manta_block {
    char text[4096];
} manta_block;

/* Adds to the line that was begun last; before the first one, to the head. */
MANTA_API void manta_block_add(manta_block *b, const char *fmt, ...) MANTA_PRINTF(2, 3);
/* Begins a line; a label has up to six letters. */
MANTA_API void manta_block_line(manta_block *b, const char *label);
/* Writes it to standard error, at once, so that nothing comes between its lines; with
 * colour on a terminal, unless NO_COLOR is set or TERM is dumb. */
MANTA_API void manta_block_show(const manta_block *b);

/* A word as a shell takes it for one, quoted where it has to be. Returns out; "" when
 * there is not even room for quotes. */
MANTA_API const char *manta_shell_word(const char *word, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
