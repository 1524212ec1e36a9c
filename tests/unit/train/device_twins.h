/* device_twins.h - two sessions that begin alike and compute on different devices. */
#ifndef TEST_DEVICE_TWINS_H
#define TEST_DEVICE_TWINS_H

#include "session_fixture.h"

#include "train/session/session.h"

/* The fake device, or the one that the environment names: the tests are for a GPU as well. */
static inline const char *twins_device(void)
{
    const char *told = getenv("MANTA_TEST_DEVICE");

    return told ? told : "fake";
}

/* The first `size` bytes of both states. */
static inline void assert_same_bytes(manta_session *a, manta_session *b, size_t size)
{
    const char *x = a->state, *y = b->state;

    assert_ok(session_pull(a));
    assert_ok(session_pull(b));
    assert_int_equal(a->l.state_size, b->l.state_size);
    for (size_t i = 0; i < size; i++) {
        if (x[i] != y[i]) fail_msg("byte %zu of %zu differs", i, a->l.state_size);
    }
}

static inline void assert_same_state(manta_session *a, manta_session *b)
{
    assert_same_bytes(a, b, a->l.state_size);
}

static inline void assert_same_metrics(const manta_session *a, const manta_session *b)
{
    manta_metrics x, y;

    manta_session_metrics(a, &x);
    manta_session_metrics(b, &y);
    assert_int_equal(x.n, y.n);
    for (int i = 0; i < x.n; i++) {
        assert_string_equal(x.name[i], y.name[i]);
        assert_memory_equal(&x.value[i], &y.value[i], sizeof x.value[i]);
    }
}

/* A session on the processor and one on the fake device that begin alike. */
typedef struct twins {
    manta_model *m;
    manta_session *cpu, *dev;
} twins;

static inline twins twins_of(manta_model *m, const manta_compile *c, manta_session_options o)
{
    twins t = {.m = m};

    o.seed = 42;
    assert_ok(manta_session_open(m, c, &o, &t.cpu));
    o.device = twins_device();
    o.precision = "exact";
    assert_ok(manta_session_open(m, c, &o, &t.dev));
    assert_non_null(strstr(manta_session_about(t.dev), ", exact"));
    return t;
}

static inline void twins_close(twins *t)
{
    manta_session_close(t->cpu);
    manta_session_close(t->dev);
    manta_model_free(t->m);
}

static inline void twins_step(twins *t, const manta_feed *f)
{
    assert_ok(manta_session_step(t->cpu, f));
    assert_ok(manta_session_step(t->dev, f));
}

static inline void twins_evaluate(twins *t, const manta_feed *f)
{
    assert_ok(manta_session_evaluate_step(t->cpu, f));
    assert_ok(manta_session_evaluate_step(t->dev, f));
    assert_same_metrics(t->cpu, t->dev);
}

static inline void twins_predict(twins *t, const manta_feed *f)
{
    manta_array a, b;

    assert_ok(manta_session_forward(t->cpu, f, false, 1, &a));
    assert_ok(manta_session_forward(t->dev, f, false, 1, &b));
    assert_int_equal(manta_array_bytes(&a), manta_array_bytes(&b));
    assert_memory_equal(a.data, b.data, manta_array_bytes(&a));
}

#endif
