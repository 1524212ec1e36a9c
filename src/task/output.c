/* output.c - see output.h. */
#include "task/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/shm.h"
#include "os/socket.h"
#include "os/sys.h"
#include "os/thread.h"
#include "task/hooks.h"
#include "task/worker_trace.h"

#define CHUNK      65536
#define SILENCE_NS 200000000 /* after which a line without an end is shown as it is */

typedef struct source {
    int pid;
    int fds[2]; /* -1: ended */
    const worker_trace *trace;
    void *bell;
    output_words *words;
    uint64_t taken[2], mark[2], marks;
    buf line[2]; /* the start of a line whose end has not come */
    char label[2][WORKER_TRACE_NAME]; /* of that line */
    int64_t heard_ns[2];
} source;

struct output {
    mutex lock; /* guards `added` and `closing` */
    VEC(source *) added;
    bool closing;
    int nudge_fd;
    thread_id thread;
    /* the thread's own */
    VEC(source *) sources;
    VEC(struct pollfd) polls;
    buf out;
    char *chunk;
    /* the line that each of our own streams is in the middle of */
    const source *open_source[2];
    bool failed[2];
};

static void source_free(source *s)
{
    if (!s) return;
    socket_close_all(s->fds, 2);
    worker_trace_close(s->trace);
    shm_unmap(s->bell, shm_page());
    buf_release(&s->line[0]);
    buf_release(&s->line[1]);
    mem_free(s);
}

/* ---- writing ---- */

static void write_out(output *o, int stream)
{
    const char *at = o->out.at;
    size_t left = o->out.n;

    if (left > 0 && hooks_printed(stream + 1, at, left)) left = 0;
    while (left > 0 && !o->failed[stream]) {
        ssize_t n = os->write(stream + 1, at, left);
        if (n >= 0) {
            at += n;
            left -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd p = {.fd = stream + 1, .events = POLLOUT};
            (void)os->poll(&p, 1, -1);
        } else if (errno != EINTR) {
            o->failed[stream] = true;
            log_error("what workers print cannot be written any more",
                      LOG_STR("to", stream ? "standard error" : "standard output"),
                      LOG_STR("why", strerror(errno)));
        }
    }
    buf_cut(&o->out, 0);
}

/* Adds a piece of a line to what will be written: behind the prefix, unless it
 * goes on where the same worker's piece ended. */
static void add_piece(output *o, const source *s, int stream, const char *label, const char *text, size_t n,
                      bool ends)
{
    if (o->open_source[stream] != s) {
        if (o->open_source[stream]) buf_add_char(&o->out, '\n'); /* another's line had no end */
        buf_printf(&o->out, "(%s pid=%d) ", label[0] ? label : "worker", s->pid);
    }
    buf_add(&o->out, text, n);
    if (ends) buf_add_char(&o->out, '\n');
    o->open_source[stream] = ends ? NULL : s;
}

/* Shows the start of a line that is kept. */
static void show_line(output *o, source *s, int stream)
{
    buf *line = &s->line[stream];

    if (line->n == 0) return;
    add_piece(o, s, stream, s->label[stream], line->at, line->n, false);
    buf_cut(line, 0);
}

static void take_text(output *o, source *s, int stream, const char *label, const char *text, size_t n)
{
    buf *line = &s->line[stream];

    if (line->n > 0 && strcmp(label, s->label[stream]) != 0) {
        /* Another function goes on in the middle of a line: that ends it. */
        add_piece(o, s, stream, s->label[stream], line->at, line->n, true);
        buf_cut(line, 0);
    } else if (o->open_source[stream] == s && strcmp(label, s->label[stream]) != 0) {
        add_piece(o, s, stream, label, "", 0, true);
    }
    memcpy(s->label[stream], label, WORKER_TRACE_NAME);
    while (n > 0) {
        const char *end = memchr(text, '\n', n);
        size_t part = end ? (size_t)(end - text) : n;
        if (end && line->n == 0) {
            add_piece(o, s, stream, label, text, part, true);
        } else {
            buf_add(line, text, part);
            if (end) {
                add_piece(o, s, stream, label, line->at, line->n, true);
                buf_cut(line, 0);
            } else if (line->n >= CHUNK) {
                show_line(o, s, stream);
            }
        }
        part += end != NULL;
        text += part;
        n -= part;
    }
}

/* ---- reading ---- */

/* Reads once. False: nothing is there now. */
static bool read_stream(output *o, source *s, int stream)
{
    output_words *w = s->words;

    atomic_fetch_add(&w->busy, 1);
    ssize_t n = os->read(s->fds[stream], o->chunk, CHUNK);
    int err = errno;
    if (n > 0) atomic_store(&w->taken[stream], s->taken[stream] + (uint64_t)n);
    atomic_fetch_add(&w->busy, 1);
    if (n < 0 && err == EINTR) return true;
    if (n < 0 && err == EAGAIN) return false;
    if (n <= 0) {
        if (s->line[stream].n > 0 || o->open_source[stream] == s) {
            buf *line = &s->line[stream];
            add_piece(o, s, stream, s->label[stream], line->at, line->n, true);
            buf_cut(line, 0);
        }
        write_out(o, stream);
        socket_close_all(&s->fds[stream], 1);
        s->fds[stream] = -1;
        s->taken[stream] = UINT64_MAX / 2; /* past every mark */
        return false;
    }
    /* Marks that both streams have passed are the worker's to write over. */
    if (s->mark[stream] < s->marks) s->mark[stream] = s->marks;
    for (size_t done = 0; done < (size_t)n;) {
        char label[WORKER_TRACE_NAME];
        size_t part = worker_trace_label_at(s->trace, stream, s->taken[stream], (size_t)n - done,
                                            &s->mark[stream], label);
        take_text(o, s, stream, label, o->chunk + done, part);
        done += part;
        s->taken[stream] += part;
    }
    s->heard_ns[stream] = clock_now_ns();
    write_out(o, stream);
    s->marks = worker_trace_marks_passed(s->trace, s->marks, s->taken);
    atomic_store(&w->marks, s->marks);
    return true;
}

/* Shows lines without an end whose worker has been silent. How long to wait for
 * the next such, in milliseconds. */
static int show_silent(output *o, int64_t now)
{
    int wait = -1;

    for (size_t i = 0; i < o->sources.n; i++)
        for (int k = 0; k < 2; k++) {
            source *s = o->sources.at[i];
            if (s->line[k].n == 0) continue;
            int64_t left = s->heard_ns[k] + SILENCE_NS - now;
            if (left <= 0) {
                show_line(o, s, k);
                write_out(o, k);
            } else if (wait < 0 || left / 1000000 + 1 < wait) {
                wait = (int)(left / 1000000) + 1;
            }
        }
    return wait;
}

static void drop_ended(output *o)
{
    for (size_t i = 0; i < o->sources.n;) {
        source *s = o->sources.at[i];
        if (s->fds[0] >= 0 || s->fds[1] >= 0) {
            i++;
            continue;
        }
        for (int k = 0; k < 2; k++)
            if (o->open_source[k] == s) o->open_source[k] = NULL;
        source_free(s);
        vec_remove(&o->sources, i);
    }
}

static bool take_added(output *o)
{
    mutex_lock(&o->lock);
    for (size_t i = 0; i < o->added.n; i++) vec_push(&o->sources, o->added.at[i]);
    vec_clear(&o->added);
    bool closing = o->closing;
    mutex_unlock(&o->lock);
    return closing;
}

static void poll_sources(output *o, int timeout_ms)
{
    uint64_t count;

    vec_clear(&o->polls);
    vec_push(&o->polls, ((struct pollfd){.fd = o->nudge_fd, .events = POLLIN}));
    for (size_t i = 0; i < o->sources.n; i++)
        for (int k = 0; k < 2; k++)
            vec_push(&o->polls, ((struct pollfd){.fd = o->sources.at[i]->fds[k], .events = POLLIN}));
    if (os->poll(o->polls.at, (nfds_t)o->polls.n, timeout_ms) <= 0) return;
    if (o->polls.at[0].revents) (void)!read(o->nudge_fd, &count, sizeof count);
    for (size_t i = 0; i < o->sources.n; i++)
        for (int k = 0; k < 2; k++)
            if (o->polls.at[1 + 2 * i + (size_t)k].revents) (void)read_stream(o, o->sources.at[i], k);
}

/* What is there now is shown whole; pipes of the dead are read to their ends. */
static void show_rest(output *o)
{
    for (size_t i = 0; i < o->sources.n; i++)
        for (int k = 0; k < 2; k++) {
            source *s = o->sources.at[i];
            while (s->fds[k] >= 0 && read_stream(o, s, k)) {}
            if (s->line[k].n == 0 && o->open_source[k] != s) continue;
            add_piece(o, s, k, s->label[k], s->line[k].at, s->line[k].n, true);
            buf_cut(&s->line[k], 0);
            write_out(o, k);
        }
}

static void output_main(void *arg)
{
    output *o = arg;

    for (;;) {
        if (take_added(o)) break;
        int wait = show_silent(o, clock_now_ns());
        poll_sources(o, wait);
        drop_ended(o);
    }
    show_rest(o);
}

/* ---- from outside ---- */

static manta_status source_new(int pid, const int fds[4], source **out)
{
    source *s = mem_new(sizeof *s);
    manta_status st = MANTA_OK;

    *s = (source){.pid = pid, .fds = {fds[0], fds[1]}};
    for (int i = 0; i < 2 && !st; i++)
        if (os->fcntl(fds[i], F_SETFL, O_NONBLOCK))
            st = manta_fail(MANTA_EIO, "a pipe in which a worker prints cannot be set up: %s",
                            strerror(errno));
    if (!st) st = shm_map(fds[2], shm_page(), true, &s->bell);
    if (!st) st = worker_trace_map(fds[3], &s->trace);
    socket_close_all(fds + 2, 2);
    if (st) {
        source_free(s);
        return st;
    }
    s->words = (output_words *)(void *)((char *)s->bell + WORKER_TRACE_OUTPUT_AT);
    *out = s;
    return MANTA_OK;
}

static manta_status output_new(output **out)
{
    output *o = mem_new(sizeof *o);

    mutex_init(&o->lock);
    o->chunk = mem_new(CHUNK);
    o->nudge_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    manta_status st =
        o->nudge_fd < 0
            ? manta_fail(MANTA_EIO, "an event descriptor cannot be made for what workers print: %s",
                         strerror(errno))
            : MANTA_OK;
    if (!st) st = thread_start(&o->thread, "manta-output", output_main, o);
    if (st) {
        socket_close_all(&o->nudge_fd, 1);
        mem_free(o->chunk);
        mutex_release(&o->lock);
        mem_free(o);
        return st;
    }
    *out = o;
    return MANTA_OK;
}

static void nudge_thread(output *o)
{
    uint64_t one = 1;

    (void)!write(o->nudge_fd, &one, sizeof one);
}

manta_status output_add(output **at, int pid, const int fds[4])
{
    source *s = NULL;
    manta_status st = *at ? MANTA_OK : output_new(at);

    if (st) {
        socket_close_all(fds, 4);
        return st;
    }
    TRY(source_new(pid, fds, &s));
    output *o = *at;
    mutex_lock(&o->lock);
    vec_push(&o->added, s);
    mutex_unlock(&o->lock);
    nudge_thread(o);
    return MANTA_OK;
}

void output_end(output *o)
{
    if (!o) return;
    mutex_lock(&o->lock);
    o->closing = true;
    mutex_unlock(&o->lock);
    nudge_thread(o);
    thread_join(&o->thread);
    for (size_t i = 0; i < o->sources.n; i++) source_free(o->sources.at[i]);
    for (size_t i = 0; i < o->added.n; i++) source_free(o->added.at[i]);
    vec_release(&o->sources);
    vec_release(&o->added);
    vec_release(&o->polls);
    buf_release(&o->out);
    mem_free(o->chunk);
    socket_close_all(&o->nudge_fd, 1);
    mutex_release(&o->lock);
    mem_free(o);
}
