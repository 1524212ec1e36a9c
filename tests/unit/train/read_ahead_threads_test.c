/* Rows that are read ahead: the same as those that are read when they are asked for,
 * no more than was said, and errors for who asks. Workers that read ahead: each in a
 * thread of its own, a successor too, and the bytes of one process. */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "os/thread.h"
#include "train/session/feed.h"
#include "train/group_fixture.h"

enum { BATCH = 6, STEPS = N / BATCH, LONG_MS = 60000 };

/* What happens when samples are read; shared with workers. */
typedef struct readings {
    _Atomic int of[N]; /* times that this sample was read */
    _Atomic int highest; /* of the samples read so far */
    _Atomic int bad; /* a sample that cannot be read, or -1 */
} readings;

static readings *new_readings(void)
{
    readings *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(r != MAP_FAILED);
    r->bad = -1;
    return r;
}

static manta_status note(manta_sample *s, void *user)
{
    readings *r = user;
    int at = (int)s->index, highest = atomic_load(&r->highest);

    for (int c = 0; c < 2; c++)
        memcpy(s->out[c].array.data, s->in[c].array.data, manta_array_bytes(&s->in[c].array));
    atomic_fetch_add(&r->of[at], 1);
    while (at > highest && !atomic_compare_exchange_weak(&r->highest, &highest, at)) continue;
    if (at == atomic_load(&r->bad)) return manta_fail(MANTA_EIO, "sample %d is torn", at);
    return MANTA_OK;
}

static manta_dataset *noted(readings *r)
{
    return manta_dataset_map(dataset(), note, r, 0, 0, NULL);
}

/* Waits until samples first .. end-1 have been read. */
static bool see_read(const readings *r, int first, int end)
{
    int64_t deadline = clock_deadline(LONG_MS);

    for (int i = first; i < end; i++) {
        while (!atomic_load(&r->of[i])) {
            if (clock_now_ns() > deadline) return false;
            sched_yield();
        }
    }
    return true;
}

/* ---- alone ---- */

static manta_loader *open_loader(readings *r)
{
    manta_dataset *d = noted(r);
    manta_loader *l;

    assert_ok(manta_loader_open(d, &(manta_loader_options){.batch_size = BATCH, .readers = -1}, &l));
    manta_dataset_unref(d);
    return l;
}

static void assert_rows(const manta_batch *b, const read_range *r)
{
    assert_int_equal(b->count, r->hi - r->lo);
    assert_int_equal(b->first, r->at.step * BATCH + r->lo);
    assert_memory_equal(b->columns[0].array.data, images + b->first * SIDE * SIDE,
                        (size_t)b->count * SIDE * SIDE * sizeof *images);
    assert_memory_equal(b->columns[1].array.data, labels + b->first, (size_t)b->count * sizeof *labels);
}

/* Ranges that were expected, others, one that is asked for again, and one that is
 * expected and never asked for. */
static void the_same_rows_whatever_was_expected(void **state)
{
    static const read_range asked[] = {{{0, 0}, 0, 3}, {{0, 1}, 0, 3}, {{0, 1}, 0, 3},
                                       {{0, 2}, 2, 6}, {{0, 9}, 1, 2}, {{0, 3}, 0, 6},
                                       {{0, 4}, 0, 0}, {{0, 0}, 0, 3}, {{0, 5}, 0, 6}};
    enum { ASKED = sizeof asked / sizeof *asked };
    readings *r = new_readings();
    manta_loader *l = open_loader(r);
    read_ahead *a;

    (void)state;
    assert_ok(read_ahead_start(l, NULL, &a));
    for (int wrong = 0; wrong < 2; wrong++) {
        for (int i = 0; i < ASKED; i++) {
            read_range next[READ_AHEAD_MOST] = {asked[(i + 1) % ASKED], asked[(i + 2) % ASKED]};
            manta_batch b;
            if (wrong) next[i % 2] = (read_range){{0, 7}, i % 3, 4};
            assert_ok(read_ahead_take(a, &asked[i], &b));
            read_ahead_expect(a, next, 1 + i % 2);
            assert_rows(&b, &asked[i]);
        }
    }
    read_ahead_stop(a);
    manta_loader_close(l);
    munmap(r, sizeof *r);
}

/* Two batches are read, and then nothing before one is taken. */
static void no_more_than_was_expected_is_read(void **state)
{
    readings *r = new_readings();
    manta_loader *l = open_loader(r);
    read_range at = {{0, 0}, 0, BATCH},
               next[3] = {{{0, 1}, 0, BATCH}, {{0, 2}, 0, BATCH}, {{0, 3}, 0, BATCH}};
    read_ahead *a;
    manta_batch b;

    (void)state;
    assert_ok(read_ahead_start(l, NULL, &a));
    assert_ok(read_ahead_take(a, &at, &b));
    read_ahead_expect(a, next, 3);
    assert_true(see_read(r, 0, 3 * BATCH));
    assert_ok(read_ahead_take(a, &next[0], &b));
    assert_ok(read_ahead_take(a, &next[1], &b));
    assert_rows(&b, &next[1]);
    assert_int_equal(r->highest, 3 * BATCH - 1);
    for (int i = 0; i < 3 * BATCH; i++) assert_int_equal(r->of[i], 1);
    read_ahead_stop(a);
    manta_loader_close(l);
    munmap(r, sizeof *r);
}

static void an_error_is_for_who_asks(void **state)
{
    readings *r = new_readings();
    manta_loader *l = open_loader(r);
    read_range good = {{0, 0}, 0, BATCH}, bad = {{0, 1}, 0, BATCH}, none = {{0, STEPS}, 0, BATCH};
    read_ahead *a;
    manta_batch b;

    (void)state;
    r->bad = BATCH + 2;
    assert_ok(read_ahead_start(l, NULL, &a));
    assert_ok(read_ahead_take(a, &good, &b));
    read_ahead_expect(a, (read_range[]){bad, none}, 2);
    assert_true(see_read(r, BATCH, BATCH + 3));
    assert_ok(read_ahead_take(a, &good, &b));
    assert_rows(&b, &good);
    assert_int_equal(read_ahead_take(a, &bad, &b), MANTA_EIO);
    assert_error_says("sample 8 is torn");
    assert_int_equal(read_ahead_take(a, &none, &b), MANTA_EINVAL);
    assert_ok(read_ahead_take(a, &good, &b));
    read_ahead_stop(a);
    manta_loader_close(l);
    munmap(r, sizeof *r);
}

/* A reader that is held up while it reads what nobody waits for counts as busy, and no
 * more when somebody does. */
static _Atomic bool held;

static manta_status hold(manta_sample *s, void *user)
{
    MANTA_TRY(note(s, user));
    while (s->index == BATCH && atomic_load(&held)) sched_yield();
    return MANTA_OK;
}

static void release(void *ctx)
{
    const _Atomic uint32_t *busy = ctx;

    while (atomic_load(busy)) sched_yield(); /* until the caller waits */
    atomic_store(&held, false);
}

static void who_reads_ahead_is_counted(void **state)
{
    readings *r = new_readings();
    manta_dataset *d = manta_dataset_map(dataset(), hold, r, 0, 0, NULL);
    read_range at = {{0, 0}, 0, BATCH}, next = {{0, 1}, 0, BATCH};
    _Atomic uint32_t busy = 0;
    thread_id releaser;
    manta_loader *l;
    read_ahead *a;
    manta_batch b;

    (void)state;
    assert_ok(manta_loader_open(d, &(manta_loader_options){.batch_size = BATCH, .readers = MANTA_NONE}, &l));
    manta_dataset_unref(d);
    atomic_store(&held, true);
    assert_ok(read_ahead_start(l, &busy, &a));
    assert_ok(read_ahead_take(a, &at, &b));
    assert_int_equal(busy, 0); /* it was waited for */
    read_ahead_expect(a, &next, 1);
    assert_true(see_read(r, BATCH, BATCH + 1));
    assert_int_equal(busy, 1);
    assert_ok(thread_start(&releaser, "releaser", release, &busy));
    assert_ok(read_ahead_take(a, &next, &b));
    thread_join(&releaser);
    assert_rows(&b, &next);
    read_ahead_stop(a);
    assert_int_equal(busy, 0);
    manta_loader_close(l);
    munmap(r, sizeof *r);
}

/* ---- workers ---- */

/* Threads of a process that read ahead. */
static int count_readers(int64_t pid)
{
    char path[64], name[512], text[32];
    struct dirent *e;
    int n = 0;
    DIR *d;

    snprintf(path, sizeof path, "/proc/%lld/task", (long long)pid);
    if (!(d = opendir(path))) return 0;
    while ((e = readdir(d))) {
        FILE *f;
        snprintf(name, sizeof name, "%s/%s/comm", path, e->d_name);
        if (!(f = fopen(name, "r"))) continue;
        n += fgets(text, sizeof text, f) && !strcmp(text, "manta-ahead\n");
        fclose(f);
    }
    closedir(d);
    return n;
}

enum { EPOCHS = 100, KILL_STEP = 5, ENOUGH_STEPS = 4 };

typedef struct watcher {
    readings *r;
    int before[N]; /* times that a sample was read before the epoch came near it */
    int64_t pid[2]; /* of the workers */
    int64_t samples; /* of rank 1, so far */
    int in_a_row; /* steps in which rank 1 took part, up to now and since the kill */
    int ahead, recovered, late, early, readers_here, readers_of_none;
    bool kills, killed, looked_again;
} watcher;

/* Waits until samples first .. end-1 have been read in this epoch. */
static bool see_read_again(const watcher *w, int first, int end)
{
    int64_t deadline = clock_deadline(LONG_MS);

    for (int i = first; i < end; i++) {
        while (atomic_load(&w->r->of[i]) == w->before[i]) {
            if (clock_now_ns() > deadline) return false;
            sched_yield();
        }
    }
    return true;
}

/* While step k is looked at, step k + 1 is computed and waits; what comes behind it can
 * only be read ahead. */
static void look_ahead(watcher *w, int k)
{
    if (see_read_again(w, (k + 1) * BATCH, (k + 3) * BATCH))
        w->ahead++;
    else
        w->late++;
    for (int i = 0; i < 2; i++) w->readers_of_none += count_readers(w->pid[i]) != 1;
}

/* A successor comes when it can, and the other worker goes on without it meanwhile; it
 * reads ahead after it has taken part in two steps. */
static void count_steps_of_rank_1(watcher *w, const manta_session *s)
{
    manta_worker_work work = {0};

    if (!manta_session_worker_work(s, 1, &work)) return;
    w->in_a_row = w->killed && work.samples != w->samples ? w->in_a_row + 1 : 0;
    w->samples = work.samples;
}

/* One of the workers is killed in the middle of the first epoch. */
static bool look(void *user, manta_session *s, const manta_event *e)
{
    watcher *w = user;
    int k = (int)e->step;

    w->recovered += e->kind == MANTA_EVENT_RECOVERED;
    if (e->kind == MANTA_EVENT_WORKER) w->pid[e->rank] = e->pid;
    if (e->kind != MANTA_EVENT_STEP) return true;
    w->readers_here += count_readers(getpid());
    count_steps_of_rank_1(w, s);
    if (k == 1) { /* nobody is beyond step 4 of the epoch */
        for (int i = 5 * BATCH; i < N; i++) w->before[i] = atomic_load(&w->r->of[i]);
    }
    if (e->epoch == 0 && k == 4) {
        look_ahead(w, k);
        if (!w->killed && atomic_load(&w->r->highest) >= (k + 3) * BATCH) w->early++;
    }
    if (w->kills && !w->killed && k == KILL_STEP) {
        w->killed = true;
        kill((pid_t)w->pid[1], SIGKILL);
    }
    if (!w->looked_again && w->in_a_row >= ENOUGH_STEPS && k >= 4 && k <= STEPS - 4) {
        w->looked_again = true;
        look_ahead(w, k);
    }
    return true;
}

static void train_watched(bool kills)
{
    training t = {.shards = 2, .global_batch = BATCH, .no_shuffle = true, .epochs = EPOCHS, .hard = true};
    outcome golden = train(&t), o;
    watcher w = {.r = new_readings(), .kills = kills};

    t.workers = 2;
    t.data = noted(w.r);
    t.event = look;
    t.user = &w;
    o = train(&t);
    assert_same_outcome(&golden, &o);
    assert_int_equal(w.late, 0);
    assert_int_equal(w.ahead, kills ? 2 : 1);
    assert_int_equal(w.early, 0);
    assert_int_equal(w.recovered, kills);
    assert_int_equal(w.readers_here, 0);
    assert_int_equal(w.readers_of_none, 0);
    assert_childless();
    munmap(w.r, sizeof *w.r);
    mem_try_free(golden.state);
    mem_try_free(o.state);
}

static void workers_read_ahead(void **state)
{
    (void)state;
    train_watched(false);
}

static void a_successor_reads_ahead_too(void **state)
{
    (void)state;
    train_watched(true);
}

/* ---- what is measured ---- */

enum { READ_NS = 200000 }; /* that a sample takes to be read, at the least */

/* As decoding does, it keeps the processor busy. */
static manta_status take_long(manta_sample *s, void *user)
{
    int64_t end = clock_now_ns() + READ_NS;

    while (clock_now_ns() < end) continue;
    return note(s, user);
}

typedef struct measured {
    int ranks; /* that have measured something */
    manta_worker_work of[2];
} measured;

static bool look_at_work(void *user, manta_session *s, const manta_event *e)
{
    measured *m = user;

    if (e->kind != MANTA_EVENT_STEP || e->step < e->steps) return true;
    for (m->ranks = 0; m->ranks < 2 && manta_session_worker_work(s, m->ranks, &m->of[m->ranks]);) m->ranks++;
    return true;
}

/* Trains one epoch with data that take long to read. */
static measured measure_slow_data(int workers, int64_t slow_ns)
{
    int64_t before = feed_slow_ns;
    readings *r = new_readings();
    measured m = {0};
    training t = {.workers = workers, .shards = 2, .global_batch = BATCH, .no_shuffle = true, .epochs = 1};
    outcome o;

    feed_slow_ns = slow_ns;
    t.data = manta_dataset_map(dataset(), take_long, r, 0, 0, NULL);
    t.event = look_at_work;
    t.user = &m;
    o = train(&t);
    feed_slow_ns = before;
    mem_try_free(o.state);
    munmap(r, sizeof *r);
    return m;
}

static void assert_adds_up(const manta_worker_work *w)
{
    assert_true(w->seconds > 0);
    assert_true(w->data_seconds > 0);
    assert_true(w->update_seconds >= 0 && w->wait_seconds >= 0);
    assert_true(w->data_seconds + w->update_seconds <= w->seconds);
}

/* Whoever does not read ahead waits for every sample as long as reading it takes. */
static void workers_measure_what_they_wait_for(void **state)
{
    measured m = measure_slow_data(2, INT64_MAX);

    (void)state;
    assert_int_equal(m.ranks, 2);
    assert_int_equal(m.of[0].samples + m.of[1].samples, N);
    for (int i = 0; i < 2; i++) {
        assert_adds_up(&m.of[i]);
        assert_true(m.of[i].data_seconds >= (double)m.of[i].samples * READ_NS / 1e9);
        assert_true(m.of[i].update_seconds > 0);
    }
}

static void one_process_measures_as_rank_0(void **state)
{
    measured m = measure_slow_data(0, INT64_MAX);

    (void)state;
    assert_int_equal(m.ranks, 1);
    assert_int_equal(m.of[0].samples, N);
    assert_adds_up(&m.of[0]);
}

static int read_ahead_always(void **state)
{
    (void)state;
    feed_slow_ns = 0;
    make_data();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_rows_whatever_was_expected),
        cmocka_unit_test(no_more_than_was_expected_is_read),
        cmocka_unit_test(an_error_is_for_who_asks),
        cmocka_unit_test(who_reads_ahead_is_counted),
        cmocka_unit_test(workers_read_ahead),
        cmocka_unit_test(a_successor_reads_ahead_too),
        cmocka_unit_test(workers_measure_what_they_wait_for),
        cmocka_unit_test(one_process_measures_as_rank_0),
    };

    return cmocka_run_group_tests(tests, read_ahead_always, NULL);
}
