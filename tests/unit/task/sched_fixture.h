/* sched_fixture.h - shapes, and steps of a scheduler whose actions are kept in `out`. */
#ifndef TESTS_UNIT_TASK_SCHED_FIXTURE_H
#define TESTS_UNIT_TASK_SCHED_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/sched.h"

static sched_actions out;

static inline sched_shape cpus(double n)
{
    sched_shape s = {0};

    s.amount[0] = (int64_t)(n * SCHED_UNIT);
    return s;
}

static inline void step(sched *s, sched_event e)
{
    vec_clear(&out);
    sched_step(s, &e, &out);
}

static inline int count(sched_action_kind kind)
{
    int n = 0;

    for (size_t i = 0; i < out.n; i++) n += out.at[i].kind == kind;
    return n;
}

static inline const sched_action *first(sched_action_kind kind)
{
    for (size_t i = 0; i < out.n; i++)
        if (out.at[i].kind == kind) return &out.at[i];
    fail_msg("no action %d", (int)kind);
    return NULL;
}

static inline int clear(void **state)
{
    (void)state;
    vec_release(&out);
    return 0;
}

static inline sched_shape in_group(double n, uint64_t group, int64_t bundle)
{
    sched_shape s = cpus(n);

    s.group = group;
    s.bundle = bundle;
    return s;
}

#endif
