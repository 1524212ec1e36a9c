/* guest.c - a program that node.py and output.py run: `guest detach|count|drop|
 * space|print|flood|last|switch|partial [WHAT]`. What it prints is what they check. With NURSERY
 * in its environment its workers are forks of `guest nursery`. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/actor.h>
#include <manta/nursery.h>
#include <manta/task.h>

enum { LONG = 240000 }; /* ms, for what must come */

static void must(manta_status st)
{
    if (!st) return;
    printf("failed: %s\n", manta_error_text());
    exit(1);
}

/* ---- an actor that counts ---- */

static manta_status counter(manta_task *t)
{
    manta_set_self(t, calloc(1, sizeof(int64_t)), free);
    return MANTA_OK;
}
MANTA_REMOTE(counter)

static manta_status add(manta_task *t)
{
    int64_t *n = manta_self(t);

    return manta_return_i64(t, 0, ++*n);
}
MANTA_REMOTE(add)

static manta_status say_count(manta_task *t)
{
    const int64_t *n = manta_self(t);

    printf("the count is %lld\n", (long long)*n);
    return MANTA_OK;
}
MANTA_REMOTE(say_count)

static void add_once(manta_actor a)
{
    int64_t n = 0;
    manta_ref r = manta_actor_call(a, add);

    must(manta_get_i64(r, &n, LONG));
    manta_release(r);
    printf("count %lld in %d\n", (long long)n, manta_actor_pid(a));
}

static void detach(void)
{
    manta_task_options o = {.name = "counter", .detached = true, .max_restarts = 3};
    manta_actor a = manta_actor_new(&o, counter);

    add_once(a);
}

static void count(const char *space)
{
    manta_actor a;

    must(space ? manta_actor_find_in(space, "counter", &a) : manta_actor_find("counter", &a));
    add_once(a);
    manta_ref r = manta_actor_call(a, say_count);
    must(manta_get(r, LONG));
    manta_release(r);
    manta_actor_release(a);
}

static void drop(void)
{
    manta_actor a;

    must(manta_actor_find("counter", &a));
    must(manta_actor_kill(a, true));
    manta_actor_release(a);
    puts("killed");
}

/* ---- functions that print ---- */

static manta_status lines(manta_task *t)
{
    int64_t first, n;
    manta_status st;

    if ((st = manta_arg_i64(t, 0, &first)) || (st = manta_arg_i64(t, 1, &n))) return st;
    for (int64_t i = 0; i < n; i++) printf("line %lld\n", (long long)(first + i));
    return MANTA_OK;
}
MANTA_REMOTE(lines)

static manta_status other(manta_task *t)
{
    (void)t;
    puts("other");
    return MANTA_OK;
}
MANTA_REMOTE(other)

static manta_status mute(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(mute)

static manta_status to_error(manta_task *t)
{
    (void)t;
    fputs("to the error stream\n", stderr);
    return MANTA_OK;
}
MANTA_REMOTE(to_error)

static manta_status raw(manta_task *t)
{
    static const char text[] = "raw\nand the rest";
    (void)t;

    return write(1, text, sizeof text - 1) < 0 ? manta_fail(MANTA_EIO, "write") : MANTA_OK;
}
MANTA_REMOTE(raw)

static manta_status last_words(manta_task *t)
{
    (void)t;
    puts("last words");
    fflush(stdout);
    kill(getpid(), SIGKILL);
    return MANTA_OK;
}
MANTA_REMOTE(last_words)

static void get(manta_ref r)
{
    must(manta_get(r, LONG));
    manta_release(r);
}

/* One worker, functions in turn: every line must have the name of its own. */
static void switches(void)
{
    for (int i = 0; i < 50; i++) {
        get(manta_remote(lines, manta_i64(3 * i), manta_i64(3)));
        if (i % 3 == 0) get(manta_remote(mute));
        get(manta_remote(other));
    }
}

static void flood(int64_t n)
{
    manta_ref r[2] = {manta_remote(lines, manta_i64(0), manta_i64(n)),
                      manta_remote(lines, manta_i64(0), manta_i64(n))};

    must(manta_get_all(r, 2, LONG));
    manta_release_all(r, 2);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "", *what = argc > 2 ? argv[2] : NULL;
    manta_node_options o = {.name_space = getenv("SPACE"), .plain_output = getenv("PLAIN") != NULL};
    char self[4096] = "";
    const char *const nursery[] = {self, "nursery", NULL};

    if (!strcmp(name, "nursery")) return manta_nursery_run() ? 5 : 0;
    if (getenv("NURSERY") && readlink("/proc/self/exe", self, sizeof self - 1) > 0) o.nursery = nursery;
    /* A worker of its own for each function that prints: the order is then one. */
    if (getenv("CPUS")) o.num_cpus = atoi(getenv("CPUS"));
    manta_status st = manta_init(NULL, NULL, &o);
    if (st) {
        printf("init: %s\n", manta_error_text());
        return 3;
    }
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (!strcmp(name, "detach"))
        detach();
    else if (!strcmp(name, "count"))
        count(what);
    else if (!strcmp(name, "drop"))
        drop();
    else if (!strcmp(name, "switch"))
        switches();
    else if (!strcmp(name, "flood"))
        flood(what ? atoll(what) : 1000);
    else if (!strcmp(name, "raw"))
        get(manta_remote(raw));
    else if (!strcmp(name, "error"))
        get(manta_remote(to_error));
    else if (!strcmp(name, "last")) {
        manta_task_options never = {.max_retries = MANTA_NONE};
        manta_ref r = manta_remote_with(&never, last_words);
        if (manta_get(r, LONG) != MANTA_EDIED) return 4;
        manta_release(r);
    } else if (!strcmp(name, "wait")) {
        /* Until the input ends. */
        puts("waits");
        char c;
        while (read(0, &c, 1) > 0) {}
    } else {
        return 2;
    }
    manta_shutdown();
    return 0;
}
