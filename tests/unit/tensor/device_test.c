/* device_test.c - the fake device: memory that the host cannot touch, copies, programs; and bodies of kernels
 * against the processor's own kernels. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ok.h"
#include "os/pool.h"
#include "tensor/device.h"
#include "tensor/kernel.h"

static device *fake(size_t memory)
{
    device *d = NULL;

    assert_ok(device_fake_open(memory, &d));
    return d;
}

/* How a child ends that touches an address as if it were a pointer: 0 means that it could. */
static int touch(dev_addr at, bool write)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        volatile char *p = (volatile char *)(uintptr_t)at;
        signal(SIGSEGV, SIG_DFL); /* cmocka or a sanitizer would take it */
        if (write) *p = 1;
        _exit(*p & 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void the_host_cannot_touch_device_memory(void **state)
{
    device *d = fake(1 << 20);
    dev_addr at;
    char back = 0;

    (void)state;
    assert_ok(device_alloc(d, 1000, "a test", &at));
    assert_int_equal(at % DEVICE_ALIGN, 0);
    assert_ok(device_put(d, at, "x", 1));
    assert_int_not_equal(touch(at, false), 0);
    assert_int_not_equal(touch(at, true), 0);
    assert_int_not_equal(touch(at + 999, false), 0);
    assert_ok(device_get(d, &back, at, 1));
    assert_int_equal(back, 'x');
    device_release(d, at, 1000);
    device_close(d);
}

static void memory_is_zeroed_counted_and_ends(void **state)
{
    device *d = fake(1 << 20), *second;
    dev_addr a, b, c;
    char zeros[512] = {0}, got[512];

    (void)state;
    assert_fails_with(device_fake_open(4096, &second), MANTA_EINVAL, "already");
    assert_ok(device_alloc(d, sizeof got, "a test", &a));
    memset(got, 1, sizeof got);
    assert_ok(device_put(d, a, got, sizeof got));
    assert_ok(device_alloc(d, 100000, "a test", &b));
    assert_int_equal(d->used, 512 + 100096);
    device_release(d, a, sizeof got);
    assert_ok(device_alloc(d, sizeof got, "a test", &c));
    assert_int_equal(c, a); /* what was given back is used again, */
    assert_ok(device_get(d, got, c, sizeof got));
    assert_memory_equal(got, zeros, sizeof got); /* and is zeros again */
    assert_fails_with(device_alloc(d, 1 << 20, "the moon", &a), MANTA_ENOMEM, "1 MB for the moon");
    assert_ok(device_copy(d, b, c, sizeof got));
    device_release(d, b, 100000);
    device_release(d, c, sizeof got);
    assert_int_equal(d->used, 0);
    device_close(d);
}

static void a_program_is_played_in_order_and_again(void **state)
{
    enum { N = 1000 };
    device *d = fake(1 << 20);
    dev_program *p = program_new(d);
    float x[N], y[N];
    dev_addr a, b;

    (void)state;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    assert_ok(device_alloc(d, sizeof x, "a test", &a));
    assert_ok(device_alloc(d, sizeof x, "a test", &b));
    assert_ok(device_put(d, a, x, sizeof x));
    axpby_args first = {.alpha = 2, .beta = 0, .a = a, .out = b},
               second = {.alpha = 1, .beta = 1, .a = b, .out = a};
    program_add(p, DEV_axpby, N, &first, sizeof first);
    program_add(p, DEV_axpby, N, &second, sizeof second);
    program_add(p, DEV_axpby, 0, &second, sizeof second); /* nothing */
    assert_int_equal(p->n, 2);
    assert_ok(program_play(p));
    assert_ok(program_play(p));
    assert_ok(device_wait(d));
    assert_ok(device_get(d, y, a, sizeof y));
    for (int i = 0; i < N; i++) assert_true(y[i] == 9 * x[i]); /* a += 2a, twice */
    program_free(p);
    device_release(d, a, sizeof x);
    device_release(d, b, sizeof x);
    device_close(d);
}

/* ---- bodies against kernels ---- */

static void fill(float *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((uint32_t)(i + 1) * 2654435761u * seed % 2001) / 1000.0f - 1.0f;
}

static dev_addr put(device *d, const float *x, int64_t n)
{
    dev_addr at;

    assert_ok(device_alloc(d, (size_t)n * sizeof *x, "a test", &at));
    assert_ok(device_put(d, at, x, (size_t)n * sizeof *x));
    return at;
}

static void play(device *d, int kernel, int64_t items, const void *args, size_t size)
{
    dev_program *p = program_new(d);

    program_add(p, kernel, items, args, size);
    assert_ok(program_play(p));
    program_free(p);
}

static void activations_are_those_of_the_kernels(void **state)
{
    enum { N = 3001 };
    const kernels *k = kernels_of(KERN_REFERENCE);
    device *d = fake(1 << 20);
    float x[N], y[N], got[N];
    dev_addr a, b;
    pool *p;

    (void)state;
    assert_ok(pool_new(1, KERN_SCRATCH, &p));
    fill(x, N, 5);
    x[7] = -0.0f;
    x[8] = 0.0f / (x[7] * 0); /* NaN */
    x[9] = 1e30f;
    x[10] = -1e-40f;
    a = put(d, x, N);
    b = put(d, x, N);
    for (int act = 0; act < KERN_ACTS; act++) {
        act_forward_args f = {.act = (kern_act)act, .alpha = 0.3f, .x = a, .y = b};
        k->act_forward(p, (kern_act)act, 0.3f, N, x, y);
        play(d, DEV_act_forward, N, &f, sizeof f);
        assert_ok(device_get(d, got, b, sizeof got));
        for (int i = 0; i < N; i++)
            assert_true(!memcmp(&y[i], &got[i], sizeof *y) || (y[i] != y[i] && got[i] != got[i]));
    }
    device_release(d, a, sizeof x);
    device_release(d, b, sizeof x);
    device_close(d);
    pool_free(p);
}

static void products_are_those_of_the_kernels(void **state)
{
    enum { M = 13, N_ = 17, K = 300 };
    device *d = fake(1 << 22);
    float a[M * K], b[K * N_], c[M * N_], bias[N_], got[M * N_];
    pool *p;

    (void)state;
    assert_ok(pool_new(1, KERN_SCRATCH, &p));
    fill(a, M * K, 3);
    fill(b, K * N_, 7);
    fill(bias, N_, 11);
    for (int form = 0; form < 4; form++) {
        bool ta = form & 1, tb = form & 2;
        gemm_call g = {.m = M,
                       .n = N_,
                       .k = K,
                       .ta = ta,
                       .tb = tb,
                       .a = a,
                       .lda = ta ? M : K,
                       .b = b,
                       .ldb = tb ? K : N_,
                       .c = c,
                       .ldc = N_,
                       .bias = bias,
                       .relu = true};
        fill(c, M * N_, 13);
        dev_addr da = put(d, a, M * K), db = put(d, b, K * N_), dc = put(d, c, M * N_),
                 dbias = put(d, bias, N_);
        gemm_args t = {.m = M,
                       .n = N_,
                       .k = K,
                       .ta = ta,
                       .tb = tb,
                       .a = da,
                       .lda = g.lda,
                       .b = db,
                       .ldb = g.ldb,
                       .c = dc,
                       .ldc = N_,
                       .bias = dbias,
                       .relu = true,
                       .accumulate = ta};
        g.accumulate = ta;
        kernels_of(KERN_REFERENCE)->gemm(p, &g);
        play(d, DEV_gemm, M * N_, &t, sizeof t);
        assert_ok(device_get(d, got, dc, sizeof got));
        assert_memory_equal(c, got, sizeof got);
        device_release(d, da, sizeof a);
        device_release(d, db, sizeof b);
        device_release(d, dc, sizeof c);
        device_release(d, dbias, sizeof bias);
    }
    device_close(d);
    pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_host_cannot_touch_device_memory),
                                       cmocka_unit_test(memory_is_zeroed_counted_and_ends),
                                       cmocka_unit_test(a_program_is_played_in_order_and_again),
                                       cmocka_unit_test(activations_are_those_of_the_kernels),
                                       cmocka_unit_test(products_are_those_of_the_kernels)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
