/* rendezvous_test.c - nodes that meet on loopback, each in a thread of its own, in every
 * order and beside those who should not be there; and the decisions, as tables. Nothing
 * waits for a time to pass: a node is started when the one before it says that it waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/rendezvous.h"
#include "ok.h"
#include "os/thread.h"

enum { NODES = 3, PATIENCE_MS = 120000, KIND = FRAME_USER };

static const cluster_key common_key = {.bytes = "0123456789abcdef0123456789abcde"};
static const char *const names[NODES] = {"worker/0", "worker/1", "worker/2"};

/* ---- a node ---- */

typedef struct actor {
    int self, n; /* of n */
    const char *word; /* NULL: none, and none is asked for */
    const char *expects; /* of others; NULL: as `word` */
    cluster_key key;
    bool once, patient, backwards, greets, named_late;
    int64_t timeout_ms;
    const char *until; /* gives up when this is said of those who are missing */
    int door[NODES]; /* bound by the test; listening or not */
    char address[NODES][32];
    sem_t *waits; /* posted once, when it begins to wait */
    sem_t *sees; /* posted once, when `marks` is said of those who are missing */
    const char *marks;
    /* after: */
    rendezvous *r;
    chan *c[NODES]; /* taken; by node */
    manta_status st;
    manta_error error;
    bool said_waits, said_sees;
    char heard[NODES][32];
    thread_id thread;
} actor;

static manta_status compare_words(void *ctx, int i, const hello *theirs)
{
    const actor *a = ctx;
    const char *want = a->expects ? a->expects : a->word;

    (void)i;
    if (theirs->n_word == strlen(want) && !memcmp(theirs->word, want, theirs->n_word)) return MANTA_OK;
    return manta_fail(MANTA_EPERM, "its word is %.*s, expected %s", (int)theirs->n_word,
                      (const char *)theirs->word, want);
}

static manta_status make_node(actor *a)
{
    rendezvous_node nodes[NODES];
    rendezvous_options o = {.what = "test", .key = &a->key, .nodes = nodes, .n = a->n, .once = a->once};

    for (int i = 0; i < a->n; i++) {
        bool calls = a->backwards ? rendezvous_calls(i, a->self) : rendezvous_calls(a->self, i);
        nodes[i] = (rendezvous_node){
            .name = names[i], .address = a->named_late ? NULL : a->address[i], .called = calls};
    }
    o.chan = (chan_options){.node = names[a->self], .job = "test", .handshake_ms = PATIENCE_MS};
    if (a->word) o.check = compare_words;
    o.ctx = a;
    TRY(rendezvous_new(&o, &a->r));
    if (a->word) rendezvous_say(a->r, 1, a->word, strlen(a->word));
    if (a->door[a->self] >= 0) {
        if (listen(a->door[a->self], 64)) return manta_fail(MANTA_EIO, "listen: %s", strerror(errno));
        rendezvous_listen_with(a->r, a->door[a->self]);
    }
    return MANTA_OK;
}

static manta_status watch_missing(void *ctx, const char *missing, int i, double ms)
{
    actor *a = ctx;

    (void)i;
    (void)ms;
    if (a->waits && !a->said_waits) sem_post(a->waits);
    a->said_waits = true;
    if (a->named_late) rendezvous_set_address(a->r, 0, a->address[0]);
    if (a->marks && !a->said_sees && strstr(missing, a->marks)) {
        a->said_sees = true;
        sem_post(a->sees);
    }
    if (a->until && strstr(missing, a->until)) return manta_fail(MANTA_ECANCELLED, "%s", missing);
    return MANTA_OK;
}

/* Each says its name, and is done when it has the other's. */
static manta_status greet_by_name(void *ctx, int i, chan *c, bool first, bool *done)
{
    actor *a = ctx;
    chan_part part = {names[a->self], 8};
    size_t got;
    frame f;
    manta_status st;

    if (first) TRY(chan_post(c, &(frame){.kind = KIND}, &part, 1, false));
    st = chan_peek(c, &f);
    if (st == MANTA_EBUSY) return MANTA_OK;
    TRY(st);
    TRY(chan_take(c, a->heard[i], 8, &got)); /* so little comes at once */
    *done = got == 8;
    return MANTA_OK;
}

static void meet_others(void *arg)
{
    actor *a = arg;
    rendezvous_meeting m = {.timeout_ms = a->timeout_ms,
                            .patient = a->patient,
                            .greet = a->greets ? greet_by_name : NULL,
                            .watch = watch_missing,
                            .ctx = a};

    a->st = a->r ? MANTA_OK : make_node(a);
    if (!a->st) a->st = rendezvous_meet(a->r, 0, a->n, &m);
    if (a->st) manta_error_get(&a->error);
    for (int i = 0; i < a->n && !a->st; i++) {
        if (!a->c[i]) a->c[i] = rendezvous_take(a->r, i);
    }
    if (a->waits && !a->said_waits) sem_post(a->waits); /* it did not have to */
}

static void start_actor(actor *a)
{
    assert_ok(thread_start(&a->thread, names[a->self], meet_others, a));
}

static void join_actor(actor *a, manta_status expected, const char *says)
{
    thread_join(&a->thread);
    if (a->st != expected)
        fail_msg("%s: %s: %s", names[a->self], manta_status_name(a->st), a->st ? a->error.text : "");
    if (says && !strstr(a->error.text, says)) fail_msg("\"%s\" does not say \"%s\"", a->error.text, says);
}

static void end_actor(actor *a)
{
    for (int i = 0; i < NODES; i++) {
        chan_close(a->c[i]);
        a->c[i] = NULL;
    }
    rendezvous_free(a->r);
    a->r = NULL;
}

/* ---- a stage ---- */

typedef struct stage {
    int n;
    actor a[NODES];
    sem_t waits[NODES];
} stage;

/* Ports that are ours and where nobody listens yet. */
static void set_stage(stage *s, int n)
{
    memset(s, 0, sizeof *s);
    s->n = n;
    for (int i = 0; i < n; i++) {
        s->a[i] = (actor){.self = i, .n = n, .key = common_key, .timeout_ms = PATIENCE_MS};
        assert_int_equal(sem_init(&s->waits[i], 0, 0), 0);
        s->a[i].waits = &s->waits[i];
    }
    for (int i = 0; i < n; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof at;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
        for (int k = 0; k < n; k++) {
            s->a[k].door[i] = fd;
            snprintf(s->a[k].address[i], sizeof s->a[k].address[i], "127.0.0.1:%d", ntohs(at.sin_port));
        }
    }
}

static void clear_stage(stage *s)
{
    for (int i = 0; i < s->n; i++) {
        end_actor(&s->a[i]);
        close(s->a[0].door[i]);
        sem_destroy(&s->waits[i]);
    }
    assert_int_equal(mem_live(), 0);
}

static int connect_stranger(const stage *s, int i)
{
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(getsockname(s->a[0].door[i], (struct sockaddr *)&at, &size), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, size), 0);
    return fd;
}

/* For a node that nobody meets with: its listener and lobby, a little at a time. */
static void attend(rendezvous *r)
{
    manta_status st = rendezvous_wait(r, NULL, 0, NULL, 0, clock_deadline(20));

    assert_true(!st || st == MANTA_ETIMEDOUT);
}

static void await(sem_t *s)
{
    while (sem_wait(s)) assert_int_equal(errno, EINTR);
}

/* Each pair's two channels are of one connection. */
static void assert_connected(stage *s)
{
    for (int i = 0; i < s->n; i++) {
        for (int k = 0; k < s->n; k++) {
            chan *a = i == k ? NULL : s->a[i].c[k];
            chan *b = i == k ? NULL : s->a[k].c[i];
            char got[8];
            frame f;
            if (i == k) continue;
            assert_non_null(a);
            assert_string_equal(chan_peer(a)->node, names[k]);
            assert_ok(chan_send(a, &(frame){.kind = KIND}, names[i], 8, clock_deadline(PATIENCE_MS)));
            assert_ok(chan_recv(b, &f, got, sizeof got, clock_deadline(PATIENCE_MS)));
            assert_memory_equal(got, names[i], 8);
        }
    }
}

/* ---- decisions ---- */

static void decisions(void **state)
{
    static const manta_status codes[] = {MANTA_OK,       MANTA_EINVAL,   MANTA_ENOENT, MANTA_EPERM,
                                         MANTA_ECORRUPT, MANTA_EDIED,    MANTA_EIO,    MANTA_ETIMEDOUT,
                                         MANTA_ENOMEM,   MANTA_EINTERNAL};

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_false(rendezvous_calls(i, i));
        for (int k = 0; k < 5; k++) assert_int_equal(rendezvous_calls(i, k), i > k); /* one of the two */
    }
    assert_int_equal(rendezvous_pause_ms(0), 20);
    assert_int_equal(rendezvous_pause_ms(1), 40);
    assert_int_equal(rendezvous_pause_ms(5), 640);
    for (int i = 6; i < 100; i++) assert_int_equal(rendezvous_pause_ms(i), 1000);
    assert_int_equal(rendezvous_pause_ms(INT32_MAX), 1000);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        bool refused = codes[i] == MANTA_EPERM || codes[i] == MANTA_EINVAL;
        assert_int_equal(rendezvous_is_final(codes[i], true), refused);
        assert_false(rendezvous_is_final(codes[i], false));
    }
    for (int bits = 0; bits < 32; bits++) {
        rendezvous_claim c = {.known = bits & 1,
                              .called = bits >> 1 & 1,
                              .came = bits >> 2 & 1,
                              .there = bits >> 3 & 1,
                              .once = bits >> 4 & 1};
        rendezvous_verdict want = !c.known             ? RENDEZVOUS_UNKNOWN
                                  : c.called && c.came ? RENDEZVOUS_BACKWARDS
                                  : !c.there           ? RENDEZVOUS_ADMIT
                                  : c.once             ? RENDEZVOUS_TAKEN
                                                       : RENDEZVOUS_REPLACE;
        assert_int_equal(rendezvous_judge(c), want);
    }
}

/* ---- meeting ---- */

static void every_order(void **state)
{
    static const int order[6][NODES] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    (void)state;
    for (int k = 0; k < 12; k++) { /* who has not come may listen already, or not */
        stage s;
        set_stage(&s, NODES);
        for (int i = 0; i < NODES; i++) {
            s.a[i].word = "the same";
            s.a[i].greets = k % 2;
            if (k >= 6) assert_int_equal(listen(s.a[i].door[i], 64), 0);
        }
        for (int i = 0; i < NODES; i++) {
            actor *a = &s.a[order[k % 6][i]];
            start_actor(a);
            await(a->waits);
        }
        for (int i = 0; i < NODES; i++) join_actor(&s.a[i], MANTA_OK, NULL);
        for (int i = 0; i < NODES && k % 2; i++) {
            for (int j = 0; j < NODES; j++) assert_string_equal(s.a[i].heard[j], i == j ? "" : names[j]);
        }
        assert_connected(&s);
        clear_stage(&s);
    }
}

/* An address that becomes known while all meet. */
static void an_address_that_comes_later(void **state)
{
    stage s;

    (void)state;
    set_stage(&s, 2);
    s.a[1].named_late = true;
    for (int i = 0; i < 2; i++) start_actor(&s.a[i]);
    for (int i = 0; i < 2; i++) join_actor(&s.a[i], MANTA_OK, NULL);
    assert_connected(&s);
    clear_stage(&s);
}

/* One that is silent, one that talks nonsense, one that goes. */
static void strangers(void **state)
{
    static const char nonsense[] = "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n";
    int fd[3];
    stage s;

    (void)state;
    set_stage(&s, NODES);
    assert_int_equal(listen(s.a[0].door[0], 64), 0);
    for (int i = 0; i < 3; i++) fd[i] = connect_stranger(&s, 0);
    assert_int_equal(write(fd[1], nonsense, sizeof nonsense), sizeof nonsense);
    close(fd[2]);
    for (int i = 0; i < NODES; i++) start_actor(&s.a[i]);
    for (int i = 0; i < NODES; i++) join_actor(&s.a[i], MANTA_OK, NULL);
    assert_connected(&s);
    for (int i = 0; i < 2; i++) close(fd[i]);
    clear_stage(&s);
}

/* The longest waiting goes, and who has the key comes in all the same. */
static void a_full_lobby(void **state)
{
    enum { ROOM = RENDEZVOUS_LOBBY + 1, MORE = 3 };
    int fd[ROOM + MORE];
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    char byte;
    stage s;

    (void)state;
    set_stage(&s, 2);
    assert_int_equal(listen(s.a[0].door[0], 128), 0);
    for (int i = 0; i < ROOM + MORE; i++) fd[i] = connect_stranger(&s, 0);
    for (int i = 0; i < 2; i++) start_actor(&s.a[i]);
    for (int i = 0; i < 2; i++) join_actor(&s.a[i], MANTA_OK, NULL);
    assert_connected(&s);
    for (int i = 0; i <= MORE; i++) { /* node 1 came too, and took a place for a while */
        assert_int_equal(setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
        assert_int_equal(recv(fd[i], &byte, 1, 0), 0);
    }
    for (int i = MORE + 1; i < ROOM + MORE; i++) {
        assert_int_equal(recv(fd[i], &byte, 1, MSG_DONTWAIT), -1);
        assert_int_equal(errno, EAGAIN);
    }
    for (int i = 0; i < ROOM + MORE; i++) close(fd[i]);
    clear_stage(&s);
}

/* ---- who comes again ---- */

/* The same node as a new process: it is here, and what was taken stays as it was. */
static void a_newcomer_takes_the_place(void **state)
{
    actor again;
    chan *before;
    stage s;

    (void)state;
    set_stage(&s, 2);
    again = s.a[1];
    again.waits = NULL;
    for (int i = 0; i < 2; i++) start_actor(&s.a[i]);
    for (int i = 0; i < 2; i++) join_actor(&s.a[i], MANTA_OK, NULL);
    assert_false(rendezvous_is_here(s.a[0].r, 1));
    assert_null(rendezvous_take(s.a[0].r, 1));
    start_actor(&again);
    while (!rendezvous_is_here(s.a[0].r, 1)) attend(s.a[0].r);
    join_actor(&again, MANTA_OK, NULL);
    assert_connected(&s); /* the former connection still works */
    before = s.a[0].c[1];
    s.a[0].c[1] = rendezvous_take(s.a[0].r, 1);
    assert_non_null(s.a[0].c[1]);
    chan_close(before);
    end_actor(&s.a[1]);
    s.a[1].r = again.r;
    s.a[1].c[0] = again.c[0];
    assert_connected(&s);
    clear_stage(&s);
}

/* Two that come before anybody is taken: the last one stays. */
static void the_last_that_came_wins(void **state)
{
    actor again, first;
    stage s;

    (void)state;
    set_stage(&s, 2);
    first = again = s.a[1];
    first.waits = again.waits = NULL;
    assert_ok(make_node(&s.a[0]));
    start_actor(&first);
    while (!rendezvous_is_here(s.a[0].r, 1)) attend(s.a[0].r);
    join_actor(&first, MANTA_OK, NULL);
    start_actor(&again);
    while (!chan_look(first.c[0])) /* its end is the sign that the other has come */
        attend(s.a[0].r);
    join_actor(&again, MANTA_OK, NULL);
    s.a[0].c[1] = rendezvous_take(s.a[0].r, 1);
    s.a[1].r = again.r;
    s.a[1].c[0] = again.c[0];
    assert_connected(&s);
    end_actor(&first);
    clear_stage(&s);
}

static void nobody_comes_twice(void **state)
{
    actor again;
    stage s;

    (void)state;
    set_stage(&s, NODES);
    for (int i = 0; i < NODES; i++) s.a[i].once = true;
    s.a[0].n = s.a[1].n = NODES;
    again = s.a[1];
    again.waits = NULL;
    again.door[1] = -1; /* that is the first one's */
    again.until = NULL;
    s.a[0].marks = "here are worker/1";
    s.a[0].sees = &s.waits[2];
    start_actor(&s.a[0]);
    start_actor(&s.a[1]);
    await(&s.waits[2]);
    start_actor(&again);
    join_actor(&again, MANTA_EPERM, "worker/1 of this test is here already");
    s.a[2].waits = NULL;
    start_actor(&s.a[2]);
    for (int i = 0; i < NODES; i++) join_actor(&s.a[i], MANTA_OK, NULL);
    assert_connected(&s);
    end_actor(&again);
    clear_stage(&s);
}

/* It was here and goes before all are: it is missed, and its successor takes part. */
static void a_death_while_all_meet(void **state)
{
    (void)state;
    for (int once = 0; once < 2; once++) {
        sem_t gone;
        actor dies;
        stage s;
        set_stage(&s, NODES);
        assert_int_equal(sem_init(&gone, 0, 0), 0);
        for (int i = 0; i < NODES; i++) s.a[i].once = once;
        dies = s.a[1];
        dies.waits = NULL;
        dies.until = "here are worker/0"; /* and then it leaves */
        s.a[0].marks = "the connection was closed";
        s.a[0].sees = &gone;
        start_actor(&s.a[0]);
        start_actor(&dies);
        join_actor(&dies, MANTA_ECANCELLED, "waiting for worker/2");
        end_actor(&dies);
        await(&gone);
        for (int i = 1; i < NODES; i++) start_actor(&s.a[i]);
        for (int i = 0; i < NODES; i++) join_actor(&s.a[i], MANTA_OK, NULL);
        assert_connected(&s);
        sem_destroy(&gone);
        clear_stage(&s);
    }
}

/* Whoever lost its connection meets again. */
static void meeting_again(void **state)
{
    stage s;

    (void)state;
    set_stage(&s, NODES);
    for (int generation = 0; generation < 5; generation++) {
        for (int i = 0; i < NODES; i++) start_actor(&s.a[i]);
        for (int i = 0; i < NODES; i++) join_actor(&s.a[i], MANTA_OK, NULL);
        assert_connected(&s);
        for (int i = 0; i < NODES; i++) {
            for (int k = 0; k < NODES; k++) {
                chan_close(s.a[i].c[k]);
                s.a[i].c[k] = NULL;
                rendezvous_miss(s.a[i].r, k);
            }
        }
    }
    clear_stage(&s);
}

/* ---- who is refused ---- */

static void another_key(void **state)
{
    stage s;

    (void)state;
    set_stage(&s, 2);
    s.a[1].key.bytes[3] ^= 1;
    s.a[1].until = "it has another cluster key";
    s.a[0].until = "never said";
    start_actor(&s.a[0]);
    start_actor(&s.a[1]);
    join_actor(&s.a[1], MANTA_ECANCELLED, "waiting for worker/0 (127.0.0.1:");
    end_actor(&s.a[1]);
    s.a[1] = (actor){.self = 1, .n = 2, .key = common_key, .timeout_ms = PATIENCE_MS};
    memcpy(s.a[1].address, s.a[0].address, sizeof s.a[1].address);
    memcpy(s.a[1].door, s.a[0].door, sizeof s.a[1].door);
    start_actor(&s.a[1]); /* with the right one it is let in */
    for (int i = 0; i < 2; i++) join_actor(&s.a[i], MANTA_OK, NULL);
    assert_connected(&s);
    clear_stage(&s);
}

/* Refused by the one that calls, by the one that is called, by a one-sided check; the
 * other goes on waiting, and who comes with the right word is let in. */
static void another_word(void **state)
{
    static const struct {
        const char *word, *expects, *says;
    } cases[] = {{"blue", NULL, "worker/0 (127.0.0.1:"}, /* both refuse: it reads the other's word first */
                 {"blue", "red", "refused us: its word is blue, expected red"}, /* it would have taken us */
                 {"red", "blue", "its word is red, expected blue"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        actor wrong;
        stage s;
        set_stage(&s, 2);
        s.a[0].word = s.a[1].word = "red";
        s.a[0].greets = s.a[1].greets = true; /* who calls has to hear from who is called */
        wrong = s.a[1];
        wrong.waits = NULL;
        wrong.word = cases[i].word;
        wrong.expects = cases[i].expects;
        start_actor(&s.a[0]);
        start_actor(&wrong);
        join_actor(&wrong, MANTA_EPERM, cases[i].says);
        end_actor(&wrong);
        start_actor(&s.a[1]);
        for (int k = 0; k < 2; k++) join_actor(&s.a[k], MANTA_OK, NULL);
        assert_connected(&s);
        clear_stage(&s);
    }
}

/* Who is patient calls again after a refusal, and finds one that fits. */
static void a_refusal_with_patience(void **state)
{
    actor wrong;
    sem_t seen;
    stage s;

    (void)state;
    set_stage(&s, 2);
    assert_int_equal(sem_init(&seen, 0, 0), 0);
    s.a[0].word = s.a[1].word = "red";
    s.a[1].patient = true;
    s.a[1].marks = "its word is blue, expected red";
    s.a[1].sees = &seen;
    wrong = s.a[0];
    wrong.word = "blue";
    wrong.waits = NULL;
    wrong.timeout_ms = PATIENCE_MS;
    wrong.until = "never said";
    assert_ok(make_node(&wrong));
    start_actor(&s.a[1]);
    while (sem_trywait(&seen)) attend(wrong.r); /* until it has been refused */
    end_actor(&wrong);
    start_actor(&s.a[0]);
    for (int k = 0; k < 2; k++) join_actor(&s.a[k], MANTA_OK, NULL);
    assert_connected(&s);
    sem_destroy(&seen);
    clear_stage(&s);
}

/* It has the key and the word, and is not one of us; or calls where it is called. */
static void who_does_not_belong(void **state)
{
    actor third;
    stage s;

    (void)state;
    set_stage(&s, NODES);
    third = s.a[2];
    third.waits = NULL;
    for (int i = 0; i < 2; i++) s.a[i].n = 2;
    start_actor(&s.a[0]);
    start_actor(&third);
    join_actor(&third, MANTA_EPERM, "refused us: this test has no worker/2");
    end_actor(&third);
    s.n = 2;
    start_actor(&s.a[1]);
    for (int k = 0; k < 2; k++) join_actor(&s.a[k], MANTA_OK, NULL);
    close(s.a[0].door[2]);
    sem_destroy(&s.waits[2]);
    clear_stage(&s);

    set_stage(&s, 2); /* node 0 calls node 1, which calls it */
    assert_int_equal(listen(s.a[0].door[0], 64), 0);
    s.a[0].backwards = true;
    s.a[0].until = "here are"; /* never: both turn the other away */
    s.a[1].marks = "the connection was closed";
    s.a[1].until = "the connection was closed";
    s.a[1].sees = &s.waits[0];
    s.a[0].waits = NULL;
    assert_ok(make_node(&s.a[0]));
    s.a[1].greets = true; /* so that it does not count as here before it has said something */
    start_actor(&s.a[1]);
    while (sem_trywait(&s.waits[0])) {
        attend(s.a[0].r);
        assert_false(rendezvous_is_here(s.a[0].r, 1));
    }
    join_actor(&s.a[1], MANTA_ECANCELLED, NULL);
    clear_stage(&s);
}

/* ---- the end of waiting ---- */

static void a_deadline(void **state)
{
    stage s;

    (void)state;
    set_stage(&s, NODES);
    s.a[2].timeout_ms = 0;
    start_actor(&s.a[2]); /* nobody listens where it calls */
    join_actor(&s.a[2], MANTA_ETIMEDOUT,
               "not all of this test have come in 0 s: waiting for worker/0 (127.0.0.1:");
    end_actor(&s.a[2]);
    s.a[2].timeout_ms = PATIENCE_MS;
    s.a[2].until = "Connection refused), worker/1";
    start_actor(&s.a[2]);
    join_actor(&s.a[2], MANTA_ECANCELLED, s.a[2].address[1]);
    s.a[1].timeout_ms = 50; /* it has called in vain, and nobody called it */
    start_actor(&s.a[1]);
    join_actor(&s.a[1], MANTA_ETIMEDOUT, "worker/2 (127.0.0.1:");
    clear_stage(&s);
}

static void an_address_that_is_none(void **state)
{
    stage s;

    (void)state;
    set_stage(&s, 2);
    snprintf(s.a[1].address[0], sizeof s.a[1].address[0], "localhost");
    start_actor(&s.a[1]);
    join_actor(&s.a[1], MANTA_EINVAL, "expected host:port");
    clear_stage(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions),
        cmocka_unit_test(every_order),
        cmocka_unit_test(an_address_that_comes_later),
        cmocka_unit_test(strangers),
        cmocka_unit_test(a_full_lobby),
        cmocka_unit_test(a_newcomer_takes_the_place),
        cmocka_unit_test(the_last_that_came_wins),
        cmocka_unit_test(nobody_comes_twice),
        cmocka_unit_test(a_death_while_all_meet),
        cmocka_unit_test(meeting_again),
        cmocka_unit_test(another_key),
        cmocka_unit_test(another_word),
        cmocka_unit_test(a_refusal_with_patience),
        cmocka_unit_test(who_does_not_belong),
        cmocka_unit_test(a_deadline),
        cmocka_unit_test(an_address_that_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
