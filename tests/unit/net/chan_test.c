/* chan_test.c - channels: opening, sending, refusing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/chan_inner.h"
#include "net/pair.h"
#include "ok.h"

enum { KIND = FRAME_USER };

static unsigned char *pattern(size_t n, unsigned seed)
{
    unsigned char *p = malloc(n ? n : 1);

    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        p[i] = (unsigned char)(seed >> 24);
    }
    return p;
}

/* Sends n bytes each way at the same time and compares. */
static void both_ways(pair *p, size_t n, bool bulk)
{
    unsigned char *x = pattern(n, 1), *y = pattern(n, 2), *gx = malloc(n + 1), *gy = malloc(n + 1);
    chan_part px = {x, n}, py = {y, n};
    size_t nx = 0, ny = 0;
    bool bx = false, by = false;
    frame f;

    assert_int_equal(chan_post(p->a, &(frame){.kind = KIND, .step = 7, .item = 3}, &px, 1, bulk), MANTA_OK);
    assert_int_equal(chan_post(p->b, &(frame){.kind = KIND, .step = 8, .item = 4}, &py, 1, bulk), MANTA_OK);
    while (!bx || !by || nx < n || ny < n || chan_unsent(p->a) || chan_unsent(p->b)) {
        chan_item items[2] = {{.c = p->a, .read = true}, {.c = p->b, .read = true}};
        size_t got = 0;
        assert_int_equal(chan_wait(items, 2, NULL, 0, clock_deadline(60000)), MANTA_OK);
        if (!bx && !chan_peek(p->b, &f)) {
            assert_int_equal(f.length, n);
            assert_int_equal(f.step, 7);
            assert_int_equal(f.item, 3);
            bx = true;
        }
        if (!by && !chan_peek(p->a, &f)) {
            assert_int_equal(f.step, 8);
            by = true;
        }
        if (bx && (nx < n || !n)) {
            if (n) assert_int_equal(chan_take(p->b, gx + nx, n - nx, &got), MANTA_OK);
            nx += got;
        }
        if (by && ny < n) {
            assert_int_equal(chan_take(p->a, gy + ny, n - ny, &got), MANTA_OK);
            ny += got;
        }
    }
    if (!n) {
        size_t got;
        assert_int_equal(chan_take(p->b, gx, 0, &got), MANTA_OK);
        assert_int_equal(chan_take(p->a, gy, 0, &got), MANTA_OK);
    }
    assert_memory_equal(gx, x, n);
    assert_memory_equal(gy, y, n);
    free(x);
    free(y);
    free(gx);
    free(gy);
}

static void any_size(void **state)
{
    static const size_t sizes[] = {0, 1, 39, 40, 41, 16343, 16344, 16345, 16384, 100000, 3000001};
    (void)state;

    for (int plain = 0; plain < 2; plain++) {
        pair p;
        pair_plain(&p, plain);
        assert_string_equal(chan_peer(p.a)->node, "worker/1");
        assert_string_equal(chan_peer(p.b)->node, "worker/0");
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) both_ways(&p, sizes[i], plain);
        both_ways(&p, 1000, false);
        pair_close(&p);
    }
    assert_int_equal(mem_live(), 0);
}

/* Who waits says that it is there, and for what; nobody has to take it. */
static void signs_of_life(void **state)
{
    pair p;
    char out[8];
    frame f;

    (void)state;
    pair_plain(&p, false);
    chan_set_note(p.a, 7);
    while (chan_note(p.b) != 7) {
        chan_item items[2] = {{.c = p.a, .read = true}, {.c = p.b, .read = true}};
        assert_int_not_equal(chan_wait(items, 2, NULL, 0, clock_deadline(60000)), MANTA_ETIMEDOUT);
        assert_int_equal(chan_peek(p.a, &f), MANTA_EBUSY);
        assert_int_equal(chan_peek(p.b, &f), MANTA_EBUSY);
    }
    assert_int_equal(chan_note(p.a), 0);
    assert_int_equal(chan_send(p.a, &(frame){.kind = KIND, .item = 1}, "abc", 3, clock_deadline(60000)),
                     MANTA_OK);
    assert_int_equal(chan_recv(p.b, &f, out, sizeof out, clock_deadline(60000)), MANTA_OK);
    assert_memory_equal(out, "abc", 3);
    pair_close(&p);
    assert_int_equal(mem_live(), 0);
}

/* Several parts, several frames in the queue, sent in order. */
static void parts_and_queue(void **state)
{
    pair p;
    char out[64];
    frame f;

    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        pair_plain(&p, plain);
        for (unsigned i = 0; i < 20; i++) {
            chan_part parts[3] = {{"abc", 3}, {NULL, 0}, {"defgh", i % 6}};
            assert_int_equal(chan_post(p.a, &(frame){.kind = KIND, .item = i}, parts, 3, i % 2), MANTA_OK);
        }
        for (unsigned i = 0; i < 20; i++) {
            assert_int_equal(chan_work(p.a), MANTA_OK);
            assert_int_equal(chan_recv(p.b, &f, out, sizeof out, clock_deadline(60000)), MANTA_OK);
            assert_int_equal(f.item, i);
            assert_int_equal(f.length, 3 + i % 6);
            assert_memory_equal(out, "abcdefgh", f.length);
        }
        assert_int_equal(chan_unsent(p.a), 0);
        pair_close(&p);
    }
}

static void queue_is_bounded(void **state)
{
    pair p;
    (void)state;

    pair_plain(&p, false);
    for (int i = 0; i < CHAN_QUEUE; i++)
        assert_int_equal(chan_post(p.a, &(frame){.kind = KIND}, NULL, 0, false), MANTA_OK);
    assert_int_equal(chan_post(p.a, &(frame){.kind = KIND}, NULL, 0, false), MANTA_EBUSY);
    pair_close(&p);
}

/* Over real TCP, on a port of the system's choice. */
static void over_tcp(void **state)
{
    chan_options oa = pair_options("worker/0"), ob = pair_options("worker/1");
    char text[64];
    tcp_place place;
    pair p = {0};
    int listener, port;

    (void)state;
    assert_int_equal(chan_end_new(&oa, &pair_key, &p.ea), MANTA_OK);
    assert_int_equal(chan_end_new(&ob, &pair_key, &p.eb), MANTA_OK);
    assert_int_equal(tcp_resolve("127.0.0.1:0", &place), MANTA_OK);
    assert_int_equal(chan_listen(p.eb, &place, &listener), MANTA_OK);
    assert_int_equal(tcp_port(listener, &port), MANTA_OK);
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    assert_int_equal(tcp_resolve(text, &place), MANTA_OK);
    assert_int_equal(chan_accept(p.eb, listener, &p.b), MANTA_EBUSY);
    assert_int_equal(chan_connect(p.ea, &place, "worker/1", &p.a), MANTA_OK);
    while (!p.b) {
        chan_item it = {.c = p.a};
        struct pollfd fd = {.fd = listener, .events = POLLIN};
        assert_int_equal(chan_wait(&it, 1, &fd, 1, clock_deadline(60000)), MANTA_OK);
        if (fd.revents) assert_int_equal(chan_accept(p.eb, listener, &p.b), MANTA_OK);
    }
    assert_int_equal(pair_open(&p), MANTA_OK);
    both_ways(&p, 2000000, false);
    close(listener);
    pair_close(&p);
    assert_int_equal(mem_live(), 0);
}

static void needs_a_given_key(void **state)
{
    chan_options o = pair_options("worker/0");
    tcp_place place;
    chan_end *e;
    int fd;

    (void)state;
    assert_int_equal(chan_end_new(&o, &pair_key, &e), MANTA_OK);
    assert_int_equal(tcp_resolve("0.0.0.0:0", &place), MANTA_OK);
    assert_int_equal(chan_listen(e, &place, &fd), MANTA_EPERM);
    assert_error_says("--cluster-key");
    chan_end_free(e);
}

/* Two ends that do not fit: what each says. */
static void expect_refusal(const chan_options *oa, const cluster_key *ka, const chan_options *ob,
                           const cluster_key *kb, const char *b_says)
{
    int64_t deadline = clock_deadline(60000);
    manta_status sa = MANTA_OK, sb = MANTA_OK;
    char text[512] = "";
    pair p;

    pair_make(&p, oa, ka, ob, kb);
    while (!sa || !sb) {
        chan_item items[2] = {{.c = sa ? NULL : p.a, .read = true}, {.c = sb ? NULL : p.b, .read = true}};
        frame f;
        if (!sb && ((sb = chan_work(p.b)) || ((sb = chan_peek(p.b, &f)) && sb != MANTA_EBUSY)))
            snprintf(text, sizeof text, "%s", manta_error_text());
        if (sb == MANTA_EBUSY) sb = MANTA_OK;
        if (!sa && !(sa = chan_work(p.a))) sa = chan_peek(p.a, &f);
        if (sa == MANTA_EBUSY) sa = MANTA_OK;
        if (sa && sb) break;
        assert_int_equal(chan_wait(items, 2, NULL, 0, deadline), MANTA_OK);
    }
    if (!strstr(text, b_says)) fail_msg("'%s' does not say '%s'", text, b_says);
    pair_close(&p);
}

static manta_status not_him(void *ctx, const hello *theirs)
{
    (void)ctx;
    return manta_fail(MANTA_EPERM, "nobody called %s is expected", theirs->node);
}

static void refusals(void **state)
{
    chan_options a = pair_options("worker/0"), b = pair_options("worker/1"), x;
    cluster_key other = pair_key;

    (void)state;
    other.bytes[5] ^= 1;
    expect_refusal(&a, &other, &b, &pair_key, "another cluster key");
    x = a;
    x.job = "production";
    expect_refusal(&x, &pair_key, &b, &pair_key, "it belongs to job production, this is job test");
    x = a;
    x.profile = "avx2";
    expect_refusal(&x, &pair_key, &b, &pair_key, "profile avx2");
    x = a;
    x.plain = true;
    expect_refusal(&x, &pair_key, &b, &pair_key, "--insecure-bulk is given there and not here");
    x = b;
    x.check = not_him;
    expect_refusal(&a, &pair_key, &x, &pair_key, "nobody called worker/0");
    assert_int_equal(mem_live(), 0);
}

/* Neither side goes on with another version, and both say which is which. */
static void another_version(void **state)
{
    chan_options oa = pair_options("worker/0"), ob = pair_options("worker/1");
    char ours[FRAME_NAME], text[512] = "";
    manta_status sa = MANTA_OK, sb = MANTA_OK;
    pair p;

    (void)state;
    pair_make(&p, &oa, &pair_key, &ob, &pair_key);
    memcpy(ours, p.eb->say.version, sizeof ours);
    p.ea->say.protocol = FRAME_PROTOCOL + 1;
    snprintf(p.ea->say.version, sizeof p.ea->say.version, "9.9.9");
    while (!sa || !sb) {
        chan_item items[2] = {{.c = sa ? NULL : p.a, .read = true}, {.c = sb ? NULL : p.b, .read = true}};
        if (!sb && (sb = chan_work(p.b))) snprintf(text, sizeof text, "%s", manta_error_text());
        if (!sa && (sa = chan_work(p.a))) assert_error_says("this is Manta 9.9.9 with protocol");
        if (!sa || !sb) assert_int_equal(chan_wait(items, 2, NULL, 0, clock_deadline(60000)), MANTA_OK);
    }
    assert_int_equal(sa, MANTA_EPERM);
    assert_int_equal(sb, MANTA_EPERM);
    if (!strstr(text, "it is Manta 9.9.9 with protocol") || !strstr(text, ours)) fail_msg("%s", text);
    pair_close(&p);
    assert_int_equal(mem_live(), 0);
}

/* A node that is called by somebody who claims to be it, or who means another. */
static void reflections(void **state)
{
    chan_options a = pair_options("worker/0"), b = pair_options("worker/1");
    int fds[2];
    pair p = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        manta_status st = MANTA_OK;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        assert_int_equal(chan_end_new(i ? &b : &a, &pair_key, &p.ea), MANTA_OK);
        assert_int_equal(chan_end_new(&b, &pair_key, &p.eb), MANTA_OK);
        if (i) assert_int_equal(chan_adopt(p.ea, dup(fds[0]), "worker/1", &p.a), MANTA_EINVAL);
        assert_int_equal(chan_adopt(p.ea, fds[0], "worker/2", &p.a), MANTA_OK);
        assert_int_equal(chan_adopt(p.eb, fds[1], NULL, &p.b), MANTA_OK);
        while (!st) {
            (void)chan_work(p.a);
            st = chan_work(p.b);
        }
        assert_int_equal(st, MANTA_EPERM);
        assert_error_says("means another node");
        pair_close(&p);
    }
}

/* What a socket gives back to bytes that prove nothing: nothing. */
static void strangers_get_nothing(void **state)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const unsigned char tls12[] = {22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3, 1, 2,  3, 4,  5, 6,
                                          7,  8, 9, 1, 2,  3, 4, 5, 6,  7, 8, 9, 1,  2, 3,  4, 5,
                                          6,  7, 8, 9, 1,  2, 3, 4, 0,  0, 4, 0, 47, 0, 53, 1, 0};
    struct {
        const void *data;
        size_t n;
    } cases[] = {{http, sizeof http - 1}, {tls12, sizeof tls12}, {"\x16\x03\x01", 3}, {"", 0}};
    chan_options o = pair_options("worker/1");

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manta_status st = MANTA_OK;
        chan_end *e;
        chan *c;
        char got[64];
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        assert_int_equal(chan_end_new(&o, &pair_key, &e), MANTA_OK);
        assert_int_equal(chan_adopt(e, fds[1], NULL, &c), MANTA_OK);
        if (cases[i].n) assert_int_equal(write(fds[0], cases[i].data, cases[i].n), cases[i].n);
        assert_int_equal(shutdown(fds[0], SHUT_WR), 0);
        while (!st) st = chan_work(c);
        assert_true(st == MANTA_EPERM || st == MANTA_EDIED);
        assert_int_equal(read(fds[0], got, sizeof got), 0); /* the end, and nothing before it */
        close(fds[0]);
        chan_close(c);
        chan_end_free(e);
    }
}

/* Somebody of another key gets nothing back either, not even an alert. */
static void wrong_key_gets_nothing(void **state)
{
    chan_options a = pair_options("worker/0"), b = pair_options("worker/1");
    cluster_key other = pair_key;
    int wire[2], inner[2];
    manta_status st = MANTA_OK;
    chan_end *ea, *eb;
    chan *ca, *cb;
    char bytes[8192];
    ssize_t n;

    (void)state;
    other.bytes[0] ^= 1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, wire), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, inner), 0);
    assert_int_equal(chan_end_new(&a, &other, &ea), MANTA_OK);
    assert_int_equal(chan_end_new(&b, &pair_key, &eb), MANTA_OK);
    assert_int_equal(chan_adopt(ea, inner[0], "worker/1", &ca), MANTA_OK);
    assert_int_equal(chan_adopt(eb, wire[1], NULL, &cb), MANTA_OK);
    assert_int_equal(chan_work(ca), MANTA_OK); /* its first message */
    n = read(inner[1], bytes, sizeof bytes);
    assert_true(n > 100);
    assert_int_equal(write(wire[0], bytes, (size_t)n), n);
    while (!st) st = chan_work(cb);
    assert_int_equal(st, MANTA_EPERM);
    assert_int_equal(read(wire[0], bytes, sizeof bytes), 0);
    close(wire[0]);
    close(inner[1]);
    chan_close(ca);
    chan_close(cb);
    chan_end_free(ea);
    chan_end_free(eb);
}

/* Bytes of an earlier connection, sent again, do not open another. */
static void a_recording_is_of_no_use(void **state)
{
    chan_options a = pair_options("worker/0"), b = pair_options("worker/1");
    int inner[2], wire[2], again[2];
    chan_end *ea, *eb;
    chan *ca, *cb, *cc;
    static char recorded[1 << 16], answer[1 << 16];
    size_t total = 0;
    ssize_t n;
    int64_t deadline = clock_deadline(60000);

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, inner), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, wire), 0);
    assert_int_equal(chan_end_new(&a, &pair_key, &ea), MANTA_OK);
    assert_int_equal(chan_end_new(&b, &pair_key, &eb), MANTA_OK);
    assert_int_equal(chan_adopt(ea, inner[0], "worker/1", &ca), MANTA_OK);
    assert_int_equal(chan_adopt(eb, wire[1], NULL, &cb), MANTA_OK);
    while ((!chan_is_open(ca) || !chan_is_open(cb)) && clock_now_ns() < deadline) {
        assert_int_equal(chan_work(ca), MANTA_OK);
        if ((n = recv(inner[1], recorded + total, sizeof recorded - total, MSG_DONTWAIT)) > 0) {
            assert_int_equal(write(wire[0], recorded + total, (size_t)n), n);
            total += (size_t)n;
        }
        assert_int_equal(chan_work(cb), MANTA_OK);
        if ((n = recv(wire[0], answer, sizeof answer, MSG_DONTWAIT)) > 0)
            assert_int_equal(write(inner[1], answer, (size_t)n), n);
    }
    assert_true(chan_is_open(cb));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, again), 0);
    assert_int_equal(chan_adopt(eb, again[1], NULL, &cc), MANTA_OK);
    assert_int_equal(write(again[0], recorded, total), total);
    manta_status st = MANTA_OK;
    while (!st && clock_now_ns() < deadline) st = chan_work(cc);
    assert_int_not_equal(st, MANTA_OK);
    assert_false(chan_is_open(cc));
    close(inner[1]);
    close(wire[0]);
    close(again[0]);
    chan_close(ca);
    chan_close(cb);
    chan_close(cc);
    chan_end_free(ea);
    chan_end_free(eb);
}

static void other_generations(void **state)
{
    pair p;
    frame f;
    char out[8];

    (void)state;
    pair_plain(&p, false);
    chan_set_generation(p.a, 4);
    chan_set_generation(p.b, 5);
    assert_int_equal(chan_send(p.a, &(frame){.kind = KIND}, "x", 1, clock_deadline(60000)), MANTA_OK);
    assert_int_equal(chan_recv(p.b, &f, out, sizeof out, clock_deadline(60000)), MANTA_ECORRUPT);
    assert_non_null(
        strstr(manta_error_text(),
               "worker/0 (a connection): a message of generation 4 has come: expected one of generation 5"));
    assert_int_equal(chan_work(p.b), MANTA_ECORRUPT); /* it stays so */
    pair_close(&p);
}

static void too_long(void **state)
{
    pair p;
    frame f;
    char out[8];

    (void)state;
    pair_plain(&p, false);
    assert_int_equal(chan_send(p.a, &(frame){.kind = KIND}, "123456789", 9, clock_deadline(60000)), MANTA_OK);
    assert_int_equal(chan_recv(p.b, &f, out, sizeof out, clock_deadline(60000)), MANTA_ECORRUPT);
    pair_close(&p);
}

static void ends(void **state)
{
    pair p;
    frame f;
    char out[8];

    (void)state;
    pair_plain(&p, false);
    assert_int_equal(chan_recv(p.b, &f, out, sizeof out, clock_deadline(10)), MANTA_ETIMEDOUT);
    assert_error_says("worker/0");
    chan_close(p.a);
    p.a = NULL;
    assert_int_equal(chan_recv(p.b, &f, out, sizeof out, clock_deadline(60000)), MANTA_EDIED);
    pair_close(&p);
}

/* A stranger who connects and says nothing is given up. */
static void silence(void **state)
{
    chan_options o = pair_options("worker/1");
    chan_end *e;
    chan *c;
    int fds[2];

    (void)state;
    o.handshake_ms = 20;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(chan_end_new(&o, &pair_key, &e), MANTA_OK);
    assert_int_equal(chan_adopt(e, fds[1], NULL, &c), MANTA_OK);
    assert_int_equal(chan_await_open(c, clock_deadline(60000)), MANTA_ETIMEDOUT);
    assert_error_says("does not prove the key");
    close(fds[0]);
    chan_close(c);
    chan_end_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signs_of_life),
        cmocka_unit_test(any_size),
        cmocka_unit_test(parts_and_queue),
        cmocka_unit_test(queue_is_bounded),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(needs_a_given_key),
        cmocka_unit_test(refusals),
        cmocka_unit_test(another_version),
        cmocka_unit_test(reflections),
        cmocka_unit_test(strangers_get_nothing),
        cmocka_unit_test(wrong_key_gets_nothing),
        cmocka_unit_test(a_recording_is_of_no_use),
        cmocka_unit_test(other_generations),
        cmocka_unit_test(too_long),
        cmocka_unit_test(ends),
        cmocka_unit_test(silence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
