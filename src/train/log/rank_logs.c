/* rank_logs.c - see rank_logs.h.
 *
 * Threads: `lock` guards the sources and what is kept of their lines, and is held
 * while lines are written; the thread waits without it. */
#include "train/log/rank_logs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/vec.h"
#include "os/file.h"
#include "os/sys.h"
#include "os/thread.h"

enum {
    CHUNK = 65536,
    PIPE_MOST = 1 << 20, /* bytes that a pipe may hold: one who goes on writing is not waited for */
    LEAST_PART = 4096,
    MOST_PARTS = 1000,
    DEFAULT_PARTS = 4
};

#define DEFAULT_SIZE ((int64_t)64 << 20)

typedef struct source {
    char *role;
    int n;
    int fds[2]; /* a pipe: for us, for the worker */
    rank_log *file; /* NULL: not wanted, or it could not be opened */
    buf line; /* the start of one whose end has not come */
} source;

struct rank_logs {
    char *folder;
    manta_logging_config c;
    int level;
    mutex lock;
    VEC(source *) sources;
    bool started, closing, told;
    int nudge_fd;
    thread_id thread;
    char *chunk; /* under lock */
};

static rank_log_bound bound_of(const manta_logging_config *c)
{
    int parts = c->parts ? c->parts : DEFAULT_PARTS;

    if (c->max_size < 0) return (rank_log_bound){.parts = parts};
    return (rank_log_bound){c->max_size ? c->max_size : DEFAULT_SIZE, parts};
}

manta_status rank_logs_check(const manta_logging_config *c)
{
    rank_log_bound b = bound_of(c);
    int level;

    TRY(option_or_none("max_size of a log", c->max_size));
    if (c->level) TRY(log_level_find(c->level, &level));
    if (c->to < MANTA_LOG_TO_FILE || c->to > MANTA_LOG_TO_BOTH)
        return manta_fail(MANTA_EINVAL, "where a run's logs go is %d, expected file, output or both",
                          (int)c->to);
    if (b.parts < 2 || b.parts > MOST_PARTS)
        return manta_fail(MANTA_EINVAL, "a rank's log in %d parts, expected 2 to %d", b.parts, MOST_PARTS);
    if (b.max_size > 0 && b.max_size / b.parts < LEAST_PART)
        return manta_fail(MANTA_EINVAL,
                          "a rank's log of %" PRId64 " bytes in %d parts, expected %d bytes a part or more",
                          b.max_size, b.parts, LEAST_PART);
    return MANTA_OK;
}

static bool is_piped(const rank_logs *l)
{
    return l->c.stamp || l->c.to != MANTA_LOG_TO_FILE;
}

/* ---- lines ---- */

static void tell_once(rank_logs *l, const source *s)
{
    if (l->told) return;
    l->told = true;
    log_warn("what a worker prints could not be kept", LOG_INT("rank", s->n),
             LOG_STR("why", manta_error_text()));
}

static void to_output(const buf *b)
{
    for (size_t at = 0; at < b->n;) {
        ssize_t n = os->write(STDERR_FILENO, b->at + at, b->n - at);
        if (n > 0) at += (size_t)n;
        if (n >= 0 || errno == EINTR) continue;
        if (errno != EAGAIN) return; /* nobody is there to be told */
        (void)os->poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, -1);
    }
}

/* Writes a line; `text` has no end of line in it. `ours`: of the driver. */
static void put_line(rank_logs *l, source *s, const char *text, size_t n, bool ours)
{
    buf b = {0};
    char when[32];

    rank_log_time(when, sizeof when);
    if (s->file) {
        if (l->c.stamp || ours) buf_printf(&b, "%s ", when);
        if (l->c.stamp) buf_printf(&b, "%s %d | ", s->role, s->n);
        buf_add(&b, text, n);
        buf_add_char(&b, '\n');
        if (rank_log_write(s->file, b.at, b.n)) tell_once(l, s);
        buf_cut(&b, 0);
    }
    if (l->c.to != MANTA_LOG_TO_FILE && !ours) {
        if (l->c.stamp) buf_printf(&b, "%s ", when);
        buf_printf(&b, "%s %d | ", s->role, s->n);
        buf_add(&b, text, n);
        buf_add_char(&b, '\n');
        to_output(&b);
    }
    buf_release(&b);
}

static void end_line(rank_logs *l, source *s)
{
    if (!s->line.n) return;
    put_line(l, s, s->line.at, s->line.n, false);
    buf_cut(&s->line, 0);
}

static void take_text(rank_logs *l, source *s, const char *text, size_t n)
{
    while (n > 0) {
        const char *end = memchr(text, '\n', n);
        size_t part = end ? (size_t)(end - text) : n;
        if (end && !s->line.n) {
            put_line(l, s, text, part, false);
        } else {
            buf_add(&s->line, text, part);
            if (end || s->line.n >= CHUNK) end_line(l, s);
        }
        part += end != NULL;
        text += part;
        n -= part;
    }
}

/* Reads some of what is there: so many bytes. */
static size_t read_source(rank_logs *l, source *s)
{
    ssize_t n;

    do n = os->read(s->fds[0], l->chunk, CHUNK);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return 0;
    take_text(l, s, l->chunk, (size_t)n);
    return (size_t)n;
}

void rank_logs_settle(rank_logs *l)
{
    if (!l) return;
    mutex_lock(&l->lock);
    for (size_t i = 0; i < l->sources.n; i++) {
        struct pollfd p = {.fd = l->sources.at[i]->fds[0], .events = POLLIN};
        size_t got = 1;
        for (size_t all = 0; got && all < PIPE_MOST && os->poll(&p, 1, 0) > 0; all += got)
            got = read_source(l, l->sources.at[i]);
        end_line(l, l->sources.at[i]);
    }
    mutex_unlock(&l->lock);
}

/* ---- the thread ---- */

static void listen_to_all(void *arg)
{
    rank_logs *l = arg;
    VEC(struct pollfd) polls = {0};
    uint64_t count;

    for (bool closing = false; !closing;) {
        vec_clear(&polls);
        vec_push(&polls, ((struct pollfd){.fd = l->nudge_fd, .events = POLLIN}));
        mutex_lock(&l->lock);
        closing = l->closing;
        for (size_t i = 0; i < l->sources.n; i++)
            vec_push(&polls, ((struct pollfd){.fd = l->sources.at[i]->fds[0], .events = POLLIN}));
        mutex_unlock(&l->lock);
        if (closing || os->poll(polls.at, (nfds_t)polls.n, -1) <= 0) continue;
        if (polls.at[0].revents) (void)!os->read(l->nudge_fd, &count, sizeof count);
        mutex_lock(&l->lock);
        for (size_t i = 1; i < polls.n; i++) { /* sources are only ever added */
            if (polls.at[i].revents) (void)read_source(l, l->sources.at[i - 1]);
        }
        mutex_unlock(&l->lock);
    }
    vec_release(&polls);
}

static void nudge_reader(const rank_logs *l)
{
    uint64_t one = 1;

    (void)!os->write(l->nudge_fd, &one, sizeof one);
}

/* ---- from outside ---- */

manta_status rank_logs_new(const char *folder, const manta_logging_config *c, rank_logs **out)
{
    rank_logs *l;

    TRY(rank_logs_check(c));
    l = mem_new(sizeof *l);
    *l = (rank_logs){.folder = mem_strdup(folder), .c = *c, .level = -1, .nudge_fd = -1};
    l->c.level = NULL; /* the caller's memory */
    if (c->level) (void)!log_level_find(c->level, &l->level);
    mutex_init(&l->lock);
    *out = l;
    return MANTA_OK;
}

static void source_free(source *s)
{
    for (int i = 0; i < 2; i++)
        if (s->fds[i] >= 0) os->close(s->fds[i]);
    rank_log_close(s->file);
    buf_release(&s->line);
    mem_free(s->role);
    mem_free(s);
}

void rank_logs_free(rank_logs *l)
{
    if (!l) return;
    rank_logs_settle(l);
    if (l->started) {
        mutex_lock(&l->lock);
        l->closing = true;
        mutex_unlock(&l->lock);
        nudge_reader(l);
        thread_join(&l->thread);
    }
    for (size_t i = 0; i < l->sources.n; i++) source_free(l->sources.at[i]);
    vec_release(&l->sources);
    if (l->nudge_fd >= 0) os->close(l->nudge_fd);
    mutex_release(&l->lock);
    mem_free(l->chunk);
    mem_free(l->folder);
    mem_free(l);
}

int rank_logs_level(const rank_logs *l)
{
    return l->level;
}

const char *rank_logs_folder(const rank_logs *l)
{
    return l->folder;
}

/* Under lock. */
static source *find_source(const rank_logs *l, const char *role, int n)
{
    for (size_t i = 0; i < l->sources.n; i++) {
        source *s = l->sources.at[i];
        if (s->n == n && !strcmp(s->role, role)) return s;
    }
    return NULL;
}

static manta_status start_thread(rank_logs *l)
{
    if (l->started) return MANTA_OK;
    if (l->nudge_fd < 0 && (l->nudge_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return file_fail(errno, "making", "an eventfd");
    if (!l->chunk) l->chunk = mem_new(CHUNK);
    TRY(thread_start(&l->thread, "rank-logs", listen_to_all, l));
    l->started = true;
    return MANTA_OK;
}

/* Under lock. */
static manta_status add_source(rank_logs *l, const char *role, int n, source **out)
{
    source *s = mem_new(sizeof *s);

    *s = (source){.role = mem_strdup(role), .n = n, .fds = {-1, -1}};
    if (os->pipe2(s->fds, O_CLOEXEC) || os->fcntl(s->fds[0], F_SETFL, O_NONBLOCK)) {
        manta_status st = file_fail(errno, "making", "a pipe for what a worker prints");
        source_free(s);
        return st;
    }
    if (l->c.to != MANTA_LOG_TO_OUTPUT && rank_log_open(l->folder, role, n, bound_of(&l->c), &s->file))
        tell_once(l, s);
    vec_push(&l->sources, s);
    *out = s;
    return MANTA_OK;
}

manta_status rank_logs_expect(rank_logs *l, const char *role, int n, rank_log_task *out)
{
    manta_status st;
    source *s;

    *out = (rank_log_task){.level = l->level, .pipe = -1, .bound = bound_of(&l->c)};
    if (!is_piped(l)) return MANTA_OK;
    mutex_lock(&l->lock);
    st = start_thread(l);
    if (!(s = find_source(l, role, n)) && !st) st = add_source(l, role, n, &s);
    if (!st) out->pipe = s->fds[1];
    mutex_unlock(&l->lock);
    if (!st) nudge_reader(l);
    return st;
}

void rank_logs_follow(const char *folder, const rank_log_task *t, const char *role, int n)
{
    if (t->level >= 0) manta_log_set_level((manta_log_level)t->level);
    (void)log_use_level(-1); /* the process is one of this run, and of no other */
    if (t->pipe >= 0) {
        rank_log_take_pipe(t->pipe, role, n);
    } else {
        rank_log_take_over(folder, role, n, t->bound);
    }
}

/* With nothing in it that would break the line. Owned by the caller. */
static char *one_line(const char *text)
{
    char *line = mem_strdup(text);

    for (char *p = line; *p; p++)
        if (*p == '\n' || *p == '\r') *p = ' ';
    return line;
}

manta_status rank_logs_add(rank_logs *l, const char *role, int n, const char *text)
{
    source *s;
    bool piped;

    mutex_lock(&l->lock);
    s = find_source(l, role, n);
    if ((piped = s && s->file)) { /* behind what the worker has said, which is in the pipe */
        char *line = one_line(text);
        read_source(l, s);
        end_line(l, s);
        put_line(l, s, line, strlen(line), true);
        mem_free(line);
    }
    mutex_unlock(&l->lock);
    return piped ? MANTA_OK : rank_log_add(l->folder, role, n, text);
}
