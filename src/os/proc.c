/* proc.c - see proc.h. */
#include "os/proc.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/file.h"
#include "os/sys.h"

manta_status proc_pidfd_open(pid_t pid, int *out)
{
    int fd = os->pidfd_open(pid, 0);

    if (fd >= 0) {
        *out = fd;
        return MANTA_OK;
    }
    int err = errno;
    manta_status st = err == ESRCH ? MANTA_ENOENT : err == ENOSYS ? MANTA_EUNSUPPORTED : MANTA_EIO;
    return manta_fail(st, "process %ld cannot be watched: %s", (long)pid, strerror(err));
}

void proc_signal(int pidfd, int sig)
{
    (void)os->pidfd_send_signal(pidfd, sig);
}

bool proc_ended(pid_t pid)
{
    struct pollfd p = {.fd = os->pidfd_open(pid, 0), .events = POLLIN};
    bool ended;

    if (p.fd < 0) return os->kill(pid, 0) && errno == ESRCH;
    ended = os->poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
    os->close(p.fd);
    return ended;
}

/* The name in the second field may hold anything, so the third begins behind the last
 * parenthesis. */
long proc_parse_stat(const char *text, int n)
{
    const char *at = strrchr(text, ')');

    for (int i = 2; at && i < n; i++) at = strchr(at + 1, ' ');
    return at ? strtol(at, NULL, 10) : 0;
}

int proc_threads(void)
{
    char text[1024];

    if (file_read_text("/proc/self/stat", text, sizeof text)) return 0;
    return (int)proc_parse_stat(text, 20);
}

uint64_t proc_parse_peak_rss(const char *text)
{
    const char *key = "VmHWM:";
    const char *at = strstr(text, key);

    if (!at || (at != text && at[-1] != '\n')) return 0;
    return strtoull(at + strlen(key), NULL, 10) * 1024; /* the file says kB and means KiB */
}

uint64_t proc_peak_rss(void)
{
    char text[16 * 1024];

    return file_read_text("/proc/self/status", text, sizeof text) ? 0 : proc_parse_peak_rss(text);
}

uint64_t proc_parse_private_pages(const char *text)
{
    uint64_t field[3]; /* size, resident, shared */

    for (int i = 0; i < 3; i++) {
        char *end;
        field[i] = strtoull(text, &end, 10);
        if (end == text) return 0;
        text = end;
    }
    return field[2] < field[1] ? field[1] - field[2] : 0;
}

uint64_t proc_private_memory(pid_t pid)
{
    char path[48], text[256];

    snprintf(path, sizeof path, "/proc/%ld/statm", (long)pid);
    if (file_read_text(path, text, sizeof text)) return 0;
    return proc_parse_private_pages(text) * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t proc_parse_available(const char *text)
{
    const char *key = "MemAvailable:";
    const char *at = strstr(text, key);

    return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : UINT64_MAX;
}

/* What the control group may still take; UINT64_MAX without a limit. */
static uint64_t group_available(void)
{
    char most[64], now[64];

    if (file_read_text("/sys/fs/cgroup/memory.max", most, sizeof most) || most[0] < '0' || most[0] > '9' ||
        file_read_text("/sys/fs/cgroup/memory.current", now, sizeof now))
        return UINT64_MAX;
    uint64_t limit = strtoull(most, NULL, 10), used = strtoull(now, NULL, 10);
    return used < limit ? limit - used : 0;
}

uint64_t proc_available_memory(void)
{
    char text[8 * 1024];

    uint64_t all =
        file_read_text("/proc/meminfo", text, sizeof text) ? UINT64_MAX : proc_parse_available(text);
    uint64_t ours = group_available();
    return ours < all ? ours : all;
}

static rlim_t raised_limit(rlim_t most, const struct rlimit *before)
{
    rlim_t to = before->rlim_max < most ? before->rlim_max : most;

    return to > before->rlim_cur ? to : before->rlim_cur;
}

void proc_raise_files(rlim_t most, struct rlimit *before)
{
    *before = (struct rlimit){0};
    if (getrlimit(RLIMIT_NOFILE, before)) return;
    struct rlimit to = {.rlim_cur = raised_limit(most, before), .rlim_max = before->rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &to); /* else it stays as it is */
}

void proc_restore_files(rlim_t most, const struct rlimit *before)
{
    struct rlimit now;

    if (!before->rlim_max || getrlimit(RLIMIT_NOFILE, &now)) return;
    if (now.rlim_cur == raised_limit(most, before)) now.rlim_cur = before->rlim_cur;
    (void)setrlimit(RLIMIT_NOFILE, &now);
}

manta_status proc_fail_files(const char *what)
{
    struct rlimit now = {0};

    (void)getrlimit(RLIMIT_NOFILE, &now);
    return manta_fail(MANTA_ENOSPC,
                      "%s: process %d has as many files open as it may (%llu); a higher limit (ulimit -n) or "
                      "fewer workers help",
                      what, (int)getpid(), (unsigned long long)now.rlim_cur);
}
