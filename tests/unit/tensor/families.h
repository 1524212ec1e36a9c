/* families.h - one case on every kernel family and on one and two threads.
 *
 * A case is a function that fills its own inputs from case_fill(), runs one
 * kernel of the table it is given and hands every output to case_out(). The
 * outputs of the reference family on one thread are kept; those of every other
 * family and thread count must equal them byte for byte (all NaNs being one). */
#ifndef TESTS_TENSOR_FAMILIES_H
#define TESTS_TENSOR_FAMILIES_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/kernel.h"
#include "tensor/update.h"

typedef struct run {
    const kernels *k;
    pool *p;
    bool first; /* the reference on one thread: outputs are kept instead of compared */
    float *kept;
    int64_t n, size;
    uint64_t random;
    const char *what;
} run;

/* A float array of the run, freed by the caller with free(). At least one element is allocated, so
 * that empty cases have an address; one more is there as a canary. */
static inline float *case_new(int64_t n)
{
    float *p = malloc((size_t)(n + 1) * sizeof *p);

    assert_non_null(p);
    for (int64_t i = 0; i <= n; i++) p[i] = 12345.0f;
    return p;
}

/* n zeroed doubles, for sums that check the kernels'. */
static inline double *case_sums(int64_t n)
{
    double *p = malloc((size_t)(n < 0 ? 0 : n + 1) * sizeof *p);

    assert_non_null(p);
    for (int64_t i = 0; i <= n; i++) p[i] = 0;
    return p;
}

static inline float case_number(run *r)
{
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(r->random >> 33) - (1 << 30)) * 0x1p-30f;
}

/* Numbers in [-scale, scale) + offset, the same for every family. */
static inline float *case_fill(run *r, int64_t n, float scale, float offset)
{
    float *p = case_new(n);

    for (int64_t i = 0; i < n; i++) p[i] = case_number(r) * scale + offset;
    return p;
}

static inline void case_out(run *r, int64_t n, const float *v)
{
    assert_true(v[n] == 12345.0f); /* nobody wrote behind the end */
    if (r->first) {
        if (r->n + n >= r->size) {
            r->size = 2 * (r->n + n) + 1;
            r->kept = realloc(r->kept, (size_t)r->size * sizeof *r->kept);
            assert_non_null(r->kept);
        }
        memcpy(r->kept + r->n, v, (size_t)n * sizeof *v);
    } else {
        for (int64_t i = 0; i < n; i++) {
            const float *want = r->kept + r->n + i;
            if (memcmp(want, &v[i], sizeof *v) != 0 && !(isnan(*want) && isnan(v[i])))
                fail_msg("%s, %s, %d threads: element %lld is %a, the reference's %a", r->what, r->k->name,
                         pool_threads(r->p), (long long)i, v[i], *want);
        }
    }
    r->n += n;
}

/* Runs `fn` on every family that this machine has, on one and on two threads. */
static inline void case_everywhere(const char *what, void (*fn)(run *r, const void *arg), const void *arg)
{
    run r = {.what = what};

    for (int f = 0; f < KERN_ONEDNN; f++)
        for (int threads = 1; threads <= 2; threads++) {
            r.k = kernels_of((kern_family)f);
            if (!r.k) continue;
            assert_int_equal(pool_new(threads, KERN_SCRATCH, &r.p), MANTA_OK);
            r.first = f == KERN_REFERENCE && threads == 1;
            r.n = 0;
            r.random = 42;
            fn(&r, arg);
            pool_free(r.p);
        }
    free(r.kept);
}

/* |got - want| <= rel * (|want| + floor), with both named on failure. */
static inline void case_near(const run *r, const char *name, int64_t i, float got, double want, double rel,
                             double floor)
{
    if (!(fabs((double)got - want) <= rel * (fabs(want) + floor)))
        fail_msg("%s, %s: %s[%lld] is %.9g, should be %.9g", r->what, r->k->name, name, (long long)i,
                 (double)got, want);
}

#endif
