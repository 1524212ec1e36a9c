/* deaths.c - deaths of workers, as the logs of a run tell of them. */
#include "cli/deaths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <manta/run.h>

enum { RANKS = 256, LINE = 512 };

/* Before and behind the number of milliseconds. */
#define MADE_UP "; made up for in "

const char *death_line(const manta_event *e, char *buf, size_t size)
{
    snprintf(buf, size, "process %lld %s" MADE_UP "%.1f ms, in epoch %lld at step %lld", (long long)e->pid,
             e->cause, e->ms, (long long)e->epoch + 1, (long long)e->step + 1);
    return buf;
}

/* "2026-11-16T08:03:59.633Z process 28054 killed by signal 9 (Killed); made up for in 4.7 ms, ..." */
static bool read_death(const char *line, double *at_s)
{
    const char *made = strstr(line, MADE_UP);
    struct tm t = {0};
    const char *seconds = made ? strptime(line, "%Y-%m-%dT%H:%M:", &t) : NULL;
    double second, ms;
    char *end;

    if (!seconds) return false;
    second = strtod(seconds, &end);
    if (end == seconds || !(second >= 0 && second < 61) || strncmp(end, "Z process ", 10) != 0) return false;
    ms = strtod(made + strlen(MADE_UP), &end);
    if (end == made + strlen(MADE_UP) || strncmp(end, " ms", 3) != 0 || !(ms >= 0 && ms < 1e9)) return false;
    *at_s = (double)timegm(&t) + second - ms / 1e3;
    return *at_s > 0;
}

typedef struct deaths {
    int n, cap;
    double *at;
} deaths;

static void take_line(deaths *d, const char *line)
{
    double at_s;

    if (!read_death(line, &at_s)) return;
    if (d->n == d->cap) {
        d->cap = d->cap ? 2 * d->cap : 16;
        d->at = realloc(d->at, (size_t)d->cap * sizeof *d->at);
        if (!d->at) abort();
    }
    d->at[d->n++] = at_s;
}

/* A log may hold anything that a rank has printed: lines that are too long are none of ours. */
static void read_log(deaths *d, manta_run_log_reader *log)
{
    char line[LINE];
    size_t at = 0, n;
    const char *text;

    while (!manta_run_log_read(log, &text, &n) && n) {
        for (size_t i = 0; i < n; i++) {
            if (text[i] != '\n') {
                if (at < sizeof line) line[at++] = text[i];
                continue;
            }
            if (at < sizeof line) {
                line[at] = '\0';
                take_line(d, line);
            }
            at = 0;
        }
    }
}

int deaths_read(const char *folder, double **out)
{
    deaths d = {0};
    manta_run_log_reader *log;

    for (int rank = 0; rank < RANKS && !manta_run_log_open(folder, "rank", rank, &log); rank++) {
        read_log(&d, log);
        manta_run_log_close(log);
    }
    *out = d.at;
    return d.n;
}
