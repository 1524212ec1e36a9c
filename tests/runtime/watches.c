/* watches.c - references in an event loop: every token comes once, whoever makes the object and
 * whatever becomes of it, and the descriptor is readable exactly while there are some. */
#include <poll.h>
#include <pthread.h>

#include <manta/watch.h>

#include "scenario.h"

enum { MANY = 300, THREADS = 3, EACH = 200 };

static bool is_readable(const manta_watch *w, int timeout_ms)
{
    struct pollfd p = {manta_watch_fd(w), POLLIN, 0};

    return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}

/* Waits, in poll alone, for n tokens; seen[token] counts each. */
static void take_all(manta_watch *w, size_t n, int *seen)
{
    uint64_t tokens[7];
    size_t k;

    while (n > 0) {
        CHECK(is_readable(w, LONG));
        OK(manta_watch_take(w, tokens, n < 7 ? n : 7, &k));
        CHECK(k >= 1);
        for (size_t i = 0; i < k; i++) seen[tokens[i]]++;
        n -= k;
    }
}

static void check_empty(manta_watch *w)
{
    uint64_t token;
    size_t k = 1;

    CHECK(!is_readable(w, 0));
    OK(manta_watch_take(w, &token, 1, &k));
    CHECK(k == 0);
}

/* Results of workers, while this program does nothing but poll. */
static void results(manta_watch *w)
{
    manta_ref r[MANY];
    int seen[MANY] = {0};

    for (int i = 0; i < MANY; i++) {
        r[i] = manta_remote(add, manta_f64(i), manta_f64(1));
        OK(manta_watch_add(w, r[i], (uint64_t)i));
    }
    take_all(w, MANY, seen);
    for (int i = 0; i < MANY; i++) {
        double x;
        CHECK(seen[i] == 1);
        OK(manta_get_f64(r[i], &x, 0)); /* it is there */
        CHECK(x == i + 1);
        manta_release(r[i]);
    }
    check_empty(w);
}

/* One that is there, one that failed, one that is added twice, and one that is released. */
static void kinds(manta_watch *w)
{
    const manta_ref there = manta_put(manta_i64(1)), bad = manta_remote(fail),
                    gone = manta_remote(add, manta_f64(1), manta_f64(2));
    int seen[5] = {0};

    OK(manta_watch_add(w, there, 0));
    CHECK(is_readable(w, 0));
    OK(manta_watch_add(w, bad, 1));
    OK(manta_watch_add(w, there, 2));
    OK(manta_watch_add(w, gone, 3));
    OK(manta_watch_add(w, gone, 4));
    manta_release(gone);
    take_all(w, 5, seen);
    for (int i = 0; i < 5; i++) CHECK(seen[i] == 1);
    CHECK(manta_get(bad, 0) == MANTA_ENAN);
    check_empty(w);
    CHECK(manta_watch_add(w, gone, 9) == MANTA_EINVAL);
    SAYS("none, or was released");
    manta_release(there);
    manta_release(bad);
}

/* A worker that dies, a call that is cancelled, an object of another process. */
static void deaths(manta_watch *w)
{
    const manta_task_options once = {.max_retries = MANTA_NONE};
    const manta_ref dead = manta_remote_with(&once, die), cancelled = manta_remote(linger);
    int seen[2] = {0};

    OK(manta_watch_add(w, dead, 0));
    OK(manta_watch_add(w, cancelled, 1));
    OK(manta_cancel(cancelled, 0));
    take_all(w, 2, seen);
    CHECK(seen[0] == 1 && seen[1] == 1);
    CHECK(manta_get(dead, 0) == MANTA_EDIED && manta_get(cancelled, 0) == MANTA_ECANCELLED);
    manta_release(dead);
    manta_release(cancelled);
}

/* Threads add, one takes, others wait for the same in manta_get(). */
typedef struct adder {
    manta_watch *w;
    int number;
} adder;

static void *add_some(void *arg)
{
    const adder *a = arg;

    for (int i = 0; i < EACH; i++) {
        const manta_ref r = manta_remote(add, manta_f64(i), manta_f64(0));
        OK(manta_watch_add(a->w, r, (uint64_t)(a->number * EACH + i)));
        if (i % 3 == 0) OK(manta_get(r, LONG));
        manta_release(r);
    }
    return NULL;
}

static void threads(manta_watch *w)
{
    pthread_t t[THREADS];
    adder a[THREADS];
    int seen[THREADS * EACH] = {0};

    for (int i = 0; i < THREADS; i++) {
        a[i] = (adder){w, i};
        CHECK(pthread_create(&t[i], NULL, add_some, &a[i]) == 0);
    }
    take_all(w, THREADS * EACH, seen);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(t[i], NULL) == 0);
    for (int i = 0; i < THREADS * EACH; i++) CHECK(seen[i] == 1);
    check_empty(w);
}

/* Freed while it waits; and one that the end of the runtime finds. */
static void ends(manta_watch *left)
{
    manta_watch *w;
    const manta_ref r = manta_remote(linger), s = manta_remote(linger);

    OK(manta_watch_new(&w));
    OK(manta_watch_add(w, r, 1));
    OK(manta_watch_add(left, s, 2));
    manta_watch_free(w);
    OK(manta_cancel(r, 0));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED);
    manta_release(r);
    manta_shutdown();
    CHECK(manta_watch_add(left, s, 3) != MANTA_OK);
    CHECK(!is_readable(left, 0));
}

void scenario_watches(void)
{
    manta_watch *w;

    OK(manta_watch_new(&w));
    results(w);
    kinds(w);
    if (!inside) deaths(w);
    threads(w);
    if (!inside) ends(w);
    manta_watch_free(w);
}
