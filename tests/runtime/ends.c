/* ends.c - actors that end themselves, and the concurrency groups whose calls they finish before. */
#include <pthread.h>
#include <signal.h>

#include <manta/actor.h>
#include <manta/failure.h>

#include "scenario.h"

/* Calls of one process meet: each waits until so many have come, or are let go. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int here, most;
    bool is_open;
} gate;

static gate door = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* The path that its end makes a file of; "": none. */
static char end_path[128];

static void en_end(void *self)
{
    (void)self;
    if (end_path[0] && touch(end_path)) abort();
}

/* en_actor(path, how): how "leaves" in the constructor. */
static manta_status en_actor(manta_task *t)
{
    const char *path, *how;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    MANTA_TRY(manta_arg_str(t, 1, &how));
    snprintf(end_path, sizeof end_path, "%s", path);
    manta_set_self(t, &door, en_end);
    return strcmp(how, "leaves") ? MANTA_OK : manta_exit_actor(t);
}
MANTA_REMOTE(en_actor)

static manta_status en_pid(manta_task *t)
{
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(en_pid)

/* Leaves, and returns as if it did not. */
static manta_status en_leave(manta_task *t)
{
    MANTA_TRY(manta_exit_actor(t));
    MANTA_TRY(manta_exit_actor(t)); /* says nothing new */
    return manta_return_i64(t, 0, 1);
}
MANTA_REMOTE(en_leave)

static void *leave_from_thread(void *arg)
{
    *(manta_status *)arg = manta_exit_actor(NULL);
    return NULL;
}

static manta_status en_leave_by_thread(manta_task *t)
{
    pthread_t id;
    manta_status st = MANTA_EBUSY;

    if (pthread_create(&id, NULL, leave_from_thread, &st) || pthread_join(id, NULL) || st)
        return manta_fail(MANTA_EINTERNAL, "a thread of the actor cannot end it: %s", manta_error_text());
    return manta_return_i64(t, 0, 5);
}
MANTA_REMOTE(en_leave_by_thread)

/* en_task(): a task, in which nothing can be left. */
static manta_status en_task(manta_task *t)
{
    manta_actor a;

    if (manta_exit_actor(t) != MANTA_EINVAL || !strstr(manta_error_text(), "no actor here") ||
        manta_actor_here(t, &a) != MANTA_EINVAL || manta_actor_here(NULL, &a) != MANTA_EINVAL)
        return manta_fail(MANTA_EINTERNAL, "a task has left an actor");
    return MANTA_OK;
}
MANTA_REMOTE(en_task)

/* en_here(): a handle of the actor itself. */
static manta_status en_here(manta_task *t)
{
    manta_actor a;

    MANTA_TRY(manta_actor_here(t, &a));
    manta_status st = manta_return(t, 0, manta_handle(a));
    manta_actor_release(a);
    return st;
}
MANTA_REMOTE(en_here)

/* en_wait(x): tells that it is here, and waits until the door is open. Returns x, or fails if it is negative. */
static manta_status en_wait(manta_task *t)
{
    int64_t x;

    MANTA_TRY(manta_arg_i64(t, 0, &x));
    pthread_mutex_lock(&door.lock);
    if (++door.here > door.most) door.most = door.here;
    while (!door.is_open) pthread_cond_wait(&door.changed, &door.lock);
    door.here--;
    pthread_mutex_unlock(&door.lock);
    return x < 0 ? manta_fail(MANTA_ENAN, "number %d is none", (int)x) : manta_return_i64(t, 0, x);
}
MANTA_REMOTE(en_wait)

static manta_status en_wait_too(manta_task *t)
{
    return en_wait(t);
}
MANTA_REMOTE(en_wait_too)

/* en_open(): lets those go that wait, and all that come. */
static manta_status en_open(manta_task *t)
{
    pthread_mutex_lock(&door.lock);
    int most = door.most;
    door.is_open = true;
    pthread_cond_broadcast(&door.changed);
    pthread_mutex_unlock(&door.lock);
    return manta_return_i64(t, 0, most);
}
MANTA_REMOTE(en_open)

/* en_count(): how many wait. */
static manta_status en_count(manta_task *t)
{
    pthread_mutex_lock(&door.lock);
    int n = door.here;
    pthread_mutex_unlock(&door.lock);
    return manta_return_i64(t, 0, n);
}
MANTA_REMOTE(en_count)

/* en_fill(): something of which a ring holds few. */
static manta_status en_fill(manta_task *t)
{
    static const char bytes[8000];

    return manta_return(t, 0, manta_bytes(bytes, sizeof bytes));
}
MANTA_REMOTE(en_fill)

static manta_status en_group(manta_task *t)
{
    return manta_return(t, 0, manta_str(manta_task_group(t)));
}
MANTA_REMOTE(en_group)

static int64_t number(manta_ref r)
{
    int64_t x;

    OK(manta_get_i64(r, &x, LONG));
    manta_release(r);
    return x;
}

static manta_actor actor_of(const manta_task_options *o, const char *end, const char *how)
{
    return manta_actor_new(o, en_actor, manta_str(end ? path_of(end) : ""), manta_str(how));
}

static void expect_left(manta_ref r)
{
    CHECK(manta_get(r, LONG) == MANTA_EDIED);
    SAYS("it has called manta_exit_actor()");
    CHECK(failure_of(r).kind == MANTA_FAILURE_ACTOR);
    manta_release(r);
}

static void until_gone(int process)
{
    while (kill(process, 0) == 0) usleep(500);
}

static void leaves_in_a_call(void)
{
    manta_task_options lives = {.max_restarts = MANTA_UNLIMITED, .max_task_retries = MANTA_UNLIMITED};
    manta_actor a = actor_of(&lives, "ended", "stays");
    int process = (int)number(manta_actor_call(a, en_pid));

    expect_left(manta_actor_call(a, en_leave));
    CHECK(access(path_of("ended"), F_OK) == 0 || inside); /* its end comes first */
    expect_left(manta_actor_call(a, en_pid));
    until_there("ended");
    if (!inside) until_gone(process);
    expect_left(manta_actor_call(a, en_pid)); /* is not restarted */
    manta_actor_release(a);
}

static void leaves_in_its_constructor(void)
{
    manta_actor a = actor_of(NULL, inside ? NULL : "ended-early", "leaves");

    expect_left(manta_actor_call(a, en_pid));
    if (!inside) until_there("ended-early");
    manta_actor_release(a);
}

static void leaves_by_a_thread(void)
{
    manta_actor a = actor_of(NULL, "ended-by-thread", "stays");
    int process = (int)number(manta_actor_call(a, en_pid));

    CHECK(number(manta_actor_call(a, en_leave_by_thread)) == 5); /* it did not leave itself */
    until_there("ended-by-thread");
    until_gone(process);
    expect_left(manta_actor_call(a, en_pid));
    manta_actor_release(a);
}

/* What was finished before is heard of, also by a caller that reads late. */
static void leaves_before_it_is_heard(void)
{
    enum { CALLS = 100 };
    manta_actor a = actor_of(NULL, "ended-unheard", "stays");
    manta_ref r[CALLS];

    for (int i = 0; i < CALLS; i++) r[i] = manta_actor_call(a, en_fill);
    manta_ref left = manta_actor_call(a, en_leave);
    until_there("ended-unheard"); /* without a look at what has come */
    for (int i = 0; i < CALLS; i++) OK(manta_get(r[i], LONG));
    manta_release_all(r, CALLS);
    expect_left(left);
    manta_actor_release(a);
}

static void knows_itself(void)
{
    manta_actor a = actor_of(NULL, NULL, "stays"), same;
    manta_arg value;
    manta_array unused;
    int64_t process = number(manta_actor_call(a, en_pid));
    manta_ref r = manta_actor_call(a, en_here);

    OK(manta_get_value(r, &value, &unused, LONG));
    same.id = value.as.id;
    CHECK(value.kind == MANTA_KIND_ACTOR && same.id == a.id);
    manta_actor_release(a);
    CHECK(number(manta_actor_call(same, en_pid)) == process);
    manta_release(r);
}

void scenario_exits(void)
{
    folder_make();
    leaves_in_a_call();
    leaves_in_its_constructor();
    if (!inside) leaves_by_a_thread();
    leaves_before_it_is_heard();
    knows_itself();
    manta_ref r = manta_remote(en_task);
    OK(manta_get(r, LONG));
    manta_release(r);
    CHECK(manta_exit_actor(NULL) == MANTA_EINVAL);
    CHECK(manta_actor_here(NULL, NULL) == MANTA_EINVAL);
    folder_remove();
    until_nothing_is_held();
}

static void until_waiting(manta_actor a, int n)
{
    while (number(manta_actor_call_with(a, &(manta_task_options){.concurrency_group = "look"}, en_count)) < n)
        usleep(500);
}

/* What runs is finished, well or badly; what waits for a place, and what comes, is not begun. */
void scenario_exits_while_called(void)
{
    enum { RUNNING = 4, WAITING = 6 };
    manta_task_options o = {.max_concurrency = RUNNING, .concurrency_groups = "look=1"};
    const manta_task_options look = {.concurrency_group = "look"};
    manta_ref r[RUNNING + WAITING];

    folder_make();
    manta_actor a = actor_of(&o, "ended", "stays");
    for (int i = 0; i < RUNNING; i++) r[i] = manta_actor_call(a, en_wait, manta_i64(i == 2 ? -1 : i));
    until_waiting(a, RUNNING);
    for (int i = RUNNING; i < RUNNING + WAITING; i++) r[i] = manta_actor_call(a, en_wait, manta_i64(i));
    manta_ref opened = manta_actor_call_with(a, &look, en_open);
    expect_left(manta_actor_call_with(a, &look, en_leave)); /* behind it, on the one place there is */
    for (int i = 0; i < RUNNING; i++) {
        int64_t x = -1;
        manta_status st = manta_get_i64(r[i], &x, LONG);
        CHECK(i == 2 ? st == MANTA_ENAN : !st && x == i);
    }
    for (int i = RUNNING; i < RUNNING + WAITING; i++) { /* the door was open: some may have been quick */
        manta_status st = manta_get(r[i], LONG);
        CHECK(!st || (st == MANTA_EDIED && failure_of(r[i]).kind == MANTA_FAILURE_ACTOR));
    }
    manta_release_all(r, RUNNING + WAITING);
    OK(manta_get(opened, LONG));
    manta_release(opened);
    expect_left(manta_actor_call(a, en_pid));
    until_there("ended");
    manta_actor_release(a);
    folder_remove();
}

static void expect_group(manta_ref r, const char *name)
{
    const char *got;

    OK(manta_get_str(r, &got, LONG));
    CHECK(!strcmp(got, name));
    manta_release(r);
}

static void has_places_of_its_own(manta_actor a)
{
    enum { CALLS = 5 };
    const manta_task_options look = {.concurrency_group = "look"}, slow = {.concurrency_group = "slow"};
    manta_ref r[3 * CALLS];
    int n = 0;

    /* Two of "slow", by their method or by name, one of "two", and one that is in no group: all places are
     * taken, and "look" has one of its own. */
    for (int i = 0; i < CALLS; i++) r[n++] = manta_actor_call(a, en_wait_too, manta_i64(i));
    for (int i = 0; i < CALLS; i++) r[n++] = manta_actor_call_with(a, &slow, en_wait, manta_i64(i));
    for (int i = 0; i < CALLS; i++) r[n++] = manta_actor_call(a, en_wait, manta_i64(i));
    until_waiting(a, 3);
    int64_t most = number(manta_actor_call_with(a, &look, en_open));
    CHECK(most == 3);
    OK(manta_get_all(r, (size_t)n, LONG));
    manta_release_all(r, (size_t)n);
}

static void refuses(const char *groups, const char *methods, const char *why)
{
    manta_task_options o = {.concurrency_groups = groups, .method_groups = methods};
    manta_actor a = actor_of(&o, NULL, "stays");
    manta_ref r = manta_actor_call(a, en_pid);

    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    SAYS(why);
    manta_release(r);
    manta_actor_release(a);
}

void scenario_concurrency_groups(void)
{
    manta_task_options o = {.concurrency_groups = "slow=2,look=1", .method_groups = "en_wait_too=slow"};
    const manta_task_options look = {.concurrency_group = "look"}, none = {.concurrency_group = "none"};
    manta_actor a = actor_of(&o, NULL, "stays");

    expect_group(manta_actor_call(a, en_group), "");
    expect_group(manta_actor_call_with(a, &look, en_group), "look");
    manta_ref r = manta_actor_call_with(a, &none, en_group);
    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    SAYS("the concurrency group none, which its actor does not have");
    manta_release(r);
    has_places_of_its_own(a);
    manta_actor_release(a);
    refuses("slow", NULL, "is no name=value");
    refuses("slow=0", NULL, "lets 0 calls run at once");
    refuses("slow=1,slow=2", NULL, "is named twice");
    refuses("slow=1", "en_wait=fast", "the concurrency group fast");
    until_nothing_is_held();
}
