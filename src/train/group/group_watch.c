/* group_watch.c - tells a worker that hangs from one that is slow. */
#include "train/group/group_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "os/file.h"

/* CPU time of all threads of a process; -1: it cannot be read. */
static int64_t cpu_time(pid_t pid)
{
    struct timespec t;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t)) return -1;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* One letter of a stat file of /proc: R, S, D, T (stopped), t (traced), Z; ' ' when not known. */
static char state_in(const char *path)
{
    char text[1024];
    const char *at;

    if (file_read_text(path, text, sizeof text)) return ' ';
    at = strrchr(text, ')');
    return at && at[1] ? at[2] : ' ';
}

static char state_of(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    return state_in(path);
}

/* Whether any thread waits for a core or for a disk: the worker's own may well
 * sleep until that one has done its part. */
static bool has_a_thread_at_work(pid_t pid)
{
    file_names threads = {0};
    char path[128];
    bool any = false;

    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    if (file_list(path, &threads)) return false;
    for (size_t i = 0; i < threads.n && !any; i++) {
        snprintf(path, sizeof path, "/proc/%ld/task/%.20s/stat", (long)pid, threads.at[i]);
        any = strchr("RD", state_in(path));
    }
    file_names_release(&threads);
    return any;
}

static bool is_traced(pid_t pid)
{
    char path[64], text[4096];
    const char *at;

    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    if (file_read_text(path, text, sizeof text)) return false;
    at = strstr(text, "TracerPid:");
    return at && strtol(at + strlen("TracerPid:"), NULL, 10) != 0;
}

/* What is not a worker's work but runs in its process all the same (a timer of
 * the user's, a sanitizer's thread) may use this share of the time: 1/64. */
static bool is_busy(const watch *w, int64_t cpu_ns, int64_t deadline_ns)
{
    return cpu_ns < 0 || cpu_ns - w->cpu_ns > deadline_ns / 64;
}

watch_verdict watch_look(watch *w, pid_t pid, uint64_t progress, bool waits, int64_t now_ns,
                         int64_t deadline_ns)
{
    int64_t cpu = cpu_time(pid);
    char state = ' ';

    /* A stopped process uses no time; what is not stopped and waits is fine. */
    if (waits) state = state_of(pid);
    if (!w->since_ns || progress != w->progress || is_busy(w, cpu, deadline_ns) || (waits && state != 'T')) {
        *w = (watch){.progress = progress, .cpu_ns = cpu, .since_ns = now_ns};
        return WATCH_FINE;
    }
    if (now_ns - w->since_ns < deadline_ns) return WATCH_FINE;
    state = state_of(pid);
    if (state == 'T') return WATCH_STOPPED;
    if (state == 't' || state == 'Z' || is_traced(pid) || has_a_thread_at_work(pid)) {
        w->since_ns = now_ns;
        return WATCH_FINE;
    }
    return WATCH_HANGS;
}
