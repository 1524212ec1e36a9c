/* supervise.c - see supervise.h. */
#include "supervise.h"

#include <dirent.h>
#include <errno.h>
#include <manta/node.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "remote.h"
#include "run.h"
#include "temp.h"

enum { GONE_S = 30 }; /* for processes of a program that was ended, to go as well */

double soak_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void soak_supervise_begin(void)
{
    void *page = mmap(NULL, sizeof *soak_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED || prctl(PR_SET_CHILD_SUBREAPER, 1)) {
        perror("soak_runtime");
        exit(2);
    }
    soak_shared = page;
}

static void say(soak_report *r, const char *format, ...) MANTA_PRINTF(2, 3);
static void say(soak_report *r, const char *format, ...)
{
    size_t n = strlen(r->what);
    va_list ap;

    va_start(ap, format);
    vsnprintf(r->what + n, sizeof r->what - n, format, ap);
    va_end(ap);
    r->outcome = SOAK_BAD;
}

/* ---- the folder of a program ---- */

static void make_folder(char *folder, size_t size)
{
    char path[128];

    if (!temp_folder(folder, size, "/tmp", "soak")) {
        perror("/tmp");
        exit(2);
    }
    snprintf(path, sizeof path, "%s/run", folder);
    if (mkdir(path, 0700)) perror(path);
    setenv("XDG_RUNTIME_DIR", path, 1); /* here too: to look at the node */
    snprintf(path, sizeof path, "%s/spill", folder);
    if (mkdir(path, 0700)) perror(path);
}

/* The folder of a program's node, and where objects were on disk: nothing but the lock is left. */
static void check_folder(soak_report *r, const char *folder, const char *part)
{
    char path[256];
    struct dirent *e;

    snprintf(path, sizeof path, "%s/%s", folder, part);
    DIR *d = opendir(path);
    if (!d) return;
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "lock"))
            say(r, "a file is left: %s/%s\n", part, e->d_name);
    closedir(d);
}

static void remove_folder(const char *folder)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) fprintf(stderr, "%s cannot be removed\n", folder);
}

/* ---- what waits in a program that does not end ---- */

static void say_workers(soak_report *r, const manta_view *v)
{
    for (size_t i = 0; i < v->n_workers; i++) {
        const manta_view_worker *w = &v->worker[i];
        if (!w->is_dead)
            say(r, "    worker %u pid %d caller %d actor %llx calls %llu %s\n", w->id, w->pid, w->caller_pid,
                (unsigned long long)w->actor, (unsigned long long)w->calls, w->function);
    }
    for (size_t i = 0; i < v->n_actors && i < 40; i++)
        if (v->actors[i].state != MANTA_VIEW_STATE_ALIVE)
            say(r, "    actor %llx pid %d %s\n", (unsigned long long)v->actors[i].id, v->actors[i].pid,
                v->actors[i].state == MANTA_VIEW_STATE_WAITING    ? "waits"
                : v->actors[i].state == MANTA_VIEW_STATE_STARTING ? "starts"
                                                                  : "is dead");
}

static void say_view(soak_report *r)
{
    char address[16];
    manta_view *v;

    snprintf(address, sizeof address, "%d", atomic_load(&soak_shared->daemon));
    if (manta_view_take(address, MANTA_VIEW_WORKERS | MANTA_VIEW_ACTORS, 0, &v)) {
        say(r, "  no view of the node: %s\n", manta_error_text());
        return;
    }
    say(r, "  the node: %llu wait, %d workers, %d leases, %llu actors, %llu objects, store %llu of %llu\n",
        (unsigned long long)v->waiting, v->workers, v->leases, (unsigned long long)v->all_actors,
        (unsigned long long)v->all_objects, (unsigned long long)v->store_used,
        (unsigned long long)v->store_limit);
    for (int i = 0; i < v->n_amounts; i++)
        say(r, "    %s: %g of %g used\n", v->amounts[i].name, v->amounts[i].used, v->amounts[i].total);
    say_workers(r, v);
    manta_view_free(v);
}

static void say_hung(soak_report *r, const soak_program *p, int deadline_s)
{
    char line[512] = "the end";
    int op = atomic_load(&soak_shared->op);

    if (op < p->n) soak_op_print(&p->op[op], line, sizeof line);
    r->hung = true;
    say(r, "does not end: %d s are over at `%s` %s\n", deadline_s, line, soak_shared->what);
    if (!p->op[0].f[SOAK_INSIDE]) say_view(r);
}

/* ---- its processes ---- */

/* Waits until the process has ended, or its time is over; true: it has ended. */
static bool await_end(pid_t pid, int seconds)
{
    struct pollfd p = {.fd = pidfd_open(pid, 0), .events = POLLIN};
    double end = soak_now() + seconds;

    while (p.revents == 0 && soak_now() < end)
        if (poll(&p, 1, 1000) < 0 && errno != EINTR) break;
    close(p.fd);
    return p.revents != 0;
}

/* Processes that the program has left are ours now. */
static void check_orphans(soak_report *r, bool must_be_gone)
{
    double end = soak_now() + GONE_S;
    bool said = false;
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) >= 0) {
        if (pid > 0) continue;
        if (must_be_gone && !said) say(r, "processes are left after the shutdown\n");
        said = must_be_gone;
        if (soak_now() > end) {
            say(r, "processes are left %d s after the end of the program\n", GONE_S);
            return;
        }
        usleep(2000);
    }
}

static void say_end(soak_report *r, int status)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        if (atomic_load(&soak_shared->refused) && r->outcome == SOAK_GOOD) r->outcome = SOAK_REFUSED;
        return;
    }
    if (WIFSIGNALED(status))
        say(r, "ended by signal %d at operation %d\n", WTERMSIG(status), atomic_load(&soak_shared->op));
    else
        say(r, "%s\n", soak_shared->what[0] ? soak_shared->what : "ended by itself");
}

void soak_supervise(const soak_program *p, int deadline_s, soak_report *r)
{
    char folder[64], spill[96];
    double begin = soak_now();
    int status = 0;

    *r = (soak_report){.outcome = SOAK_GOOD};
    make_folder(folder, sizeof folder);
    snprintf(spill, sizeof spill, "%s/spill", folder);
    memset(soak_shared, 0, sizeof *soak_shared);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        soak_program_run(p, spill);
    }
    if (pid < 0) {
        say(r, "fork: %s\n", strerror(errno));
        remove_folder(folder);
        return;
    }
    if (!await_end(pid, deadline_s)) {
        say_hung(r, p, deadline_s);
        kill(pid, SIGKILL);
    }
    waitpid(pid, &status, 0);
    if (!r->hung) say_end(r, status);
    check_orphans(r, r->outcome == SOAK_GOOD);
    if (r->outcome == SOAK_GOOD) check_folder(r, folder, "run/manta");
    if (r->outcome == SOAK_GOOD) check_folder(r, folder, "spill");
    remove_folder(folder);
    r->seconds = soak_now() - begin;
}
