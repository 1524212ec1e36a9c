/* loop_test.c - the loop calls who waits, and nobody after it was forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "net/loop.h"
#include "os/socket.h"

typedef struct seen {
    loop *l;
    int readable, writable, other;
} seen;

static void note(void *ctx, int fd, bool readable, bool writable)
{
    seen *s = ctx;
    char c;

    s->readable += readable;
    s->writable += writable;
    if (readable) (void)!read(fd, &c, 1);
}

/* Forgets the other descriptor, whose event is already on its way. */
static void forget_other(void *ctx, int fd, bool readable, bool writable)
{
    seen *s = ctx;
    (void)readable;
    (void)writable;

    s->readable++;
    loop_forget(s->l, s->other);
    loop_forget(s->l, fd);
}

static void readable_and_writable(void **state)
{
    seen s = {0};
    int p[2];
    (void)state;

    assert_int_equal(loop_new(&s.l), MANTA_OK);
    assert_int_equal(socket_pair(p), MANTA_OK);
    assert_int_equal(loop_watch(s.l, p[0], false, note, &s), MANTA_OK);
    assert_int_equal(loop_run(s.l, 0), MANTA_OK);
    assert_int_equal(s.readable, 0);
    assert_int_equal(write(p[1], "x", 1), 1);
    assert_int_equal(loop_run(s.l, 1000), MANTA_OK);
    assert_int_equal(s.readable, 1);
    assert_int_equal(s.writable, 0);
    assert_int_equal(loop_watch(s.l, p[0], true, note, &s), MANTA_OK);
    assert_int_equal(loop_run(s.l, 1000), MANTA_OK);
    assert_int_equal(s.writable, 1);
    close(p[1]); /* the end of the other side is readable */
    assert_int_equal(loop_run(s.l, 1000), MANTA_OK);
    assert_int_equal(s.readable, 2);
    loop_forget(s.l, p[0]);
    loop_forget(s.l, p[0]);
    close(p[0]);
    loop_free(s.l);
}

static void silence_after_forget(void **state)
{
    seen s = {0};
    int a[2], b[2];
    (void)state;

    assert_int_equal(loop_new(&s.l), MANTA_OK);
    assert_int_equal(socket_pair(a), MANTA_OK);
    assert_int_equal(socket_pair(b), MANTA_OK);
    /* Whichever is called first forgets both. */
    s.other = b[0];
    assert_int_equal(loop_watch(s.l, a[0], false, forget_other, &s), MANTA_OK);
    seen t = s;
    t.other = a[0];
    assert_int_equal(loop_watch(s.l, b[0], false, forget_other, &t), MANTA_OK);
    assert_int_equal(write(a[1], "x", 1), 1);
    assert_int_equal(write(b[1], "x", 1), 1);
    assert_int_equal(loop_run(s.l, 1000), MANTA_OK);
    assert_int_equal(s.readable + t.readable, 1);
    assert_int_equal(loop_run(s.l, 0), MANTA_OK);
    assert_int_equal(s.readable + t.readable, 1);
    socket_close_all((int[]){a[0], a[1], b[0], b[1]}, 4);
    loop_free(s.l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readable_and_writable),
        cmocka_unit_test(silence_after_forget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
