/* failure.c - what went wrong, as one block on stderr. */
#include "cli/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* ---- a block ---- */

typedef struct block {
    char text[4096];
} block;

/* Adds text; nothing that a file or a worker said may speak to the terminal. */
static void add(block *b, const char *fmt, ...) MANTA_PRINTF(2, 3);
static void add(block *b, const char *fmt, ...)
{
    size_t n = strlen(b->text);
    va_list args;

    va_start(args, fmt);
    vsnprintf(b->text + n, sizeof b->text - n, fmt, args);
    va_end(args);
    for (char *c = b->text + n; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    }
}

static void line(block *b, const char *label)
{
    size_t n = strlen(b->text);

    snprintf(b->text + n, sizeof b->text - n, "\n  %-6s ", label);
}

/* One write, behind all that was printed before. */
static void show(const block *b)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    bool colour =
        isatty(STDERR_FILENO) && !(no_colour && *no_colour) && term && *term && strcmp(term, "dumb") != 0;
    size_t head = strcspn(b->text, "\n");
    char *whole;

    fflush(stdout);
    if (asprintf(&whole, "%smanta: %.*s%s%s\n", colour ? "\033[1;31m" : "", (int)head, b->text,
                 colour ? "\033[0m" : "", b->text + head) < 0)
        abort();
    fputs(whole, stderr); /* unbuffered: one write(2) */
    free(whole);
}

static void add_log(block *b, const failures *f, int rank)
{
    char word[1600];

    if (!f->record || !f->record->run) return;
    line(b, "log");
    add(b, "manta logs %s", record_word(f->record, word, sizeof word));
    if (rank >= 0) add(b, " --rank %d", rank);
}

/* ---- a worker ---- */

static void tell_worker(const failures *f, const manta_event *e, int64_t successor)
{
    block b = {{0}};

    add(&b, "worker %d failed", e->rank);
    line(&b, "what");
    if (e->pid) add(&b, "process %lld, ", (long long)e->pid);
    add(&b, "%s", e->cause ? e->cause : "it is gone");
    line(&b, "where");
    if (e->epochs) add(&b, "epoch %lld, ", (long long)e->epoch + 1);
    add(&b, "step %lld%s", (long long)e->step + 1, e->epochs ? "" : " of the evaluation");
    line(&b, "now");
    if (e->kind == MANTA_EVENT_WORKER_LEFT) {
        add(&b, "given up: the others go on without it; the result is the same");
    } else {
        if (successor && successor != e->pid)
            add(&b, "process %lld is in its place and ", (long long)successor);
        if (f->loose) {
            add(&b, "the steps that it had are done again");
        } else {
            add(&b, "the step was done again, %.1f ms late; the result is the same", e->ms);
        }
    }
    add_log(&b, f, e->rank);
    show(&b);
}

bool failures_see(failures *f, const manta_event *e)
{
    bool known = e->rank >= 0 && e->rank < FAILURE_RANKS;

    switch (e->kind) {
    case MANTA_EVENT_WORKER:
        if (known) f->pid[e->rank] = e->pid;
        return false;
    case MANTA_EVENT_WORKER_LEFT:
        if (e->cause && !strcmp(e->cause, "on request")) return false;
        tell_worker(f, e, 0);
        return true;
    case MANTA_EVENT_RECOVERED: tell_worker(f, e, known ? f->pid[e->rank] : 0); return true;
    default: return false;
    }
}

/* ---- the end ---- */

void failures_end(const failures *f)
{
    char again[1700];
    const char *checkpoint = f->record ? record_checkpoint(f->record) : NULL;
    block b = {{0}};
    manta_error e;

    manta_error_get(&e);
    add(&b, "%s", *e.text ? e.text : "it failed, and nothing was said about why");
    if (f->record && record_is_resumable(f->record)) {
        line(&b, "now");
        add(&b, "the run ends%s; this goes on from %s: %s", checkpoint ? "" : " before its first checkpoint",
            checkpoint       ? strrchr(checkpoint, '/') + 1
            : f->record->run ? "the beginning"
                             : "its backup, if there is one",
            record_command(f->record, again, sizeof again));
    }
    add_log(&b, f, -1);
    show(&b);
}
