/* objects.c - scenarios of objects that do not fit into memory, are pinned,
 * outlive their makers, or are lost; a program of its own beside program.c. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <manta/context.h>
#include <manta/failure.h>
#include <manta/packed.h>

#include "scenario.h"

enum { MB = 1 << 20, LARGE = 8 * MB };

static manta_array bytes_of(int64_t n, void *at)
{
    return manta_array_of(MANTA_DTYPE_U8, 1, &n, at);
}

/* Every page of an object says which it is. */
static void fill(void *at, int64_t n, int which)
{
    memset(at, which & 255, (size_t)n);
    for (int64_t i = 0; i + 4096 <= n; i += 4096) memcpy((char *)at + i, &which, sizeof which);
}

static bool is_filled(const void *at, int64_t n, int which)
{
    int seen;

    for (int64_t i = 0; i + 4096 <= n; i += 4096) {
        memcpy(&seen, (const char *)at + i, sizeof seen);
        if (seen != which || ((const unsigned char *)at)[i + 4095] != (which & 255)) return false;
    }
    return true;
}

static manta_ref put_filled(int64_t n, int which)
{
    static char from[LARGE];

    fill(from, n, which);
    manta_array a = bytes_of(n, from);
    return manta_put(manta_elements(&a));
}

static bool reads_as(manta_ref r, int which)
{
    manta_array a;

    return manta_get_array(r, &a, LONG) == MANTA_OK && is_filled(a.data, a.shape[0], which);
}

static manta_node_info info(void)
{
    manta_node_info n;

    OK(manta_node_get(&n));
    return n;
}

/* Waits until the node says so. */
static void until_empty(void)
{
    double begin = now();

    while (info().objects > 0 || info().spill_used > 0) CHECK(now() - begin < LONG / 1000);
}

/* ---- remote functions ---- */

/* An array of LARGE bytes, filled with its argument. */
static manta_status make(manta_task *t)
{
    int64_t which, n = LARGE;
    manta_array a;
    manta_status st = manta_arg_i64(t, 0, &which);

    if (!st) st = manta_return_create(t, 0, MANTA_DTYPE_U8, 1, &n, &a);
    if (!st) fill(a.data, n, (int)which);
    return st;
}
MANTA_REMOTE(make)

/* What its arguments are filled with, added up. */
static manta_status sum(manta_task *t)
{
    int64_t total = 0;

    for (int i = 0; i < manta_args(t); i++) {
        manta_array a;
        int which;
        manta_status st = manta_arg_array(t, i, &a);
        if (st) return st;
        memcpy(&which, a.data, sizeof which);
        if (!is_filled(a.data, a.shape[0], which))
            return manta_fail(MANTA_ECORRUPT, "argument %d is torn", i);
        total += which;
    }
    return manta_return_i64(t, 0, total);
}
MANTA_REMOTE(sum)

/* Objects of its own, large and small, inside references; and its pid. */
static manta_status make_refs(manta_task *t)
{
    manta_ref r[2] = {put_filled(LARGE, 77), manta_put(manta_i64(78))};
    manta_status st = manta_return(t, 0, manta_refs(r, 2));

    if (!st) st = manta_return_i64(t, 1, getpid());
    manta_release_all(r, 2);
    return st;
}
MANTA_REMOTE(make_refs)

static manta_status keep(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(keep)

/* ---- scenarios; the store has 64 MiB ---- */

/* Three times what fits, of our own and of workers. */
static void spill(void)
{
    enum { N = 12 };
    manta_ref r[N], s[N];

    for (int i = 0; i < N; i++) {
        r[i] = put_filled(LARGE, i);
        OK(manta_get(r[i], 0));
        s[i] = manta_remote(make, manta_i64(1000 + i));
    }
    OK(manta_get_all(s, N, LONG));
    CHECK(info().store_used <= 64 * MB);
    CHECK(info().spill_used >= 2 * N * LARGE - 64 * MB);
    for (int i = 0; i < N; i++) {
        manta_ref x = manta_remote(sum, r[i], s[i], s[(i + 1) % N]);
        int64_t v;
        OK(manta_get_i64(x, &v, LONG));
        CHECK(v == i + 1000 + i + 1000 + (i + 1) % N);
        manta_release(x);
    }
    for (int i = 0; i < N; i++) {
        CHECK(reads_as(r[i], i) && reads_as(s[i], 1000 + i));
        manta_release(r[i]);
        manta_release(s[i]);
    }
    CHECK(info().store_used <= 64 * MB && info().spill_read > 0);
    until_empty();
}

/* What is pinned, or was read, stays where it is. */
static void pins(void)
{
    manta_ref r[3] = {put_filled(LARGE, 1), put_filled(LARGE, 2), manta_remote(make, manta_i64(3))}, more[20];
    manta_array a[3], b, copy;

    OK(manta_get(r[2], LONG));
    for (int i = 0; i < 3; i++) OK(manta_pin(r[i]));
    OK(manta_get_array(r[0], &a[0], 0));
    OK(manta_get_copy(r[1], &copy, 0));
    ((char *)copy.data)[0] = 99; /* is ours alone */
    free(copy.data);
    for (int i = 0; i < 20; i++) {
        more[i] = put_filled(LARGE, 100 + i);
        OK(manta_get(more[i], 0));
    }
    CHECK(info().spill_written > 0);
    uint64_t back = info().spill_read;
    for (int i = 0; i < 3; i++) {
        OK(manta_get_array(r[i], &b, 0));
        CHECK(i > 0 || b.data == a[0].data);
        CHECK(is_filled(b.data, LARGE, i + 1));
    }
    CHECK(info().spill_read == back); /* none of them had left */
    for (int i = 0; i < 3; i++) manta_unpin(r[i]);
    manta_unpin(r[0]); /* once more than pinned: harmless */
    for (int i = 0; i < 20; i++) {
        manta_array c;
        OK(manta_get_copy(more[i], &c, LONG)); /* does not stay in memory */
        CHECK(is_filled(c.data, LARGE, 100 + i));
        free(c.data);
    }
    manta_ref late = manta_remote(keep);
    CHECK(manta_get_copy(late, &b, LONG) == MANTA_EINVAL);
    manta_release(late);
    manta_release_all(more, 20);
    manta_release_all(r, 3);
    until_empty();
}

/* All in use: an error at once, with a sentence; after a release there is room. */
static void in_use(void)
{
    enum { N = 64 * MB / LARGE };
    manta_ref r[N], s;
    manta_array a;
    manta_failure f;

    for (int i = 0; i < N; i++) {
        r[i] = put_filled(LARGE, i);
        OK(manta_get_array(r[i], &a, 0));
    }
    s = put_filled(LARGE, 9);
    CHECK(manta_get(s, 0) == MANTA_ENOSPC && strstr(manta_error_text(), "the store is full"));
    manta_failure_get(s, &f);
    CHECK(f.kind == MANTA_FAILURE_FULL);
    manta_release(s);
    manta_release(r[3]);
    s = put_filled(LARGE, 9);
    CHECK(reads_as(s, 9));
    manta_release(s);
    for (int i = 0; i < N; i++) manta_unread(r[i]); /* and of what is not pinned nobody has a pointer */
    for (int i = 0; i < N; i++) {
        s = put_filled(LARGE, N + i);
        CHECK(reads_as(s, N + i));
        manta_release(s);
    }
    CHECK(reads_as(r[0], 0) && reads_as(r[N - 1], N - 1));
    manta_unread((manta_ref){0});
    for (int i = 0; i < N; i++) manta_release(r[i]);
}

/* References to what this process gives later: passed on before, small, large, failed, and never. */
static void promises(void)
{
    manta_ref p[4], sums[2], values[3] = {manta_put(manta_i64(5)), put_filled(LARGE, 7), {0}};
    bool ready[4];
    size_t n;
    int64_t five, seven;
    manta_failure f;

    for (int i = 0; i < 4; i++) p[i] = manta_promise();
    OK(manta_wait(p, 4, 1, 0, ready, &n));
    CHECK(n == 0);
    sums[0] = manta_remote(sum, manta_of_ref(p[1])); /* waits for its argument */
    CHECK(manta_promise_settle(p[0], p[3]) == MANTA_ETIMEDOUT);
    OK(manta_promise_settle(p[0], values[0]));
    OK(manta_get_i64(p[0], &five, 0));
    CHECK(five == 5 && manta_promise_settle(p[0], values[0]) == MANTA_EINVAL);
    OK(manta_promise_settle(p[1], values[1]));
    sums[1] = manta_remote(sum, manta_of_ref(values[1]));
    manta_release(values[1]); /* it is a copy */
    for (int i = 0; i < 2; i++) {
        OK(manta_get_i64(sums[i], &seven, LONG));
        CHECK(seven == 7);
    }
    CHECK(reads_as(p[1], 7));
    values[2] = manta_remote(make); /* which fails: it has no argument */
    manta_status st = manta_get(values[2], LONG);
    OK(manta_promise_settle(p[2], values[2]));
    CHECK(st && manta_get(p[2], LONG) == st);
    OK(manta_promise_break(p[3], MANTA_ENOENT, "there is no fourth"));
    CHECK(manta_get(p[3], 0) == MANTA_ENOENT && strstr(manta_error_text(), "no fourth"));
    manta_failure_get(p[3], &f);
    CHECK(f.kind == MANTA_FAILURE_TASK && manta_promise_break(p[3], MANTA_EIO, "") == MANTA_EINVAL);
    manta_release_all(p, 4);
    manta_release_all(sums, 2);
    manta_release(values[0]);
    manta_release(values[2]);
    until_empty();
}

/* A disk that takes 16 MiB, or a folder that cannot be: a full store says so. */
static void no_room(void)
{
    manta_ref r[12];
    int there = 0;

    for (int i = 0; i < 12; i++) {
        r[i] = put_filled(LARGE, i);
        manta_status st = manta_get(r[i], 0);
        CHECK(st == MANTA_OK || (st == MANTA_ENOSPC && strstr(manta_error_text(), "the store is full")));
        there += !st;
    }
    CHECK(there >= 6 && there < 12);
    CHECK(info().store_used <= 64 * MB);
    for (int i = 0; i < 12; i++) { /* what was taken is kept */
        manta_array a;
        if (manta_get(r[i], 0)) continue;
        /* With memory and disk full to the last byte nothing can change places. */
        manta_status st = manta_get_copy(r[i], &a, 0);
        CHECK(st == MANTA_OK || st == MANTA_ENOSPC);
        if (st) continue;
        CHECK(is_filled(a.data, LARGE, i));
        free(a.data);
        there--;
        manta_release(r[i]);
        r[i].id = 0;
    }
    for (int i = 0; i < 12; i++)
        if (r[i].id && !manta_get(r[i], 0)) CHECK(reads_as(r[i], i) && there-- > 0);
    CHECK(there == 0);
    manta_release_all(r, 12);
    manta_ref s = put_filled(LARGE, 5);
    CHECK(reads_as(s, 5));
    manta_release(s);
}

/* Objects live on when their maker is killed, in memory and on disk. */
static void survive(void)
{
    manta_ref r[2], more[12];
    const manta_ref *inner;
    size_t n;
    int64_t pid, v;

    manta_remote_n(2, r, NULL, make_refs);
    OK(manta_get_refs(r[0], &inner, &n, LONG));
    OK(manta_get_i64(r[1], &pid, LONG));
    kill((pid_t)pid, SIGKILL);
    for (double begin = now(); kill((pid_t)pid, 0) == 0;) CHECK(now() - begin < LONG / 1000);
    CHECK(n == 2 && reads_as(inner[0], 77));
    OK(manta_get_i64(inner[1], &v, LONG));
    CHECK(v == 78);
    manta_release(r[0]);
    manta_release(r[1]);
    manta_remote_n(2, r, NULL, make_refs);
    OK(manta_get_refs(r[0], &inner, &n, LONG));
    OK(manta_get_i64(r[1], &pid, LONG));
    kill((pid_t)pid, SIGKILL);
    for (int i = 0; i < 12; i++) {
        more[i] = put_filled(LARGE, i);
        OK(manta_get(more[i], 0));
    }
    CHECK(reads_as(inner[0], 77));
    manta_release_all(more, 12);
    manta_release_all(r, 2);
    until_empty();
}

/* ---- loss: files that were spilled to are damaged ---- */

/* Writes over all that the daemon has on disk. Returns how many files. */
static int damage(void)
{
    char path[64], file[320], to[512];
    int n = 0;

    snprintf(path, sizeof path, "/proc/%d/fd", info().daemon_pid);
    DIR *d = opendir(path);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        ssize_t len = readlink(file, to, sizeof to - 1);
        if (len <= 0 || strncmp(to, folder, strlen(folder)) != 0) continue;
        int fd = open(file, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0 && pwrite(fd, "damage", 6, 12345) == 6);
        close(fd);
        n++;
    }
    closedir(d);
    return n;
}

/* Puts until all that was there before is on disk, damages it, and lets go. */
static void lose_all(void)
{
    manta_ref more[10];

    for (int i = 0; i < 10; i++) {
        more[i] = put_filled(LARGE, 500 + i);
        OK(manta_get(more[i], 0));
    }
    CHECK(damage() > 0);
    manta_release_all(more, 10);
}

/* The sum of two arrays, element by element. */
static manta_status add(manta_task *t)
{
    manta_array a, b, c;
    int x, y;
    manta_status st;

    if ((st = manta_arg_array(t, 0, &a)) || (st = manta_arg_array(t, 1, &b)) ||
        (st = manta_return_create(t, 0, MANTA_DTYPE_U8, 1, a.shape, &c)))
        return st;
    memcpy(&x, a.data, sizeof x);
    memcpy(&y, b.data, sizeof y);
    fill(c.data, c.shape[0], x + y);
    return MANTA_OK;
}
MANTA_REMOTE(add)

static void lost(void)
{
    manta_failure f;
    int64_t v;
    manta_ref put = put_filled(LARGE, 1), a = manta_remote(make, manta_i64(2)),
              b = manta_remote(make, manta_i64(3));
    manta_ref c = manta_remote(add, a, b), d = manta_remote(add, c, a);

    OK(manta_get(d, LONG));
    manta_release(b); /* only its call is remembered now */
    lose_all();
    /* A result is made again, with what it was made from; a put is not. */
    CHECK(reads_as(d, 2 + 3 + 2));
    manta_array x;
    CHECK(manta_get_array(put, &x, LONG) == MANTA_EIO);
    CHECK(strstr(manta_error_text(), "is lost") && strstr(manta_error_text(), "checksum"));
    manta_failure_get(put, &f);
    CHECK(f.kind == MANTA_FAILURE_LOST && f.pid == getpid());
    manta_release(d);
    /* As arguments, which a worker finds out. */
    d = manta_remote(add, c, a);
    OK(manta_get(d, LONG));
    lose_all();
    manta_ref s = manta_remote(sum, a, c, d);
    OK(manta_get_i64(s, &v, LONG));
    CHECK(v == 2 + 5 + 7);
    manta_release(s);
    s = manta_remote(sum, a, put);
    CHECK(manta_get_i64(s, &v, LONG) == MANTA_EIO);
    manta_release(s);
    manta_release(put);
    manta_release(a);
    manta_release(c);
    manta_release(d);
    until_empty();
}

/* ---- packed values, whose blocks go to disk while what they refer to is held ---- */

/* A block of LARGE bytes filled with its argument, and a reference to the argument. */
static manta_status make_packed(manta_task *t)
{
    int64_t which;
    void *at;
    manta_status st = manta_arg_i64(t, 0, &which);

    if (st) return st;
    const manta_ref inner = manta_put(manta_i64(which));
    const manta_packed_block block = {NULL, LARGE};
    const manta_packed p = {.blocks = &block, .n_blocks = 1, .refs = &inner, .n_refs = 1};
    st = manta_return_packed(t, 0, &p, NULL, &at);
    if (!st) fill(at, LARGE, (int)which);
    manta_release(inner);
    return st;
}
MANTA_REMOTE(make_packed)

static manta_ref put_packed(int which)
{
    static char from[LARGE];
    const manta_ref inner = manta_put(manta_i64(which));
    const manta_packed_block block = {from, LARGE};
    const manta_packed p = {.blocks = &block, .n_blocks = 1, .refs = &inner, .n_refs = 1};

    fill(from, LARGE, which);
    const manta_ref r = manta_put(manta_pack(&p));
    manta_release(inner);
    return r;
}

static void check_packed(manta_ref r, int which)
{
    manta_packed p;
    int64_t inner;

    OK(manta_get_packed(r, &p, LONG));
    CHECK(p.n_blocks == 1 && is_filled(p.blocks[0].at, LARGE, which));
    CHECK(p.n_refs == 1);
    OK(manta_get_i64(p.refs[0], &inner, LONG));
    CHECK(inner == which);
    manta_release(r);
}

static void packed(void)
{
    enum { N = 8 };
    manta_ref r[N], s[N];

    for (int i = 0; i < N; i++) {
        r[i] = put_packed(i);
        OK(manta_get(r[i], 0));
        s[i] = manta_remote(make_packed, manta_i64(1000 + i));
    }
    OK(manta_get_all(s, N, LONG));
    CHECK(info().store_used <= 64 * MB && info().spill_used >= (2 * N - 8) * LARGE);
    for (int i = 0; i < N; i++) {
        check_packed(r[i], i);
        check_packed(s[i], 1000 + i);
    }
    until_empty();
}

/* A result that is made again refers to other objects than before. */
static void packed_lost(void)
{
    const manta_ref r = manta_remote(make_packed, manta_i64(70)),
                    s = manta_remote(make_packed, manta_i64(71));
    manta_packed p;
    manta_array a;

    OK(manta_get(r, LONG));
    OK(manta_get(s, LONG));
    OK(manta_pin(s)); /* its table was read, and it may go again */
    manta_unpin(s);
    lose_all();
    check_packed(r, 70);
    check_packed(s, 71);
    const manta_ref put = put_packed(72);
    OK(manta_get(put, 0));
    lose_all();
    CHECK(manta_get_packed(put, &p, LONG) == MANTA_EIO);
    CHECK(manta_get_array(put, &a, 0) == MANTA_EIO);
    manta_release(put);
    until_empty();
}

/* As often as it may, and not at all when it may not. */
static void lost_often(void)
{
    manta_array x;
    manta_task_options once = {.max_retries = 1}, never = {.max_retries = MANTA_NONE};
    manta_ref a = manta_remote_with(&once, make, manta_i64(4)),
              b = manta_remote_with(&never, make, manta_i64(5));

    OK(manta_get(a, LONG));
    OK(manta_get(b, LONG));
    lose_all();
    OK(manta_get_copy(a, &x, LONG));
    CHECK(is_filled(x.data, LARGE, 4));
    free(x.data);
    CHECK(manta_get_array(b, &x, LONG) == MANTA_EIO && strstr(manta_error_text(), "not remembered"));
    lose_all();
    CHECK(manta_get_array(a, &x, LONG) == MANTA_EIO && strstr(manta_error_text(), "as often as it may"));
    manta_release(a);
    manta_release(b);
    until_empty();
}

/* What another process put is lost for good, and says so; also when that
 * process is dead. */
static void lost_abroad(void)
{
    for (int killed = 0; killed < 2; killed++) {
        manta_ref r[2];
        const manta_ref *inner;
        manta_array x;
        size_t n;
        int64_t pid, v;
        manta_remote_n(2, r, NULL, make_refs);
        OK(manta_get_refs(r[0], &inner, &n, LONG));
        OK(manta_get_i64(r[1], &pid, LONG));
        if (killed) kill((pid_t)pid, SIGKILL);
        for (double begin = now(); killed && kill((pid_t)pid, 0) == 0;) CHECK(now() - begin < LONG / 1000);
        lose_all();
        CHECK(manta_get_array(inner[0], &x, LONG) == (killed ? MANTA_EDIED : MANTA_EIO));
        CHECK(strstr(manta_error_text(), killed ? "its owner" : "is lost"));
        OK(manta_get_i64(inner[1], &v, LONG)); /* small ones are the daemon's */
        CHECK(v == 78);
        manta_release_all(r, 2);
    }
    until_empty();
}

/* ---- never: no growth, no work without work ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 }; /* whose memory grows by itself */
#else
enum { IS_SANITIZED = 0 };
#endif

/* Memory of a process in KiB, of its heap, stacks and data: "Anonymous:", or with
 * "Pss_Anon:" its part of it, where it shares pages with those that it was forked
 * from. Not what is private by the count of who maps it: the last other program
 * that ends on the machine leaves us alone with pages of the C library. */
static long memory_kib(int pid, const char *which)
{
    char path[64], line[256];
    long kib = -1;
    size_t n = strlen(which);

    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "r");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (!strncmp(line, which, n)) kib = atol(line + n);
    if (f) fclose(f);
    CHECK(kib >= 0);
    return kib;
}

static manta_status one(manta_task *t)
{
    return manta_return_i64(t, 0, 1);
}
MANTA_REMOTE(one)

/* A hundred small objects and a large one that another process made. */
static manta_status hundred(manta_task *t)
{
    manta_ref r[101];

    for (int i = 0; i < 100; i++) r[i] = manta_put(manta_i64(i));
    r[100] = put_filled(20000, 1);
    manta_status st = manta_return(t, 0, manta_refs(r, 101));
    manta_release_all(r, 101);
    return st;
}
MANTA_REMOTE(hundred)

enum { ROUND = 1000 };

/* n tasks, n objects of our own, and n that pass through the daemon. Returns the
 * node when it holds none of them: only in that moment, as the daemon may hear of
 * an object from its maker after all that its reader says. */
static manta_node_info work(int n)
{
    static manta_ref r[ROUND];
    manta_node_info after;

    for (int done = 0; done < n; done += ROUND) {
        for (int i = 0; i < ROUND; i++) r[i] = manta_remote(one);
        OK(manta_get_all(r, ROUND, LONG));
        manta_release_all(r, ROUND);
        for (int i = 0; i < ROUND; i++) r[i] = manta_put(manta_i64(i));
        manta_release_all(r, ROUND);
        for (int i = 0; i < 10; i++) {
            const manta_ref *inner;
            size_t k;
            manta_ref x = manta_remote(hundred);
            OK(manta_get_refs(x, &inner, &k, LONG));
            CHECK(k == 101);
            manta_release(x);
        }
    }
    for (double begin = now(); (after = info()).objects > 0;) CHECK(now() - begin < LONG / 1000);
    return after;
}

/* After many tasks and objects the node is as large as after a few: a driver keeps
 * nothing of a call that has ended, so that its heap never needs more than one
 * round has under way, which is a call and an object each (112 and 200 bytes, and
 * what malloc adds). The daemon's never needs more than the objects of which its
 * connections can hold messages, in 208 KiB each. MANY=1000000 for the long run. */
static void many(void)
{
    const char *env = getenv("MANY");
    int n = env ? atoi(env) : IS_SANITIZED ? 3000 : 60000;
    const long round_kib = ROUND * 512 / 1024;
    manta_node_info a = work(3000);
    long daemon = memory_kib(a.daemon_pid, "Anonymous:"), driver = memory_kib(getpid(), "Anonymous:");
    manta_node_info b = work(n);
    long daemon_after = memory_kib(b.daemon_pid, "Anonymous:"), after = memory_kib(getpid(), "Anonymous:");

    printf("daemon %ld KiB after 3000 tasks and objects, %ld after %d more; driver %ld and %ld\n", daemon,
           daemon_after, n, driver, after);
    CHECK(b.daemon_pid == a.daemon_pid && b.objects == 0);
    CHECK(b.store_used <= a.store_used + 2 * MB);
    CHECK(IS_SANITIZED || daemon_after <= daemon + 1024);
    CHECK(IS_SANITIZED || after <= driver + round_kib);
    /* An idle worker is small, too. */
    for (int i = 0; i < b.n_worker_pids; i++)
        CHECK(IS_SANITIZED || memory_kib(b.worker_pids[i], "Pss_Anon:") < 4096);
}

/* Processor time of a process in ms. */
static long cpu_ms(int pid)
{
    char path[64], text[512];
    unsigned long user = 0, system = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (f && fgets(text, sizeof text, f) && strrchr(text, ')'))
        (void)sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                     &system);
    if (f) fclose(f);
    return (long)(user + system) * 1000 / sysconf(_SC_CLK_TCK);
}

static long node_cpu_ms(const manta_node_info *n)
{
    long ms = cpu_ms(n->daemon_pid) + cpu_ms(n->keeper_pid) + cpu_ms(n->zygote_pid) + cpu_ms(getpid());

    for (int i = 0; i < n->n_worker_pids; i++) ms += cpu_ms(n->worker_pids[i]);
    return ms;
}

/* Nobody works: less than a hundredth of a core. Processor time, not time, so
 * that what else the machine does is of no matter. What was under way may take its
 * time to come to rest; a node that works for nothing never does. */
static void idle(void)
{
    work(1000);
    manta_node_info n = info();
    double begin = now();
    long before, used;

    do {
        before = node_cpu_ms(&n);
        usleep(1000000);
        used = node_cpu_ms(&n) - before;
    } while (used > 20 && now() - begin < LONG / 1000);
    CHECK(used <= 20); /* two ticks of the clock that counts it */
}

#define SMALL .num_cpus = 2, .store_memory = 64 * MB
static const manta_node_options on_disk = {SMALL, .spill_folder = folder};
static const manta_node_options small_disk = {SMALL, .spill_folder = folder, .spill_limit = 2 * LARGE};
static const manta_node_options missing_disk = {SMALL, .spill_folder = "/nowhere/at/all"};
static const manta_node_options never_on_disk = {SMALL, .spill_folder = ""};

static const scenario scenarios[] = {{"spill", spill, &on_disk},
                                     {"pins", pins, &on_disk},
                                     {"in_use", in_use, &on_disk},
                                     {"promises", promises, &on_disk},
                                     {"disk_full", no_room, &small_disk},
                                     {"no_disk", no_room, &missing_disk},
                                     {"no_spilling", no_room, &never_on_disk},
                                     {"survive", survive, &on_disk},
                                     {"lost", lost, &on_disk},
                                     {"lost_often", lost_often, &on_disk},
                                     {"packed", packed, &on_disk},
                                     {"packed_lost", packed_lost, &on_disk},
                                     {"lost_abroad", lost_abroad, &on_disk},
                                     {"many", many, &on_disk},
                                     {"idle", idle, &on_disk}};

int main(int argc, char **argv)
{
    folder_make();
    int rc = scenario_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
    CHECK(rmdir(folder) == 0); /* nothing was ever left in it */
    return rc;
}
