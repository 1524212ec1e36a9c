/* nursery_other.c - a small program for nursery.c: a nursery that works, or one that does not.
 * `runtime_nursery_other HOW`, see main(). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <manta/nursery.h>
#include <manta/task.h>

/* ---- what its hooks have seen ---- */

static struct {
    int before, after, child, begun;
    char environment[64];
} seen;
static int user;

static void before_fork(void *ctx)
{
    seen.before += ctx == &user;
}

static void after_fork_parent(void *ctx)
{
    seen.after += ctx == &user;
}

static manta_status after_fork_child(void *ctx, const char *environment)
{
    struct sigaction now;

    seen.child += ctx == &user;
    snprintf(seen.environment, sizeof seen.environment, "%s", environment ? environment : "(plain)");
    for (int s = 1; s < 32; s++)
        if (sigaction(s, NULL, &now) == 0 && now.sa_handler != SIG_DFL)
            return manta_fail(MANTA_EINTERNAL, "signal %d is not at its default", s);
    if (environment && !strncmp(environment, "no ", 3))
        return manta_fail(MANTA_EUNSUPPORTED, "there is %s here", environment);
    return MANTA_OK;
}

static manta_status refuse_to_work(void *ctx, const char *environment)
{
    (void)ctx;
    (void)environment;
    return manta_fail(MANTA_EUNSUPPORTED, "this hook refuses to work");
}

/* "before after child environment" */
static manta_status hooks_seen(manta_task *t)
{
    char text[128];

    snprintf(text, sizeof text, "%d %d %d %s", seen.before, seen.after, seen.child, seen.environment);
    return manta_return(t, 0, manta_str(text));
}
MANTA_REMOTE(hooks_seen)

/* "environment pid" of the worker that it runs in */
static manta_status whereabouts(manta_task *t)
{
    char text[128];

    snprintf(text, sizeof text, "%s %d", seen.environment, (int)getpid());
    return manta_return(t, 0, manta_str(text));
}
MANTA_REMOTE(whereabouts)

/* The same of a call that it makes, in the environment that it is given. */
static manta_status whereabouts_below(manta_task *t)
{
    const char *environment, *found;
    char text[300];

    MANTA_TRY(manta_arg_str(t, 0, &environment));
    manta_ref r = manta_remote_with(&(manta_task_options){.environment = environment}, whereabouts);
    manta_status st = manta_get_str(r, &found, MANTA_FOREVER);
    if (!st) {
        snprintf(text, sizeof text, "%s %d, %s", seen.environment, (int)getpid(), found);
        st = manta_return(t, 0, manta_str(text));
    }
    manta_release(r);
    return st;
}
MANTA_REMOTE(whereabouts_below)

static const char *how = "";

/* "HOW pid", of the nursery that the worker was forked from */
static manta_status descent(manta_task *t)
{
    char text[128];

    snprintf(text, sizeof text, "%s %d", how, (int)getppid());
    return manta_return(t, 0, manta_str(text));
}
MANTA_REMOTE(descent)

static manta_status die_once(manta_task *t)
{
    if (manta_task_attempt(t) == 0) raise(SIGKILL);
    return whereabouts(t);
}
MANTA_REMOTE(die_once)

static manta_status settler(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(settler)

/* ---- functions that the driver has not ---- */

static manta_status sum(manta_task *t)
{
    double a, b;

    MANTA_TRY(manta_arg_f64(t, 0, &a));
    MANTA_TRY(manta_arg_f64(t, 1, &b));
    return manta_return_f64(t, 0, a + b);
}
MANTA_REMOTE(sum)

static manta_status pid_of_worker(manta_task *t)
{
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(pid_of_worker)

static manta_status variable(manta_task *t)
{
    const char *name;

    MANTA_TRY(manta_arg_str(t, 0, &name));
    const char *value = getenv(name);
    return manta_return(t, 0, manta_str(value ? value : "(none)"));
}
MANTA_REMOTE(variable)

static manta_status working_folder(manta_task *t)
{
    char path[4096];

    if (!getcwd(path, sizeof path)) return manta_fail(MANTA_EIO, "getcwd: %s", strerror(errno));
    return manta_return(t, 0, manta_str(path));
}
MANTA_REMOTE(working_folder)

/* ---- nurseries that are none ---- */

/* Finds its connection, as manta_nursery_run() does. */
static int connection(void)
{
    const char *text = getenv("MANTA_NURSERY");

    return text ? atoi(text) : -1;
}

static void begin_again_later(void)
{
    FILE *f = fopen(getenv("NURSERY_MARK"), "r");

    if (f) exit(7); /* the second time */
    f = fopen(getenv("NURSERY_MARK"), "w");
    if (f) fclose(f);
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "";
    manta_hooks hooks = {.user = &user,
                         .before_fork = before_fork,
                         .after_fork_parent = after_fork_parent,
                         .after_fork_child = after_fork_child};

    if (!strcmp(how, "exits")) return 3;
    if (!strcmp(how, "is-killed")) raise(SIGKILL);
    if (!strcmp(how, "sleeps"))
        for (;;) pause();
    if (!strcmp(how, "closes")) {
        close(connection());
        for (;;) pause();
    }
    if (!strcmp(how, "lies")) {
        (void)!send(connection(), "this is no greeting", 19, 0);
        for (;;) pause();
    }
    if (!strcmp(how, "prints")) { /* what it says on its output is nobody's business */
        for (int i = 0; i < 1000; i++) printf("%c%d garbage\n", 1 + i % 200, i);
        fflush(stdout);
    }
    if (!strcmp(how, "once")) begin_again_later();
    if (!strcmp(how, "refuses")) hooks.after_fork_child = refuse_to_work;
    if (!strcmp(how, "catches")) signal(SIGUSR1, SIG_IGN); /* workers do not have it */
    manta_set_hooks(&hooks);
    manta_status st = manta_nursery_run();
    fprintf(stderr, "no nursery: %s: %s\n", manta_status_name(st), manta_error_text());
    return 1;
}
