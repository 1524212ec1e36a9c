/* status.c - the last error of each thread, and the process's name in it.
 *
 * The error of a thread is written by that thread alone. The origin is shared
 * and small; a mutex guards it, because failing is never the fast path. */
#include "base/status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/args.h"

static _Thread_local manta_error last = {.code = MANTA_OK, .rank = -1};

static pthread_mutex_t origin_lock = PTHREAD_MUTEX_INITIALIZER;
static char origin_host[sizeof((manta_error){0}.host)]; /* origin_lock */
static int origin_rank = -1; /* origin_lock */

static const char *const names[] = {
    [MANTA_OK] = "ok",
    [MANTA_EINVAL] = "invalid",
    [MANTA_ENOENT] = "not found",
    [MANTA_EEXIST] = "exists",
    [MANTA_EIO] = "input/output",
    [MANTA_ENOMEM] = "out of memory",
    [MANTA_ENOSPC] = "out of space",
    [MANTA_ECORRUPT] = "corrupt",
    [MANTA_EUNSUPPORTED] = "unsupported",
    [MANTA_EPERM] = "not permitted",
    [MANTA_EBUSY] = "busy",
    [MANTA_ETIMEDOUT] = "timed out",
    [MANTA_ECANCELLED] = "cancelled",
    [MANTA_EDIED] = "died",
    [MANTA_EUNKNOWN] = "unknown outcome",
    [MANTA_ENAN] = "not a number",
    [MANTA_EINTERNAL] = "internal",
    [MANTA_EINTERRUPTED] = "interrupted",
};
enum { N_NAMES = sizeof names / sizeof names[0] };

const char *manta_status_name(manta_status code)
{
    int i = (int)code;

    return i >= 0 && i < N_NAMES ? names[i] : "no status";
}

/* Ends text that was cut in "...", without leaving half a UTF-8 character
 * in front of it: such a sentence would be refused by JSON readers. */
static void mark_cut(char *text, size_t size)
{
    size_t end = size - 4;

    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
    memcpy(text + end, "...", 4);
}

#undef manta_fail /* what the analyzer is told instead */

manta_status manta_fail(manta_status code, const char *fmt, ...)
{
    /* Formatted aside, because an argument may be manta_error_text() itself;
     * zeroed, because the whole of an error travels to other machines. */
    char text[sizeof last.text] = "";
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0)
        snprintf(text, sizeof text, "%s (the message could not be formatted)", manta_status_name(code));
    if (n >= (int)sizeof text) mark_cut(text, sizeof text);

    last.code = code;
    memcpy(last.text, text, sizeof text);
    pthread_mutex_lock(&origin_lock);
    last.rank = origin_rank;
    memcpy(last.host, origin_host, sizeof last.host);
    pthread_mutex_unlock(&origin_lock);
    return code;
}

const char *manta_error_text(void)
{
    return last.text;
}

void manta_error_get(manta_error *out)
{
    REFUSE_NULL_AND_RETURN(out);

    *out = last;
}

/* Copies at most size-1 bytes up to a NUL and makes control characters
 * harmless: the text may end on somebody's terminal. */
static void copy_foreign(char *dst, const char *src, size_t size)
{
    size_t i;

    for (i = 0; i < size - 1 && src[i]; i++) {
        unsigned char c = (unsigned char)src[i];
        dst[i] = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F ? '?' : src[i];
    }
    memset(dst + i, 0, size - i);
}

manta_status manta_error_raise(const manta_error *e)
{
    REFUSE_NULL(e);

    manta_error copy = *e; /* e may lie in memory that another process writes, or be `last` */
    int code = (int)copy.code;

    /* An error that claims success would turn a failure into none. */
    last.code = code > MANTA_OK && code < N_NAMES ? (manta_status)code : MANTA_EINTERNAL;
    last.rank = copy.rank < -1 ? -1 : copy.rank;
    copy_foreign(last.host, copy.host, sizeof last.host);
    copy_foreign(last.text, copy.text, sizeof last.text);
    return last.code;
}

void manta_error_origin(const char *host, int rank)
{
    pthread_mutex_lock(&origin_lock);
    snprintf(origin_host, sizeof origin_host, "%s", host ? host : "");
    origin_rank = rank;
    pthread_mutex_unlock(&origin_lock);
}
