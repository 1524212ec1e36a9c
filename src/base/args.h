/* base/args.h - what a public function refuses before it does anything.
 *
 * The checks stand first in the function, before its declarations, and name the
 * function and the argument as the header does: "manta_fit: s is NULL". A check that
 * returns a value records the sentence too, where manta_error_text() finds it. */
#ifndef BASE_ARGS_H
#define BASE_ARGS_H

#include <manta/array.h>

#include "base/status.h"

/* Records that an argument is NULL, or a count negative; MANTA_EINVAL. */
manta_status args_fail_null(const char *function, const char *argument) MANTA_MUST_USE;
manta_status args_fail_negative(const char *function, const char *argument, long long value) MANTA_MUST_USE;

/* Refuses a view that cannot be: no dtype, a number of dimensions or a size out of range, more elements than
 * can be addressed, no memory where there are elements. */
manta_status args_check_array(const char *function, const char *argument,
                              const manta_array *a) MANTA_MUST_USE;
#define REFUSE_BAD_ARRAY(a) TRY(args_check_array(__func__, #a, (a)))

/* For a function that returns a status, one that returns `value` in its place, and one that returns nothing. */
#define REFUSE_NULL(p)                                                                                       \
    do {                                                                                                     \
        if (!(p)) return args_fail_null(__func__, #p);                                                       \
    } while (0)
#define REFUSE_NULL_OR(p, value)                                                                             \
    do {                                                                                                     \
        if (!(p)) {                                                                                          \
            (void)!args_fail_null(__func__, #p); /* said by the value */                                     \
            return value;                                                                                    \
        }                                                                                                    \
    } while (0)
#define REFUSE_NULL_AND_RETURN(p)                                                                            \
    do {                                                                                                     \
        if (!(p)) {                                                                                          \
            (void)!args_fail_null(__func__, #p); /* there is nobody to tell */                               \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)

/* An array of n elements: n is not negative, and with elements there is an array. */
#define REFUSE_ARRAY(n, p)                                                                                   \
    do {                                                                                                     \
        REFUSE_NEGATIVE(n);                                                                                  \
        if ((n) > 0) REFUSE_NULL(p);                                                                         \
    } while (0)
#define REFUSE_NEGATIVE(n)                                                                                   \
    do {                                                                                                     \
        if ((long long)(n) < 0) return args_fail_negative(__func__, #n, (long long)(n));                     \
    } while (0)
#define REFUSE_NEGATIVE_AND_RETURN(n)                                                                        \
    do {                                                                                                     \
        if ((long long)(n) < 0) {                                                                            \
            (void)!args_fail_negative(__func__, #n, (long long)(n)); /* there is nobody to tell */           \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)
#define REFUSE_NEGATIVE_OR(n, value)                                                                         \
    do {                                                                                                     \
        if ((long long)(n) < 0) {                                                                            \
            (void)!args_fail_negative(__func__, #n, (long long)(n)); /* said by the value */                 \
            return value;                                                                                    \
        }                                                                                                    \
    } while (0)

#endif
