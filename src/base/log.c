/* log.c - a record is formatted by the thread that writes it, without a lock,
 * and then handed over whole.
 *
 * Threads: `level` and `format` are atomics that anyone reads; `own_level` is each
 * thread's and comes before `level`. `sink_lock`
 * guards the sink and is held while it runs, which is what lets
 * manta_log_set_sink() promise that the former one is silent. Standard error
 * needs no lock: one write(2) of a line does not mix with another. */
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/suggest.h"
#include "base/utf8.h"

static const char *const level_names[] = {"debug", "info", "warn", "error", "off"};
enum { N_LEVELS = sizeof level_names / sizeof *level_names, UNSET = -1 };

static _Atomic int level = UNSET; /* UNSET: the environment was not read yet */
static _Atomic int format = MANTA_LOG_FORMAT_TEXT;
static _Thread_local int own_level = UNSET; /* of this thread; UNSET: the process's */

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static manta_log_fn *sink; /* sink_lock */
static void *sink_ctx; /* sink_lock */

/* Reads "LEVEL", "LEVEL,FORMAT" or ",FORMAT". What is not understood is left
 * at its default: a log setting must not stop a training. */
static void read_environment(void)
{
    const char *env = getenv("MANTA_LOG");
    int chosen = MANTA_LOG_LEVEL_WARN;
    size_t n = env ? strcspn(env, ",") : 0;

    for (int i = 0; i < N_LEVELS; i++)
        if (n > 0 && strlen(level_names[i]) == n && memcmp(level_names[i], env, n) == 0) chosen = i;
    if (env && strcmp(env + n, ",json") == 0)
        atomic_store_explicit(&format, MANTA_LOG_FORMAT_JSON, memory_order_relaxed);
    /* Two threads may come here at once and store the same; a level that the
     * program has set meanwhile stays. */
    int unset = UNSET;
    atomic_compare_exchange_strong_explicit(&level, &unset, chosen, memory_order_relaxed,
                                            memory_order_relaxed);
}

bool log_enabled(manta_log_level l)
{
    int threshold = own_level != UNSET ? own_level : atomic_load_explicit(&level, memory_order_relaxed);

    if (threshold == UNSET) {
        read_environment();
        threshold = atomic_load_explicit(&level, memory_order_relaxed);
    }
    return (int)l >= threshold && l < MANTA_LOG_LEVEL_OFF;
}

bool log_is_read(manta_log_level l)
{
    bool elsewhere;

    if (!log_enabled(l) || atomic_load_explicit(&format, memory_order_relaxed) != MANTA_LOG_FORMAT_TEXT)
        return false;
    pthread_mutex_lock(&sink_lock);
    elsewhere = sink != NULL;
    pthread_mutex_unlock(&sink_lock);
    return !elsewhere;
}

void manta_log_set_level(manta_log_level l)
{
    if ((int)l < 0 || l > MANTA_LOG_LEVEL_OFF) {
        (void)!manta_fail(MANTA_EINVAL, "%s: there is no level %d, expected 0 to %d", __func__, (int)l,
                          MANTA_LOG_LEVEL_OFF); /* the level stays */
        return;
    }
    log_enabled(MANTA_LOG_LEVEL_ERROR); /* the environment's format still counts */
    atomic_store_explicit(&level, (int)l, memory_order_relaxed);
}

int log_own_level(void)
{
    (void)log_enabled(MANTA_LOG_LEVEL_ERROR); /* reads the environment, which a new thread is not to do */
    return own_level;
}

int log_use_level(int l)
{
    int before = own_level;

    own_level = UNSET;
    (void)log_enabled(MANTA_LOG_LEVEL_ERROR); /* the environment's format still counts */
    own_level = l < 0 ? UNSET : l;
    return before;
}

manta_status log_level_find(const char *name, int *out)
{
    char hint[SUGGEST_TEXT];

    for (int i = 0; i < N_LEVELS; i++)
        if (!strcmp(level_names[i], name)) {
            *out = i;
            return MANTA_OK;
        }
    return manta_fail(MANTA_EINVAL, "no log level is called \"%.80s\": debug, info, warn, error or off%s",
                      name, suggest_among(name, N_LEVELS, level_names, hint, sizeof hint));
}

manta_status manta_log_level_named(const char *name, manta_log_level *out)
{
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    int found = 0;

    TRY(log_level_find(name, &found));
    *out = (manta_log_level)found;
    return MANTA_OK;
}

manta_status log_level_named(const char *name)
{
    int l = 0;

    TRY(log_level_find(name, &l));
    manta_log_set_level((manta_log_level)l);
    return MANTA_OK;
}

void manta_log_set_format(manta_log_format f)
{
    if ((int)f < 0 || f > MANTA_LOG_FORMAT_JSON) {
        (void)!manta_fail(MANTA_EINVAL, "%s: there is no format %d, expected 0 to %d", __func__, (int)f,
                          MANTA_LOG_FORMAT_JSON); /* the format stays */
        return;
    }
    log_enabled(MANTA_LOG_LEVEL_ERROR); /* so that the environment does not come later and win */
    atomic_store_explicit(&format, (int)f, memory_order_relaxed);
}

/* A fork in the middle of a record of another thread would leave the child with
 * a lock that nobody opens. */
static void lock_sink(void)
{
    pthread_mutex_lock(&sink_lock);
}

static void unlock_sink(void)
{
    pthread_mutex_unlock(&sink_lock);
}

static void heed_forks(void)
{
    (void)pthread_atfork(lock_sink, unlock_sink, unlock_sink);
}

void manta_log_set_sink(manta_log_fn *fn, void *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, heed_forks);
    pthread_mutex_lock(&sink_lock);
    sink = fn;
    sink_ctx = ctx;
    pthread_mutex_unlock(&sink_lock);
}

void log_reset(void)
{
    manta_log_set_sink(NULL, NULL);
    atomic_store_explicit(&format, MANTA_LOG_FORMAT_TEXT, memory_order_relaxed);
    atomic_store_explicit(&level, UNSET, memory_order_relaxed);
    own_level = UNSET;
}

/* Adds s between quotes as JSON wants it. In text the same form serves: no
 * string can break the line or reach the terminal as a control sequence. */
static void add_quoted(buf *b, const char *s)
{
    buf_add_char(b, '"');
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        size_t n = utf8_length(p);
        if (n == 0) {
            buf_add_text(b, "\\ufffd");
            n = 1;
        } else if (*p == '"' || *p == '\\') {
            buf_printf(b, "\\%c", *p);
        } else if (*p == '\n') {
            buf_add_text(b, "\\n");
        } else if (*p == '\t') {
            buf_add_text(b, "\\t");
        } else if (utf8_is_control(p, n)) {
            buf_printf(b, "\\u%04x", (unsigned)utf8_character(p, n));
        } else {
            buf_add(b, p, n);
        }
        p += n;
    }
    buf_add_char(b, '"');
}

/* Whether text shows s without quotes: something, all of it printable. */
static bool is_plain(const char *s)
{
    if (!*s) return false;
    for (const unsigned char *p = (const unsigned char *)s; *p; p++)
        if (*p <= ' ' || *p >= 0x7F || strchr("\"\\=", *p)) return false;
    return true;
}

static void add_value(buf *b, const log_field *f, bool json)
{
    const char *s = f->as.s ? f->as.s : "";

    switch (f->kind) {
    case LOG_KIND_INT: buf_printf(b, "%lld", (long long)f->as.i); break;
    case LOG_KIND_BOOL: buf_add_text(b, f->as.b ? "true" : "false"); break;
    case LOG_KIND_F64:
        /* JSON has no such numbers; a string keeps which one it was. */
        buf_printf(b, json && !isfinite(f->as.f) ? "\"%.9g\"" : "%.9g", f->as.f);
        break;
    case LOG_KIND_STR:
        if (!json && is_plain(s))
            buf_add_text(b, s);
        else
            add_quoted(b, s);
        break;
    }
}

static void add_head(buf *b, manta_log_level l, const char *message, bool json)
{
    int64_t now = clock_wall_ns();
    time_t seconds = (time_t)(now / 1000000000);
    struct tm tm;
    char when[32];

    if (json) {
        gmtime_r(&seconds, &tm);
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
        buf_printf(b, "{\"time\":\"%s.%06dZ\",\"level\":\"%s\",\"pid\":%ld,\"msg\":", when,
                   (int)(now % 1000000000 / 1000), level_names[l], (long)getpid());
        add_quoted(b, message);
    } else {
        localtime_r(&seconds, &tm);
        strftime(when, sizeof when, "%H:%M:%S", &tm);
        buf_printf(b, "%s.%03d %-5s %s", when, (int)(now % 1000000000 / 1000000), level_names[l], message);
    }
}

static void add_field(buf *b, const log_field *f, bool json)
{
    if (json) {
        buf_add_char(b, ',');
        add_quoted(b, f->key);
        buf_add_char(b, ':');
    } else {
        buf_printf(b, " %s=", f->key);
    }
    add_value(b, f, json);
}

/* A record that cannot be written is lost: there is nowhere to say so. */
static void write_stderr(const buf *b)
{
    size_t at = 0;

    while (at < b->n) {
        ssize_t n = write(STDERR_FILENO, b->at + at, b->n - at);
        if (n < 0 && errno != EINTR) return;
        if (n > 0) at += (size_t)n;
    }
}

void log_write(manta_log_level l, const char *message, ...)
{
    buf b = {0};
    va_list ap;
    int saved_errno = errno; /* logging between a failure and its errno changes nothing */
    bool json = atomic_load_explicit(&format, memory_order_relaxed) == MANTA_LOG_FORMAT_JSON;

    if (l < MANTA_LOG_LEVEL_DEBUG || l >= MANTA_LOG_LEVEL_OFF) l = MANTA_LOG_LEVEL_ERROR;
    add_head(&b, l, message, json);
    va_start(ap, message);
    for (;;) {
        log_field f = va_arg(ap, log_field);
        if (!f.key) break;
        add_field(&b, &f, json);
    }
    va_end(ap);
    buf_add_text(&b, json ? "}\n" : "\n");

    pthread_mutex_lock(&sink_lock);
    if (sink) sink(sink_ctx, l, b.at, b.n);
    bool to_stderr = !sink;
    pthread_mutex_unlock(&sink_lock);
    if (to_stderr) write_stderr(&b);
    buf_release(&b);
    errno = saved_errno;
}
